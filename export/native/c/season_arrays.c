/* Functions of whole arrays, as edgefold.runtime.sensors.clock.season_arrays has them for Python. */

#define EDGEFOLD_FACTORS 32
#define EDGEFOLD_QUARTER $n_quarter

/* sin(pi / 2 * i / EDGEFOLD_QUARTER): a search in float looks its factors up, as a microcontroller
 * may need a thousand instructions for a sine in double. */
$quarter_wave
/* exp(-i * pi / half * k) for k from `first` on, where `half` is a power of two. In double they are
 * computed by a recurrence, which begins at a sine and a cosine of its own so that its error stays
 * small. */
static void edgefold_factors(edgefold_real *factors, int64_t half, int64_t first, int64_t n) {
    if (sizeof *factors == sizeof(float)) {
        const int32_t quarter = EDGEFOLD_QUARTER, each = 2 * quarter / (int32_t)half;
        for (int32_t k = 0; k < n; k++) {
            const int32_t at = ((int32_t)first + k) * each;
            const float *wave = edgefold_quarter_wave;
            factors[2 * k] = at <= quarter ? wave[quarter - at] : -wave[at - quarter];
            factors[2 * k + 1] = at <= quarter ? -wave[at] : -wave[2 * quarter - at];
        }
        return;
    }
    const double step = -3.14159265358979323846 / (double)half;
    const double turn = sin(0.5 * step), more = -2.0 * turn * turn, across = sin(step);
    double re = cos(step * (double)first), im = sin(step * (double)first);
    for (int64_t k = 0; k < n; k++) {
        factors[2 * k] = (edgefold_real)re;
        factors[2 * k + 1] = (edgefold_real)im;
        const double before = re;
        re += re * more - im * across;
        im += im * more + before * across;
    }
}

/* Fourier transform of n complex numbers, n a power of two, in place: real and imaginary parts in
 * turn. Some factors are computed at a time, and used for all blocks: no table takes memory. */
static void edgefold_transform(edgefold_real *z, int64_t n) {
    for (int64_t i = 1, j = 0; i < n; i++) { /* j is i with its bits in reverse */
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            const edgefold_real re = z[2 * i], im = z[2 * i + 1];
            z[2 * i] = z[2 * j];
            z[2 * i + 1] = z[2 * j + 1];
            z[2 * j] = re;
            z[2 * j + 1] = im;
        }
    }
    edgefold_real factors[2 * EDGEFOLD_FACTORS];
    for (int64_t half = 1; half < n; half *= 2) {
        const int64_t n_factors = half < EDGEFOLD_FACTORS ? half : EDGEFOLD_FACTORS;
        for (int64_t first = 0; first < half; first += n_factors) {
            edgefold_factors(factors, half, first, n_factors);
            for (int64_t at = first; at < n; at += 2 * half) {
                edgefold_real *low = z + 2 * at, *high = z + 2 * (at + half);
                for (int64_t k = 0; k < 2 * n_factors; k += 2) {
                    const edgefold_real re = high[k] * factors[k] - high[k + 1] * factors[k + 1];
                    const edgefold_real im = high[k] * factors[k + 1] + high[k + 1] * factors[k];
                    high[k] = low[k] - re;
                    high[k + 1] = low[k + 1] - im;
                    low[k] += re;
                    low[k + 1] += im;
                }
            }
        }
    }
}

/* Squares of the sizes of the frequencies of `size` real numbers. They go, from frequency 0 to
 * size / 2, into the first places, and by symmetry into the others.
 * If `are_real`, the numbers are symmetric and so all frequencies are real: these themselves. */
static void edgefold_frequencies(edgefold_real *x, int64_t size, int are_real) {
    const int64_t half = size / 2;
    edgefold_transform(x, half); /* pairs of neighbours as complex numbers */
    const edgefold_real first = x[0] + x[1], middle = x[0] - x[1];
    /* Frequencies k and half - k are made of the same two numbers, and take their places. */
    edgefold_real factors[2 * EDGEFOLD_FACTORS];
    for (int64_t k = 1; k <= half / 2; k++) {
        const int64_t j = half - k, at = 2 * ((k - 1) % EDGEFOLD_FACTORS);
        if (at == 0)
            edgefold_factors(factors, half, k, half - k < EDGEFOLD_FACTORS ? half - k : EDGEFOLD_FACTORS);
        const edgefold_real er = (x[2 * k] + x[2 * j]) / 2, ei = (x[2 * k + 1] - x[2 * j + 1]) / 2;
        const edgefold_real or_ = (x[2 * k + 1] + x[2 * j + 1]) / 2, oi = (x[2 * j] - x[2 * k]) / 2;
        const edgefold_real wr = factors[at], wi = factors[at + 1];
        const edgefold_real tr = wr * or_ - wi * oi, ti = wr * oi + wi * or_;
        const edgefold_real kr = er + tr, ki = ei + ti, jr = er - tr, ji = ti - ei;
        x[2 * k] = are_real ? kr : kr * kr + ki * ki;
        x[2 * j] = are_real ? jr : jr * jr + ji * ji;
    }
    x[0] = are_real ? first : first * first;
    for (int64_t k = 1; k < half; k++)
        x[k] = x[2 * k];
    x[half] = are_real ? middle : middle * middle;
    for (int64_t k = 1; k < half; k++)
        x[size - k] = x[k];
}

static void edgefold_correlate(edgefold_real *series, int64_t n, int64_t size) {
    for (int64_t i = n; i < size; i++)
        series[i] = 0;
    edgefold_frequencies(series, size, 0);
    edgefold_frequencies(series, size, 1);
    for (int64_t i = 0; i < n; i++)
        series[i] /= (edgefold_real)size;
}

static void edgefold_sift(edgefold_real *heap, int64_t at, int64_t n) {
    const edgefold_real number = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= number)
            break;
        heap[at] = heap[child];
    }
    heap[at] = number;
}

/* The quantile of n numbers that are sorted, between the two next ones. */
static double edgefold_between(const edgefold_real *sorted, int64_t n, double share) {
    const double place = share * (double)(n - 1), part = place - floor(place);
    const int64_t at = (int64_t)place;
    const double low = sorted[at], high = sorted[at + 1 < n ? at + 1 : at], apart = high - low;
    return part >= 0.5 ? high - apart * (1.0 - part) : low + apart * part;
}

static struct edgefold_bounds edgefold_outer_quantiles(
    edgefold_real *numbers, int64_t n, double share) {
    int64_t n_known = 0;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(numbers[i]))
            numbers[n_known++] = numbers[i];
    for (int64_t at = n_known / 2 - 1; at >= 0; at--)
        edgefold_sift(numbers, at, n_known);
    for (int64_t last = n_known - 1; last > 0; last--) {
        const edgefold_real largest = numbers[0];
        numbers[0] = numbers[last];
        numbers[last] = largest;
        edgefold_sift(numbers, 0, last);
    }
    return (struct edgefold_bounds){
        edgefold_between(numbers, n_known, share),
        edgefold_between(numbers, n_known, 1.0 - share)};
}

static void edgefold_fill_forward(edgefold_real *numbers, int64_t n) {
    int64_t first = 0;
    while (first < n && isnan(numbers[first]))
        first++;
    for (int64_t i = 0; i < n && first < n; i++)
        if (isnan(numbers[i]))
            numbers[i] = i < first ? numbers[first] : numbers[i - 1];
}

static void edgefold_running_means(edgefold_real *numbers, int64_t n, int64_t n_mean) {
    double total = 0.0;
    for (int64_t i = 0; i < n_mean - 1; i++)
        total += numbers[i];
    for (int64_t i = 0; i + n_mean <= n; i++) {
        total += numbers[i + n_mean - 1];
        const edgefold_real oldest = numbers[i];
        numbers[i] = (edgefold_real)(total / (double)n_mean);
        total -= oldest;
    }
}
