/* Rows of a bundle of sensors whose one step serves several streams: what benchmarks.native.many_sensors
 * times. It is compiled into a library together with the bundle's C. */
#include "edgefold_sensors.h"

#include <math.h>

enum { N_STREAMS = EDGEFOLD_SENSORS_STREAMS, N_COLUMNS = 4, SEASON = 288 };

static struct edgefold_sensors stream;
static double x[N_STREAMS * N_COLUMNS];
static uint32_t seed = 1;
static int at;

int serve_begin(void);
int serve(long n);

int serve_begin(void)
{
    edgefold_sensors_init(&stream);
    at = 0;
    return N_STREAMS;
}

/* Takes n rows of each stream: a season with noise, which goes on where the last call ended. Returns
 * the status of the last step. */
int serve(long n)
{
    int status = 0;
    for (long row = 0; row < n && status == 0; row++) {
        for (int s = 0; s < N_STREAMS; s++) {
            double *own = x + s * N_COLUMNS;
            seed = seed * 1664525u + 1013904223u;
            own[0] = 10.0 * sin(6.283185307 / SEASON * (at + 7 * s)) + 3.0 * (seed / 4294967296.0);
            own[1] = 1.0; /* the value is known */
            own[2] = SEASON;
            own[3] = at;
        }
        at = (at + 1) % SEASON;
        status = (int)edgefold_sensors_step(&stream, x);
    }
    return status;
}
