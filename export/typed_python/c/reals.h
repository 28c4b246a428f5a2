/* Arrays of one axis in which a search computes. They are of double where memory is plenty, so that
 * C finds what Python finds, and of float on microcontrollers. */
#ifndef EDGEFOLD_REAL
#if UINTPTR_MAX > 0xffffffff || defined(__wasm__)
#define EDGEFOLD_REAL double
#else
#define EDGEFOLD_REAL float
#endif
#endif
typedef EDGEFOLD_REAL edgefold_real;

static inline edgefold_real edgefold_real_least(edgefold_real a, edgefold_real b) {
    return b < a ? b : a;
}

static inline edgefold_real edgefold_real_most(edgefold_real a, edgefold_real b) {
    return b > a ? b : a;
}

static inline edgefold_real edgefold_real_abs(edgefold_real a) {
    return a < 0 ? -a : a;
}

static inline edgefold_real edgefold_real_sqrt(edgefold_real a) {
    return sizeof a == sizeof(float) ? (edgefold_real)sqrtf((float)a) : (edgefold_real)sqrt(a);
}

static inline edgefold_real edgefold_real_rint(edgefold_real a) {
    return sizeof a == sizeof(float) ? (edgefold_real)rintf((float)a) : (edgefold_real)rint(a);
}
