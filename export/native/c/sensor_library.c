
/* For Python ------------------------------------------------------------------------------------ */

#if defined(EDGEFOLD_LIBRARY) && !defined(EDGEFOLD_WITHOUT_SNAPSHOTS)

/* edgefold.runtime.sensors.compiled_sensors calls these functions, one at a time. The numbers of a
 * sensor are, in the order in which it lists them: facts, the newest row, forecasts ahead. */
enum { N_FACTS = 13, N_FORECAST = 1 + ${NAME}_N_LEVELS, N_ROW = N_FORECAST + 9 };
enum { N_ARRAYS = $n_state + $n_kept_arrays };

extern const size_t edgefold_native_sensor_bytes, edgefold_native_sensor_numbers;
const size_t edgefold_native_sensor_bytes = sizeof(struct ${stream}_sensor);
const size_t edgefold_native_sensor_numbers =
    N_FACTS + N_ROW + (${NAME}_N_HORIZONS + 1) * N_FORECAST;

void edgefold_native_sensor_start(struct ${stream}_sensor *sensor, double false_alarms);
const char *edgefold_native_sensor_name(int word);
void edgefold_native_sensor_tell(struct ${stream}_sensor *sensor, double *numbers);
int edgefold_native_sensor_push(
    struct ${stream}_sensor *sensor, double time, double value, int dated, double *numbers);
size_t edgefold_native_sensor_push_rows(
    struct ${stream}_sensor *sensor, size_t n, const double *times, const double *values, int dated,
    int64_t *n_taken, double *numbers, int *answers, double *rows, double *ahead);
int edgefold_native_sensor_path(
    struct ${stream}_sensor *sensor, size_t n, double *means, double *quantiles);
const char *edgefold_native_sensor_array(struct ${stream}_sensor *sensor, int at);
size_t edgefold_native_sensor_save(
    struct ${stream}_sensor *sensor, unsigned char *to, int64_t n_points[2]);
void edgefold_native_sensor_load(
    struct ${stream}_sensor *sensor, const unsigned char *from, const int64_t n_points[2]);

void edgefold_native_sensor_start(struct ${stream}_sensor *sensor, double false_alarms)
{
    ${stream}_start(sensor, false_alarms);
}

const char *edgefold_native_sensor_name(int word)
{
    return ${stream}_name(word);
}

int edgefold_native_sensor_path(
    struct ${stream}_sensor *sensor, size_t n, double *means, double *quantiles)
{
    return ${stream}_path(sensor, n, means, quantiles);
}

/* Writes the facts, and the forecasts of later slots: each horizon's, and that of a season. */
void edgefold_native_sensor_tell(struct ${stream}_sensor *sensor, double *numbers)
{
    static const int64_t horizons[] = {$horizons};
    struct edgefold_row_slots *slots = &sensor->slots;
    const struct edgefold_ahead_counts *counts = &sensor->counts;
    const int64_t n_points = (int64_t)${stream}_n_points(&sensor->model);
    const int is_known = edgefold_ahead_counts_is_known(&sensor->counts, n_points);
    const double facts[N_FACTS] = {
        (double)n_points,
        slots->clock.distance,
        slots->clock.last_time,
        edgefold_slot_clock_shown_pace(&slots->clock),
        slots->clock.pace,
        slots->clock.is_irregular,
        slots->clock.leap,
        (double)slots->n_gap,
        slots->pace_before,
        (double)slots->seasons.season.length,
        slots->seasons.season.name,
        slots->seasons.news,
        is_known};
    memcpy(numbers, facts, sizeof facts);
    numbers += N_FACTS + N_ROW;
    struct edgefold_joined_path *path = is_known && counts->age ? joined(sensor) : NULL;
    for (int horizon = 0; horizon <= ${NAME}_N_HORIZONS; horizon++) {
        if (path) {
            const int64_t season = counts->season ? counts->season : $no_season;
            edgefold_joined_path_forecast_at(
                path, horizon < ${NAME}_N_HORIZONS ? horizons[horizon] : season);
        }
        for (int i = 0; i < N_FORECAST; i++)
            *numbers++ = path ? path->forecast[i] : sensor->ahead[horizon * N_FORECAST + i];
    }
}

/* Pushes a row. If it returns 0, all numbers are written; else only the distance of the times, and
 * the sensor is as before the row. */
int edgefold_native_sensor_push(
    struct ${stream}_sensor *sensor, double time, double value, int dated, double *numbers)
{
    static struct ${stream}_sensor before;
    struct ${stream}_row row;
    own_ring(sensor);
    int refusal = edgefold_row_slots_accept(&sensor->slots, time, value, dated);
    if (!refusal) {
        const int is_gap = sensor->slots.n_passed > 0; /* the model steps more than once */
        if (is_gap) before = *sensor;
        refusal = learn_row(sensor, value, &row);
        if (refusal && is_gap) *sensor = before;
    }
    if (refusal) {
        numbers[1] = sensor->slots.clock.distance;
        return refusal;
    }
    double *to = numbers + N_FACTS;
    *to++ = row.mean;
    for (int level = 0; level < ${NAME}_N_LEVELS; level++) *to++ = row.quantiles[level];
    const double others[N_ROW - N_FORECAST] = {
        row.log_density,
        row.p_value,
        row.size,
        (double)row.n_since,
        (double)row.n_missing,
        (double)row.season,
        row.event,
        row.alarm,
        row.is_known};
    memcpy(to, others, sizeof others);
    edgefold_native_sensor_tell(sensor, numbers);
    return 0;
}

/* Pushes n rows, each as `push` does, and returns how many; fewer only if a step failed.
 *
 * times     NULL if the rows have no times: a row's time is the number of rows taken before it
 * n_taken   is the number of rows of the sensor that were taken, before and after
 * numbers   those of the newest row that was taken
 * answers   (n) what `push` returned
 * rows      (n, N_ROW) the numbers of each row alone; of a refused one only the distance of times
 * ahead     (n, 3 + forecasts ahead) after each row: the number of slots learned, the time between
 *           two slots, whether later slots have forecasts, and these; NULL if nobody asks */
size_t edgefold_native_sensor_push_rows(
    struct ${stream}_sensor *sensor, size_t n, const double *times, const double *values, int dated,
    int64_t *n_taken, double *numbers, int *answers, double *rows, double *ahead)
{
    const size_t n_ahead = edgefold_native_sensor_numbers - N_FACTS - N_ROW;
    for (size_t i = 0; i < n; i++, rows += N_ROW) {
        const double time = times ? times[i] : (double)*n_taken;
        answers[i] = edgefold_native_sensor_push(sensor, time, values[i], dated, numbers);
        if (answers[i] < 0) return i;
        if (answers[i]) {
            rows[0] = numbers[1];
            continue;
        }
        ++*n_taken;
        memcpy(rows, numbers + N_FACTS, N_ROW * sizeof *rows);
        if (!ahead) continue;
        double *own = ahead + i * (3 + n_ahead);
        own[0] = numbers[0];
        own[1] = numbers[3];
        own[2] = numbers[N_FACTS - 1];
        memcpy(own + 3, numbers + N_FACTS + N_ROW, n_ahead * sizeof *own);
    }
    return n;
}

/* Lists the arrays of a snapshot: the state's by name on the sides that are given, and the rules'. */
static void list_arrays(struct ${stream}_sensor *sensor, uint32_t sides,
                        struct edgefold_array arrays[N_ARRAYS])
{
    list_state(&sensor->model, sides, 0, arrays);
    list_kept(sensor, &shared.kept, arrays + $n_state);
}

/* The name of one of these arrays; "" behind the last. */
const char *edgefold_native_sensor_array(struct ${stream}_sensor *sensor, int at)
{
    struct edgefold_array arrays[N_ARRAYS];
    list_arrays(sensor, 0, arrays);
    return at >= 0 && at < N_ARRAYS ? arrays[at].name : "";
}

/* Copies the arrays, one behind the other, and the numbers of points. Returns their bytes; with
 * NULL it only counts them. */
size_t edgefold_native_sensor_save(
    struct ${stream}_sensor *sensor, unsigned char *to, int64_t n_points[2])
{
    struct edgefold_array arrays[N_ARRAYS];
    size_t n_bytes = 0;
    settle(&sensor->model);
    const struct edgefold_commit at = last_commit(&sensor->model);
    write_kept(sensor, &shared.kept);
    list_arrays(sensor, at.sides, arrays);
    for (int i = 0; i < N_ARRAYS; n_bytes += arrays[i++].n_bytes)
        if (to) memcpy(to + n_bytes, arrays[i].data, arrays[i].n_bytes);
    n_points[0] = (int64_t)at.n_points;
    n_points[1] = (int64_t)at.n_recent;
    return n_bytes;
}

/* Goes on from what `save` wrote, by the same program of the same processor; the caller has judged
 * it. The sensor must have been started. */
void edgefold_native_sensor_load(
    struct ${stream}_sensor *sensor, const unsigned char *from, const int64_t n_points[2])
{
    struct edgefold_array arrays[N_ARRAYS];
    struct edgefold_commit next = last_commit(&sensor->model);
    list_arrays(sensor, next.sides, arrays);
    for (int i = 0; i < N_ARRAYS; from += arrays[i++].n_bytes)
        memcpy(arrays[i].data, from, arrays[i].n_bytes);
    next.n_points = (uint64_t)n_points[0];
    next.n_recent = (uint64_t)n_points[1];
    set_commit(&sensor->model, next);
    read_kept(sensor, &shared.kept);
}
#endif
