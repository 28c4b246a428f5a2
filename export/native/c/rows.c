/* Rows of numbers that lie side by side: sums, extremes, softmax, normalisation, selection.

   Sums run in sixteen lanes, which a compiler keeps in vectors without being allowed to change the
   order of additions. */

enum {
    EDGEFOLD_LANES_OF_ROWS = 16,
    EDGEFOLD_ROWS_AT_ONCE = 8 /* of a matrix: a processor need not wait for a row's sum */
};

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

/* Sixteen sums side by side, in as many registers as they fill. */
typedef struct {
    edgefold_vector part[EDGEFOLD_LANES_OF_ROWS / EDGEFOLD_LANES];
} edgefold_sums;

EDGEFOLD_INLINE edgefold_sums edgefold_no_sums(void)
{
    edgefold_sums sums;
    memset(&sums, 0, sizeof sums);
    return sums;
}

/* Adds sixteen numbers. */
EDGEFOLD_INLINE void edgefold_add(edgefold_sums *sums, const float *x)
{
    EDGEFOLD_UNROLLED
    for (int v = 0; v < EDGEFOLD_LANES_OF_ROWS / EDGEFOLD_LANES; v++)
        sums->part[v] += edgefold_load(x + v * EDGEFOLD_LANES);
}

/* Adds the squares of sixteen numbers less their mean. */
EDGEFOLD_INLINE void edgefold_add_squares(edgefold_sums *sums, const float *x, float mean)
{
    EDGEFOLD_UNROLLED
    for (int v = 0; v < EDGEFOLD_LANES_OF_ROWS / EDGEFOLD_LANES; v++) {
        const edgefold_vector less = edgefold_load(x + v * EDGEFOLD_LANES) - mean;
        sums->part[v] += less * less;
    }
}

/* The sum of the sums, halved and halved again; written out, because a compiler keeps the numbers
   of a loop over halves in memory and waits for each of them. */
static inline float edgefold_total(const edgefold_sums *sums)
{
    float lane[EDGEFOLD_LANES_OF_ROWS], four[4];
    memcpy(lane, sums->part, sizeof lane);
    for (int l = 0; l < 4; l++)
        four[l] = (lane[l] + lane[l + 8]) + (lane[l + 4] + lane[l + 12]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static inline float edgefold_row_sum(const float *x, int n)
{
    edgefold_sums sums = edgefold_no_sums();
    float rest = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        edgefold_add(&sums, x + i);
    for (int i = whole; i < n; i++)
        rest += x[i];
    return rest + edgefold_total(&sums);
}

static inline float edgefold_row_squares(const float *x, float mean, int n)
{
    edgefold_sums sums = edgefold_no_sums();
    float rest = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        edgefold_add_squares(&sums, x + i, mean);
    for (int i = whole; i < n; i++)
        rest += (x[i] - mean) * (x[i] - mean);
    return rest + edgefold_total(&sums);
}

static inline float edgefold_larger(float a, float b) { return b > a ? b : a; }

/* NaN is passed over: what is made of the row beside its largest number shows it. */
static inline float edgefold_row_max(const float *x, int n)
{
    float lane[EDGEFOLD_LANES_OF_ROWS], four[4], largest = x[0];
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
        lane[l] = x[0];
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
            lane[l] = edgefold_larger(lane[l], x[i + l]);
    for (int i = whole; i < n; i++)
        largest = edgefold_larger(largest, x[i]);
    for (int l = 0; l < 4; l++)
        four[l] = edgefold_larger(edgefold_larger(lane[l], lane[l + 8]),
                                  edgefold_larger(lane[l + 4], lane[l + 12]));
    for (int l = 0; l < 4; l++)
        largest = edgefold_larger(largest, four[l]);
    return largest;
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
    edgefold_sums sums = edgefold_no_sums();
    float rest = 0.0f;
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS) {
        EDGEFOLD_INDEPENDENT
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l++)
            out[i + l] = edgefold_exp_below_one(x[i + l] - largest);
        edgefold_add(&sums, out + i);
    }
    EDGEFOLD_INDEPENDENT
    for (int i = whole; i < n; i++)
        out[i] = edgefold_exp_below_one(x[i] - largest);
    for (int i = whole; i < n; i++)
        rest += out[i];
    return rest + edgefold_total(&sums);
}

static inline void edgefold_row_times(float *x, float factor, int n)
{
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        EDGEFOLD_UNROLLED
        for (int l = 0; l < EDGEFOLD_LANES_OF_ROWS; l += EDGEFOLD_LANES)
            edgefold_store(x + i + l, edgefold_load(x + i + l) * factor);
    for (int i = whole; i < n; i++)
        x[i] *= factor;
}

/* Softmax of m rows, x_row and out_row numbers apart. */
static inline void edgefold_softmax(int m, int n, const float *x, int x_row, float *out,
                                    int out_row)
{
    for (int start = 0; start < m; start += EDGEFOLD_ROWS_AT_ONCE) {
        float largest[EDGEFOLD_ROWS_AT_ONCE], factor[EDGEFOLD_ROWS_AT_ONCE];
        const int rows = m - start < EDGEFOLD_ROWS_AT_ONCE ? m - start : EDGEFOLD_ROWS_AT_ONCE;
        const float *const from = x + start * x_row;
        float *const into = out + start * out_row;
        for (int r = 0; r < rows; r++)
            largest[r] = edgefold_row_max(from + r * x_row, n);
        for (int r = 0; r < rows; r++)
            factor[r] = 1.0f / edgefold_row_powers(from + r * x_row, into + r * out_row,
                                                   largest[r], n);
        for (int r = 0; r < rows; r++)
            edgefold_row_times(into + r * out_row, factor[r], n);
    }
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

static inline void edgefold_log_softmax(int m, int n, const float *x, int x_row, float *out,
                                        int out_row)
{
    for (int r = 0; r < m; r++) {
        const float total = edgefold_row_log_sum_exp(x + r * x_row, n);
        EDGEFOLD_INDEPENDENT
        for (int i = 0; i < n; i++)
            out[r * out_row + i] = x[r * x_row + i] - total;
    }
}

static inline void edgefold_row_normalized(const float *x, float *out, int n, float mean,
                                           float factor, const float *scale, const float *shift)
{
    const int whole = n - n % EDGEFOLD_LANES_OF_ROWS;
    for (int i = 0; i < whole; i += EDGEFOLD_LANES_OF_ROWS)
        EDGEFOLD_UNROLLED
        for (int l = i; l < i + EDGEFOLD_LANES_OF_ROWS; l += EDGEFOLD_LANES) {
            edgefold_vector numbers = (edgefold_load(x + l) - mean) * factor;
            if (scale)
                numbers *= edgefold_load(scale + l);
            if (shift)
                numbers += edgefold_load(shift + l);
            edgefold_store(out + l, numbers);
        }
    for (int i = whole; i < n; i++)
        out[i] = (x[i] - mean) * factor * (scale ? scale[i] : 1.0f) + (shift ? shift[i] : 0.0f);
}

/* Layer normalisation of m rows, x_row and out_row numbers apart; scale and shift may be NULL. */
static inline void edgefold_normalize(int m, int n, const float *x, int x_row, float *out,
                                      int out_row, float epsilon, const float *scale,
                                      const float *shift)
{
    for (int start = 0; start < m; start += EDGEFOLD_ROWS_AT_ONCE) {
        float mean[EDGEFOLD_ROWS_AT_ONCE], factor[EDGEFOLD_ROWS_AT_ONCE];
        const int rows = m - start < EDGEFOLD_ROWS_AT_ONCE ? m - start : EDGEFOLD_ROWS_AT_ONCE;
        const float *const from = x + start * x_row;
        float *const into = out + start * out_row;
        for (int r = 0; r < rows; r++)
            mean[r] = edgefold_row_sum(from + r * x_row, n) / (float)n;
        for (int r = 0; r < rows; r++) {
            const float squares = edgefold_row_squares(from + r * x_row, mean[r], n);
            factor[r] = 1.0f / sqrtf(squares / (float)n + epsilon);
        }
        for (int r = 0; r < rows; r++)
            edgefold_row_normalized(from + r * x_row, into + r * out_row, n, mean[r], factor[r],
                                    scale, shift);
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

/* A whole number that is smaller, the earlier a number comes: the largest first with sign 1, the
   smallest with sign -1. */
static inline int32_t edgefold_order(float x, int sign)
{
    const uint32_t bits = edgefold_bits(x + 0.0f); /* -0 is 0 */
    const uint32_t rising = bits ^ (bits >> 31 ? 0x7fffffffu : 0u);
    return (int32_t)(sign > 0 ? ~rising : rising);
}

/* All n: the place of each is the number of those before it, which vectors count. */
static inline void edgefold_row_sorted(const float *x, int n, int sign, float *values,
                                       int64_t *places)
{
    for (int i = 0; i < n; i++) {
        const int32_t own = edgefold_order(x[i], sign);
        int32_t at = 0;
        for (int32_t j = 0; j < n; j++) {
            const int32_t other = edgefold_order(x[j], sign);
            at += (other < own) | ((other == own) & (j < i));
        }
        values[at] = x[i];
        places[at] = i;
    }
}

/* The k largest with sign 1, the k smallest with sign -1, the first of equal ones before others. */
static inline void edgefold_row_top_k(const float *x, int n, int sign, float *values,
                                      int64_t *places, int k)
{
    int held = 0;
    if (EDGEFOLD_LANES > 1 && k == n && n <= 64) {
        edgefold_row_sorted(x, n, sign, values, places);
        return;
    }
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
