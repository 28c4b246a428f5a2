/* SPDX-License-Identifier: Apache-2.0
 *
 * The aggregate <<name>> of PostgreSQL, and the functions that read what it returns.
 *
 *     row ──> rows that wait, a chunk at most ──> the state ──> bytes of a snapshot
 *
 * A group has one struct learner, in the memory of the aggregate. A PostgreSQL process runs one
 * call at a time, so the arena of the model's C and the two buffers below serve all groups.
 */
#include "postgres.h"

#if PG_VERSION_NUM < 130000
#error "<<name>> needs PostgreSQL 13 or newer"
#endif

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "<<library>>.h"

PG_MODULE_MAGIC;

#define N_X <<NAME>>_N_INPUTS
#define N_Y <<NAME>>_N_OUTPUTS
#define CHUNK <<NAME>>_CHUNK
#define N_PREDICTED <<n_predicted>> /* tensors of a prediction */
#define N_SHOWN 16 /* numbers of a row in an error */

/* What a group has learned, and the rows that wait until they are a chunk. */
struct learner {
    size_t n_waiting;
    double x[CHUNK * (N_X + !N_X)]; /* an array has one number at least */
    double y[CHUNK * (N_Y + !N_Y)];
    struct <<library>> stream;
};

/* Says which code wrote the bytes of a struct learner that a worker sends to its leader. */
struct sender {
    char bundle[64];
    uint64 n_bytes;
};

StaticAssertDecl(sizeof(struct learner) <= <<state_bytes>>, "SSPACE of the aggregate is too small");

static struct learner ended; /* a learner at its end: no row waits */
static struct <<library>> held; /* the state that was read last */
static char held_bytes[<<NAME>>_SNAPSHOT_BYTES]; /* from which it was read */
static size_t n_held; /* 0: from none, or from bytes that are not kept */

/* Errors -------------------------------------------------------------------------------------- */

<<scaled>>
static char *number_text(double number)
{
    return DatumGetCString(DirectFunctionCall1(float8out, Float8GetDatum(number)));
}

static char *column_name(const char *axis, int column, int n)
{
    return n > 1 ? psprintf("%s%d", axis, column) : pstrdup(axis);
}

static void add_columns(StringInfo text, const char *axis, const double *numbers, int n)
{
    for (int i = 0; i < n && i < N_SHOWN; i++) {
        appendStringInfo(text, "%s%s = %s", text->len ? ", " : "", column_name(axis, i + 1, n),
                         number_text(numbers[i]));
    }
    if (n > N_SHOWN) appendStringInfoString(text, ", ...");
}

/* Returns the column, from 1 on, of a number that Stream refuses too: one that is not finite, or far
 * outside of the model's scale. 0 is returned if there is none. */
static int refused_column(const double *numbers, int n, double (*scaled)(double, size_t))
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(scaled(numbers[i], i)) <= <<limit>>)) return i + 1;
    }
    return 0;
}

static void refuse(const char *function, const double *x, const double *y, const char *axis,
                   double number)
{
    StringInfoData row;
    initStringInfo(&row);
    add_columns(&row, "x", x, N_X);
    if (y) add_columns(&row, "y", y, N_Y);
    ereport(ERROR,
            (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
             errmsg("%s() got %s = %s", function, axis, number_text(number)),
             errdetail("The row is %s. Numbers must be finite, and not beyond <<limit>> times the "
                       "scale of their column.", row.data),
             errhint("Leave such rows out with WHERE or FILTER (WHERE ...), or make the number "
                     "NULL: a row with a NULL is not learned.")));
}

/* Refuses a row, or the inputs of a query if y is NULL. */
static void require_sound(const char *function, const double *x, const double *y)
{
    int column;
@if takes_x
    column = refused_column(x, N_X, scaled_x);
    if (column) refuse(function, x, y, column_name("x", column, N_X), x[column - 1]);
@end
@if takes_y
    column = y ? refused_column(y, N_Y, scaled_y) : 0;
    if (column) refuse(function, x, y, column_name("y", column, N_Y), y[column - 1]);
@end
}

static void require_ok(enum edgefold_status status)
{
    switch (status) {
    case EDGEFOLD_OK:
        return;
    case EDGEFOLD_FULL:
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("<<name>>: a state has no room for so many points"),
                        errdetail("It holds <<room>> points at most.")));
        break;
    case EDGEFOLD_NO_SNAPSHOT:
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("<<name>>: the bytes are no state"),
                        errhint("Give what the aggregate <<name>> returned, or the content of a "
                                "snapshot file.")));
        break;
    case EDGEFOLD_BAD_SNAPSHOT:
        ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
                        errmsg("<<name>>: the bytes are a damaged state"),
                        errhint("Use an older copy, or learn the rows again.")));
        break;
    case EDGEFOLD_FOREIGN_SNAPSHOT:
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("<<name>>: the bytes are a state of another bundle"),
                        errdetail("This extension was made of the bundle %s.", <<NAME>>_BUNDLE)));
        break;
    default: /* EDGEFOLD_NOT_FINITE, EDGEFOLD_BAD_SLOT: values were judged before */
        ereport(ERROR, (errcode(ERRCODE_FLOATING_POINT_EXCEPTION),
                        errmsg("<<name>>: the arithmetic of a step was not finite"),
                        errhint("Check the values, and the bundle with `edgefold check`.")));
    }
}

/* Learning ------------------------------------------------------------------------------------ */

/* Learns the rows that wait, as Stream.condition learns the last ones of a history. */
static void learn_waiting(struct learner *learner)
{
    CHECK_FOR_INTERRUPTS();
    if (!learner->n_waiting) return;
    require_ok(<<library>>_condition(&learner->stream, learner->n_waiting, learner->x, learner->y));
    learner->n_waiting = 0;
}

static void learn_row(struct learner *learner, const double *x, const double *y)
{
    memcpy(learner->x + learner->n_waiting * N_X, x, N_X * sizeof *x);
    memcpy(learner->y + learner->n_waiting * N_Y, y, N_Y * sizeof *y);
    if (++learner->n_waiting == CHUNK) learn_waiting(learner);
}

/* Returns the group's learner, a new one for its first row. */
static struct learner *learner_of(FunctionCallInfo fcinfo)
{
    MemoryContext memory;
    struct learner *learner;
    if (!AggCheckCallContext(fcinfo, &memory)) elog(ERROR, "<<name>> is called by an aggregate only");
    if (!PG_ARGISNULL(0)) return (struct learner *)PG_GETARG_POINTER(0);
    learner = MemoryContextAllocZero(memory, sizeof *learner);
    <<library>>_init(&learner->stream<<seeds>>);
    return learner;
}

static Datum unchanged(FunctionCallInfo fcinfo)
{
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    return PG_GETARG_DATUM(0);
}

/* Takes n numbers from the arguments, from `first` on. Returns whether none is NULL. */
static bool take_numbers(FunctionCallInfo fcinfo, int first, int n, double *numbers)
{
    for (int i = 0; i < n; i++) {
        if (PG_ARGISNULL(first + i)) return false;
        numbers[i] = PG_GETARG_FLOAT8(first + i);
    }
    return true;
}

/* Takes n numbers from an argument that is an array of them. Returns whether none is NULL. */
static bool take_array(FunctionCallInfo fcinfo, int argument, const char *axis, int n,
                       double *numbers)
{
    ArrayType *array;
    if (PG_ARGISNULL(argument)) return false;
    array = PG_GETARG_ARRAYTYPE_P(argument);
    if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != n) {
        ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
                        errmsg("<<name>>: an array %s has %d numbers on %d axes", axis,
                               ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)), ARR_NDIM(array)),
                        errhint("The model takes arrays %s of %d on one axis.", axis, n)));
    }
    if (array_contains_nulls(array)) return false;
    memcpy(numbers, ARR_DATA_PTR(array), n * sizeof *numbers);
    return true;
}

static Datum learned(FunctionCallInfo fcinfo, const double *x, const double *y)
{
    struct learner *learner;
    require_sound("<<name>>", x, y);
    learner = learner_of(fcinfo);
    learn_row(learner, x, y);
    PG_RETURN_POINTER(learner);
}

@if scalars
PG_FUNCTION_INFO_V1(<<library>>_pg_learn);
Datum <<library>>_pg_learn(PG_FUNCTION_ARGS)
{
    double x[N_X + !N_X], y[N_Y + !N_Y];
    if (!take_numbers(fcinfo, 1, N_X, x) || !take_numbers(fcinfo, 1 + N_X, N_Y, y)) {
        return unchanged(fcinfo);
    }
    return learned(fcinfo, x, y);
}

@end
PG_FUNCTION_INFO_V1(<<library>>_pg_learn_arrays);
Datum <<library>>_pg_learn_arrays(PG_FUNCTION_ARGS)
{
    double x[N_X + !N_X], y[N_Y + !N_Y];
    if ((N_X && !take_array(fcinfo, 1, "x", N_X, x)) ||
        (N_Y && !take_array(fcinfo, 1 + !!N_X, "y", N_Y, y))) {
        return unchanged(fcinfo);
    }
    return learned(fcinfo, x, y);
}

/* Adds what another stream has learned. */
static void merge(struct <<library>> *stream, const struct <<library>> *other)
{
    CHECK_FOR_INTERRUPTS();
    if (!<<library>>_n_points(other)) return;
    if (<<library>>_n_points(stream)) require_ok(<<library>>_merge(stream, other));
    else *stream = *other; /* the very bits, where a merge may round */
}

PG_FUNCTION_INFO_V1(<<library>>_pg_combine);
Datum <<library>>_pg_combine(PG_FUNCTION_ARGS)
{
    const struct learner *other;
    struct learner *learner;
    if (PG_ARGISNULL(1)) return unchanged(fcinfo);
    other = (const struct learner *)PG_GETARG_POINTER(1);
    learner = learner_of(fcinfo);
    merge(&learner->stream, &other->stream);
    for (size_t i = 0; i < other->n_waiting; i++) {
        learn_row(learner, other->x + i * N_X, other->y + i * N_Y);
    }
    PG_RETURN_POINTER(learner);
}

/* A worker and its leader run the same code, so that the bytes of the struct will do. */
PG_FUNCTION_INFO_V1(<<library>>_pg_serialize);
Datum <<library>>_pg_serialize(PG_FUNCTION_ARGS)
{
    const struct sender sender = {<<NAME>>_BUNDLE, sizeof(struct learner)};
    bytea *sent = palloc(VARHDRSZ + sizeof sender + sizeof(struct learner));
    SET_VARSIZE(sent, VARHDRSZ + sizeof sender + sizeof(struct learner));
    memcpy(VARDATA(sent), &sender, sizeof sender);
    memcpy(VARDATA(sent) + sizeof sender, PG_GETARG_POINTER(0), sizeof(struct learner));
    PG_RETURN_BYTEA_P(sent);
}

PG_FUNCTION_INFO_V1(<<library>>_pg_deserialize);
Datum <<library>>_pg_deserialize(PG_FUNCTION_ARGS)
{
    const struct sender own = {<<NAME>>_BUNDLE, sizeof(struct learner)};
    const bytea *sent = PG_GETARG_BYTEA_PP(0);
    struct learner *learner;
    if (!AggCheckCallContext(fcinfo, NULL)) elog(ERROR, "<<name>> is called by an aggregate only");
    if (VARSIZE_ANY_EXHDR(sent) != sizeof own + sizeof *learner ||
        memcmp(VARDATA_ANY(sent), &own, sizeof own)) {
        elog(ERROR, "<<name>>: a worker runs other code than its leader");
    }
    learner = palloc(sizeof *learner);
    memcpy(learner, VARDATA_ANY(sent) + sizeof own, sizeof *learner);
    PG_RETURN_POINTER(learner);
}

/* Snapshots ----------------------------------------------------------------------------------- */

struct span {
    char *at;
    size_t n_left;
};

static size_t write_bytes(void *to, const void *bytes, size_t n)
{
    struct span *span = to;
    if (n > span->n_left) return 0;
    memcpy(span->at, bytes, n);
    span->at += n;
    span->n_left -= n;
    return n;
}

static size_t read_bytes(void *from, void *bytes, size_t n)
{
    struct span *span = from;
    if (n > span->n_left) n = span->n_left;
    memcpy(bytes, span->at, n);
    span->at += n;
    span->n_left -= n;
    return n;
}

static Datum snapshot_of(struct <<library>> *stream)
{
    bytea *snapshot = palloc(VARHDRSZ + <<NAME>>_SNAPSHOT_BYTES);
    struct span span = {VARDATA(snapshot), <<NAME>>_SNAPSHOT_BYTES};
    require_ok(<<library>>_save(stream, write_bytes, &span, NULL, 0));
    SET_VARSIZE(snapshot, span.at - (char *)snapshot);
    PG_RETURN_BYTEA_P(snapshot);
}

/* Reads a snapshot into `held`, unless that is where it was read before: a query of many rows asks
 * for one state again and again. */
static struct <<library>> *stream_of(const bytea *snapshot)
{
    struct span span = {VARDATA_ANY(snapshot), VARSIZE_ANY_EXHDR(snapshot)};
    const size_t n = span.n_left;
    if (n && n == n_held && !memcmp(span.at, held_bytes, n)) return &held;
    CHECK_FOR_INTERRUPTS();
    n_held = 0;
    <<library>>_init(&held<<seeds>>);
    require_ok(<<library>>_load(&held, read_bytes, &span, NULL, 0));
    if (n <= sizeof held_bytes) { /* with a loop's own arrays it may be larger */
        memcpy(held_bytes, VARDATA_ANY(snapshot), n);
        n_held = n;
    }
    return &held;
}

/* The final function. The learner stays as it is: of a window, more rows follow. */
PG_FUNCTION_INFO_V1(<<library>>_pg_state);
Datum <<library>>_pg_state(PG_FUNCTION_ARGS)
{
    if (PG_ARGISNULL(0)) PG_RETURN_NULL();
    memcpy(&ended, PG_GETARG_POINTER(0), sizeof ended);
    learn_waiting(&ended);
    return snapshot_of(&ended.stream);
}

PG_FUNCTION_INFO_V1(<<library>>_pg_take);
Datum <<library>>_pg_take(PG_FUNCTION_ARGS)
{
    struct learner *learner;
    if (PG_ARGISNULL(1)) return unchanged(fcinfo);
    learner = learner_of(fcinfo);
    merge(&learner->stream, stream_of(PG_GETARG_BYTEA_PP(1)));
    PG_RETURN_POINTER(learner);
}

PG_FUNCTION_INFO_V1(<<library>>_pg_merge);
Datum <<library>>_pg_merge(PG_FUNCTION_ARGS)
{
    ended.stream = *stream_of(PG_GETARG_BYTEA_PP(0));
    merge(&ended.stream, stream_of(PG_GETARG_BYTEA_PP(1)));
    return snapshot_of(&ended.stream);
}

PG_FUNCTION_INFO_V1(<<library>>_pg_points);
Datum <<library>>_pg_points(PG_FUNCTION_ARGS)
{
    PG_RETURN_INT64((int64)<<library>>_n_points(stream_of(PG_GETARG_BYTEA_PP(0))));
}

/* Predictions --------------------------------------------------------------------------------- */

/* Returns a tensor of one target: a number, or an array of n. */
static Datum predicted(const double *numbers, int n)
{
    Datum items[<<most_numbers>>];
    for (int i = 0; i < n; i++) items[i] = Float8GetDatum(numbers[i]);
    if (n == 1) return items[0];
    return PointerGetDatum(construct_array(items, n, FLOAT8OID, 8, FLOAT8PASSBYVAL, 'd'));
}

static Datum answer(FunctionCallInfo fcinfo, struct <<library>> *stream, const double *x)
{
    Datum values[N_PREDICTED];
    require_sound("<<name>>_query", x, NULL);
    require_ok(<<library>>_query(stream, 1, x));
<<predictions>>
#if N_PREDICTED == 1
    return values[0];
#else
    {
        bool nulls[N_PREDICTED] = {false};
        TupleDesc columns;
        if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE) {
            elog(ERROR, "<<name>>_query does not return a row");
        }
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls));
    }
#endif
}

@if asks_scalars
PG_FUNCTION_INFO_V1(<<library>>_pg_query);
Datum <<library>>_pg_query(PG_FUNCTION_ARGS)
{
    double x[N_X + !N_X];
    if (!take_numbers(fcinfo, 1, N_X, x)) PG_RETURN_NULL();
    return answer(fcinfo, stream_of(PG_GETARG_BYTEA_PP(0)), x);
}
@end
@if x
PG_FUNCTION_INFO_V1(<<library>>_pg_query_array);
Datum <<library>>_pg_query_array(PG_FUNCTION_ARGS)
{
    double x[N_X];
    if (!take_array(fcinfo, 1, "x", N_X, x)) PG_RETURN_NULL();
    return answer(fcinfo, stream_of(PG_GETARG_BYTEA_PP(0)), x);
}
@end
