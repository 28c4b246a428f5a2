/* The functions of the engine of sensors that JavaScript calls in WebAssembly.
 *
 * Numbers go through memory at addresses that these functions return. */
#include "edgefold_engine.h"

static const char *const events[] = EDGEFOLD_ENGINE_EVENTS;

size_t sensor_bytes(void) { return edgefold_sensors_size(); }

void sensor_start(struct edgefold_sensor *sensor, double false_alarms) {
    edgefold_sensors_start(sensor, false_alarms);
}

int sensor_push(struct edgefold_sensor *sensor, double time, double value, int dated) {
    return edgefold_sensors_push(sensor, time, value, dated);
}

const double *sensor_row(const struct edgefold_sensor *sensor) { return &sensor->row.known; }

void sensor_path(struct edgefold_sensor *sensor, int n, double *means, double *quantiles) {
    edgefold_sensors_path(sensor, n, means, quantiles);
}

double sensor_pace(const struct edgefold_sensor *sensor) { return edgefold_sensors_pace(sensor); }

size_t sensor_keep(const struct edgefold_sensor *sensor, void *bytes) {
    return edgefold_sensors_keep(sensor, bytes);
}

int sensor_take(struct edgefold_sensor *sensor, const void *bytes, size_t n) {
    return edgefold_sensors_take(sensor, bytes, n);
}

int sensor_n_events(void) { return (int)(sizeof events / sizeof *events); }

const char *sensor_event(int number) { return events[number]; }
