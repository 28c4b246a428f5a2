/* A model that says what the program has read: it predicts x and deviates by y. Its state is the sum
 * of both; its snapshot is that and the record. */
#include "model.h"

#include <math.h>

static double mean[1], deviation[1], sums[2];
static const struct told told[] = {{"prediction", mean, 1, NULL}, {"std", deviation, 1, NULL}};
const struct model model = {
    "echo", "echo", "0", "", false, 0, '.', NULL, 1, 1, told, 2, mean, deviation,
};

void model_begin(void) { sums[0] = sums[1] = 0; }

bool model_seed(uint64_t seed)
{
    (void)seed;
    return false;
}

bool model_is_full(void) { return false; }

enum model_status model_query(const double *x)
{
    mean[0] = *x;
    return fabs(*x) <= 1e9 ? MODEL_DONE : MODEL_BAD_VALUE;
}

enum model_status model_update(const double *x, const double *y)
{
    if (!(fabs(*y) <= 1e9)) return MODEL_BAD_VALUE;
    deviation[0] = *y;
    sums[0] += *x;
    sums[1] += *y;
    return MODEL_DONE;
}

enum model_status model_step(const double *x)
{
    (void)x;
    return MODEL_FAILED;
}

const char *model_save(model_writer write, void *to, const char *record, size_t n)
{
    write(to, sums, sizeof sums);
    write(to, record, n);
    return NULL;
}

const char *model_load(model_reader read, void *from, char *record, size_t room, size_t *n)
{
    if (read(from, sums, sizeof sums) < sizeof sums) return "is too short";
    *n = read(from, record, room);
    return NULL;
}
