/* The few functions of C's library that the shipped models call, so that one compiled library needs
   no C library and loads with glibc and with musl alike. Compile with -ffreestanding, or the loops
   become calls of the functions themselves. */
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t n);
HIDDEN void *memset(void *to, int byte, size_t n);
HIDDEN float powf(float x, float y);

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    unsigned char *const out = to;
    const unsigned char *const in = from;
    for (size_t i = 0; i < n; i++) out[i] = in[i];
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    unsigned char *const out = to;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)byte;
    return to;
}

static uint64_t bits_of(double x)
{
    union { double number; uint64_t bits; } both = {x};
    return both.bits;
}

static double number_of(uint64_t bits)
{
    union { uint64_t bits; double number; } both = {bits};
    return both.number;
}

/* log2(x) of a positive, finite double: x = m 2^n with m between sqrt(1/2) and sqrt(2), and
   log(m) = 2 atanh((m - 1) / (m + 1)), whose series stops below 1e-16 of the sum. */
static double logarithm(double x)
{
    const uint64_t bits = bits_of(x) - 0x3fe6a09e667f3bcdu; /* of sqrt(1/2) */
    const double n = (int32_t)((int64_t)bits >> 52);
    const double m = number_of((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double f = (m - 1.0) / (m + 1.0), z = f * f;
    double series = 1.0 / 19.0;
    for (int k = 17; k > 0; k -= 2) series = series * z + 1.0 / k;
    return n + 2.0 * f * series * 1.4426950408889634;
}

/* 2^t for |t| < 1000: an integer for the exponent's bits, and the series of exp for the rest. */
static double power_of_two(double t)
{
    const int n = (int)(t < 0.0 ? t - 0.5 : t + 0.5);
    const double r = (t - n) * 0.6931471805599453; /* |r| < 0.35: the series stops below 1e-16 */
    double series = 1.0;
    for (int k = 13; k > 0; k--) series = 1.0 + r * series / k;
    return series * number_of((uint64_t)(n + 1023) << 52);
}

/* x^y as C's powf gives it, all special cases of annex F included; computed in double precision. */
float powf(float x, float y)
{
    const double base = x, exponent = y;
    if (exponent == 0.0 || base == 1.0) return 1.0f;
    if (base != base || exponent != exponent) return x + y;
    const double size = base < 0.0 ? -base : base, much = exponent < 0.0 ? -exponent : exponent;
    const int whole = much >= 16777216.0 || much == (double)(int32_t)much;
    const int odd = much < 16777216.0 && whole && ((int32_t)much & 1);
    const double infinity = number_of((uint64_t)0x7ff << 52);
    double result;
    if (much == infinity) {
        result = size == 1.0 ? 1.0 : (size > 1.0) == (exponent > 0.0) ? infinity : 0.0;
    } else if (size == 0.0 || size == infinity) {
        result = (size == 0.0) == (exponent > 0.0) ? 0.0 : infinity;
    } else if (base < 0.0 && !whole) {
        return (x - x) / (x - x);
    } else {
        const double t = exponent * logarithm(size);
        result = t > 200.0 ? infinity : t < -200.0 ? 0.0 : power_of_two(t);
    }
    return (float)(odd && bits_of(base) >> 63 ? -result : result);
}
