/* Sensors --------------------------------------------------------------------------------------- */

/* No product and sum are joined below: every machine gets the bits that Python gets. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

$scalars
$season_arrays
static void edgefold_seasons_show(
    struct edgefold_seasons *self, struct edgefold_season_search *search);
static void edgefold_season_search_release(struct edgefold_season_search *self);

$functions
/* Gives the rules the sensor's own ring. A sensor may have been moved in memory since. */
static void own_ring(struct ${stream}_sensor *sensor)
{
    sensor->rules.slots.seasons.ring = sensor->values;
}

/* Lends the block in which steps compute to a search for seasons, and the ring of values. */
static void edgefold_seasons_show(
    struct edgefold_seasons *self, struct edgefold_season_search *search)
{
    edgefold_real *at = shared.search;
    search->waves = at;
    search->pairs = at += $n_waves;
    search->score = at += $n_ring;
    search->level = at + $n_lags;
    edgefold_seasons_write(self);
    search->ring = self->ring;
}

static void edgefold_season_search_release(struct edgefold_season_search *self)
{
    (void)self; /* the block belongs to no one */
}

void ${stream}_start(struct ${stream}_sensor *sensor, double false_alarms)
{
    ${stream}_init(&sensor->model);
    edgefold_sensor_rules_begin_fields(&sensor->rules);
    edgefold_ahead_counts_begin_fields(&sensor->ahead_counts);
    edgefold_sensor_rules_begin(
        &sensor->rules, false_alarms, ${NAME}_LONGEST_SEASON, $at_low, $at_middle, $at_high);
    own_ring(sensor);
    for (int i = 0; i < ${NAME}_N_KEPT_VALUES; i++) sensor->values[i] = NAN;
    memset(sensor->ahead, 0, sizeof sensor->ahead);
}

/* Keeps the direct forecasts that the model's newest step made. */
static void keep_ahead(struct ${stream}_sensor *sensor)
{
    const double *mean = sensor->model.prediction_ahead_mean;
    const double *quantile = sensor->model.prediction_ahead_quantiles;
    float *to = sensor->ahead;
    for (int horizon = 0; horizon <= ${NAME}_N_HORIZONS; horizon++) {
        *to++ = (float)*mean++;
        for (int level = 0; level < ${NAME}_N_LEVELS; level++) *to++ = (float)*quantile++;
    }
}

int ${stream}_push(
    struct ${stream}_sensor *sensor, double time, double value, int dated,
    struct ${stream}_row *row)
{
    struct edgefold_sensor_rules *rules = &sensor->rules;
    struct edgefold_row_slots *slots = &rules->slots;
    struct $stream *model = &sensor->model;
    struct edgefold_season_search search;
    edgefold_season_search_begin_fields(&search);
    own_ring(sensor);
    const int refusal = edgefold_row_slots_accept(slots, time, value, dated);
    if (refusal) return refusal;
    const int is_measured = value == value;
    const int64_t n = slots->n_passed;
    for (int64_t slot = 0; slot <= n; slot++) {
        const int is_row = slot == n;
        const double x[4] = {
            is_row && is_measured ? value : 0.0, is_row && is_measured,
            (double)slots->place.season, (double)edgefold_row_slots_phase_of(slots, slot)};
        if (${stream}_step(model, x) != EDGEFOLD_OK) return -1;
    }
    row->mean = model->prediction_mean[0];
    memcpy(row->quantiles, model->prediction_quantiles, sizeof row->quantiles);
    row->log_density = model->prediction_log_density[0];
    row->p_value = model->prediction_p_value[0];
    row->n_missing = slots->n_slots - 1;
    row->season = slots->place.season;
    const struct edgefold_alarm_verdict verdict = edgefold_sensor_rules_score(
        rules, value, row->quantiles, row->log_density, row->p_value, $usual,
        (int64_t)${stream}_n_points(model), sensor->ahead_counts.n_values, &search);
    if (edgefold_ahead_counts_see(&sensor->ahead_counts, value, row->season, n + 1)) {
        keep_ahead(sensor);
    }
    row->alarm = verdict.alarm;
    row->event = verdict.event;
    row->n_since = verdict.n_since;
    row->size = verdict.size;
    row->is_known = rules->is_known;
    return 0;
}

int ${stream}_path(
    struct ${stream}_sensor *sensor, size_t n, double *means, double *quantiles)
{
    struct edgefold_joined_path *path = &shared.path;
    const struct edgefold_ahead_counts *ahead = &sensor->ahead_counts;
    struct $stream *model = &sensor->model;
    const uint32_t sides = last_commit(model).sides;
    const int64_t n_points = (int64_t)${stream}_n_points(model);
    static const int64_t horizons[] = {$horizons};
    settle(model);
    if (!edgefold_ahead_counts_is_known(ahead, n_points)) return 1;
    edgefold_joined_path_begin_fields(path);
    memcpy(path->horizons, horizons, sizeof horizons);
    path->n_columns = 1 + ${NAME}_N_LEVELS;
    path->season = ahead->season;
    path->age = ahead->age;
    path->n_points = n_points;
    path->values = model->state_values;
    path->n_ring = $n_values;
    path->made = ahead->age ? sensor->ahead : model->state_limits_without[sides >> $group & 1u];
    path->weights = model->state_further_shape[sides >> $group & 1u];
    path->has_shape = 1;
    path->low = model->state_limits_bounds[sides >> $group & 1u][0];
    path->high = model->state_limits_bounds[sides >> $group & 1u][1];
    edgefold_joined_path_join(path);
    for (size_t slot = 0; slot < n; slot++) {
        edgefold_joined_path_forecast_at(path, (int64_t)slot + 1);
        means[slot] = path->forecast[0];
        memcpy(quantiles + slot * ${NAME}_N_LEVELS, path->forecast + 1,
               ${NAME}_N_LEVELS * sizeof *quantiles);
    }
    return 0;
}

double ${stream}_pace(const struct ${stream}_sensor *sensor)
{
    return edgefold_slot_clock_shown_pace(&sensor->rules.slots.clock);
}

double ${stream}_coverage(const struct ${stream}_sensor *sensor)
{
    const struct edgefold_score_counts *counts = &sensor->rules.counts;
    return counts->n_forecast > 0.0 ? counts->n_within_90 / counts->n_forecast : NAN;
}

size_t ${stream}_sensor_bytes(void)
{
    return sizeof(struct ${stream}_sensor);
}

const char *${stream}_name(int word)
{
    static const char *const names[] = {$names};
    return word >= 0 && word < (int)(sizeof names / sizeof *names) ? names[word] : "";
}
