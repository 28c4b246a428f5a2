/* $title
 *
 * Written by Edgefold; one version writes the same text for the same bundle. Plain C99 without a
 * heap, threads or any library but libm. All memory is in the struct below, which the program owns,
 * and in one static block of the .c file in which the steps compute: so several streams of one
 * program take turns.
@if sensors
 *
 * Firmware for a sensor uses the second part of this file, from "Sensors" on: ${stream}_start,
 * ${stream}_push and what follows. This first part is the model's stream inside of it.
@end
 *
 * Not for two threads, cores or an interrupt at once: all streams of a model share that block, and
 * calls that meet give wrong answers without an error. Guard the calls with a lock, compile once
 * per thread with another --name, or compile with -DEDGEFOLD_ARENA_STORAGE=_Thread_local, which
 * gives each thread a block of its own. A stream itself is always for one thread at a time.
 *
 *     static struct $stream stream;
@if filter
 *     $init_call;
 *     if (${stream}_step(&stream, x) == EDGEFOLD_OK) use(stream.prediction_$first);
@end
@if !filter
 *     $init_call;
 *     if (${stream}_query(&stream, 1, x) == EDGEFOLD_OK) use(stream.prediction_$first);
 *     ${stream}_update(&stream, x, y);
@end
 *
 * Numbers of callers are in their own units, row after row: ($streams, n, columns)$for_streams.
 * A call that does not return EDGEFOLD_OK has learned nothing of the point at which it stopped.
 */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef EDGEFOLD_TYPES /* the same for all models of a program */
#define EDGEFOLD_TYPES

enum edgefold_status {
    EDGEFOLD_OK = 0,
    EDGEFOLD_BAD_VALUE,        /* NaN, infinite, or beyond 1e9 times the column's scale */
    EDGEFOLD_NOT_FINITE,       /* the step's arithmetic; the state is as before */
    EDGEFOLD_FULL,             /* the state has no room for so many points; nothing was learned */
    EDGEFOLD_TOO_MANY,         /* targets, or none; or arrays of a snapshot */
    EDGEFOLD_BAD_SLOT,         /* a step chose a place outside a ring; the state is as before */
    EDGEFOLD_NO_SNAPSHOT,      /* nothing is there, or something else than a snapshot */
    EDGEFOLD_BAD_SNAPSHOT,     /* damaged, or no state of this model; the state is as before */
    EDGEFOLD_FOREIGN_SNAPSHOT, /* of another bundle; the state is as before */
    EDGEFOLD_IO                /* the callback wrote less than it was given */
};

/* What a commit changes, as a whole: sides tells of each group of tensors which side is current. */
struct edgefold_commit {
    uint64_t n_points, n_recent;
    uint32_t sides;
    uint8_t rows_due, cache_is_made;
};

/* An array of the caller's own, which is kept in a snapshot beside the state. */
struct edgefold_array {
    const char *name;  /* each array has another one */
    const char *type;  /* as numpy has it: "<f8", "<i8", "|u1" */
    const char *shape; /* as Python writes it: "(3, 7)" or "()"; NULL for one axis of any length */
    void *data;        /* little-endian, row after row */
    size_t n_bytes;    /* of the data; a load sets it, to 0 where the snapshot has no such array */
    size_t room;       /* for a load: bytes that fit into data */
};

/* Both return how many bytes they wrote or read; fewer than n are an error, or the end. */
typedef size_t edgefold_write(void *to, const void *bytes, size_t n);
typedef size_t edgefold_read(void *from, void *bytes, size_t n);
#endif

/* The version of Edgefold that wrote this text; its parts for #if. */
#define ${NAME}_VERSION "$version"
#define ${NAME}_VERSION_MAJOR $major
#define ${NAME}_VERSION_MINOR $minor
#define ${NAME}_VERSION_PATCH $patch

#define ${NAME}_BUNDLE \
    "$bundle"
#define ${NAME}_N_INPUTS $n_inputs /* columns of x */
#define ${NAME}_N_OUTPUTS $n_outputs /* columns of y */
#define ${NAME}_STREAMS $streams /* that each call serves */
#define ${NAME}_CHUNK $chunk /* points that one step learns at most */
#define ${NAME}_TARGETS $targets_n /* of one query at most */
#define ${NAME}_ROOM $room_n /* points that a stream takes; 0: any number */
#define ${NAME}_IS_FILTER $filter_n /* 1: it has step; 0: it has update and query */
#define ${NAME}_TAKES_SEED $takes_seed

/* Memory in bytes, known before anything runs. Code, with some tables of its own, comes on top of
 * the flash, and the stack on top of the RAM. */
@if waits
#ifndef EDGEFOLD_WITHOUT_SNAPSHOTS /* a load keeps the rings there until all was judged */
#define ${NAME}_ARENA_BYTES $load_bytes
#else
#define ${NAME}_ARENA_BYTES $arena_bytes
#endif
@end
@if !waits
#define ${NAME}_ARENA_BYTES $arena_bytes
@end
#define ${NAME}_STATE_BYTES $state_bytes /* both sides of the state, rings, cache */
@if sensors
/* Of the model's stream and the arena; a sensor takes more, ${NAME}_SENSOR_RAM_BYTES. */
#define ${NAME}_RAM_BYTES ($struct_bytes + ${NAME}_ARENA_BYTES)
@end
@if !sensors
#define ${NAME}_RAM_BYTES ($struct_bytes + ${NAME}_ARENA_BYTES) /* struct and arena */
@end
#define ${NAME}_WEIGHT_BYTES $weight_bytes
#define ${NAME}_FLASH_BYTES $flash_bytes /* constants: weights, scaling, first values */
#define ${NAME}_SNAPSHOT_BYTES $snapshot_bytes /* that save writes at most, without extra arrays */

/* The struct in bytes; behind each member stands its first byte, then its length.
 *
$memory
 *
 * On top comes the arena, in which one step at a time computes: $arena_bytes bytes.
@if waits
 * Where snapshots can be loaded it has $load_bytes: it then holds the rings.
@end
 *
 * The predictions come first. Each has ${NAME}_TARGETS places for each stream, so that
 * stream s begins at s * ${NAME}_TARGETS * (numbers of a target).
@if filter
 * A step fills them; they hold until the next one. */
@end
@if !filter
 * A query of n fills the first n places of each stream, and what lies behind them is old. They are
 * valid after EDGEFOLD_OK, until the next query. */
@end
struct $stream {
$members
};

/* Forgets everything: the state has seen no point.$seed_text */
$init;

/* Points of each stream that were learned. */
uint64_t ${stream}_n_points(const struct $stream *stream);

@if filter
/* Takes one input of each stream and answers at once; see the predictions above.
 * EDGEFOLD_BAD_VALUE, EDGEFOLD_NOT_FINITE$full$bad_slot. x: ($streams, $n_inputs)$none_x */
enum edgefold_status ${stream}_step(struct $stream *stream, const double *x);
@end
@if !filter
/* Learns one point of each stream.
 * EDGEFOLD_BAD_VALUE, EDGEFOLD_NOT_FINITE$full$bad_slot.
 * x: ($streams, $n_inputs)$none_x; y: ($streams, $n_outputs)$none_y */
enum edgefold_status ${stream}_update(
    struct $stream *stream, const double *x, const double *y);

/* Learns n points of each stream, any number. Of bad values nothing is learned; another error
 * leaves the points learned that ${stream}_n_points counts.
 * x: ($streams, n, $n_inputs)$none_x; y: ($streams, n, $n_outputs)$none_y */
enum edgefold_status ${stream}_condition(
    struct $stream *stream, size_t n, const double *x, const double *y);

/* Predicts at n inputs of each stream, 1 to ${NAME}_TARGETS; see the predictions above.
 * EDGEFOLD_TOO_MANY, EDGEFOLD_BAD_VALUE, EDGEFOLD_NOT_FINITE.
 * x: ($streams, n, $n_inputs)$none_targets */
enum edgefold_status ${stream}_query(
    struct $stream *stream, size_t n, const double *x);
@end
@if refresh

/* Computes what queries read of the state, if a point came since. A query calls it; call it to
 * choose when. EDGEFOLD_NOT_FINITE. */
enum edgefold_status ${stream}_refresh(struct $stream *stream);
@end
@if consolidate

/* Adds recent sums to their base, which keeps them accurate. Learning does it by itself every
 * $every points; call it to choose when. EDGEFOLD_NOT_FINITE. */
enum edgefold_status ${stream}_consolidate(struct $stream *stream);
@end
@if merge

/* Learns what another stream of this model has learned, which stays as it is: afterwards the state
 * knows the points of both. They must have no point in common: it would count twice. To merge a
 * snapshot, load it into the other stream. EDGEFOLD_NOT_FINITE, EDGEFOLD_FULL: nothing changed. */
enum edgefold_status ${stream}_merge(
    struct $stream *stream, const struct $stream *other);
@end

@if !sensors
#ifndef EDGEFOLD_WITHOUT_SNAPSHOTS

/* Writes the state and n_extra arrays of the caller as Edgefold's snapshot, an .npz.
 * EDGEFOLD_IO, EDGEFOLD_NOT_FINITE (nothing was written), EDGEFOLD_TOO_MANY. */
enum edgefold_status ${stream}_save(
    struct $stream *stream, edgefold_write *write, void *to,
    const struct edgefold_array *extra, size_t n_extra);

/* Takes over the state of a snapshot, and the arrays that are asked for. Anything but EDGEFOLD_OK
 * leaves the state as it was; what the caller's arrays hold is then of no use.
 * EDGEFOLD_NO_SNAPSHOT, EDGEFOLD_BAD_SNAPSHOT, EDGEFOLD_FOREIGN_SNAPSHOT. */
enum edgefold_status ${stream}_load(
    struct $stream *stream, edgefold_read *read, void *from,
    struct edgefold_array *extra, size_t n_extra);
#endif
@end

$engine
#ifdef __cplusplus
}
#endif
#endif
