/* Vectors: neighbouring numbers, as many as fill a register of the processor. */

#if defined(__clang__)
#define EDGEFOLD_UNROLLED _Pragma("clang loop unroll(full)")
#define EDGEFOLD_INLINE static inline __attribute__((always_inline))
#elif defined(__GNUC__)
#define EDGEFOLD_UNROLLED _Pragma("GCC unroll 16")
#define EDGEFOLD_INLINE static inline __attribute__((always_inline))
#else
#define EDGEFOLD_UNROLLED
#define EDGEFOLD_INLINE static inline
#endif

#if defined(__GNUC__)
#define EDGEFOLD_PREFETCH(address) __builtin_prefetch((const void *)(address))
#else
#define EDGEFOLD_PREFETCH(address) (void)(address)
#endif

#if defined(EDGEFOLD_SAME_BITS)
#define EDGEFOLD_LANES 1
#elif defined(__AVX512F__) && defined(__GNUC__)
#include <immintrin.h>
#define EDGEFOLD_LANES 16
#elif defined(__AVX__) && defined(__GNUC__)
#define EDGEFOLD_LANES 8
#elif (defined(__SSE2__) || defined(__ARM_NEON)) && defined(__GNUC__)
#define EDGEFOLD_LANES 4
#else
#define EDGEFOLD_LANES 1 /* no vectors: every panel goes by four columns */
#endif

#if EDGEFOLD_LANES > 1
typedef float edgefold_vector
    __attribute__((vector_size(4 * EDGEFOLD_LANES), aligned(4), may_alias));
#else
typedef float edgefold_vector;
#endif

EDGEFOLD_INLINE edgefold_vector edgefold_load(const float *from)
{
    return *(const edgefold_vector *)from;
}

EDGEFOLD_INLINE void edgefold_store(float *into, edgefold_vector numbers)
{
    *(edgefold_vector *)into = numbers;
}

/* The first n numbers of a vector; the others are 0. Fewer than all of them only with 16 lanes. */
EDGEFOLD_INLINE edgefold_vector edgefold_load_first(const float *from, int n)
{
#if EDGEFOLD_LANES == 16
    if (n < EDGEFOLD_LANES)
        return (edgefold_vector)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), from);
#endif
    (void)n;
    return edgefold_load(from);
}

EDGEFOLD_INLINE void edgefold_store_first(float *into, edgefold_vector numbers, int n)
{
#if EDGEFOLD_LANES == 16
    if (n < EDGEFOLD_LANES) {
        _mm512_mask_storeu_ps(into, (__mmask16)((1u << n) - 1u), (__m512)numbers);
        return;
    }
#endif
    (void)n;
    edgefold_store(into, numbers);
}

/* Sums of n neighbours are computed in blocks of one vector each. The last block begins so early
   that it is full. */
#if EDGEFOLD_LANES > 1
#define EDGEFOLD_WIDTH EDGEFOLD_LANES
#elif defined(__ARM_FEATURE_MVE) || defined(__ARM_NEON) || defined(__SSE2__) || \
    defined(__wasm_simd128__)
#define EDGEFOLD_WIDTH 4 /* the compiler makes vectors of its own */
#else
#define EDGEFOLD_WIDTH 1
#endif
#define EDGEFOLD_BLOCK(n) ((n) < EDGEFOLD_WIDTH ? (n) : EDGEFOLD_WIDTH)
#define EDGEFOLD_FIRST(at, n) \
    ((at) < (n) - EDGEFOLD_BLOCK(n) ? (at) : (n) - EDGEFOLD_BLOCK(n))
