/* What Python's numbers do and those of C do not, and what rules do with lists of fixed length. */

static inline double edgefold_least(double a, double b) { return b < a ? b : a; }
static inline double edgefold_most(double a, double b) { return b > a ? b : a; }
static inline int64_t edgefold_least_whole(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t edgefold_most_whole(int64_t a, int64_t b) { return b > a ? b : a; }
static inline int64_t edgefold_abs_whole(int64_t a) { return a < 0 ? -a : a; }

/* Quotients of integers are rounded down, and remainders have the sign of the divisor. */
static inline int64_t edgefold_quotient(int64_t a, int64_t b) {
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t edgefold_remainder(int64_t a, int64_t b) {
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static inline double edgefold_float_remainder(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0.0)
        return copysign(0.0, b);
    if ((b < 0.0) != (rest < 0.0))
        rest += b;
    return rest;
}

static inline int64_t edgefold_bit_length(int64_t a) {
    uint64_t rest = (uint64_t)(a < 0 ? -a : a);
    int64_t n = 0;
    while (rest != 0) {
        rest >>= 1;
        n++;
    }
    return n;
}

static inline double edgefold_least_of(const double *numbers, int64_t n) {
    double least = numbers[0];
    for (int64_t i = 1; i < n; i++)
        least = edgefold_least(least, numbers[i]);
    return least;
}

static inline double edgefold_most_of(const double *numbers, int64_t n) {
    double most = numbers[0];
    for (int64_t i = 1; i < n; i++)
        most = edgefold_most(most, numbers[i]);
    return most;
}

/* The place of a number in a list, which has it; -1 if it does not. */
static inline int64_t edgefold_index(const double *numbers, int64_t n, double number) {
    for (int64_t i = 0; i < n; i++)
        if (numbers[i] == number)
            return i;
    return -1;
}

static inline int64_t edgefold_index_whole(const int64_t *numbers, int64_t n, int64_t number) {
    for (int64_t i = 0; i < n; i++)
        if (numbers[i] == number)
            return i;
    return -1;
}

/* Sorts the first n numbers of a list, the smallest first. */
static inline void edgefold_sort(double *numbers, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const double number = numbers[i];
        int64_t at = i;
        for (; at > 0 && number < numbers[at - 1]; at--)
            numbers[at] = numbers[at - 1];
        numbers[at] = number;
    }
}
