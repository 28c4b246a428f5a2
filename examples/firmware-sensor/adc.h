/* A simulated sensor, for boards without one: a day's cycle with noise, a spike, and stuck values. */
#ifndef ADC_H
#define ADC_H

#include <math.h>
#include <stdint.h>

#define ADC_STEP 3600.0         /* seconds between rows */
#define ADC_FIRST 1700006400.0  /* time of the first row: a midnight */

static inline double adc_value(double time)
{
    const long n = (long)((time - ADC_FIRST) / ADC_STEP);
    uint32_t noise = (uint32_t)n * 2654435761u;
    noise ^= noise >> 15;
    noise *= 2246822519u;
    noise ^= noise >> 13;
    if (n % 400 == 350) {
        return 60.0; /* a spike */
    }
    const double hour = n >= 200 && n < 240 ? 200.0 : (double)n; /* stuck for forty rows */
    const double rest = n >= 200 && n < 240 ? 0.0 : (double)(noise >> 8) / (1 << 24) - 0.5;
    return 20.0 + 5.0 * sin(6.283185307179586 / 24.0 * hour) + rest;
}

#endif
