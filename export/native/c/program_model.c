/* The model edgefold_$name as the program's loop sees it. Written by Edgefold. */
#include "edgefold_$name.h"
#include "model.h"

static struct edgefold_$name stream;
@if computes
static double chosen, probability;
@end
@if mixes
static double center[PROGRAM_OUTPUTS], deviation[PROGRAM_OUTPUTS];
@end
$words
static const struct told told[] = {
$told,
};

const struct model model = {
    $model_name,
    EDGEFOLD_${NAME}_BUNDLE,
    $version,
    $keeps,
    $is_filter,
    $delimiter,
    '$decimal',
    $missing,
    $n_inputs,
    $n_errors,
    told,
    sizeof told / sizeof told[0],
    $center,
    $deviation,
};

static enum model_status status_of(enum edgefold_status status)
{
    switch (status) {
    case EDGEFOLD_OK: return MODEL_DONE;
    case EDGEFOLD_BAD_VALUE: return MODEL_BAD_VALUE;
    case EDGEFOLD_NOT_FINITE:
    case EDGEFOLD_BAD_SLOT: return MODEL_NOT_FINITE;
    case EDGEFOLD_FULL: return MODEL_FULL;
    default: return MODEL_FAILED;
    }
}

void model_begin(void)
{
@if seed
    edgefold_${name}_init(&stream, NULL);
@end
@if !seed
    edgefold_${name}_init(&stream);
@end
}

bool model_seed(uint64_t seed)
{
@if seed
    const int64_t seeds[1] = {(int64_t)seed};
    edgefold_${name}_init(&stream, seeds);
    return true;
@end
@if !seed
    (void)seed;
    return false;
@end
}

bool model_is_full(void)
{
@if room
    return edgefold_${name}_n_points(&stream) >= EDGEFOLD_${NAME}_ROOM;
@end
@if !room
    return false;
@end
}

enum model_status model_query(const double *x)
{
@if filter
    (void)x;
    return MODEL_FAILED;
@end
@if !filter
    enum edgefold_status status = edgefold_${name}_query(&stream, 1, x);
    $computed
    return status_of(status);
@end
}

enum model_status model_update(const double *x, const double *y)
{
@if filter
    (void)x, (void)y;
    return MODEL_FAILED;
@end
@if !filter
    return status_of(edgefold_${name}_update(&stream, x, y));
@end
}

enum model_status model_step(const double *x)
{
@if filter
    enum edgefold_status status = edgefold_${name}_step(&stream, x);
    $computed
    return status_of(status);
@end
@if !filter
    (void)x;
    return MODEL_FAILED;
@end
}

const char *model_save(model_writer write, void *to, const char *record, size_t n)
{
    /* What is written is only read, though the type of an array serves loading too. */
    struct edgefold_array loop = {"loop", "|u1", NULL, (void *)(uintptr_t)record, n, n};
    switch (edgefold_${name}_save(&stream, write, to, &loop, 1)) {
    case EDGEFOLD_OK: return NULL;
    case EDGEFOLD_IO: return "the system took less than it was given";
    default: return "the state is not finite, so that nothing good can follow";
    }
}

const char *model_load(model_reader read, void *from, char *record, size_t room, size_t *n)
{
    struct edgefold_array loop = {"loop", "|u1", NULL, record, 0, room};
    enum edgefold_status status = edgefold_${name}_load(&stream, read, from, &loop, 1);
    *n = loop.n_bytes;
    switch (status) {
    case EDGEFOLD_OK: return NULL;
    case EDGEFOLD_NO_SNAPSHOT: return "is not a snapshot; name another file, or remove it.";
    case EDGEFOLD_FOREIGN_SNAPSHOT:
        return "belongs to another bundle; use that bundle's program, or remove the snapshot to "
               "start over.";
    default:
        return "is damaged or is not a snapshot; use an older copy, or remove it to start over.";
    }
}
