/* Writes n targets of a tensor of predictions in units of y. Returns whether they are numbers, and
 * finite ones unless they are scores. */
static int tell_$dtype(double *raw, const $type *scaled, size_t width, size_t n, size_t size,
                       const double *times, const double *plus, size_t n_columns, int is_score)
{
    int sound = 1;
    for (size_t stream = 0; stream < ${NAME}_STREAMS; stream++) {
        for (size_t i = 0; i < n * size; i++) {
            const double number = (double)scaled[stream * width * size + i];
            /* volatile: every compiler rounds the product, where some would join it to the sum */
            const volatile double product = number * times[i % n_columns];
            const double told = product + plus[i % n_columns];
            raw[stream * ${NAME}_TARGETS * size + i] = told;
            if (!(is_score ? told == told : fabs(told) < HUGE_VAL)) sound = 0;
        }
    }
    return sound;
}

