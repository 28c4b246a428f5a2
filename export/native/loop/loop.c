/* Predict, then update, row by row, without end.
 *
 *     row ──> x ──> query ──> prediction ──┐
 *      └────> y ──> update                 ├──> output row, counters
 *             every N rows: output to disk, then one snapshot  <─┘
 *
 * A model of the filtering kind has one step instead: x in, prediction out. Stopped or killed at
 * any moment, the same command resumes and gives the same output. */
#include <string.h>

#include "program.h"

bool has_resumed;
static bool has_begun; /* the output exists, and a snapshot before it */
static struct row row;
static struct row first_bad;
static char header_bytes[ROW_BYTES];
static char row_bytes[ROW_BYTES];

static const char *header(void)
{
    struct text text = {header_bytes, 0, sizeof header_bytes, false};
    if (!header_bytes[0]) add_header(&text);
    return header_bytes;
}

static void write_snapshot(bool is_first)
{
    if (!options.snapshot) return;
    struct text json = begin_record();
    add_record(&json, header(), is_first);
    save_snapshot(json);
}

/* At the first row that can be read: the output and, before it, a snapshot of nothing. The order
 * makes an output without snapshot impossible: one that is found is another run's. */
static void begin(void)
{
    if (has_begun) return;
    write_snapshot(true);
    begin_output(header());
    has_begun = true;
}

/* Bring the output to the disk, then keep everything that belongs to it. */
static void save(void)
{
    require_unchanged();
    if (!has_begun) return;
    sync_output();
    write_snapshot(false);
}

/* Count a row that is skipped. */
static void refuse(void)
{
    if (options.strict) {
        save();
        fail(REFUSED, "%s, line %llu: %s. Fix or drop it; everything before it is kept.",
             input.name, (unsigned long long)row.line, row.reason);
    }
    if (!first_bad.line) first_bad = row;
    counters.malformed++;
    counters.refused_in_a_row++;
    report_bad(&row);
}

static void explain(enum model_status status)
{
    struct text text = {row.reason, 0, sizeof row.reason, false};
    add(&text, "the row was refused: ");
    if (status == MODEL_BAD_VALUE)
        add(&text, "a number of it is beyond 1e+09 scale units. Nothing was learned; leave the "
            "row out or correct it");
    else
        add(&text, "a step gave a non-finite result and was not committed; the state is as before. "
            "Check the values just given, the snapshot that was restored, if any, and the bundle "
            "with `edgefold check`");
}

/* Predict and update with a row; one that is refused changes nothing. */
static enum model_status answer(void)
{
    const double *x = row.numbers, *y = row.numbers + PROGRAM_INPUTS;
    if (model.is_filter) return model_step(x);
    enum model_status status = model_query(x);
    if (status != MODEL_DONE) return status;
    if (!model_is_full()) return model_update(x, y);
    counters.not_learned++;
    report_full(row.line);
    return MODEL_DONE;
}

static void write_row(void)
{
    struct text text = {row_bytes, 0, sizeof row_bytes, false};
    add_format(&text, "%llu", (unsigned long long)row.line);
    for (size_t i = 0; i < COLUMNS; i++) {
        add(&text, ",");
        add_with_point(&text, row.texts[i]);
    }
    add_prediction(&text, row.numbers + PROGRAM_INPUTS);
    add(&text, "\n");
    struct slice rows = {text.at, text.n};
    write_output(rows);
}

static void process_good(void)
{
    uint64_t n_refused = counters.refused_in_a_row;
    begin();
    enum model_status status = answer();
    if (status == MODEL_FULL)
        fail(REFUSED, "line %llu: the state has no room for another row: it %s.",
             (unsigned long long)row.line, model.keeps);
    if (status == MODEL_FAILED)
        fail(MACHINE, "line %llu: the model failed.", (unsigned long long)row.line);
    if (status != MODEL_DONE) {
        explain(status);
        refuse();
        return;
    }
    write_row();
    counters.rows++;
    counters.refused_in_a_row = 0;
    if (n_refused) report_learned(row.line, n_refused);
}

static void process(enum row_state state)
{
    if (state == ROW_GOOD) {
        process_good();
    } else if (state == ROW_BAD) {
        refuse();
    } else {
        counters.missing++;
        if (!first_bad.line) first_bad = row;
    }
    counters.lines = row.line;
    keep_input();
    report_row();
}

/* Continue from the snapshot, if there is one; begin with a state that no loop has kept. */
static void resume(void)
{
    static char name[PATH_BYTES];
    static struct text output_name = {name, 0, sizeof name, false};
    static struct record record;
    struct slice json = {NULL, 0};
    if (!options.force && has_snapshot()) json = load_snapshot();
    if (!json.n) {
        if (output_exists() && !options.force) refuse_existing();
        begin_rows(0, true);
        return;
    }
    record.output.name = &output_name;
    read_record(json, header(), &record);
    if (layout.is_known) resume_input(&record.input);
    begin_rows(counters.lines, !layout.is_known || !input.is_seekable || input.position == 0);
    resume_output(&record.output, header(), counters.rows == 0);
    has_begun = true;
    has_resumed = layout.is_known;
}

static void end(void)
{
    if (is_stopped()) return;
    if (counters.rows) {
        if (options.snapshot) require_in_place();
        return;
    }
    if (first_bad.line)
        fail(REFUSED, "%s has no usable row in %llu lines; the first, line %llu: %s. Give rows of "
             "%s.", input.name, (unsigned long long)counters.lines,
             (unsigned long long)first_bad.line, first_bad.reason, wish());
    if (!has_begun)
        fail(REFUSED, "%s holds a header and no rows yet; nothing was written. Run again when it "
             "holds rows of %s.", input.name, wish());
}

void run_loop(void)
{
    uint64_t since = 0;
    enum row_state state;
    resume();
    while ((state = next_row(&row)) != ROW_NONE) {
        process(state);
        if (++since >= options.every) {
            save();
            since = 0;
        }
        /* The next row may be long in coming. */
        if (!input.is_seekable && !has_line()) flush_output();
        if (is_stopped() && (input.is_seekable || !has_line())) break;
    }
    save();
    end();
}
