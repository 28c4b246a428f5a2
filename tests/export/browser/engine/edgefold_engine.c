#include "edgefold_engine.h"
#include <math.h>
#include <string.h>

enum { SEASON = 24, HORIZONS = 7, LEVELS = 7 };

size_t edgefold_sensors_size(void) { return sizeof(struct edgefold_sensor); }

void edgefold_sensors_start(struct edgefold_sensor *sensor, double false_alarms) {
    memset(sensor, 0, sizeof *sensor);
    edgefold_sensors_init(&sensor->model);
    sensor->rate = false_alarms;
    sensor->last_time = sensor->pace = NAN;
}

int edgefold_sensors_push(struct edgefold_sensor *sensor, double time, double value, int dated) {
    double step = time - sensor->last_time;
    (void)dated;
    if (!isfinite(time)) return 1;
    if (value == value && !(fabs(value) <= 1e30)) return 2;
    if (step == 0) return 3;
    if (step < 0) return 4;
    if (step > 0 && isnan(sensor->pace)) sensor->pace = step;
    double n = step > 0 ? floor(step / sensor->pace + 0.5) : 1;
    if (n > 1e6) return 5;
    int n_missing = n > 1 ? (int)n - 1 : 0;
    for (int i = n_missing < 256 ? n_missing : 256; i >= 0; i--) {
        int is_row = i == 0, measured = is_row && value == value;
        double season = sensor->n_slots > 2 * SEASON ? SEASON : 0;
        double x[4] = {measured ? value : 0, measured, season, season ? fmod(sensor->n_slots, season) : 0};
        if (edgefold_sensors_step(&sensor->model, x) != EDGEFOLD_OK) return 6;
        sensor->n_slots++;
        sensor->n_values += measured;
        sensor->row.season = season;
    }
    const struct edgefold_sensors *model = &sensor->model;
    struct edgefold_row *row = &sensor->row;
    int scored = model->prediction_p_value[0] < 1 || model->prediction_log_density[0] != 0;
    row->known = value == value ? scored : sensor->n_slots > 11 && sensor->n_values >= 5;
    row->mean = model->prediction_mean[0];
    memcpy(&row->q05, model->prediction_quantiles, LEVELS * sizeof(double));
    row->log_density = model->prediction_log_density[0];
    row->p_value = model->prediction_p_value[0];
    row->n_missing = n_missing;
    row->alarm = row->known && value == value && row->p_value < sensor->rate;
    row->event = row->alarm ? 1 : 0;
    row->n_since = row->size = 0;
    sensor->last_time = time;
    return 0;
}

void edgefold_sensors_path(struct edgefold_sensor *sensor, int n, double *means, double *quantiles) {
    static const int horizons[HORIZONS] = {1, 2, 4, 8, 16, 32, 48};
    int is_known = sensor->n_slots >= 11 && sensor->n_values >= 5;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < HORIZONS - 1 && horizons[at + 1] <= i + 1) at++;
        means[i] = is_known ? sensor->model.prediction_ahead_mean[at] : NAN;
        for (int k = 0; k < LEVELS; k++) {
            quantiles[i * LEVELS + k] =
                is_known ? sensor->model.prediction_ahead_quantiles[at * LEVELS + k] : NAN;
        }
    }
}

double edgefold_sensors_pace(const struct edgefold_sensor *sensor) { return sensor->pace; }

size_t edgefold_sensors_keep(const struct edgefold_sensor *sensor, void *bytes) {
    memcpy(bytes, sensor, sizeof *sensor);
    return sizeof *sensor;
}

int edgefold_sensors_take(struct edgefold_sensor *sensor, const void *bytes, size_t n) {
    if (n != sizeof *sensor) return 1;
    memcpy(sensor, bytes, n);
    return 0;
}
