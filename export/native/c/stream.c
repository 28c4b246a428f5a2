/* How points become part of the state --------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the weights and the snapshots are little-endian"
#endif

typedef char struct_has_the_told_size[sizeof(struct $stream) <= $struct_bytes ? 1 : -1];

#ifndef EDGEFOLD_ARENA_STORAGE /* e.g. _Thread_local: each thread has a block of its own */
#define EDGEFOLD_ARENA_STORAGE
#endif

/* In which steps compute and loads wait: all streams of the model share it. */
#ifdef __GNUC__
__attribute__((aligned(64)))
#endif
static EDGEFOLD_ARENA_STORAGE union {
    unsigned char arena[${NAME}_ARENA_BYTES];
$scratch
    uint64_t words; /* it and the number align the block where the attribute does not exist */
    double number;
} shared;

$state_constants
$unscaled
static struct edgefold_commit last_commit(const struct $stream *stream)
{
    return stream->commits[stream->current];
}

/* The last store makes all of a commit current. It and the one before are volatile, so that an
 * interrupt between any two finds all of the commit or nothing. */
static void set_commit(struct $stream *stream, struct edgefold_commit next)
{
    const uint8_t other = 1 - stream->current;
    *(volatile struct edgefold_commit *)&stream->commits[other] = next;
    *(volatile uint8_t *)&stream->current = other;
}

@if rings
/* Writes a row into its slot of a ring: of the blocks before the ring's axis, some. */
static void write_row(void *ring, const void *row, size_t first, size_t n_blocks, size_t length,
                      size_t n_bytes, size_t slot)
{
    for (size_t block = first; block < first + n_blocks; block++) {
        memcpy((unsigned char *)ring + (block * length + slot) * n_bytes,
               (const unsigned char *)row + block * n_bytes, n_bytes);
    }
}

/* Writes the rows of the last commit to their places, unless they are there. Whoever reads the
 * state calls it first, so that a reset between the commit and its rows loses none. */
static void settle(struct $stream *stream)
{
    const struct edgefold_commit at = last_commit(stream);
    if (!at.rows_due) return;
$rows
    stream->commits[stream->current].rows_due = 0;
}

@end
@if finite
/* Whether no stream's arithmetic met infinity or NaN: each tells it by one number. */
static int all_finite(const ${number} *of_streams)
{
    for (size_t stream = 0; stream < ${NAME}_STREAMS; stream++) {
        if (!(fabs((double)of_streams[stream]) < HUGE_VAL)) return 0;
    }
    return 1;
}

@end
$tells
@if takes
/* In the model's units, as its training scaled them. */
$scaled
static int numbers_are_sound(const double *raw, size_t n, size_t n_columns,
                             double (*scaled)(double, size_t))
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(scaled(raw[i], i % n_columns)) <= $limit)) return 0;
    }
    return 1;
}

/* Scales `count` of n rows of each stream, from `start` on, to the first ones of a graph's input. */
static void scale_rows(${number} *to, size_t width, const double *raw, size_t n, size_t start,
                       size_t count, size_t n_columns, double (*scaled)(double, size_t))
{
    for (size_t stream = 0; stream < ${NAME}_STREAMS; stream++) {
        for (size_t i = 0; i < count * n_columns; i++) {
            const double number = raw[(stream * n + start) * n_columns + i];
            to[stream * width * n_columns + i] = (${number})scaled(number, i % n_columns);
        }
    }
}

@end
$steps
$init
{
    memset(stream, 0, sizeof *stream);
$initial
}

uint64_t ${stream}_n_points(const struct $stream *stream)
{
    return last_commit(stream).n_points;
}

@if consolidate
enum edgefold_status ${stream}_consolidate(struct $stream *stream)
{
    struct edgefold_commit at;
    enum edgefold_status status;
@if rings
    settle(stream);
@end
    at = last_commit(stream);
    status = compute_consolidate(stream, at.sides);
    if (status != EDGEFOLD_OK) return status;
    at.sides ^= $flip_consolidate;
    at.n_recent = 0;
    at.cache_is_made = 0;
    set_commit(stream, at);
    return EDGEFOLD_OK;
}

@end
@if merge
enum edgefold_status ${stream}_merge(
    struct $stream *stream, const struct $stream *other)
{
    const uint64_t n_points = last_commit(other).n_points;
    struct edgefold_commit at = last_commit(stream);
    enum edgefold_status status;
@if room
    if (at.n_points + n_points > ${NAME}_ROOM) return EDGEFOLD_FULL;
@end
    if ((at.n_points + n_points) >> 62) return EDGEFOLD_FULL; /* no snapshot counts so many */
    status = compute_merge(stream, other, at.sides);
    if (status != EDGEFOLD_OK) return status;
    at.sides ^= $flip_merge;
    at.n_points += n_points;
@if consolidate
    at.n_recent = 0;
@end
@if !consolidate
    at.n_recent += last_commit(other).n_recent;
@end
    at.cache_is_made = 0;
    set_commit(stream, at);
    return EDGEFOLD_OK;
}

@end
/* Runs a step on the n points in its buffers, and commits it unless it fails. */
static enum edgefold_status learn(
    struct $stream *stream, size_t n, uint32_t flip,
    enum edgefold_status (*compute)(struct $stream *, uint32_t))
{
    struct edgefold_commit at;
    enum edgefold_status status;
@if rings
    settle(stream);
@end
@if consolidate
    if (last_commit(stream).n_recent >= $every) { /* a commit of its own: no point is learned */
        status = ${stream}_consolidate(stream);
        if (status != EDGEFOLD_OK) return status;
    }
@end
    at = last_commit(stream);
    status = compute(stream, at.sides);
    if (status != EDGEFOLD_OK) return status;
    at.sides ^= flip;
    at.n_points += n;
    at.n_recent += n;
    at.cache_is_made = 0;
@if rings
    at.rows_due = 1;
@end
    set_commit(stream, at);
@if rings
    settle(stream);
@end
    return EDGEFOLD_OK;
}

@if filter
enum edgefold_status ${stream}_step(struct $stream *stream, const double *x)
{
@if room
    if (last_commit(stream).n_points >= ${NAME}_ROOM) return EDGEFOLD_FULL;
@end
@if x
    if (!numbers_are_sound(x, ${NAME}_STREAMS * $n_inputs, $n_inputs, scaled_x)) {
        return EDGEFOLD_BAD_VALUE;
    }
    scale_rows(stream->${one}_x, 1, x, 1, 0, 1, $n_inputs, scaled_x);
@end
@if !x
    (void)x;
@end
    return learn(stream, 1, $flip_one, compute_$one);
}
@end
@if !filter
/* Learns `count` of n points one by one, from `start` on. */
static enum edgefold_status learn_each(
    struct $stream *stream, size_t n, size_t start, size_t count, const double *x,
    const double *y)
{
$unused
    enum edgefold_status status = EDGEFOLD_OK;
    for (size_t row = start; row < start + count && status == EDGEFOLD_OK; row++) {
$scale_one
        status = learn(stream, 1, $flip_one, compute_$one);
    }
    return status;
}

@if condition
/* Learns `count` of n points at once, from `start` on. */
static enum edgefold_status learn_chunk(
    struct $stream *stream, size_t n, size_t start, size_t count, const double *x,
    const double *y)
{
$unused
$scale_chunk
    return learn(stream, count, $flip_condition, compute_condition);
}

@end
enum edgefold_status ${stream}_condition(
    struct $stream *stream, size_t n, const double *x, const double *y)
{
    enum edgefold_status status = EDGEFOLD_OK;
@if room
    if (n > ${NAME}_ROOM - last_commit(stream).n_points) return EDGEFOLD_FULL;
@end
@if x
    if (!numbers_are_sound(x, ${NAME}_STREAMS * n * $n_inputs, $n_inputs, scaled_x)) {
        return EDGEFOLD_BAD_VALUE;
    }
@end
@if y
    if (!numbers_are_sound(y, ${NAME}_STREAMS * n * $n_outputs, $n_outputs, scaled_y)) {
        return EDGEFOLD_BAD_VALUE;
    }
@end
    for (size_t done = 0, count; done < n && status == EDGEFOLD_OK; done += count) {
        count = n - done < ${NAME}_CHUNK ? n - done : ${NAME}_CHUNK;
@if condition
        if (count > $few) { /* fewer are learned sooner one by one than in a padded chunk */
            status = learn_chunk(stream, n, done, count, x, y);
            continue;
        }
@end
        status = learn_each(stream, n, done, count, x, y);
    }
    return status;
}

enum edgefold_status ${stream}_update(
    struct $stream *stream, const double *x, const double *y)
{
    return ${stream}_condition(stream, 1, x, y);
}

@if refresh
enum edgefold_status ${stream}_refresh(struct $stream *stream)
{
    enum edgefold_status status;
    if (last_commit(stream).cache_is_made) return EDGEFOLD_OK;
@if rings
    settle(stream);
@end
    status = compute_refresh(stream, last_commit(stream).sides);
    if (status == EDGEFOLD_OK) stream->commits[stream->current].cache_is_made = 1;
    return status;
}

@end
enum edgefold_status ${stream}_query(
    struct $stream *stream, size_t n, const double *x)
{
@if refresh
    enum edgefold_status status;
@end
    if (n < 1 || n > ${NAME}_TARGETS) return EDGEFOLD_TOO_MANY;
@if targets
    if (!numbers_are_sound(x, ${NAME}_STREAMS * n * $n_inputs, $n_inputs, scaled_x)) {
        return EDGEFOLD_BAD_VALUE;
    }
@end
@if refresh
    status = ${stream}_refresh(stream);
    if (status != EDGEFOLD_OK) return status;
@end
@if settle_query
    settle(stream);
@end
$queries
}
@end
