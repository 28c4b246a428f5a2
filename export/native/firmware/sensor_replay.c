/* Replays rows of sensors that were recorded on another machine, through the C interface.

   Each series is one sensor. Forecasts are compared as shares of the recorded band from the 5 % to
   the 95 % quantile, decisions (alarm, event, its length, season, refusal) must be the same. It
   prints how many rows lie beyond each power of ten, what rows cost with and without a search for a
   season, and the stack; then it saves, loads and saves again. It ends with 0 where all rows were
   compared, no more than SENSOR_OTHERS decisions differ, and both snapshots are the same. */
#include "sensor_rows.h"

#define REPLAY_SNAPSHOT_BYTES SENSOR_SNAPSHOT_BYTES
#include "replay_parts.h"

#define N_DECADES 7 /* shares above 1e-7, 1e-6, ... 1e-1 */

struct cost {
    const char *name;
    uint32_t n;
    uint64_t total, most;
};

static struct SENSOR(sensor) sensor;
static struct SENSOR(row) row;
static struct cost usual = {"rows", 0, 0, 0}, searching = {"rows with a search", 0, 0, 0};
static struct cost saving = {"save", 0, 0, 0}, loading = {"load", 0, 0, 0};
static uint32_t beyond[N_DECADES], n_compared, n_others;
static double worst;

static void note(struct cost *cost, uint64_t before)
{
    const uint64_t taken = machine_instructions() - before;
    cost->n++;
    cost->total += taken;
    if (taken > cost->most) {
        cost->most = taken;
    }
}

static double apart(double one, double other)
{
    return one > other ? one - other : other - one;
}

/* Compare the row's forecast and decisions with the recorded ones. */
static void compare(const struct sensor_row *recorded, int refusal)
{
    if (refusal || recorded->refusal) {
        n_others += refusal != recorded->refusal;
        return;
    }
    n_others += row.alarm != recorded->alarm || row.event != recorded->event ||
                row.n_since != recorded->n_since || row.season != recorded->season ||
                row.is_known != recorded->is_known;
    if (!row.is_known || !recorded->is_known) {
        return;
    }
    const float *quantiles = recorded->quantiles;
    double largest = apart(row.mean, recorded->mean);
    for (int i = 0; i < SENSOR_N_LEVELS; i++) {
        const double difference = apart(row.quantiles[i], quantiles[i]);
        largest = difference > largest ? difference : largest;
    }
    const double band = quantiles[SENSOR_N_LEVELS - 1] - quantiles[0];
    const double share = largest > 0 ? largest / (band > recorded->least ? band : recorded->least) : 0;
    n_compared++;
    worst = share > worst ? share : worst;
    double bound = 1e-7;
    for (int i = 0; i < N_DECADES; i++, bound *= 10) {
        beyond[i] += !(share <= bound);
    }
}

static void replay(const struct sensor_row *rows, uint32_t n)
{
    SENSOR(start)(&sensor, 1e-4);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t next_look = sensor.slots.seasons.next_look;
        const uint64_t before = machine_instructions();
        const int refusal =
            SENSOR(push)(&sensor, rows[i].time, rows[i].value, rows[i].dated, &row);
        note(sensor.slots.seasons.next_look != next_look ? &searching : &usual, before);
        compare(&rows[i], refusal);
    }
}

/* Save, forget everything, load, and save again; whether it is the same. */
static int keep(void)
{
    int is_second = 0;
    uint64_t before = machine_instructions();
    enum edgefold_status status = SENSOR(save_sensor)(&sensor, save_some, &is_second);
    note(&saving, before);
    n_saved = place;
    place = 0;
    if (status == EDGEFOLD_OK) {
        before = machine_instructions();
        status = SENSOR(load_sensor)(&sensor, load_some, NULL);
        note(&loading, before);
    }
    place = 0;
    is_second = 1;
    if (status == EDGEFOLD_OK) {
        status = SENSOR(save_sensor)(&sensor, save_some, &is_second);
    }
    return status == EDGEFOLD_OK && place == n_saved;
}

static void report(const struct cost *cost)
{
    if (cost->n == 0 || cost->total == 0) {
        return;
    }
    machine_print("instructions of ");
    machine_print(cost->name);
    machine_print(": ");
    print_count(cost->total / cost->n);
    machine_print(" on average, ");
    print_count(cost->most);
    machine_print(" at most, of ");
    print_count(cost->n);
    machine_print("\n");
}

static void report_bytes(const char *name, uint64_t n)
{
    machine_print(name);
    print_count(n);
    machine_print(" bytes\n");
}

int main(void)
{
    machine_begin();
    for (uint32_t i = 0; i < sizeof sensor_series / sizeof *sensor_series; i++) {
        replay(sensor_series[i].rows, sensor_series[i].n);
    }
    report(&usual);
    report(&searching);
    report_bytes("stack of rows: ", machine_stack_bytes());
    const int is_kept = keep();
    report(&saving);
    report(&loading);
    report_bytes("stack: ", machine_stack_bytes());
    report_bytes("sensor: ", sizeof sensor);
    report_bytes("shared: ", SENSOR_SHARED_BYTES);
    report_bytes("snapshot: ", n_saved);
    machine_print("forecasts compared: ");
    print_count(n_compared);
    machine_print(", largest difference: ");
    print_count((uint64_t)(worst * 1e9 + 0.5));
    machine_print("e-9 of the band, beyond 1e-7 to 1e-1:");
    for (int i = 0; i < N_DECADES; i++) {
        machine_print(" ");
        print_count(beyond[i]);
    }
    machine_print("\n");
    const int passed = is_kept && n_others <= SENSOR_OTHERS && n_compared > 0;
    machine_print(passed ? "PASS: " : "FAIL: ");
    print_count(n_others);
    machine_print(is_kept ? " decisions differ\n" : " decisions differ; the snapshot was not the same again\n");
    machine_exit(passed ? 0 : 1);
}
