/* Loads snapshots whose states no stream has had, and goes on from each; under the sanitizers.
 *
 * Usage: hostile SNAPSHOT... Prints how many were loaded. */
#include "edgefold_model.h"
#include <stdio.h>

static struct edgefold_model stream;
static const double zeros[EDGEFOLD_MODEL_STREAMS *
                          (EDGEFOLD_MODEL_N_INPUTS + EDGEFOLD_MODEL_N_OUTPUTS + 1)];

static size_t read_file(void *from, void *bytes, size_t n)
{
    return fread(bytes, 1, n, from);
}

static size_t count_bytes(void *to, const void *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)to += n;
    return n;
}

int main(int n_arguments, char **arguments)
{
    int n_loaded = 0;
    for (int i = 1; i < n_arguments; i++) {
        FILE *file = fopen(arguments[i], "rb");
        size_t n_bytes = 0;
        if (!file) return 2;
        n_loaded += edgefold_model_load(&stream, read_file, file, NULL, 0) == EDGEFOLD_OK;
        fclose(file);
        for (int turn = 0; turn < 3; turn++) {
#if EDGEFOLD_MODEL_IS_FILTER
            edgefold_model_step(&stream, zeros);
#else
            edgefold_model_update(&stream, zeros, zeros);
            edgefold_model_query(&stream, 1, zeros);
#endif
        }
        edgefold_model_save(&stream, count_bytes, &n_bytes, NULL, 0);
    }
    printf("%d\n", n_loaded);
    return 0;
}
