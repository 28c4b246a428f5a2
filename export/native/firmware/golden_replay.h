/* What golden.h, which is written for a bundle, tells golden_replay.c. */
#ifndef GOLDEN_REPLAY_H
#define GOLDEN_REPLAY_H

#include <stddef.h>

/* A tensor of predictions, `size` numbers for each target.
   found: the interface's numbers, of the last query. expected: (moments, targets, size).
   unit: (moments, size); an error is divided by it. */
struct golden_tensor {
    const char *name;
    const double *found;
    const double *expected;
    const double *unit;
    size_t size;
};

#endif
