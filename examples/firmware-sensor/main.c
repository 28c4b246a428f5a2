/* Watches a sensor: forecasts each row before it comes, prints alarms, and saves what it has learned
   once in ROWS_BETWEEN_SAVES rows. After a power cut it goes on from the newest whole snapshot. */
#include <math.h>
#include <stdio.h>

#include "board.h"
#include "edgefold_sensors.h"
#include "storage.h"

#define ROWS_BETWEEN_SAVES 60
#define FALSE_ALARMS 1e-4 /* one in 10,000 sound rows */
#define PLACE 0           /* of the sensor in the flash, below N_SENSORS of board.h */

static struct edgefold_sensors_sensor sensor; /* static: it is too large for a stack */
static struct edgefold_sensors_row row;

/* A number of any size in hundredths: small C libraries print no floats. */
static long hundredths(double number)
{
    return isnan(number) ? 0 : (long)(100.0 * fmin(fmax(number, -1e6), 1e6));
}

static void print_start(enum edgefold_status loaded)
{
    char line[96];
    if (loaded == EDGEFOLD_OK) {
        snprintf(line, sizeof line, "goes on after the row at %ld",
                 (long)edgefold_sensors_newest_time(&sensor));
        board_print(line);
    } else {
        board_print("starts without a snapshot");
    }
}

static void print_row(double time, double value)
{
    char line[160];
    if (row.alarm) {
        snprintf(line, sizeof line, "ALARM at %ld: %s, value %ld, expected %ld", (long)time,
                 edgefold_sensors_name(row.event), hundredths(value), hundredths(row.mean));
        board_print(line);
    }
    if (row.season_news) {
        snprintf(line, sizeof line, "season %s: %ld rows %s",
                 edgefold_sensors_name(row.season_news), (long)edgefold_sensors_season(&sensor),
                 edgefold_sensors_name(edgefold_sensors_season_name(&sensor)));
        board_print(line);
    }
    if (row.clock_leap) {
        board_print("the clock was set, or the rows paused for long");
    }
}

static void take_row(double time, double value)
{
    const int refusal = edgefold_sensors_push(&sensor, time, value, 1, &row);
    if (refusal == 0) {
        print_row(time, value);
    } else {
        board_print("refused:");
        board_print(edgefold_sensors_name(refusal));
    }
}

int main(void)
{
    double time, value;
    board_begin();
    edgefold_sensors_start(&sensor, FALSE_ALARMS);
    print_start(storage_load(PLACE, &sensor));
    for (long n = 1; board_wait_for_row(edgefold_sensors_newest_time(&sensor), &time, &value); n++) {
        take_row(time, value);
        if (n % ROWS_BETWEEN_SAVES == 0 && storage_save(PLACE, &sensor) != EDGEFOLD_OK) {
            board_print("the snapshot was not written; the one before is kept");
        }
    }
    return 0;
}
