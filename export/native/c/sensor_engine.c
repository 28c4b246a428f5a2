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
    sensor->slots.seasons.ring = sensor->values;
}

/* Lends the block in which steps compute to a search for seasons, and the ring of values. */
static void edgefold_seasons_show(
    struct edgefold_seasons *self, struct edgefold_season_search *search)
{
    search->waves = shared.search.waves;
    search->pairs = shared.search.pairs;
    search->score = shared.search.score;
    search->level = shared.search.level;
    edgefold_seasons_write(self);
    search->ring = self->ring;
}

static void edgefold_season_search_release(struct edgefold_season_search *self)
{
    (void)self; /* the block belongs to no one */
}

/* Whether a number may be the share of sound rows that are alarms; NaN may not. */
static int is_rate(double false_alarms)
{
    return false_alarms > 0.0 && false_alarms <= 0.1;
}

enum edgefold_status ${stream}_start(struct ${stream}_sensor *sensor, double false_alarms)
{
    const double rate = is_rate(false_alarms) ? false_alarms : 1e-4;
    ${stream}_init(&sensor->model);
    edgefold_row_slots_begin_fields(&sensor->slots);
    edgefold_sensor_scores_begin_fields(&sensor->scores);
    edgefold_ahead_counts_begin_fields(&sensor->counts);
    edgefold_row_slots_begin(&sensor->slots, ${NAME}_LONGEST_SEASON);
    edgefold_sensor_scores_begin(&sensor->scores, rate, $at_low, $at_middle, $at_high);
    own_ring(sensor);
    for (int i = 0; i < ${NAME}_N_KEPT_VALUES; i++) sensor->values[i] = NAN;
    memset(sensor->ahead, 0, sizeof sensor->ahead);
    return is_rate(false_alarms) ? EDGEFOLD_OK : EDGEFOLD_BAD_VALUE;
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

/* Learns the row that was accepted last, as `push` does. */
static int learn_row(struct ${stream}_sensor *sensor, double value, struct ${stream}_row *row)
{
    struct edgefold_row_slots *slots = &sensor->slots;
    struct $stream *model = &sensor->model;
    struct edgefold_season_search search;
    edgefold_season_search_begin_fields(&search);
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
    const int is_usual =
        edgefold_has_forecast((int64_t)${stream}_n_points(model), sensor->counts.n_values);
    const struct edgefold_alarm_verdict verdict = edgefold_sensor_scores_score(
        &sensor->scores, value, row->quantiles, row->log_density, row->p_value, $usual,
        row->n_missing, slots->place, is_usual);
    if (edgefold_ahead_counts_see(&sensor->counts, value, row->season, n + 1)) keep_ahead(sensor);
    edgefold_row_slots_learn(slots, &search);
    row->alarm = verdict.alarm;
    row->event = verdict.event;
    row->n_since = verdict.n_since;
    row->size = verdict.size;
    row->season_news = slots->seasons.news;
    row->clock_leap = slots->clock.leap;
    row->is_known = sensor->scores.is_known;
    if (!row->is_known) {
        row->mean = NAN;
        for (int level = 0; level < ${NAME}_N_LEVELS; level++) row->quantiles[level] = NAN;
    }
    return 0;
}

int ${stream}_push(
    struct ${stream}_sensor *sensor, double time, double value, int dated,
    struct ${stream}_row *row)
{
    own_ring(sensor);
    const int refusal = edgefold_row_slots_accept(&sensor->slots, time, value, dated);
    return refusal ? refusal : learn_row(sensor, value, row);
}

/* Joins the direct forecasts to a path; NULL while too few rows have come. */
static struct edgefold_joined_path *joined(struct ${stream}_sensor *sensor)
{
    struct edgefold_joined_path *path = &shared.path;
    struct edgefold_ahead_counts *ahead = &sensor->counts;
    struct $stream *model = &sensor->model;
    const uint32_t sides = last_commit(model).sides;
    const int64_t n_points = (int64_t)${stream}_n_points(model);
    static const int64_t horizons[] = {$horizons};
    settle(model);
    if (!edgefold_ahead_counts_is_known(ahead, n_points)) return NULL;
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
    return path;
}

int ${stream}_path(
    struct ${stream}_sensor *sensor, size_t n, double *means, double *quantiles)
{
    struct edgefold_joined_path *path = joined(sensor);
    if (!path) return 1;
    for (size_t slot = 0; slot < n; slot++) {
        edgefold_joined_path_forecast_at(path, (int64_t)slot + 1);
        means[slot] = path->forecast[0];
        memcpy(quantiles + slot * ${NAME}_N_LEVELS, path->forecast + 1,
               ${NAME}_N_LEVELS * sizeof *quantiles);
    }
    return 0;
}

#ifndef EDGEFOLD_WITHOUT_SNAPSHOTS

$keeping
/* Lists what a snapshot keeps beside the model's state, as Python's snapshots name it. */
static void list_kept(struct ${stream}_sensor *sensor, struct ${stream}_kept *kept,
                      struct edgefold_array arrays[$n_kept_arrays])
{
    const struct edgefold_array all[$n_kept_arrays] = {
$kept_arrays
        {"season_values", "<f4", "($n_ring,)", sensor->values, sizeof sensor->values, 0},
    };
    memcpy(arrays, all, sizeof all);
    for (int i = 0; i < $n_kept_arrays; i++) arrays[i].room = arrays[i].n_bytes;
}

/* The number of a season's name in a snapshot: that of day, week, year, or none. */
static const int season_names[4] = {
    EDGEFOLD_DAY, EDGEFOLD_WEEK, EDGEFOLD_YEAR, EDGEFOLD_NOTHING};

/* Writes the season's numbers, and forgets the values in the ring that the season has forgotten. */
static void write_season(const struct edgefold_seasons *seasons, double *to)
{
    int name = 0;
    for (int64_t i = seasons->n_held; i < seasons->n_ring; i++)
        seasons->ring[(seasons->n + i - seasons->n_held) % seasons->n_ring] = NAN;
    while (season_names[name] != seasons->season.name) name++;
    const double numbers[8] = {
        (double)seasons->n, (double)seasons->n_held, (double)seasons->offset,
        (double)seasons->season.length, name, seasons->is_dated, (double)seasons->next_look,
        seasons->pace};
    memcpy(to, numbers, sizeof numbers);
}

static void read_season(struct edgefold_seasons *seasons, const double *from)
{
    seasons->n = (int64_t)from[0];
    seasons->n_held = (int64_t)from[1];
    seasons->offset = (int64_t)from[2];
    seasons->season.length = (int64_t)from[3];
    seasons->season.name = season_names[(int)from[4] & 3];
    seasons->is_dated = from[5] != 0.0;
    seasons->next_look = (int64_t)from[6];
    seasons->pace = from[7];
    seasons->waiting = -1;
}

/* Writes the numbers of the rules as a snapshot keeps them. */
static void write_kept(struct ${stream}_sensor *sensor, struct ${stream}_kept *kept)
{
    const struct edgefold_watch *watch = &sensor->scores.watch;
    own_ring(sensor);
    edgefold_seasons_write(&sensor->slots.seasons);
$write_kept
    write_season(&sensor->slots.seasons, kept->season);
    kept->told_pace[0] = sensor->slots.told_pace;
    const float *ahead = sensor->ahead;
    for (int horizon = 0; horizon <= ${NAME}_N_HORIZONS; horizon++) {
        kept->ahead_means[horizon] = *ahead++;
        for (int level = 0; level < ${NAME}_N_LEVELS; level++)
            kept->ahead_quantiles[horizon * ${NAME}_N_LEVELS + level] = *ahead++;
    }
    kept->ahead_numbers[0] = sensor->counts.n_values;
    kept->ahead_numbers[1] = sensor->counts.season;
    kept->ahead_numbers[2] = sensor->counts.age;
}

static void read_kept(struct ${stream}_sensor *sensor, const struct ${stream}_kept *kept)
{
    struct edgefold_watch *watch = &sensor->scores.watch;
$read_kept
    read_season(&sensor->slots.seasons, kept->season);
    sensor->slots.told_pace = kept->told_pace[0];
    float *ahead = sensor->ahead;
    for (int horizon = 0; horizon <= ${NAME}_N_HORIZONS; horizon++) {
        *ahead++ = (float)kept->ahead_means[horizon];
        for (int level = 0; level < ${NAME}_N_LEVELS; level++)
            *ahead++ = (float)kept->ahead_quantiles[horizon * ${NAME}_N_LEVELS + level];
    }
    sensor->counts.n_values = kept->ahead_numbers[0];
    sensor->counts.season = kept->ahead_numbers[1];
    sensor->counts.age = kept->ahead_numbers[2];
}

enum edgefold_status ${stream}_save_sensor(
    struct ${stream}_sensor *sensor, edgefold_write *write, void *to)
{
    struct edgefold_array arrays[$n_kept_arrays];
    write_kept(sensor, &shared.kept);
    list_kept(sensor, &shared.kept, arrays);
    return ${stream}_save(&sensor->model, write, to, arrays, $n_kept_arrays);
}

enum edgefold_status ${stream}_load_sensor(
    struct ${stream}_sensor *sensor, edgefold_read *read, void *from)
{
    struct edgefold_array arrays[$n_kept_arrays];
    const double rate = sensor->scores.watch.rate;
    if (!is_rate(rate)) return EDGEFOLD_BAD_VALUE; /* it was not started */
    ${stream}_start(sensor, rate);
    list_kept(sensor, &shared.kept, arrays);
    enum edgefold_status status = ${stream}_load(
        &sensor->model, read, from, arrays, $n_kept_arrays);
    for (int i = 0; i < $n_kept_arrays; i++)
        if (status == EDGEFOLD_OK && arrays[i].n_bytes != arrays[i].room)
            status = EDGEFOLD_BAD_SNAPSHOT;
    if (status == EDGEFOLD_OK)
        read_kept(sensor, &shared.kept);
    else
        ${stream}_start(sensor, rate);
    return status;
}
#endif

double ${stream}_pace(const struct ${stream}_sensor *sensor)
{
    return edgefold_slot_clock_shown_pace((struct edgefold_slot_clock *)&sensor->slots.clock);
}

double ${stream}_newest_time(const struct ${stream}_sensor *sensor)
{
    return sensor->slots.clock.last_time;
}

int64_t ${stream}_season(const struct ${stream}_sensor *sensor)
{
    return sensor->slots.seasons.season.length;
}

int ${stream}_season_name(const struct ${stream}_sensor *sensor)
{
    return sensor->slots.seasons.season.name;
}

double ${stream}_coverage(const struct ${stream}_sensor *sensor)
{
    const struct edgefold_score_counts *counts = &sensor->scores.counts;
    return counts->n_forecast > 0.0 ? counts->n_within_90 / counts->n_forecast : NAN;
}

size_t ${stream}_sensor_bytes(void)
{
    return sizeof(struct ${stream}_sensor);
}

const char *${stream}_name(int word)
{
    static const char *const names[] = {$names};
    if (word == -1) return "arithmetic failed";
    return word >= 0 && word < (int)(sizeof names / sizeof *names) ? names[word] : "";
}
