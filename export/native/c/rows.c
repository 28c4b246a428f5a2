/* Rows of numbers that lie side by side: sums, extremes, softmax, normalisation, selection.

   Sums run in sixteen lanes, which a compiler keeps in vectors without being allowed to change the
   order of additions. */

enum { EDGEFOLD_LANES_OF_ROWS = 16 };

static inline int edgefold_within(int64_t index, int n)
{
    index += index < 0 ? n : 0;
    return index < 0 ? 0 : index >= n ? n - 1 : (int)index;
}

static inline float edgefold_where(int chosen, float a, float b) { return chosen ? a : b; }

static inline int64_t edgefold_where_int(int chosen, int64_t a, int64_t b)
{
    return chosen ? a : b;
}

static inline int64_t edgefold_max_int(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t edgefold_min_int(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t edgefold_abs_int(int64_t a)
{
    return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
}

static inline int64_t edgefold_div_int(int64_t a, int64_t b)
{
    if (b == -1) /* the smallest number has no opposite */
        return (int64_t)(0 - (uint64_t)a);
    return b ? a / b : 0;
}

static inline int64_t edgefold_to_int(float x)
{
    return x >= -9.2233720e18f && x < 9.2233720e18f ? (int64_t)x : INT64_MIN;
}

static inline float edgefold_row_sum(const float *x, int n)
{
    float lane[EDGEFOLD_LANES_OF_ROWS] = {0}, sum = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
            lane[l] += x[i + l];
    for (int i = whole; i < n; i++)
        sum += x[i];
    for (int width = EDGEFOLD_LANES_OF_ROWS / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return sum + lane[0];
}

static inline float edgefold_row_squares(const float *x, float mean, int n)
{
    float lane[EDGEFOLD_LANES_OF_ROWS] = {0}, sum = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
            lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (int i = whole; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    for (int width = EDGEFOLD_LANES_OF_ROWS / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return sum + lane[0];
}

/* NaN is passed over: what is made of the row beside its largest number shows it. */
static inline float edgefold_row_max(const float *x, int n)
{
    float lane[EDGEFOLD_LANES_OF_ROWS], largest = x[0];
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
        lane[l] = x[0];
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int i = whole; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int width = EDGEFOLD_LANES_OF_ROWS / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    return lane[0] > largest ? lane[0] : largest;
}

static inline float edgefold_row_min(const float *x, int n)
{
    float smallest = x[0];
    for (int i = 1; i < n; i++)
        smallest = edgefold_min(smallest, x[i]);
    return smallest;
}

static inline int64_t edgefold_row_sum_int(const int64_t *x, int n)
{
    uint64_t sum = 0; /* wraps, as the sum of the graph does */
    for (int i = 0; i < n; i++)
        sum += (uint64_t)x[i];
    return (int64_t)sum;
}

static inline int64_t edgefold_row_max_int(const int64_t *x, int n)
{
    int64_t largest = x[0];
    for (int i = 1; i < n; i++)
        largest = edgefold_max_int(largest, x[i]);
    return largest;
}

static inline int64_t edgefold_row_min_int(const int64_t *x, int n)
{
    int64_t smallest = x[0];
    for (int i = 1; i < n; i++)
        smallest = edgefold_min_int(smallest, x[i]);
    return smallest;
}

/* The powers of a row's numbers less the largest, so that none overflows; returns their sum. */
static inline float edgefold_row_powers(const float *x, float *out, float largest, int n)
{
    float lane[EDGEFOLD_LANES_OF_ROWS] = {0}, sum = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        EDGEFOLD_INDEPENDENT
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++) {
            const float power = edgefold_exp(x[i + l] - largest);
            out[i + l] = power;
            lane[l] += power;
        }
    for (int i = whole; i < n; i++) {
        out[i] = edgefold_exp(x[i] - largest);
        sum += out[i];
    }
    return sum + edgefold_row_sum(lane, EDGEFOLD_LANES_OF_ROWS);
}

static inline void edgefold_softmax(const float *x, float *out, int n)
{
    const float factor = 1.0f / edgefold_row_powers(x, out, edgefold_row_max(x, n), n);
    EDGEFOLD_INDEPENDENT
    for (int i = 0; i < n; i++)
        out[i] *= factor;
}

static inline float edgefold_row_log_sum_exp(const float *x, int n)
{
    const float largest = edgefold_row_max(x, n);
    const float less = largest - largest == 0.0f ? largest : 0.0f; /* neither infinite nor NaN */
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += edgefold_exp(x[i] - less);
    return less + edgefold_log(sum);
}

static inline void edgefold_log_softmax(const float *x, float *out, int n)
{
    const float total = edgefold_row_log_sum_exp(x, n);
    EDGEFOLD_INDEPENDENT
    for (int i = 0; i < n; i++)
        out[i] = x[i] - total;
}

/* Layer normalisation; scale and shift may be NULL. */
static inline void edgefold_normalize(const float *x, float *out, int n, float epsilon,
                                      const float *scale, const float *shift)
{
    const float mean = edgefold_row_sum(x, n) / (float)n;
    const float factor = 1.0f / sqrtf(edgefold_row_squares(x, mean, n) / (float)n + epsilon);
    EDGEFOLD_INDEPENDENT
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - mean) * factor;
    if (scale) {
        EDGEFOLD_INDEPENDENT
        for (int i = 0; i < n; i++)
            out[i] *= scale[i];
    }
    if (shift) {
        EDGEFOLD_INDEPENDENT
        for (int i = 0; i < n; i++)
            out[i] += shift[i];
    }
}

static inline int64_t edgefold_row_arg_max(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static inline void edgefold_row_cum_sum(float *x, int n)
{
    for (int i = 1; i < n; i++)
        x[i] += x[i - 1];
}

static inline void edgefold_row_cum_sum_int(int64_t *x, int n)
{
    for (int i = 1; i < n; i++)
        x[i] = (int64_t)((uint64_t)x[i] + (uint64_t)x[i - 1]);
}

/* The k largest with sign 1, the k smallest with sign -1, the first of equal ones before others. */
static inline void edgefold_row_top_k(const float *x, int n, int sign, float *values,
                                      int64_t *places, int k)
{
    int held = 0;
    for (int i = 0; i < n; i++) {
        int at;
        if (held == k && !((float)sign * x[i] > (float)sign * values[k - 1]))
            continue;
        at = held < k ? held++ : k - 1;
        for (; at > 0 && (float)sign * x[i] > (float)sign * values[at - 1]; at--) {
            values[at] = values[at - 1];
            places[at] = places[at - 1];
        }
        values[at] = x[i];
        places[at] = i;
    }
}
