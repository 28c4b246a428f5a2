
/* Sensors ---------------------------------------------------------------------------------------
 *
 * One sensor is one struct below: the model's stream, and around it the clock that turns times into
 * evenly spaced slots, the search for seasons, and the alarms. Its rules are written once, in
 * Python; this is C made of them.
 *
 *     static struct ${stream}_sensor sensor;
 *     static struct ${stream}_row row;
 *     ${stream}_start(&sensor, 1e-4);
 *     if (${stream}_push(&sensor, seconds, celsius, 1, &row) == 0 && row.alarm)
 *         use(row.event);
 *
 * Memory, where pointers have 32 bits:
 *
 *     struct ${stream}_sensor     $sensor_bytes bytes for each sensor
 *     ${NAME}_SHARED_BYTES        $shared_bytes bytes once: for steps, searches and snapshots
 *
 * Seasons have up to ${NAME}_LONGEST_SEASON slots; `edgefold build --longest-season` chooses it.
 */
#define ${NAME}_LONGEST_SEASON $longest
#define ${NAME}_N_KEPT_VALUES $n_ring /* of the slots in which a season is sought */
#define ${NAME}_N_HORIZONS $n_horizons /* direct forecasts: $horizons slots ahead */
#define ${NAME}_N_LEVELS $n_levels /* quantiles at $levels */

#ifndef EDGEFOLD_SENSOR_TYPES /* the same for all models of sensors of a program */
#define EDGEFOLD_SENSOR_TYPES

/* A search for seasons computes in double where memory is plenty, so that C finds what Python finds,
 * and in float on a microcontroller. */
#ifndef EDGEFOLD_REAL
#if UINTPTR_MAX > 0xffffffff || defined(__wasm__) || defined(EDGEFOLD_LIBRARY)
#define EDGEFOLD_REAL double
#else
#define EDGEFOLD_REAL float
#endif
#endif
typedef EDGEFOLD_REAL edgefold_real;

/* Names of events and of whatever else is told by a name; ${stream}_name gives the text. */
$words

$structs
#endif

/* What a push says about a row. Numbers are in the unit of the value. */
struct ${stream}_row {
    double mean, quantiles[${NAME}_N_LEVELS]; /* forecast before the value was seen */
    double log_density; /* of the value, in nats; 0 if nothing was scored */
    double p_value;     /* the chance of a value this far from the forecast; 1 if not scored */
    double size;        /* of an event that lasts: the change of a drift, or a factor; else 0 */
    int64_t n_since;    /* rows since the event began; 0 if it began with this row */
    int64_t n_missing;  /* slots without a row between this row and the one before */
    int64_t season;     /* length in slots of the season of this forecast; 0 if none was known */
    int event;          /* EDGEFOLD_NOTHING, EDGEFOLD_VALUE, EDGEFOLD_LEVEL_SHIFT, ... */
    int alarm;          /* 1 once for each incident, at the stated rate of false alarms */
    int is_known;       /* whether there was a forecast; mean and quantiles are NaN without */
    int season_news;    /* EDGEFOLD_FOUND, EDGEFOLD_GUESSED (by the calendar) or EDGEFOLD_LOST if
                           the row changed the season; else 0 */
    int clock_leap;     /* EDGEFOLD_BACK or EDGEFOLD_AHEAD if the clock was set, or the rows paused
                           for long, before this row; else 0 */
};

/* Numbers of a sensor as a snapshot keeps them; programs need it only for its size. */
struct ${stream}_kept {
$kept_struct
};

/* In which a search for seasons computes. */
struct ${stream}_search {
    edgefold_real waves[$n_waves], score[$n_lags], level[$n_lags];
    uint16_t pairs[$n_ring];
};
#define ${NAME}_SHARED_BYTES \
    (sizeof(struct ${stream}_search) > ${NAME}_ARENA_BYTES ? sizeof(struct ${stream}_search) \
                                                           : ${NAME}_ARENA_BYTES)
#define ${NAME}_SENSOR_RAM_BYTES (sizeof(struct ${stream}_sensor) + ${NAME}_SHARED_BYTES)

struct ${stream}_sensor {
    struct $stream model;
    struct edgefold_row_slots slots;
    struct edgefold_sensor_scores scores;
    struct edgefold_ahead_counts counts;
    float values[${NAME}_N_KEPT_VALUES]; /* the ring in which seasons are sought */
    float ahead[(${NAME}_N_HORIZONS + 1) * (1 + ${NAME}_N_LEVELS)]; /* made after the last value */
};

/* Forgets everything. false_alarms: the share of sound rows that may be alarms, above 0 and at most
 * 0.1, such as 1e-4. Any other number is EDGEFOLD_BAD_VALUE: the sensor starts with 1e-4 then. */
enum edgefold_status ${stream}_start(struct ${stream}_sensor *sensor, double false_alarms);

/* Scores a row by the forecast made before it, learns it, and decides whether it is an alarm.
 *
 * time: of the row, in any unit; in seconds since 1970 if times are dates (`dated`). Times must
 * rise. value: the measured value; NAN if it is missing.
 *
 * Returns 0, or why the row was refused; nothing was learned then:
$refusals
 *     -1                             the model's arithmetic failed; it has learned the missing
 *                                    slots before the row */
int ${stream}_push(
    struct ${stream}_sensor *sensor, double time, double value, int dated,
    struct ${stream}_row *row);

/* Forecasts each of the next n slots: means (n), quantiles (n, ${NAME}_N_LEVELS).
 * Returns 0, or 1 while too few rows have come; nothing is written then. */
int ${stream}_path(
    struct ${stream}_sensor *sensor, size_t n, double *means, double *quantiles);

#ifndef EDGEFOLD_WITHOUT_SNAPSHOTS

/* Writes a sensor as a snapshot, an .npz of at most ${NAME}_SENSOR_SNAPSHOT_BYTES. EDGEFOLD_IO:
 * the callback took less than it was given. */
#define ${NAME}_SENSOR_SNAPSHOT_BYTES (${NAME}_SNAPSHOT_BYTES + $kept_bytes)
enum edgefold_status ${stream}_save_sensor(
    struct ${stream}_sensor *sensor, edgefold_write *write, void *to);

/* Goes on from a snapshot; the sensor must have been started, and keeps its rate of false alarms.
 *
 *     EDGEFOLD_BAD_VALUE         ${stream}_start was not called; nothing was read
 *     EDGEFOLD_NO_SNAPSHOT       nothing is there, or something else than a snapshot
 *     EDGEFOLD_BAD_SNAPSHOT      it is damaged
 *     EDGEFOLD_FOREIGN_SNAPSHOT  it is of another bundle or another longest season
 *
 * The last three leave a sensor that has just started. */
enum edgefold_status ${stream}_load_sensor(
    struct ${stream}_sensor *sensor, edgefold_read *read, void *from);
#endif

/* The time between two slots; NaN before it is known. If rows come unevenly, each is a slot, and
 * this is the mean time between them. */
double ${stream}_pace(const struct ${stream}_sensor *sensor);

/* The time of the newest row; NaN before the first. A board without a clock of its own goes on from
 * there after a power cut. */
double ${stream}_newest_time(const struct ${stream}_sensor *sensor);

/* The season that the next rows are forecast with: its length in slots, 0 if none is known; and
 * EDGEFOLD_DAY, EDGEFOLD_WEEK or EDGEFOLD_YEAR if it is one of the calendar, else 0. */
int64_t ${stream}_season(const struct ${stream}_sensor *sensor);
int ${stream}_season_name(const struct ${stream}_sensor *sensor);

/* The share of values within the band from the 5 % to the 95 % quantile; NaN before the first. */
double ${stream}_coverage(const struct ${stream}_sensor *sensor);

/* The size of struct ${stream}_sensor, for callers that cannot read this header. */
size_t ${stream}_sensor_bytes(void);

/* The text of a word, such as "level shift" of an event or "repeated" of a refusal; "" for 0. For
 * -1 of a push it is "arithmetic failed". */
const char *${stream}_name(int word);
