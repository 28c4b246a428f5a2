#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The turns of the loop that follows do not depend on each other. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* where it cannot use the hint all is well */
#define EDGEFOLD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define EDGEFOLD_INDEPENDENT _Pragma("GCC ivdep")
#else
#define EDGEFOLD_INDEPENDENT
#endif

/* Numbers below the smallest normal one are taken as 0 while a graph runs: a processor may need a
   hundred times as long for them, and they come when old points are far away. */
#if defined(__SSE2__)
#include <xmmintrin.h>
typedef unsigned int edgefold_mode;
static inline edgefold_mode edgefold_flush_tiny(void)
{
    const edgefold_mode mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040u); /* results, and what is read */
    return mode;
}
static inline void edgefold_restore(edgefold_mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__) && defined(__GNUC__)
typedef uint64_t edgefold_mode;
static inline void edgefold_restore(edgefold_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
static inline edgefold_mode edgefold_flush_tiny(void)
{
    edgefold_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    edgefold_restore(mode | (uint64_t)1 << 24);
    return mode;
}
#else
typedef int edgefold_mode;
static inline edgefold_mode edgefold_flush_tiny(void) { return 0; }
static inline void edgefold_restore(edgefold_mode mode) { (void)mode; }
#endif
