/* The parts of edgefold-run, a program that predicts each row and then learns from it.
 *
 *   input.c ──> rows.c, columns.c, fields.c, numbers.c ──> loop.c ──> prediction.c ──> output.c
 *   bytes       lines      the numbers of a row            |  ^        columns of text
 *                                                          v  |
 *                                            model.h: query and update, or step
 *                         snapshot.c, record.c, json.c: all of this in one file, every N lines
 *
 * Nothing is allocated: every buffer is static. What a line of the input may hold is bounded.
 */
#ifndef EDGEFOLD_PROGRAM_H
#define EDGEFOLD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "model.h"

#ifdef __GNUC__
#define NEVER_RETURNS __attribute__((noreturn))
#define LIKE_PRINTF(n) __attribute__((format(printf, n, n + 1)))
#else
#define NEVER_RETURNS
#define LIKE_PRINTF(n)
#endif

enum {
    DONE = 0, /* exit codes, as of the command line of Edgefold */
    REFUSED = 1,
    USAGE = 2,
    MACHINE = 6,
    INTERRUPTED = 130,
    PIPE_GONE = 141,
    LINE_BYTES = 65536,   /* of the longest line that is read */
    BLOCK_BYTES = 65536,  /* of one read or write of a file */
    REASON_BYTES = 1024,  /* of a message about one row */
    NAME_BYTES = 200,     /* of a column's name in a message */
    PATH_BYTES = 4096,
    ROW_BYTES = LINE_BYTES + PROGRAM_TOLD_BYTES, /* of a row of the output */
    COLUMNS = PROGRAM_INPUTS + PROGRAM_OUTPUTS,  /* wanted in each row */
    /* The header, and its wanted names twice; JSON writes a control character with six signs. */
    RECORD_BYTES = 24 * LINE_BYTES + 8 * ROW_BYTES + 64 * COLUMNS
};

/* text.c: bytes that somebody else owns, texts that grow in a fixed buffer, messages ----------- */

struct slice {
    const char *at;
    size_t n;
};

struct text {
    char *at;
    size_t n, room; /* what does not fit is cut; at[n] is always 0 */
    bool is_cut;
};

struct slice slice_of(const char *text);
bool same_slice(struct slice a, struct slice b);
bool same_letters(struct slice text, const char *lower); /* in capitals or not */
struct slice stripped(struct slice text);                /* without white space of Unicode */
bool is_utf8(struct slice text);
void add_bytes(struct text *text, const void *bytes, size_t n);
void add(struct text *text, const char *more);
void add_slice(struct text *text, struct slice more);
void add_format(struct text *text, const char *format, ...) LIKE_PRINTF(2);
void add_count(struct text *text, uint64_t count); /* 1,234,567 */
void add_shown(struct text *text, struct slice field); /* quoted and shortened */
void add_plain(struct text *text, struct slice name);  /* escaped if need be, and shortened */
void add_json(struct text *text, struct slice string);
void say(const char *text); /* a line on standard error, without what a terminal would obey */
int code_of(int error); /* the exit code of an error of the system */
void before_failing(void (*close)(void)); /* called by `fail`, before it says why */
void fail(int code, const char *format, ...) NEVER_RETURNS LIKE_PRINTF(2);

/* options.c ------------------------------------------------------------------------------------ */

struct options {
    const char *input, *output, *snapshot, *columns, *missing;
    char delimiter, decimal; /* delimiter 0: found in the first line */
    bool strict, force, quiet, has_seed;
    uint64_t every, seed;
    double anomaly_z;
};

extern struct options options;
void read_options(int n, char **words);

/* numbers.c ------------------------------------------------------------------------------------ */

bool is_number(struct slice field, const char *points); /* points: signs before the fraction */
bool is_same_number(struct slice field, struct slice word); /* a cell, and a word with a point */
bool parse_number(struct slice field, double *number, struct text *why_not);
void add_with_point(struct text *text, struct slice number);
void add_repr(struct text *text, double number); /* the shortest decimal that reads the same */

/* fields.c: one line of CSV, as Python's csv module reads it strictly -------------------------- */

struct fields {
    size_t n;
    struct slice at[LINE_BYTES + 1];
    char bytes[LINE_BYTES]; /* of fields with quotes, which lose them */
};

bool split(struct slice line, char delimiter, struct fields *fields);
char find_delimiter(struct slice line, char decimal);

/* columns.c: which fields of a line are wanted ------------------------------------------------- */

struct layout {
    bool is_known;
    char delimiter;
    size_t n_fields, n_header;       /* n_header: n_fields, or 0 without a header */
    size_t positions[COLUMNS];       /* of the wanted columns in a line */
    char names[LINE_BYTES];          /* the header's fields, one behind the other */
    uint32_t ends[LINE_BYTES + 1];   /* of each in `names` */
};

struct row {
    uint64_t line;
    double numbers[COLUMNS];
    struct slice texts[COLUMNS]; /* as written, with a decimal point */
    char reason[REASON_BYTES];   /* why it cannot be used */
};

enum row_state { ROW_GOOD, ROW_BAD, ROW_MISSING, ROW_NONE };

const char *wish(void); /* "x1,y1" */
struct slice header_name(const struct layout *layout, size_t field);
void add_column_name(struct text *text, const struct layout *layout, size_t column);
void add_asked_name(struct text *text, const struct layout *layout, size_t column);
bool is_called(const struct layout *layout, size_t column, struct slice name);
bool is_data(struct slice field); /* whether a first line with it is no header */
void find_layout(const struct fields *fields, char delimiter, const char *source,
                 struct layout *layout);
void find_positions(struct layout *layout, const char *source);
enum row_state read_row(const struct layout *layout, const struct fields *fields, struct row *row);

/* json.c: one value of a text of JSON ---------------------------------------------------------- */

struct json {
    const char *at, *end;
};

bool json_whole(struct json *value, const char *text, size_t n); /* false if it is not JSON */
bool json_member(struct json object, const char *name, struct json *value);
bool json_next(struct json *rest, struct json *item); /* rest: an array, then what is left of it */
bool json_array(struct json value, struct json *rest);
bool json_string(struct json value, struct text *text);
bool json_integer(struct json value, int64_t *number);
bool json_number(struct json value, double *number);
bool json_is_null(struct json value);

/* files.c: places, locks, files that are replaced as a whole ----------------------------------- */

bool is_regular(const char *path);
void refuse_same_files(void);
void hold_snapshot(void); /* against every other run until the process ends */
int hold(int fd);         /* 0, or why not: EWOULDBLOCK if another process holds it */
int begin_replacing(void);          /* the snapshot: an open file beside it */
void finish_replacing(int fd);
void refuse_saving(const char *why, int error) NEVER_RETURNS;
int sync_folder_of(const char *path); /* brings a new file's name to the disk; 0, or the error */
ssize_t read_at(int fd, void *bytes, size_t n, uint64_t position); /* all but at the end; or -1 */
int write_all(int fd, const void *bytes, size_t n); /* 0, or the error */

/* stop.c: SIGTERM and Ctrl-C ------------------------------------------------------------------- */

void watch_signals(void);
bool is_stopped(void);

/* input.c -------------------------------------------------------------------------------------- */

struct input_mark {
    int64_t position;
    bool has_head; /* a pipe has none */
    char head[65], seam[65];
};

extern struct input {
    const char *name;
    bool is_seekable;
    uint64_t n_left;   /* bytes of a last line that has no end yet */
    uint64_t position; /* behind the lines that were given */
} input;

void open_input(void);
struct slice read_line(void); /* with its end; empty at the end of the input */
bool has_line(void);          /* whether a pipe has given one more already */
void keep_input(void);        /* the lines so far are processed */
void mark_input(struct text *json);
void require_unchanged(void);
void require_in_place(void);
void resume_input(const struct input_mark *mark);

/* rows.c --------------------------------------------------------------------------------------- */

extern struct layout layout;
void begin_rows(uint64_t line, bool is_new);
enum row_state next_row(struct row *row);

/* output.c ------------------------------------------------------------------------------------- */

struct output_mark {
    bool has_length;
    int64_t length;
    char seam[65];
    struct text *name;
};

bool output_exists(void);
void begin_output(const char *header);
void resume_output(const struct output_mark *mark, const char *header, bool is_new);
void write_output(struct slice rows);
void flush_output(void);
void sync_output(void);
void mark_output(struct text *json, bool is_first);
void close_output(void);
void refuse_output(int error) NEVER_RETURNS;
void refuse_existing(void) NEVER_RETURNS;

/* prediction.c --------------------------------------------------------------------------------- */

enum { N_COUNTS = 9 };

struct counters {
    uint64_t lines, rows, predicted, malformed, missing, not_learned, refused_in_a_row, anomalies;
    uint64_t within_90;
    double squared_error[PROGRAM_ERRORS + 1]; /* one more, since C has no empty arrays */
};

extern struct counters counters;
extern const struct named_count {
    const char *name;
    uint64_t *count;
} counts[N_COUNTS];
void add_header(struct text *text);
void add_prediction(struct text *text, const double *y);

/* record.c, snapshot.c ------------------------------------------------------------------------- */

struct record {
    struct input_mark input;
    struct output_mark output;
};

void add_record(struct text *json, const char *header, bool is_first);
void read_record(struct slice json, const char *header, struct record *record);
struct text begin_record(void); /* empty, in the buffer that holds the only one */
bool has_snapshot(void);
void save_snapshot(struct text record);
struct slice load_snapshot(void); /* the record; the model's state is taken over */

/* loop.c, report.c ----------------------------------------------------------------------------- */

void run_loop(void);
extern bool has_resumed;

void begin_report(void);
void report_bad(const struct row *row);
void report_learned(uint64_t line, uint64_t n_refused);
void report_full(uint64_t line); /* once: the state takes no more points */
void report_row(void);
void report_end(void);
int exit_code(void);

#endif
