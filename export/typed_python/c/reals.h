/* Functions of edgefold_real, which is double or, on microcontrollers, float. */
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
