/* Compares the mathematics of generated C with the double precision of libm.
 *
 * MATHEMATICS is the file under test; the functions at the end are called from Python. */
#include MATHEMATICS

#define CHUNK 1000 /* not a multiple of any vector's width */

typedef void function_all(float *x, int n);
typedef double reference(double x);

#define ALL(name)                                                                                  \
    static void name##_all(float *x, int n) {                                                      \
        for (int i = 0; i < n; i++) x[i] = edgefold_##name(x[i]);                                  \
    }
ALL(exp)
ALL(log)
ALL(tanh)
ALL(erf)
ALL(sigmoid)
ALL(softplus)
ALL(sin)
ALL(cos)
ALL(round)
ALL(floor)
ALL(sign)

/* Of any number, because the function under test takes only those below 0. */
static void falling_all(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = edgefold_exp_below_one(-edgefold_abs(x[i]));
}

static double exact_falling(double x) {
    return exp(-fabs(x));
}

static double exact_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static double exact_softplus(double x) {
    return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}

static double exact_sign(double x) {
    return x != x ? x : (double)((x > 0.0) - (x < 0.0));
}

static const struct function {
    const char *name;
    function_all *all;
    reference *exact;
} functions[] = {
    {"exp", exp_all, exp},
    {"falling", falling_all, exact_falling},
    {"log", log_all, log},
    {"tanh", tanh_all, tanh},
    {"erf", erf_all, erf},
    {"sigmoid", sigmoid_all, exact_sigmoid},
    {"softplus", softplus_all, exact_softplus},
    {"sin", sin_all, sin},
    {"cos", cos_all, cos},
    {"sin_all", edgefold_sin_all, sin},
    {"cos_all", edgefold_cos_all, cos},
    {"round", round_all, rint},
    {"floor", floor_all, floor},
    {"sign", sign_all, exact_sign},
};

static const struct function *find(const char *name) {
    const struct function *function = functions;
    while (strcmp(function->name, name) != 0) function++;
    return function;
}

/* Distance from the exact value in units of the last place of single precision; infinity where
 * only one of them is NaN or infinite. Zero may stand for results below the smallest normal. */
static double error_ulp(float got, double exact) {
    const float rounded = (float)exact;
    if (exact != exact || got != got) return exact != exact && got != got ? 0.0 : (double)INFINITY;
    if (isinf(rounded) || isinf(got)) return got == rounded ? 0.0 : (double)INFINITY;
    if (got == 0.0f && fabs(exact) < 1.1754943508222875e-38) return 0.0;
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    const uint64_t exponent = bits >> 52 & 0x7ff; /* of double; normal floats begin at 897 */
    const uint64_t inverse = (2069 - (exponent < 897 ? 897 : exponent)) << 52;
    double last_places;
    memcpy(&last_places, &inverse, sizeof last_places);
    return fabs(got - exact) * last_places;
}

/* The largest error over the floats of bits first, first + stride, ..., n in all; *at is where. */
double worst_error(const char *name, uint32_t first, uint64_t n, uint32_t stride, float *at) {
    const struct function *const function = find(name);
    double worst = 0.0;
    float x[CHUNK], y[CHUNK];
    for (uint64_t done = 0; done < n; done += CHUNK) {
        const int size = n - done < CHUNK ? (int)(n - done) : CHUNK;
        for (int i = 0; i < size; i++) {
            x[i] = edgefold_of_bits(first + (uint32_t)(done + (uint64_t)i) * stride);
        }
        memcpy(y, x, (size_t)size * sizeof *x);
        function->all(y, size);
        for (int i = 0; i < size; i++) {
            const double error = error_ulp(y[i], function->exact(x[i]));
            if (error > worst) {
                worst = error;
                *at = x[i];
            }
        }
    }
    return worst;
}

void apply(const char *name, float *x, int n) {
    find(name)->all(x, n);
}

/* The largest error of x^y over n pairs; *at is where.
 *
 * The pairs are drawn so that results lie between 2^-most and 2^most, and a few beyond. Some x are
 * close to 1, some y are whole. */
double worst_power(uint32_t seed, uint64_t n, double most, float *at) {
    double worst = 0.0;
    uint64_t state = seed + 88172645463325252u;
    for (uint64_t done = 0; done < n; done++) {
        uint32_t drawn[3];
        for (int i = 0; i < 3; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            drawn[i] = (uint32_t)(state >> 24);
        }
        float x = edgefold_of_bits(drawn[0] % 0x7f800000u);
        if (done % 4 == 1) x = edgefold_of_bits(0x3f000000u + drawn[0] % 0x01800000u);
        if (done % 4 == 2) x = edgefold_of_bits(0x3f7f0000u + drawn[0] % 0x00020000u);
        const double size = log2((double)x), part = drawn[1] * 0x1p-31 - 1.0;
        float y = (float)(size == 0.0 ? part : part * 1.01 * most / size);
        if (done % 4 == 3) {
            y = rintf(y);
            x = drawn[2] & 1u ? -x : x;
        }
        const double exact = pow((double)x, (double)y);
        const int is_within = fabs(log2(fabs(exact))) <= most;
        const double error = is_within || most > 127.0 ? error_ulp(edgefold_pow(x, y), exact) : 0.0;
        if (error > worst) {
            worst = error;
            at[0] = x;
            at[1] = y;
        }
    }
    return worst;
}

float power(float x, float y) {
    return edgefold_pow(x, y);
}

double exact_power(double x, double y) {
    return pow(x, y);
}

float whole_power(float x, float y) {
    return edgefold_whole_pow(x, y);
}

float larger(float x, float y) {
    return edgefold_max(x, y);
}

float smaller(float x, float y) {
    return edgefold_min(x, y);
}

int64_t remainder_of(int64_t a, int64_t b) {
    return edgefold_mod_i64(a, b);
}
