/* The functions of any model that JavaScript calls in WebAssembly. Numbers go through memory, at
 * addresses that JavaScript chose or that a function returns. PREDICTION(name, size) is called for
 * each prediction by PREDICTIONS, which the builder defines: the numbers of one target. */
#include "edgefold_model.h"
#include "predictions.h"
#include "module_bytes.h"

static const struct {
    const char *name;
    size_t place, size;
} predictions[] = {
#define PREDICTION(name, size) {#name, offsetof(struct edgefold_model, prediction_##name), size},
    PREDICTIONS
#undef PREDICTION
};

size_t model_bytes(void) { return sizeof(struct edgefold_model); }

/* Inputs, outputs, streams, targets of a query, and whether it is a filter. */
int model_fact(int number)
{
    static const int facts[] = {
        EDGEFOLD_MODEL_N_INPUTS, EDGEFOLD_MODEL_N_OUTPUTS, EDGEFOLD_MODEL_STREAMS,
        EDGEFOLD_MODEL_TARGETS, EDGEFOLD_MODEL_IS_FILTER};
    return facts[number];
}

void model_start(struct edgefold_model *stream)
{
#if EDGEFOLD_MODEL_TAKES_SEED
    edgefold_model_init(stream, NULL);
#else
    edgefold_model_init(stream);
#endif
}

double model_n_points(const struct edgefold_model *stream)
{
    return (double)edgefold_model_n_points(stream);
}

#if EDGEFOLD_MODEL_IS_FILTER
int model_step(struct edgefold_model *stream, const double *x)
{
    return edgefold_model_step(stream, x);
}
#else
int model_update(struct edgefold_model *stream, const double *x, const double *y)
{
    return edgefold_model_update(stream, x, y);
}

int model_query(struct edgefold_model *stream, size_t n, const double *x)
{
    return edgefold_model_query(stream, n, x);
}
#endif

int model_n_predictions(void) { return (int)(sizeof predictions / sizeof *predictions); }

const char *model_prediction_name(int number) { return predictions[number].name; }

size_t model_prediction_size(int number) { return predictions[number].size; }

const double *model_prediction(const struct edgefold_model *stream, int number)
{
    return (const double *)((const char *)stream + predictions[number].place);
}

size_t model_snapshot_bytes(void) { return EDGEFOLD_MODEL_SNAPSHOT_BYTES; }

/* Writes at most model_snapshot_bytes() and returns how many; 0 if the state is not sound. */
size_t model_save(struct edgefold_model *stream, unsigned char *bytes)
{
    unsigned char *at = bytes;
    if (edgefold_model_save(stream, write_bytes, &at, NULL, 0) != EDGEFOLD_OK) return 0;
    return (size_t)(at - bytes);
}

int model_load(struct edgefold_model *stream, const unsigned char *bytes, size_t n)
{
    struct part part = {bytes, n};
    return edgefold_model_load(stream, read_bytes, &part, NULL, 0);
}
