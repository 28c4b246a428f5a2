/* Stands for the engine of sensors in tests of the browser's files: the real model behind a clock
 * that knows only the first step, a fixed season, and an alarm for each unlikely value. */
#ifndef EDGEFOLD_ENGINE_H
#define EDGEFOLD_ENGINE_H

#include <stddef.h>
#include "edgefold_sensors.h"

#define EDGEFOLD_ENGINE_EVENTS \
    { "", "value", "level shift", "stuck", "gap", "absent", "drift", "rhythm", "quiet", "noisy" }

struct edgefold_row {
    double known, mean, q05, q10, q25, q50, q75, q90, q95, log_density, p_value, n_missing, season,
        alarm, event, n_since, size;
};

struct edgefold_sensor {
    struct edgefold_sensors model;
    struct edgefold_row row;
    double rate, last_time, pace, n_slots, n_values;
};

size_t edgefold_sensors_size(void);
void edgefold_sensors_start(struct edgefold_sensor *sensor, double false_alarms);
int edgefold_sensors_push(struct edgefold_sensor *sensor, double time, double value, int dated);
void edgefold_sensors_path(struct edgefold_sensor *sensor, int n, double *means, double *quantiles);
double edgefold_sensors_pace(const struct edgefold_sensor *sensor);
size_t edgefold_sensors_keep(const struct edgefold_sensor *sensor, void *bytes);
int edgefold_sensors_take(struct edgefold_sensor *sensor, const void *bytes, size_t n);
#endif
