/* Learns how the temperature goes over a day, and predicts it before each reading.

   x is the time of the day, from -2 to 2, and y the temperature, in tens of degrees around 25: the
   range that `gp-tiny` was trained on. Nothing grows: a year of readings takes the memory and the
   time of the first. */
#include <stdio.h>

#include "board.h"
#include "edgefold_cmanp.h"
#include "storage.h"

enum { SECONDS_BETWEEN_READINGS = 60, READINGS_BETWEEN_SAVES = 60, SECONDS_OF_DAY = 86400 };

static struct edgefold_cmanp stream;

static double scaled_time(uint64_t seconds)
{
    return -2.0 + 4.0 * (double)(seconds % SECONDS_OF_DAY) / SECONDS_OF_DAY;
}

static double scaled(double celsius)
{
    return (celsius - 25.0) / 10.0;
}

/* A number of any size as whole tenths: what no int holds must not be cast to one. */
static int tenths(double number)
{
    const double limit = 1e6;
    return (int)(10.0 * (number > limit ? limit : number < -limit ? -limit : number));
}

static void tell_prediction(double celsius)
{
    char line[96];
    snprintf(line, sizeof line, "predicted %d +- %d, read %d tenths of a degree",
             tenths(25.0 + 10.0 * stream.prediction_mean[0]),
             tenths(10.0 * stream.prediction_std[0]), tenths(celsius));
    board_print(line);
}

static void tell_start(enum edgefold_status loaded)
{
    char line[96];
    if (loaded == EDGEFOLD_OK) {
        snprintf(line, sizeof line, "continues after %lu readings",
                 (unsigned long)edgefold_cmanp_n_points(&stream));
    } else {
        snprintf(line, sizeof line, "starts without a snapshot (status %d)", (int)loaded);
    }
    board_print(line);
}

static void read_once(uint64_t seconds)
{
    const double celsius = board_celsius();
    const double x[1] = {scaled_time(seconds)}, y[1] = {scaled(celsius)};
    if (edgefold_cmanp_query(&stream, 1, x) == EDGEFOLD_OK) {
        tell_prediction(celsius);
    }
    if (edgefold_cmanp_update(&stream, x, y) != EDGEFOLD_OK) {
        board_print("this reading was refused; the state is as before");
    }
}

int main(void)
{
    board_begin();
    edgefold_cmanp_init(&stream);
    tell_start(storage_load(&stream));
    for (uint64_t n = 1;; n++) {
        read_once(board_seconds());
        if (n % READINGS_BETWEEN_SAVES == 0 && storage_save(&stream) != EDGEFOLD_OK) {
            board_print("the snapshot was not written; the one before is kept");
        }
        board_sleep(n * SECONDS_BETWEEN_READINGS);
    }
}
