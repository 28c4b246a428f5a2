/* Lines of the input as rows: good ones, bad ones and those without a value, in constant memory. A
 * blank line is none. The first line that can be read decides where the columns are. */
#include <string.h>

#include "program.h"

struct layout layout;
static struct fields fields;
static struct row first_bad; /* its reason is told where no line can be read at all */
static uint64_t n_lines;
static bool is_first_line, is_first_row, is_new_source;

void begin_rows(uint64_t line, bool is_new)
{
    n_lines = line;
    is_first_line = true;
    is_new_source = is_new;
    is_first_row = layout.is_known && is_new;
}

static bool starts_with(struct slice text, const char *bytes, size_t n)
{
    return text.n >= n && memcmp(text.at, bytes, n) == 0;
}

/* Refuse a file whose first line shows UTF-16, or lines that end with CR alone. */
static void require_encoding(struct slice raw)
{
    size_t n = raw.n;
    if (starts_with(raw, "\xff\xfe", 2) || starts_with(raw, "\xfe\xff", 2))
        fail(REFUSED, "%s is encoded as UTF-16; convert it: iconv -f UTF-16 -t UTF-8.", input.name);
    if (raw.at[n - 1] == '\n' || memchr(raw.at, 0, n) || memchr(raw.at, '"', n)) return;
    while (n && raw.at[n - 1] == '\r') n--;
    if (memchr(raw.at, '\r', n))
        fail(REFUSED, "%s ends its lines with CR alone, as old Macs did; convert it: "
             "tr '\\r' '\\n'.", input.name);
}

/* Read the next line that is not blank; false at the end. A reason is set where it is no text. */
static bool next_line(struct slice *line, const char **reason)
{
    for (;;) {
        struct slice raw = read_line();
        *reason = NULL;
        if (!raw.n) return false;
        n_lines++;
        if (is_first_line && !layout.is_known) require_encoding(raw);
        bool is_whole = raw.n < LINE_BYTES || raw.at[raw.n - 1] == '\n';
        if (is_first_line && is_new_source && starts_with(raw, "\xef\xbb\xbf", 3))
            raw.at += 3, raw.n -= 3;
        is_first_line = false;
        if (!is_whole) {
            while (raw.n && raw.at[raw.n - 1] != '\n') raw = read_line();
            *reason = "the line is longer than 65536 bytes";
            return true;
        }
        if (!is_utf8(raw)) *reason = "the line is not UTF-8 text; is it binary or encoded?";
        while (raw.n && strchr("\r\n", raw.at[raw.n - 1]) && raw.at[raw.n - 1]) raw.n--;
        *line = raw;
        if (*reason) return true;
        if (memchr(raw.at, 0, raw.n))
            *reason = "the line holds NUL bytes; is it binary or UTF-16?";
        if (*reason || stripped(raw).n) return true;
    }
}

static enum row_state bad(struct row *row, const char *reason)
{
    struct text text = {row->reason, 0, sizeof row->reason, false};
    add(&text, reason);
    return ROW_BAD;
}

/* Whether a new source begins with these fields as its header; takes their order over. */
static bool is_new_header(void)
{
    static struct layout found;
    bool is_known = false;
    for (size_t i = 0; i < fields.n; i++) {
        struct slice name = stripped(fields.at[i]);
        if (is_data(name)) return false;
        for (size_t k = 0; k < COLUMNS; k++)
            is_known = is_known || is_called(&layout, k, name);
    }
    if (!is_known) return false; /* a bad row in the middle of a source */
    find_layout(&fields, layout.delimiter, input.name, &found);
    for (size_t k = 0; k < COLUMNS; k++)
        if (!is_called(&layout, k, header_name(&found, found.positions[k])))
            fail(REFUSED, "%s begins with other columns than were read before. Bring the columns "
                 "back, or start over with --force.", input.name);
    layout = found;
    return true;
}

/* Whether a first line only looks like JSON; lines of JSON are refused. */
static bool is_broken_json(struct slice line)
{
    struct json object;
    line = stripped(line);
    if (line.at[0] != '{') return false;
    if (json_whole(&object, line.at, line.n))
        fail(REFUSED, "%s holds JSON lines, which this program does not read; `edgefold run` does.",
             input.name);
    return true;
}

/* Read the first line that can be read; true if it is a header. */
static bool begin_layout(struct slice line)
{
    char delimiter = options.delimiter ? options.delimiter : find_delimiter(line, options.decimal);
    if (!split(line, delimiter, &fields)) return false;
    find_layout(&fields, delimiter, input.name, &layout);
    return layout.n_header > 0;
}

static void require_lines(void)
{
    if (layout.is_known || is_stopped()) return;
    if (input.n_left)
        fail(REFUSED, "%s holds no whole line yet, but %llu bytes without a line's end (LF); run "
             "again when the line is whole.", input.name, (unsigned long long)input.n_left);
    if (first_bad.line)
        fail(REFUSED, "%s holds no line that can be read (line %llu: %s); it needs a header and "
             "rows: %s.", input.name, (unsigned long long)first_bad.line, first_bad.reason, wish());
    fail(REFUSED, "%s holds no lines; it needs a header and rows: %s.", input.name, wish());
}

enum row_state next_row(struct row *row)
{
    struct slice line;
    const char *reason;
    while (next_line(&line, &reason)) {
        enum row_state state;
        bool is_first = is_first_row;
        is_first_row = false;
        row->line = n_lines;
        if (!reason && !layout.is_known && is_broken_json(line))
            reason = "the line begins with { and is not JSON";
        if (reason) {
            state = bad(row, reason);
        } else {
            if (!layout.is_known && begin_layout(line)) continue;
            if (!layout.is_known || !split(line, layout.delimiter, &fields)) {
                state = bad(row, "the line has a misplaced quote or line break");
            } else if (is_first && is_new_header()) {
                n_lines--;
                continue;
            } else {
                state = read_row(&layout, &fields, row);
            }
        }
        if (state == ROW_BAD && !first_bad.line) first_bad = *row;
        return state;
    }
    require_lines();
    return ROW_NONE;
}
