/* The model as the program sees it. The file of these functions is generated for each bundle; all
 * other files of the program are the same for every bundle. */
#ifndef EDGEFOLD_PROGRAM_MODEL_H
#define EDGEFOLD_PROGRAM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "program_sizes.h"

enum model_status {
    MODEL_DONE,
    MODEL_BAD_VALUE,  /* a number is not finite or absurdly large; nothing changed */
    MODEL_NOT_FINITE, /* the step's result is not; nothing changed */
    MODEL_FULL,       /* the state takes no more points */
    MODEL_FAILED
};

/* What is written of a prediction: n numbers under one name, or the words that they stand for. */
struct told {
    const char *name;
    const double *values;
    size_t n;
    const char *const *words;
};

extern const struct model {
    const char *name, *bundle; /* bundle: its hash in hexadecimal digits */
    const char *version;       /* of Edgefold */
    const char *keeps;         /* what becomes of points beyond its capacity, in words */
    bool is_filter;            /* a row has no y and is answered by `model_step` */
    char delimiter, decimal;   /* as its training read rows; delimiter 0: found in the first line */
    const char *missing;       /* further words for a missing value, with commas between */
    size_t n_inputs, n_errors; /* columns of x, and of y that have a central value */
    const struct told *told;
    size_t n_told;
    const double *center;    /* n_errors values that are compared with y, or NULL */
    const double *deviation; /* their standard deviations, or NULL */
} model;

void model_begin(void);
bool model_seed(uint64_t seed); /* false if it takes none */
bool model_is_full(void);
enum model_status model_query(const double *x);
enum model_status model_update(const double *x, const double *y);
enum model_status model_step(const double *x);

/* A snapshot, with the caller's record in it. The functions read and write bytes of a file and
 * return how many; the result is NULL, or says what is wrong. */
typedef size_t (*model_writer)(void *to, const void *bytes, size_t n);
typedef size_t (*model_reader)(void *from, void *bytes, size_t n);
const char *model_save(model_writer write, void *to, const char *record, size_t n);
const char *model_load(model_reader read, void *from, char *record, size_t room, size_t *n);

/* prediction.c: what the generated file computes of a prediction's tensors. */
void mixture_center(const double *means, size_t n, size_t n_outputs, double *center);
void mixture_deviation(const double *means, const double *stds, size_t n, size_t n_outputs,
                       const double *center, double *deviation);
size_t largest(const double *values, size_t n);
double class_probability(const double *scores, size_t n, size_t chosen);

#endif
