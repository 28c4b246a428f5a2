/* What the program says while it runs and at its end, on standard error: the first bad rows one by
 * one, and seldom enough for a log that all rows are refused. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { SHOWN = 20, FIRST_ALARM = 20, FACTOR = 10 };

static char held_bytes[32768]; /* told after a good row, because a wrong file has none */
static struct text held = {held_bytes, 0, sizeof held_bytes, false};
static struct row last_bad;
static uint64_t n_bad, n_rows;
static bool has_told_full;
static struct timespec began;

void begin_report(void) { clock_gettime(CLOCK_MONOTONIC, &began); }

static void tell(void)
{
    if (held.n && !options.quiet) {
        held.at[--held.n] = 0; /* the last line's end, which is added again */
        for (char *at = held.at, *end; at; at = end ? end + 1 : NULL) {
            end = strchr(at, '\n');
            if (end) *end = 0;
            say(at);
        }
    }
    held.n = 0;
}

static bool is_alarm(uint64_t n_in_a_row)
{
    uint64_t n = n_in_a_row;
    while (n > FIRST_ALARM && n % FACTOR == 0) n /= FACTOR;
    return n == FIRST_ALARM;
}

void report_bad(const struct row *row)
{
    unsigned long long line = row->line;
    n_bad++;
    last_bad = *row;
    if (n_bad <= SHOWN)
        add_format(&held, "edgefold: %.200s, line %llu: %s; skipped\n", input.name, line,
                   row->reason);
    if (n_bad == SHOWN) add(&held, "edgefold: further malformed rows are only counted\n");
    if (!is_alarm(counters.refused_in_a_row) || (!counters.rows && input.is_seekable)) return;
    add(&held, "edgefold: WARNING: the last ");
    add_count(&held, counters.refused_in_a_row);
    add_format(&held, " rows were all refused, and nothing is learned of them. The last one, line "
               "%llu: %s. Look at the input: its clock, its pace and its columns. Once its rows "
               "fit again they are learned again\n", line, row->reason);
    tell();
}

void report_learned(uint64_t line, uint64_t n_refused)
{
    if (n_refused < FIRST_ALARM) return;
    add_format(&held, "edgefold: rows are learned again from line %llu on, after ",
               (unsigned long long)line);
    add_count(&held, n_refused);
    add(&held, " refused\n");
}

void report_full(uint64_t line)
{
    if (has_told_full) return;
    has_told_full = true;
    add_format(&held, "edgefold: %.200s, line %llu: WARNING: the state is full: it %s. "
               "Predictions go on; this row and later ones are not learned. To learn on, export "
               "with a larger capacity, or with when_full=overwrite or reservoir.\n", input.name,
               (unsigned long long)line, model.keeps);
    tell();
}

void report_row(void)
{
    n_rows++;
    if (held.n && counters.rows) tell();
}

static void add_line(struct text *text, const char *name) { add_format(text, "%-14s", name); }

static void add_quality(struct text *text)
{
    if (!counters.predicted || !model.center) return;
    double n = (double)counters.predicted;
    add_line(text, "RMSE");
    for (size_t i = 0; i < model.n_errors; i++)
        add_format(text, "%s%.4g", i ? " " : "", sqrt(counters.squared_error[i] / n));
    add(text, "\n");
    if (!model.deviation) return;
    add_line(text, "90 % band");
    add_format(text, "holds %.1f%% of the values\n",
               100 * ((double)counters.within_90 / (n * (double)model.n_errors)));
    add_line(text, "anomalies");
    add_count(text, counters.anomalies);
    add(text, "\n");
}

static void add_not_learned(struct text *text)
{
    if (!counters.not_learned) return;
    add_line(text, "WARNING");
    add_count(text, counters.not_learned);
    add_format(text, " rows were predicted and not learned: the state %s\n", model.keeps);
}

/* Say why the run does not end with code 0. */
static void add_refused(struct text *text)
{
    if (exit_code() == DONE) return;
    add_line(text, "WARNING");
    add(text, "the last ");
    add_count(text, counters.refused_in_a_row);
    add_format(text, " rows were all refused: the model is not updated any more. The last, line "
               "%llu: %s. Fix the input: its rows are learned again once they fit\n",
               (unsigned long long)last_bad.line, last_bad.reason);
}

static void add_run(struct text *text)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double s = (double)(now.tv_sec - began.tv_sec) + 1e-9 * (double)(now.tv_nsec - began.tv_nsec);
    add_line(text, "this run");
    add_count(text, n_rows);
    add_format(text, " rows in %.1f s, ", s);
    add_count(text, (uint64_t)((double)n_rows / (s > 1e-9 ? s : 1e-9) + 0.5));
    add_format(text, " rows/s%s\n", has_resumed ? ", resumed from the snapshot" : "");
    if (input.n_left) {
        add_line(text, "left over");
        add(text, "the last line has no end yet (");
        add_count(text, input.n_left);
        add(text, " bytes); the next run reads it once it is whole\n");
    }
    if (!is_stopped()) return;
    add_line(text, "stopped");
    if (options.snapshot)
        add_format(text, "the same command resumes from %.2000s\n", options.snapshot);
    else add(text, "without --snapshot nothing was saved to resume from\n");
}

static void add_summary(struct text *text)
{
    add_format(text, "program   edgefold-run of %s, bundle %.12s\n", model.name, model.bundle);
    add_line(text, "rows");
    add_count(text, counters.rows - counters.not_learned);
    add(text, " updates, ");
    add_count(text, counters.predicted);
    add(text, " predictions, ");
    add_count(text, counters.malformed);
    add(text, " malformed, ");
    add_count(text, counters.missing);
    add(text, " without a value\n");
    add_quality(text);
    add_not_learned(text);
    add_refused(text);
    add_run(text);
}

void report_end(void)
{
    static char bytes[8192];
    struct text text = {bytes, 0, sizeof bytes, false};
    tell();
    if (options.quiet) add_refused(&text);
    else add_summary(&text);
    if (!text.n) return;
    bytes[--text.n] = 0;
    say(bytes);
}

int exit_code(void)
{
    return n_bad && counters.refused_in_a_row >= FIRST_ALARM ? REFUSED : DONE;
}
