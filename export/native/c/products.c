/* Matrix products: C (m, n) = A (m, k) B (k, n) + bias.

   B lies in panels of 16 columns, then 8, 4 and 1, so that the sums of a panel stay in registers
   while k runs. Weights are stored so (b_row = 0); what is computed on the way is read in place,
   row k at b + k * b_row. Its last columns, fewer than a panel has, are a part of a vector where
   the processor can leave some of its lanes out; else the last panel begins so early that it is
   full, and computes some columns again.
   A may lie anywhere: element (i, k) at a + i * a_row + k * a_column. */

/* Four neighbouring numbers. */
#if EDGEFOLD_LANES > 1
typedef float edgefold_quad __attribute__((vector_size(16), aligned(4), may_alias));
EDGEFOLD_INLINE edgefold_quad edgefold_four_of(const float *from)
{
    return *(const edgefold_quad *)from;
}
EDGEFOLD_INLINE edgefold_quad edgefold_added(edgefold_quad sum, float factor, edgefold_quad row)
{
    return sum + factor * row;
}
EDGEFOLD_INLINE void edgefold_put(float *into, edgefold_quad four)
{
    *(edgefold_quad *)into = four;
}
#else
typedef struct {
    float a, b, c, d;
} edgefold_quad;
EDGEFOLD_INLINE edgefold_quad edgefold_four_of(const float *from)
{
    const edgefold_quad four = {from[0], from[1], from[2], from[3]};
    return four;
}
EDGEFOLD_INLINE edgefold_quad edgefold_added(edgefold_quad sum, float factor, edgefold_quad row)
{
    sum.a += factor * row.a;
    sum.b += factor * row.b;
    sum.c += factor * row.c;
    sum.d += factor * row.d;
    return sum;
}
EDGEFOLD_INLINE void edgefold_put(float *into, edgefold_quad four)
{
    into[0] = four.a;
    into[1] = four.b;
    into[2] = four.c;
    into[3] = four.d;
}
#endif

#if defined(__clang__)
#define EDGEFOLD_SHUFFLED(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#elif EDGEFOLD_LANES > 1
#define EDGEFOLD_SHUFFLED(x, y, i, j, k, l) __builtin_shuffle(x, y, (edgefold_places){i, j, k, l})
typedef int32_t edgefold_places __attribute__((vector_size(16)));
#endif

/* Into four rows, the columns of four others. */
EDGEFOLD_INLINE void edgefold_turned(const float *from, int from_row, float *into, int into_row)
{
#if EDGEFOLD_LANES > 1
    const edgefold_quad a = edgefold_four_of(from), b = edgefold_four_of(from + from_row);
    const edgefold_quad c = edgefold_four_of(from + 2 * from_row);
    const edgefold_quad d = edgefold_four_of(from + 3 * from_row);
    const edgefold_quad low_ab = EDGEFOLD_SHUFFLED(a, b, 0, 4, 1, 5);
    const edgefold_quad low_cd = EDGEFOLD_SHUFFLED(c, d, 0, 4, 1, 5);
    const edgefold_quad high_ab = EDGEFOLD_SHUFFLED(a, b, 2, 6, 3, 7);
    const edgefold_quad high_cd = EDGEFOLD_SHUFFLED(c, d, 2, 6, 3, 7);
    edgefold_put(into, EDGEFOLD_SHUFFLED(low_ab, low_cd, 0, 1, 4, 5));
    edgefold_put(into + into_row, EDGEFOLD_SHUFFLED(low_ab, low_cd, 2, 3, 6, 7));
    edgefold_put(into + 2 * into_row, EDGEFOLD_SHUFFLED(high_ab, high_cd, 0, 1, 4, 5));
    edgefold_put(into + 3 * into_row, EDGEFOLD_SHUFFLED(high_ab, high_cd, 2, 3, 6, 7));
#else
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            into[j * into_row + i] = from[i * from_row + j];
#endif
}

/* Copies m rows of n numbers so that they become columns. */
static inline void edgefold_transpose(int m, int n, const float *from, int from_row, float *into,
                                      int into_row)
{
    const int rows = m - m % 4, columns = n - n % 4;
    for (int i = 0; i < rows; i += 4)
        for (int j = 0; j < columns; j += 4)
            edgefold_turned(from + i * from_row + j, from_row, into + j * into_row + i, into_row);
    for (int i = 0; i < m; i++)
        for (int j = i < rows ? columns : 0; j < n; j++)
            into[j * into_row + i] = from[i * from_row + j];
}

/* Rows of A at once: as many as leave registers for a panel's row and one number of A. */
enum {
    EDGEFOLD_MANY = 64, /* rows: fewer do not last as long as asking for the next panel pays */
    EDGEFOLD_ROWS = EDGEFOLD_LANES == 16 ? 8 : EDGEFOLD_LANES == 8 ? 6 : 3,
    EDGEFOLD_VECTORS = EDGEFOLD_LANES > 1 ? 16 / EDGEFOLD_LANES : 1 /* of a panel's row */
};

/* The columns of vector v of a panel: the last one of `vectors` has `last`. */
#define EDGEFOLD_FILLED(v, vectors, last) ((v) + 1 < (vectors) ? EDGEFOLD_LANES : (last))

/* b_vector lies between the vectors of a row of B: with 16 lanes each is a panel of its own. */
struct edgefold_factors {
    int k, a_row, a_column, b_row, b_vector, bias_row, c_row, is_packed;
};

#if EDGEFOLD_LANES > 1
/* `rows` rows of A times a panel of `vectors` vectors, of which the last has `last` columns. */
EDGEFOLD_INLINE void edgefold_tile(int rows, int vectors, int last,
                                   const struct edgefold_factors *f, const float *a,
                                   const float *b, const float *bias, float *c)
{
    edgefold_vector sum[8][4];
    EDGEFOLD_UNROLLED
    for (int i = 0; i < rows; i++) {
        EDGEFOLD_UNROLLED
        for (int v = 0; v < vectors; v++) {
            const edgefold_vector zero = {0};
            sum[i][v] = bias ? edgefold_load_first(bias + i * f->bias_row + v * EDGEFOLD_LANES,
                                                   EDGEFOLD_FILLED(v, vectors, last))
                             : zero;
        }
    }
    for (int k = 0; k < f->k; k++) {
        EDGEFOLD_UNROLLED
        for (int i = 0; i < rows; i++) {
            const float one = a[i * f->a_row + k * f->a_column];
            EDGEFOLD_UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i][v] += one * edgefold_load_first(b + k * f->b_row + v * f->b_vector,
                                                       EDGEFOLD_FILLED(v, vectors, last));
        }
    }
    EDGEFOLD_UNROLLED
    for (int i = 0; i < rows; i++) {
        EDGEFOLD_UNROLLED
        for (int v = 0; v < vectors; v++)
            edgefold_store_first(c + i * f->c_row + v * EDGEFOLD_LANES, sum[i][v],
                                 EDGEFOLD_FILLED(v, vectors, last));
    }
}

/* One row of A times a panel; four sums run side by side, since each waits for its last one. */
EDGEFOLD_INLINE void edgefold_single(int vectors, int last, const struct edgefold_factors *f,
                                     const float *a, const float *b, const float *bias, float *c)
{
    edgefold_vector sum[4][4] = {{{0}}};
    const int whole = f->k - f->k % 4;
    EDGEFOLD_UNROLLED
    for (int v = 0; v < vectors; v++)
        if (bias)
            sum[0][v] = edgefold_load_first(bias + v * EDGEFOLD_LANES,
                                            EDGEFOLD_FILLED(v, vectors, last));
    for (int k = 0; k < whole; k += 4) {
        EDGEFOLD_UNROLLED
        for (int u = 0; u < 4; u++) {
            EDGEFOLD_UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[u][v] += a[(k + u) * f->a_column] *
                             edgefold_load_first(b + (k + u) * f->b_row + v * f->b_vector,
                                                 EDGEFOLD_FILLED(v, vectors, last));
        }
    }
    for (int k = whole; k < f->k; k++) {
        EDGEFOLD_UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[0][v] += a[k * f->a_column] *
                         edgefold_load_first(b + k * f->b_row + v * f->b_vector,
                                             EDGEFOLD_FILLED(v, vectors, last));
    }
    EDGEFOLD_UNROLLED
    for (int v = 0; v < vectors; v++)
        edgefold_store_first(c + v * EDGEFOLD_LANES,
                             (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]),
                             EDGEFOLD_FILLED(v, vectors, last));
}

/* Asks for lines `first` to `last` of the panel that comes next: a processor itself does not look
   beyond a page, and a panel often ends with one. */
EDGEFOLD_INLINE void edgefold_soon(const float *memory, int first, int last)
{
    for (int line = first; line < last; line++)
        EDGEFOLD_PREFETCH((uintptr_t)memory + (uintptr_t)line * 64);
}

/* All rows times one panel; see edgefold_tile. */
EDGEFOLD_INLINE void edgefold_panel(int vectors, int last, int m,
                                    const struct edgefold_factors *f, const float *a,
                                    const float *b, const float *bias, float *c)
{
    const int width = vectors * EDGEFOLD_LANES;
    const int lines = f->is_packed && m >= EDGEFOLD_MANY ? width * f->k / 16 : 0;
    int i = 0;
    if (m == 1) {
        edgefold_single(vectors, last, f, a, b, bias, c);
        return;
    }
    /* Two rows keep a processor half busy: 4 and 4 are rather taken than 6 and 2. */
    for (; i + EDGEFOLD_ROWS <= m && (EDGEFOLD_ROWS < 6 || m - i != EDGEFOLD_ROWS + 2);
         i += EDGEFOLD_ROWS) {
        edgefold_soon(b + width * f->k, lines * i / m, lines * (i + EDGEFOLD_ROWS) / m);
        edgefold_tile(EDGEFOLD_ROWS, vectors, last, f, a + i * f->a_row, b,
                      bias ? bias + i * f->bias_row : bias, c + i * f->c_row);
    }
    for (; EDGEFOLD_ROWS >= 6 && i + 4 <= m; i += 4)
        edgefold_tile(4, vectors, last, f, a + i * f->a_row, b,
                      bias ? bias + i * f->bias_row : bias, c + i * f->c_row);
    for (; i + 2 <= m; i += 2)
        edgefold_tile(2, vectors, last, f, a + i * f->a_row, b,
                      bias ? bias + i * f->bias_row : bias, c + i * f->c_row);
    if (i < m)
        edgefold_single(vectors, last, f, a + i * f->a_row, b,
                        bias ? bias + i * f->bias_row : bias, c + i * f->c_row);
}

/* A panel as wide as some vectors. */
EDGEFOLD_INLINE void edgefold_vectors(int panel, int m, const struct edgefold_factors *f,
                                      const float *a, const float *b, const float *bias, float *c)
{
    if (panel == 16)
        edgefold_panel(EDGEFOLD_VECTORS, EDGEFOLD_LANES, m, f, a, b, bias, c);
    else if (panel == 8)
        edgefold_panel((EDGEFOLD_VECTORS + 1) / 2, EDGEFOLD_LANES, m, f, a, b, bias, c);
    else
        edgefold_panel(1, EDGEFOLD_LANES, m, f, a, b, bias, c);
}
#endif

/* The sum of products along k, for a column that lies by itself. */
static float edgefold_dot(const float *a, const float *b, int n)
{
    float lane[8] = {0}, sum = 0.0f;
    const int whole = n - n % 8;
    for (int k = 0; k < whole; k += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += a[k + l] * b[k + l];
    for (int k = whole; k < n; k++)
        sum += a[k] * b[k];
    for (int width = 4; width; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return sum + lane[0];
}

#if EDGEFOLD_LANES > 1
/* Four rows of A times a column; the numbers of both lie side by side. Each row has a vector of
   sums, and at last those of all rows are added at once. */
EDGEFOLD_INLINE edgefold_quad edgefold_four_dots(const struct edgefold_factors *f, const float *a,
                                                 const float *b)
{
    edgefold_vector sum[4] = {{0}};
    edgefold_quad part[4];
    float lane[4 * EDGEFOLD_LANES], row[16], column[16];
    int k = 0;
    for (; k + EDGEFOLD_LANES <= f->k; k += EDGEFOLD_LANES) {
        const edgefold_vector factors = edgefold_load(b + k);
        EDGEFOLD_UNROLLED
        for (int i = 0; i < 4; i++)
            sum[i] += edgefold_load(a + i * f->a_row + k) * factors;
    }
#if EDGEFOLD_LANES == 16
    if (k < f->k) {
        const edgefold_vector factors = edgefold_load_first(b + k, f->k - k);
        EDGEFOLD_UNROLLED
        for (int i = 0; i < 4; i++)
            sum[i] += edgefold_load_first(a + i * f->a_row + k, f->k - k) * factors;
    }
#endif
    memcpy(lane, sum, sizeof lane);
    EDGEFOLD_UNROLLED
    for (int i = 0; i < 4; i++) {
        part[i] = edgefold_four_of(lane + i * EDGEFOLD_LANES);
        EDGEFOLD_UNROLLED
        for (int l = 4; l < EDGEFOLD_LANES; l += 4)
            part[i] += edgefold_four_of(lane + i * EDGEFOLD_LANES + l);
    }
#if EDGEFOLD_LANES < 16
    for (; k + 4 <= f->k; k += 4)
        EDGEFOLD_UNROLLED
        for (int i = 0; i < 4; i++)
            part[i] += edgefold_four_of(a + i * f->a_row + k) * edgefold_four_of(b + k);
#endif
    EDGEFOLD_UNROLLED
    for (int i = 0; i < 4; i++)
        edgefold_put(row + 4 * i, part[i]);
    edgefold_turned(row, 4, column, 4);
#if EDGEFOLD_LANES < 16
    for (; k < f->k; k++)
        for (int i = 0; i < 4; i++)
            column[i] += a[i * f->a_row + k] * b[k];
#endif
    return (edgefold_four_of(column) + edgefold_four_of(column + 4)) +
           (edgefold_four_of(column + 8) + edgefold_four_of(column + 12));
}
#endif

/* One column. */
static void edgefold_column(int m, const struct edgefold_factors *f, const float *a,
                            const float *b, const float *bias, float *c)
{
    int i = 0;
#if EDGEFOLD_LANES > 1
    for (; f->a_column == 1 && f->b_row == 1 && m >= 4 && i < m; i += 4) {
        float four[4];
        i = i < m - 4 ? i : m - 4; /* the last four may begin with rows that were there before */
        edgefold_put(four, edgefold_four_dots(f, a + i * f->a_row, b));
        for (int r = 0; r < 4; r++)
            c[(i + r) * f->c_row] = four[r] + (bias ? bias[(i + r) * f->bias_row] : 0.0f);
    }
#endif
    for (; i < m; i++) {
        const float *row = a + i * f->a_row;
        float sum = bias ? bias[i * f->bias_row] : 0.0f;
        if (f->a_column == 1 && f->b_row == 1)
            sum += edgefold_dot(row, b, f->k);
        else
            for (int k = 0; k < f->k; k++)
                sum += row[k * f->a_column] * b[k * f->b_row];
        c[i * f->c_row] = sum;
    }
}

/* `rows` rows of A times four columns `quads` times; four sums in all, as registers are few. */
EDGEFOLD_INLINE void edgefold_quads(int rows, int quads, const struct edgefold_factors *f,
                                    const float *a, const float *b, const float *bias, float *c)
{
    static const float zeros[4] = {0};
    edgefold_quad sum[4][4];
    EDGEFOLD_UNROLLED
    for (int i = 0; i < rows; i++)
        EDGEFOLD_UNROLLED
        for (int q = 0; q < quads; q++)
            sum[i][q] = edgefold_four_of(bias ? bias + i * f->bias_row + 4 * q : zeros);
    for (int k = 0; k < f->k; k++)
        EDGEFOLD_UNROLLED
        for (int q = 0; q < quads; q++) {
            const edgefold_quad row = edgefold_four_of(b + k * f->b_row + 4 * q);
            EDGEFOLD_UNROLLED
            for (int i = 0; i < rows; i++)
                sum[i][q] = edgefold_added(sum[i][q], a[i * f->a_row + k * f->a_column], row);
        }
    EDGEFOLD_UNROLLED
    for (int i = 0; i < rows; i++)
        EDGEFOLD_UNROLLED
        for (int q = 0; q < quads; q++)
            edgefold_put(c + i * f->c_row + 4 * q, sum[i][q]);
}

/* All rows times a panel of 4, 8 or 16 columns, four columns after the other. */
static void edgefold_quad_panel(int panel, int m, const struct edgefold_factors *f,
                                const float *a, const float *b, const float *bias, float *c)
{
    int i = 0;
    for (; i + 4 <= m; i += 4)
        for (int at = 0; at < panel; at += 4)
            edgefold_quads(4, 1, f, a + i * f->a_row, b + at,
                           bias ? bias + i * f->bias_row + at : bias, c + i * f->c_row + at);
    for (; i < m; i++) {
        const float *row = a + i * f->a_row, *start = bias ? bias + i * f->bias_row : bias;
        if (panel == 16)
            edgefold_quads(1, 4, f, row, b, start, c + i * f->c_row);
        for (int at = 0; panel < 16 && at < panel; at += 4)
            edgefold_quads(1, 1, f, row, b + at, start ? start + at : start,
                           c + i * f->c_row + at);
    }
}

/* The widest panel that the rest of the columns fills; returns how many columns it did. */
static int edgefold_next_panel(int left, int m, struct edgefold_factors *f, int b_row,
                               const float *a, const float *b, const float *bias, float *c)
{
    const int panel = left >= 16 ? 16 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
    f->b_row = b_row ? b_row : panel;
#if EDGEFOLD_LANES == 16
    if (left >= 32) { /* two panels side by side */
        f->b_vector = b_row ? 16 : 16 * f->k;
        edgefold_panel(2, 16, m, f, a, b, bias, c);
        return 32;
    }
    if (b_row && left > 16) {
        f->b_vector = 16;
        edgefold_panel(2, left - 16, m, f, a, b, bias, c);
        return left;
    }
    if (b_row && left < 16) {
        edgefold_panel(1, left, m, f, a, b, bias, c);
        return left;
    }
#endif
#if EDGEFOLD_LANES > 1
    if (EDGEFOLD_LANES <= panel) {
        edgefold_vectors(panel, m, f, a, b, bias, c);
        return panel;
    }
#endif
    if (panel == 1)
        edgefold_column(m, f, a, b, bias, c);
    else
        edgefold_quad_panel(panel, m, f, a, b, bias, c);
    return panel;
}

static inline void edgefold_product(int m, int n, int k, const float *a, int a_row, int a_column,
                                    const float *b, int b_row, const float *bias, int bias_row,
                                    float *c, int c_row)
{
    struct edgefold_factors f = {k, a_row, a_column, 0, EDGEFOLD_LANES, bias_row, c_row, !b_row};
    for (int j = 0; j < n;) {
#if EDGEFOLD_LANES > 1 && EDGEFOLD_LANES < 16
        const int left = n - j, full = left > 8 ? 16 : left > 4 ? 8 : 4;
        if (b_row && left < 16 && full <= n)
            j = n - full;
#endif
        const float *from = b_row ? b + j : b + j * k;
        f.b_vector = EDGEFOLD_LANES;
        j += edgefold_next_panel(n - j, m, &f, b_row, a, from, bias ? bias + j : bias, c + j);
    }
}

/* The same for a B of few columns: numbers of a column lie side by side, columns b_column apart. */
static inline void edgefold_product_columns(int m, int n, int k, const float *a, int a_row,
                                            int a_column, const float *b, int b_column,
                                            const float *bias, int bias_row, float *c, int c_row)
{
    const struct edgefold_factors f = {k, a_row, a_column, 1, 0, bias_row, c_row, 0};
    for (int j = 0; j < n; j++)
        edgefold_column(m, &f, a, b + j * b_column, bias ? bias + j : bias, c + j);
}

/* The same with weights of 8 bits, or of 16, in the same panels: up to 32 columns at once are made
   wide, times their scales if there are any, and multiplied as any others. */
static inline void edgefold_product_narrow(int m, int n, int k, const float *a, int a_row,
                                           int a_column, const int8_t *bytes,
                                           const uint16_t *halves, const float *scale,
                                           const float *bias, int bias_row, float *c, int c_row,
                                           float *wide)
{
    for (int j = 0; j < n;) {
        const int left = n - j, panel = left >= 16 ? 16 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
        const int width = left >= 32 ? 32 : panel;
        for (int row = 0; row < width / panel * k; row++) {
            const float *factor = scale ? scale + j + row / k * panel : scale;
            const int at = j * k + row * panel;
            for (int i = 0; i < panel; i++)
                wide[row * panel + i] =
                    bytes ? (float)bytes[at + i] : edgefold_of_half(halves[at + i]);
            for (int i = 0; factor && i < panel; i++)
                wide[row * panel + i] *= factor[i];
        }
        edgefold_product(m, width, k, a, a_row, a_column, wide, 0, bias ? bias + j : bias,
                         bias_row, c + j, c_row);
        j += width;
    }
}
