/* The functions of the engine of sensors that JavaScript calls in WebAssembly. Numbers go through
 * memory, at addresses that JavaScript chose or that a function returns. */
#include "edgefold_sensors.h"
#include "module_bytes.h"

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

int sensor_longest_season(void) { return EDGEFOLD_SENSORS_LONGEST_SEASON; }

size_t sensor_snapshot_bytes(void) { return EDGEFOLD_SENSORS_SENSOR_SNAPSHOT_BYTES; }

/* Writes at most sensor_snapshot_bytes() and returns how many; 0 if the state is not sound. */
size_t sensor_save(struct edgefold_sensors_sensor *sensor, unsigned char *bytes)
{
    unsigned char *at = bytes;
    if (edgefold_sensors_save_sensor(sensor, write_bytes, &at) != EDGEFOLD_OK) return 0;
    return (size_t)(at - bytes);
}

/* Goes on from n bytes that sensor_save wrote; returns 0, or why they are refused. */
int sensor_load(struct edgefold_sensors_sensor *sensor, const unsigned char *bytes, size_t n)
{
    struct part part = {bytes, n};
    return edgefold_sensors_load_sensor(sensor, read_bytes, &part);
}
