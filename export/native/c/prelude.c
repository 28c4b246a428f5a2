#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* EDGEFOLD_SAME_BITS: every processor gets the same bits, as sums have one order, no product and sum
   are joined, and no small number is taken as 0. It takes longer where there are vectors. */
#if defined(EDGEFOLD_SAME_BITS)
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#endif

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
#if defined(__SSE2__) && !defined(EDGEFOLD_SAME_BITS)
#include <xmmintrin.h>
typedef unsigned int edgefold_mode;
static inline edgefold_mode edgefold_flush_tiny(void)
{
    const edgefold_mode mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040u); /* results, and what is read */
    return mode;
}
static inline void edgefold_restore(edgefold_mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(EDGEFOLD_SAME_BITS)
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
