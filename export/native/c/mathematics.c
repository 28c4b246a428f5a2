/* Elementwise mathematics in single precision.
 *
 * The functions of one number have no branch (but edgefold_sin and edgefold_cos, which have the
 * _all forms), so that gcc (-O2 -ftree-vectorize) and clang (-O3) make vector code of a plain loop
 * around them, both with -fno-math-errno -fno-trapping-math. NaN gives NaN. Results below the
 * smallest normal number, 1.2e-38, may be given as 0.
 *
 * Errors are the largest ones found, in units of the last place (ulp) of the exact result, first
 * with fused multiply-adds and then without; any contraction is allowed. All floats were tried, but
 * of log beyond 1/4 to 4 every fifth, and where a result is constant or linear every 101st.
 *
 * Polynomials are minimax fits of relative error: reweighted least squares in double precision on
 * 1501 to 3001 Chebyshev nodes; each coefficient in turn was rounded to single precision and those
 * of higher powers were fitted again. "Fit" is the error that remains.
 */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "Compile this file without -ffast-math: it would change results and lose NaN and infinity."
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EDGEFOLD_ROUNDER 12582912.0f /* 1.5 * 2^23: x + it has no fraction bits, |x| <= 2^22 */

static inline uint32_t edgefold_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float edgefold_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float edgefold_abs(float x) {
    return edgefold_of_bits(edgefold_bits(x) & 0x7fffffffu);
}

/* |x| with the sign of s. */
static inline float edgefold_with_sign(float x, float s) {
    return edgefold_of_bits((edgefold_bits(x) & 0x7fffffffu) | (edgefold_bits(s) & 0x80000000u));
}

/* NaN if one of them is NaN, as ONNX has it; so has edgefold_min. */
static inline float edgefold_max(float x, float y) {
    const float larger = x > y ? x : y;
    return x == x ? larger : x;
}

static inline float edgefold_min(float x, float y) {
    const float smaller = x < y ? x : y;
    return x == x ? smaller : x;
}

/* The larger number, but NaN only if x is; one instruction. */
static inline float edgefold_above(float x, float bound) { return x < bound ? bound : x; }

/* The smaller number, but NaN only if x is. */
static inline float edgefold_below(float x, float bound) { return x > bound ? bound : x; }

/* -1, 0 or 1. */
static inline float edgefold_sign(float x) {
    return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x);
}

/* Nearest integer, half to even; exact. From 2^23 on, floats have no fraction. */
static inline float edgefold_round(float x) {
    const float size = edgefold_abs(x);
    const float nearest = (size + 8388608.0f) - 8388608.0f;
    return size < 8388608.0f ? edgefold_with_sign(nearest, x) : x;
}

static inline float edgefold_floor(float x) {
    const float nearest = edgefold_round(x);
    return nearest - (nearest > x ? 1.0f : 0.0f);
}

/* exp(r) - 1 for |r| <= log(2) / 2. Fit of r + r^2 q(r): 1.4e-8 of the result. */
static inline float edgefold_small_exp(float r) {
    float q = 1.3870732e-3f;
    q = q * r + 8.366277e-3f;
    q = q * r + 4.1667435e-2f;
    q = q * r + 0.16666546f;
    q = q * r + 0.49999997f;
    return q * (r * r) + r;
}

/* Errors 1.04 and 1.01 ulp. exp(x) = 2^n exp(r): log(2) has two parts, so that n times the first is
 * exact; n is added to the exponent's bits. Infinite from the right float on, 88.72284. */
static inline float edgefold_exp(float x) {
    const float shifted = x * 1.44269504f + EDGEFOLD_ROUNDER;
    const float n = shifted - EDGEFOLD_ROUNDER;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p = edgefold_small_exp(r) + 1.0f;
    const float y = edgefold_of_bits(edgefold_bits(p) + (edgefold_bits(shifted) << 23));
    const float bounded = x < 88.7228394f ? y : x + INFINITY; /* or NaN */
    return x < -87.3365402f ? 0.0f : bounded;
}

/* exp(x) for x <= 0 or NaN, as softmax needs it, in fewer instructions: n + 127 stands in the last
 * bits of `shifted`, so that below -88 the result is 0. Errors 1.15 ulp. */
static inline float edgefold_exp_below_one(float x) {
    const float bounded = x < -88.0f ? -88.0f : x;
    const float shifted = bounded * 1.44269504f + (EDGEFOLD_ROUNDER + 127.0f);
    const float n = shifted - (EDGEFOLD_ROUNDER + 127.0f);
    const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.3870732e-3f;
    p = p * r + 8.366277e-3f;
    p = p * r + 4.1667435e-2f;
    p = p * r + 0.16666546f;
    p = p * r + 0.49999997f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * edgefold_of_bits(edgefold_bits(shifted) << 23);
}

/* Errors 0.86 and 0.85 ulp. log(x) = n log(2) + log(1 + f), 1 + f between sqrt(1/2) and sqrt(2).
 * Fit of f - f^2 / 2 + f^3 p(f): 5.8e-9. Denormal numbers are scaled first. */
static inline float edgefold_log(float x) {
    const float normal = x < 1.17549435e-38f ? x * 8388608.0f : x;
    const float lift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    const uint32_t bits = edgefold_bits(normal) - 0x3f3504f3u; /* of sqrt(1/2) */
    const float n = (float)((int32_t)bits >> 23) + lift;
    const float f = edgefold_of_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float p = -7.636439e-2f;
    p = p * f + 0.12762217f;
    p = p * f - 0.1315961f;
    p = p * f + 0.1420158f;
    p = p * f - 0.16623409f;
    p = p * f + 0.20001242f;
    p = p * f - 0.2500082f;
    p = p * f + 0.3333333f;
    const float square = f * f;
    const float low = (p * f * square - n * 2.12194440e-4f) - 0.5f * square;
    const float y = n * 0.693359375f + (f + low);
    const float bounded = x < INFINITY ? y : x;
    return x > 0.0f ? bounded : (x == 0.0f ? -INFINITY : NAN);
}

/* Errors 2.57 and 2.61 ulp; at most 1. With g = exp(2 |x|) - 1 it is g / (g + 2), where small g
 * keep their relative accuracy; exactly 1 from 9.1 on. */
static inline float edgefold_tanh(float x) {
    const float size = edgefold_abs(x);
    const float twice = size > 10.0f ? 20.0f : 2.0f * size;
    const float shifted = twice * 1.44269504f + EDGEFOLD_ROUNDER;
    const float n = shifted - EDGEFOLD_ROUNDER;
    const float r = (twice - n * 0.693359375f) + n * 2.12194440e-4f;
    const float scale = edgefold_of_bits((edgefold_bits(shifted) << 23) + 0x3f800000u);
    const float growth = edgefold_small_exp(r) * scale + (scale - 1.0f); /* exp(2 |x|) - 1 */
    return edgefold_with_sign(growth / (growth + 2.0f), x);
}

/* Errors 2.49 and 2.49 ulp. */
static inline float edgefold_sigmoid(float x) {
    return 1.0f / (1.0f + edgefold_exp(-x));
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|). Errors 2.21 and 2.52 ulp.
 * Fit of log(1 + e) = e p(e) for 0 <= e <= 1: 5.3e-9. */
static inline float edgefold_softplus(float x) {
    const float e = edgefold_exp(-edgefold_abs(x));
    float p = -3.2910798e-3f;
    p = p * e + 2.008847e-2f;
    p = p * e - 5.7460487e-2f;
    p = p * e + 0.10661371f;
    p = p * e - 0.15344977f;
    p = p * e + 0.19692121f;
    p = p * e - 0.2495802f;
    p = p * e + 0.33330464f;
    p = p * e - 0.4999993f;
    p = p * e + 1.0f;
    return p * e + (x > 0.0f ? x : 0.0f);
}

/* x, or exp(x) - 1 below 0; off by at most 6e-8, the rounding of exp(x) near 1. NaN passes. */
static inline float edgefold_elu(float x) {
    const float below = edgefold_exp(x > 0.0f ? 0.0f : x) - 1.0f;
    return x > 0.0f ? x : below;
}

/* Errors 1.47 and 1.59 ulp; at most 1, and exactly 1 from 4 on. Fit of x + x p(x^2), |x| < 0.92:
 * 1.6e-8. Beyond, erf is 1 - q^4 of |x| - 1; fit of q^4 up to 3.97: 1.4e-8 of 1. */
static inline float edgefold_erf(float x) {
    const float size = edgefold_abs(x), z = size * size;
    float p = -6.003801e-4f;
    p = p * z + 4.9958536e-3f;
    p = p * z - 2.676858e-2f;
    p = p * z + 0.11281877f;
    p = p * z - 0.376125f;
    p = p * z + 0.12837915f;
    const float near = p * size + size;
    const float u = (size > 4.0f ? 4.0f : size) - 1.0f;
    float q = -3.0308822e-5f;
    q = q * u + 6.1879982e-5f;
    q = q * u + 1.2104585e-3f;
    q = q * u - 5.3212005e-3f;
    q = q * u - 3.8577029e-3f;
    q = q * u + 5.0858065e-2f;
    q = q * u + 4.3168333e-3f;
    q = q * u - 0.41548517f;
    q = q * u + 0.62976950f;
    q = q * q;
    const float far = 1.0f - q * q;
    return edgefold_with_sign(size < 0.92f ? near : far, x);
}

#define EDGEFOLD_SINE_LIMIT 8192.0f /* the largest |x| of the quick reduction */

/* sin(r + quarters pi / 2) for |r| <= pi / 4. Fits: r + r^3 s(r^2) 4.0e-9,
 * 1 - r^2 / 2 + r^4 c(r^2) 1.2e-10. */
static inline float edgefold_sine(float r, uint32_t quarters) {
    const float z = r * r;
    float s = -1.9518104e-4f, c = 2.4432555e-5f;
    s = s * z + 8.332188e-3f;
    c = c * z - 1.3887311e-3f;
    s = s * z - 0.16666655f;
    c = c * z + 4.1666646e-2f;
    const float sine = s * (z * r) + r;
    const float cosine = c * (z * z) + (1.0f - 0.5f * z);
    const float y = (quarters & 1u) != 0u ? cosine : sine;
    return edgefold_of_bits(edgefold_bits(y) ^ ((quarters & 2u) << 30));
}

/* sin(x + quarters pi / 2) for |x| <= EDGEFOLD_SINE_LIMIT. Cody and Waite's reduction: pi / 2 has
 * four parts; the first three have 11 bits, so that their products with n are exact. */
static inline float edgefold_quick_sine(float x, uint32_t quarters) {
    const float shifted = x * 0.636619772f + EDGEFOLD_ROUNDER;
    const float n = shifted - EDGEFOLD_ROUNDER;
    const float wide = (x - n * 1.5703125f) - n * 4.837512969970703e-4f; /* exact */
    const float third = n * 7.549533620476723e-8f;
    const float narrow = wide - third;
    const float lost = (wide - narrow) - third; /* by rounding of `narrow` */
    const float r = narrow + (lost - n * 2.563344e-12f);
    return edgefold_sine(r, edgefold_bits(shifted) + quarters);
}

/* sin(x + quarters pi / 2) for |x| >= 1: Payne and Hanek's reduction, x / pi modulo 2 as an integer
 * of 64 bits. */
static inline float edgefold_far_sine(float x, uint32_t quarters) {
    static const uint32_t reciprocal[8] = {/* 1 / pi, after 32 zero bits */
        0x00000000u, 0x517cc1b7u, 0x27220a94u, 0xfe13abe8u,
        0xfa9a6ee0u, 0x6db14accu, 0x9e21c820u, 0xff28b1d5u};
    const uint32_t bits = edgefold_bits(x), size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) return x - x;
    const uint64_t mantissa = (size & 0x7fffffu) | 0x800000u;
    const uint32_t start = (size >> 23) - 119u, shift = start & 31u; /* of the bit of weight 1 */
    const uint32_t *const word = reciprocal + (start >> 5);
    const uint64_t high = ((uint64_t)word[0] << 32 | word[1]) << shift >> 32;
    const uint64_t middle = ((uint64_t)word[1] << 32 | word[2]) << shift >> 32;
    const uint64_t low = ((uint64_t)word[2] << 32 | word[3]) << shift >> 32;
    const uint64_t size_turn =
        (mantissa * high << 32) + mantissa * middle + (mantissa * low >> 32);
    const uint64_t turn = bits >> 31 ? 0u - size_turn : size_turn; /* 2^63 is pi */
    const uint32_t n = (uint32_t)((turn + ((uint64_t)1 << 61)) >> 62);
    const uint64_t part = turn << 2; /* signed; 2^64 is pi / 2 */
    uint64_t rest = part >> 63 ? 0u - part : part;
    uint32_t places = 0;
    for (; rest >> 63 == 0 && places < 63; places++) rest <<= 1;
    const uint32_t angle = (uint32_t)((rest >> 32) * 0xc90fdaa2u >> 32); /* times pi / 2 */
    const float r = (float)angle * edgefold_of_bits((96u - places) << 23);
    return edgefold_sine(part >> 63 ? -r : r, n + quarters);
}

static inline float edgefold_any_sine(float x, uint32_t quarters) {
    return edgefold_abs(x) <= EDGEFOLD_SINE_LIMIT ? edgefold_quick_sine(x, quarters)
                                                  : edgefold_far_sine(x, quarters);
}

/* Errors 1.58 and 1.59 ulp; at most 1. */
static inline float edgefold_sin(float x) {
    return edgefold_any_sine(x, 0u);
}

/* Errors 1.58 and 1.59 ulp; at most 1. */
static inline float edgefold_cos(float x) {
    return edgefold_any_sine(x, 1u);
}

#define EDGEFOLD_SINE_BLOCK 64

/* Whether all of n values are small enough for the quick reduction; NaN is not. */
static inline int edgefold_all_quick(const float *x, int n) {
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t size = edgefold_bits(x[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    return largest <= edgefold_bits(EDGEFOLD_SINE_LIMIT);
}

/* sin(x + quarters pi / 2) in place, in blocks: only a block with a large argument is slow. */
static inline void edgefold_sine_all(float *x, int n, uint32_t quarters) {
    for (int start = 0; start < n; start += EDGEFOLD_SINE_BLOCK) {
        float *const block = x + start;
        const int size = n - start < EDGEFOLD_SINE_BLOCK ? n - start : EDGEFOLD_SINE_BLOCK;
        if (edgefold_all_quick(block, size)) {
            for (int i = 0; i < size; i++) block[i] = edgefold_quick_sine(block[i], quarters);
        } else {
            for (int i = 0; i < size; i++) block[i] = edgefold_any_sine(block[i], quarters);
        }
    }
}

static inline void edgefold_sin_all(float *x, int n) {
    edgefold_sine_all(x, n, 0u);
}

static inline void edgefold_cos_all(float *x, int n) {
    edgefold_sine_all(x, n, 1u);
}

/* ONNX Mod of integers: the remainder has the divisor's sign; a divisor of 0 gives 0. */
static inline int64_t edgefold_mod_i64(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0; /* the smallest integer % -1 overflows */
    const int64_t remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

/* The first 12 bits of a number: the product of two of them is exact. */
static inline float edgefold_first_bits(float x) {
    return edgefold_of_bits(edgefold_bits(x) & 0xfffff000u);
}

/* x^y for any y but NaN, with log2(x), not 0, as the sum of `first`, of 12 bits, and `rest`: each bit
 * of y log2(x) before the point costs one behind it. Fit of 2^r: 2.0e-9. */
static inline float edgefold_power_of(float y, float first, float rest) {
    const float y_first = edgefold_first_bits(y), whole = y_first * first;
    const float bounded = whole > 140.0f ? 140.0f : (whole < -160.0f ? -160.0f : whole);
    const float more = y_first * rest + (y - y_first) * (first + rest);
    const float part = bounded == whole ? more : 0.0f;
    const float shifted = (bounded + part) + EDGEFOLD_ROUNDER;
    const float r = (bounded - (shifted - EDGEFOLD_ROUNDER)) + part;
    float q = 1.535315e-4f;
    q = q * r + 1.33991335e-3f;
    q = q * r + 9.61844e-3f;
    q = q * r + 5.550332e-2f;
    q = q * r + 0.24022648f;
    q = q * r + 0.69314718f;
    q = q * r + 1.0f;
    /* In two steps, each a normal number, where the result need not be one. */
    const int32_t power = (int32_t)(edgefold_bits(shifted) - edgefold_bits(EDGEFOLD_ROUNDER));
    const int32_t half = power >> 1;
    return q * edgefold_of_bits((uint32_t)(half + 127) << 23) *
           edgefold_of_bits((uint32_t)(power - half + 127) << 23);
}

/* x^y for finite x > 0 and finite y. As in edgefold_log, x = 2^n m; with s = (m - 1) / (m + 1),
 * log(m) = 2 s + s^3 p(s^2), fit 1.7e-11. */
static inline float edgefold_finite_pow(float x, float y) {
    const float normal = x < 1.17549435e-38f ? x * 8388608.0f : x;
    const float lift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    const uint32_t bits = edgefold_bits(normal) - 0x3f3504f3u; /* of sqrt(1/2) */
    const float n = (float)((int32_t)bits >> 23) + lift;
    const float m = edgefold_of_bits((bits & 0x7fffffu) + 0x3f3504f3u);
    const float f = m - 1.0f, t = m + 1.0f, inverse = 1.0f / t;
    const float s = f * inverse, z = s * s;
    const float s_first = edgefold_first_bits(s), t_first = edgefold_first_bits(t);
    const float t_rest = (t - t_first) + (m - (t - 1.0f));
    const float lost = ((f - s_first * t_first) - s_first * t_rest) - (s - s_first) * t;
    float p = 0.2333342f;
    p = p * z + 0.285507f;
    p = p * z + 0.40000123f;
    p = p * z + 0.6666667f;
    const float more = 2.0f * (lost * inverse) + p * z * s;
    const float l = 2.0f * s + more, l_first = edgefold_first_bits(l);
    const float l_rest = (l - l_first) + (more - (l - 2.0f * s));
    const float g = l_first * 1.4423828125f; /* 12 bits of 1 / log(2), whose rest follows */
    const float g_rest = l_first * 3.12228389e-4f + l_rest * 1.44269504f;
    const float sum = n + g, rest = (g - (sum - n)) + g_rest;
    const float size = sum + rest, size_first = edgefold_first_bits(size);
    return edgefold_power_of(y, size_first, (size - size_first) + (rest - (size - sum)));
}

/* x^n for a whole number |n| < 16, as products. Errors 6 ulp. */
static inline float edgefold_whole_pow(float x, float n) {
    const int32_t places = (int32_t)edgefold_abs(n);
    const float second = x * x, fourth = second * second, eighth = fourth * fourth;
    float y = (places & 1) != 0 ? x : 1.0f;
    y *= (places & 2) != 0 ? second : 1.0f;
    y *= (places & 4) != 0 ? fourth : 1.0f;
    y *= (places & 8) != 0 ? eighth : 1.0f;
    return n < 0.0f ? 1.0f / y : y;
}

/* Errors 1.45 ulp for results between 2^-10 and 2^10, 7 near the ends of float's range.
 * As C99's powf, also for zeros, infinite numbers and NaN, but the same bits with every libm. */
static inline float edgefold_pow(float x, float y) {
    const float size = edgefold_abs(x), half = 0.5f * y;
    const float bounded = y > 3.4e38f ? 3.4e38f : (y < -3.4e38f ? -3.4e38f : y);
    const float power = edgefold_finite_pow(size, bounded);
    const int is_none = size == 0.0f, is_end = is_none | (int)(size == INFINITY);
    const float end = is_none == (int)(y < 0.0f) ? INFINITY : 0.0f;
    const float positive = is_end ? end : power;
    const int is_negative = (int)(edgefold_bits(x) >> 31);
    const int is_whole = edgefold_round(y) == y;
    const int is_odd = is_whole & (int)(edgefold_round(half) != half);
    const float signed_power = is_negative & is_odd ? -positive : positive;
    const int is_imaginary = is_negative & !is_whole & !is_end;
    const float real = is_imaginary ? NAN : signed_power;
    const int is_number = (int)(x == x) & (int)(y == y);
    const float known = is_number ? real : x + y;
    const int is_one = (int)(y == 0.0f) | (int)(x == 1.0f);
    return is_one ? 1.0f : known;
}
