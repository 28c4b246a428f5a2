/* Loops that benchmarks.native.native_speed times from outside, so that one call of Python is spread over
 * many turns. The kernels of generated files come before this text. */

void repeat_step(void (*step)(void *const *, void *), void *const *tensors, void *arena, long n);
void repeat_product(const float *a, const float *b, float *c, long n);
uint64_t repeat_reading(const uint64_t *words, size_t n_words, long n);

void repeat_step(void (*step)(void *const *, void *), void *const *tensors, void *arena, long n)
{
    for (long i = 0; i < n; i++)
        step(tensors, arena);
}

/* C (128, 64) = A (128, 64) B (64, 64), B in panels: the operands stay in the nearest caches. */
void repeat_product(const float *a, const float *b, float *c, long n)
{
    for (long i = 0; i < n; i++)
        edgefold_product(128, 64, 64, a, 64, 1, b, 0, NULL, 0, c, 64);
}

/* Reads words as often as asked. */
uint64_t repeat_reading(const uint64_t *words, size_t n_words, long n)
{
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        __asm__ volatile("" : : : "memory"); /* else one reading would do for all */
        for (size_t at = 0; at < n_words; at++)
            sum ^= words[at];
    }
    return sum;
}
