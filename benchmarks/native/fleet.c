/* One process that serves many sensors, each with a clock, seasons and alarms of its own: what
 * benchmarks.native.many_sensors runs.
 *
 *     fleet N_SENSORS N_ROUNDS
 *
 * In a round each sensor takes one row, one after the other; all began at once, so that all look for a
 * season in the same round. Prints nanoseconds of each round, then the processor time and bytes. */
#include "edgefold_sensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The most memory that the process had, in kB, as Linux counts it; 0 elsewhere. */
static long resident_kb(void)
{
    char line[128];
    long n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &n) == 1)
            break;
    if (file)
        fclose(file);
    return n;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int n_words, char **words)
{
    if (n_words != 3)
        return 2;
    const int n = atoi(words[1]), n_rounds = atoi(words[2]);
    struct edgefold_sensors_sensor *sensors = malloc(sizeof *sensors * (size_t)n);
    struct edgefold_sensors_row answer;
    uint32_t seed = 1;
    long n_refused = 0;
    if (sensors == NULL)
        return 1;
    for (int i = 0; i < n; i++)
        edgefold_sensors_start(sensors + i, 1e-4);
    const clock_t began = clock();
    for (int round = 0; round < n_rounds; round++) {
        const double start_s = now_s();
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            const double value = 3.0 * sin(0.2618 * (round + i)) + seed / 4294967296.0;
            n_refused += edgefold_sensors_push(sensors + i, 1.7e9 + 3600.0 * round, value, 1, &answer);
        }
        printf("round %.0f\n", 1e9 * (now_s() - start_s));
    }
    printf("processor %.0f\n", 1e9 / CLOCKS_PER_SEC * (double)(clock() - began));
    printf("sensor %zu\nshared %d\nresident %ld\nrefused %ld\n", sizeof *sensors,
           (int)EDGEFOLD_SENSORS_SHARED_BYTES, 1024 * resident_kb(), n_refused);
    return 0;
}
