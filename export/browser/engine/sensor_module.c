/* The functions of the engine of sensors that JavaScript calls in WebAssembly. Numbers go through
 * memory, at addresses that JavaScript chose or that a function returns. */
#include "edgefold_sensors.h"

enum { N_ROW = 17 };

size_t sensor_bytes(void) { return edgefold_sensors_sensor_bytes(); }

void sensor_start(struct edgefold_sensors_sensor *sensor, double false_alarms)
{
    edgefold_sensors_start(sensor, false_alarms);
}

/* Takes a row, and writes N_ROW numbers in the order of ROW in sensors.js. */
int sensor_push(
    struct edgefold_sensors_sensor *sensor, double time, double value, int dated, double *numbers)
{
    struct edgefold_sensors_row row;
    const int refusal = edgefold_sensors_push(sensor, time, value, dated, &row);
    if (refusal) return refusal;
    const double all[N_ROW] = {
        row.is_known, row.mean, row.quantiles[0], row.quantiles[1], row.quantiles[2],
        row.quantiles[3], row.quantiles[4], row.quantiles[5], row.quantiles[6], row.log_density,
        row.p_value, (double)row.n_missing, (double)row.season, row.alarm, row.event,
        (double)row.n_since, row.size};
    for (int i = 0; i < N_ROW; i++) numbers[i] = all[i];
    return 0;
}

int sensor_path(
    struct edgefold_sensors_sensor *sensor, size_t n, double *means, double *quantiles)
{
    return edgefold_sensors_path(sensor, n, means, quantiles);
}

double sensor_pace(const struct edgefold_sensors_sensor *sensor)
{
    return edgefold_sensors_pace(sensor);
}

/* The text of an event or a refusal; "" for 0 and for a number that names nothing. */
const char *sensor_word(int number) { return edgefold_sensors_name(number); }

/* The hash of the bundle: only the same module goes on from the bytes of a sensor. */
const char *sensor_bundle(void) { return EDGEFOLD_SENSORS_BUNDLE; }

int sensor_longest_season(void) { return EDGEFOLD_SENSORS_LONGEST_SEASON; }
