/* Pushes the rows of a file into two sensors in turn, saves, loads, loads damaged snapshots, and
 * forecasts paths: for sanitizers.
 *
 * Usage: two_sensors ROWS. ROWS holds for each row three doubles: time, value, and 1 if times are
 * dates. Prints one number: a sum over all that the pushes and the paths answered. */
#include "edgefold_sensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_AHEAD 48

static struct edgefold_sensors_sensor one, other;
static unsigned char snapshot[EDGEFOLD_SENSORS_SENSOR_SNAPSHOT_BYTES], damaged[sizeof snapshot];
static size_t n_snapshot, n_read, n_whole;
static double sum;

static size_t write_bytes(void *to, const void *bytes, size_t n)
{
    (void)to;
    if (n > sizeof snapshot - n_snapshot) exit(2); /* the header's bound is wrong */
    memcpy(snapshot + n_snapshot, bytes, n);
    n_snapshot += n;
    return n;
}

static size_t read_bytes(void *from, void *to, size_t n)
{
    const size_t left = n_whole - n_read, part = n < left ? n : left;
    memcpy(to, (unsigned char *)from + n_read, part);
    n_read += part;
    return part;
}

static void add(double number)
{
    if (!isnan(number)) sum += number;
}

static void push(struct edgefold_sensors_sensor *sensor, const double *numbers)
{
    struct edgefold_sensors_row row;
    double means[N_AHEAD], quantiles[N_AHEAD * EDGEFOLD_SENSORS_N_LEVELS];
    const int refusal =
        edgefold_sensors_push(sensor, numbers[0], numbers[1], numbers[2] != 0.0, &row);
    add(refusal);
    if (refusal) return;
    add(row.mean);
    add(row.log_density + row.p_value + row.size);
    add(row.event + row.alarm + (double)(row.n_since + row.n_missing + row.season));
    if (edgefold_sensors_path(sensor, N_AHEAD, means, quantiles) == 0)
        add(means[N_AHEAD - 1] + quantiles[EDGEFOLD_SENSORS_N_LEVELS * N_AHEAD - 1]);
}

static void keep(struct edgefold_sensors_sensor *sensor)
{
    n_snapshot = n_read = 0;
    if (edgefold_sensors_save_sensor(sensor, write_bytes, NULL) != EDGEFOLD_OK) exit(3);
    n_whole = n_snapshot;
    edgefold_sensors_start(sensor, 1e-4);
    if (edgefold_sensors_load_sensor(sensor, read_bytes, snapshot) != EDGEFOLD_OK) exit(4);
}

/* Loads a damaged copy of the snapshot: a bit is another one, or its end is missing. */
static void damage(struct edgefold_sensors_sensor *sensor, size_t at, int is_cut)
{
    memcpy(damaged, snapshot, n_snapshot);
    n_read = 0;
    n_whole = is_cut ? at : n_snapshot;
    if (!is_cut) damaged[at] ^= 0x41;
    if (edgefold_sensors_load_sensor(sensor, read_bytes, damaged) == EDGEFOLD_OK) return;
    if (edgefold_sensors_season(sensor) || !isnan(edgefold_sensors_pace(sensor))) exit(5);
}

int main(int n_arguments, char **arguments)
{
    FILE *file = n_arguments == 2 ? fopen(arguments[1], "rb") : NULL;
    double numbers[3];
    int n = 0;
    if (!file) return 1;
    edgefold_sensors_start(&one, 1e-4);
    edgefold_sensors_start(&other, 1e-3);
    while (fread(numbers, sizeof *numbers, 3, file) == 3) {
        push(&one, numbers);
        numbers[1] = -numbers[1];
        push(&other, numbers);
        if (++n % 200 == 0) keep(n % 400 ? &one : &other);
    }
    keep(&one);
    for (size_t at = 0; at < n_snapshot; at += 1499) {
        damage(&other, at, 0);
        damage(&other, at, 1);
        push(&other, numbers);
    }
    printf("%.17g\n", sum);
    return fclose(file) == 0 ? 0 : 1;
}
