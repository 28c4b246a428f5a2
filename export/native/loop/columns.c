/* Find the wanted columns, x1..xX,y1..yY, by the first line of the input, and read a row's fields
 * as numbers. */
#include <string.h>

#include "program.h"

static const char *const WORDS[] = {"",     "na",   "n/a", "#n/a", "null",
                                    "none", "nan", "-nan", "-",   "?"};

static void default_name(size_t column, struct text *name)
{
    bool is_x = column < model.n_inputs;
    add_format(name, "%c%lu", is_x ? 'x' : 'y',
               (unsigned long)(is_x ? column : column - model.n_inputs) + 1);
}

const char *wish(void)
{
    static char names[16 * COLUMNS + 1];
    struct text text = {names, 0, sizeof names, false};
    for (size_t i = 0; i < COLUMNS; i++) {
        if (i) add(&text, ",");
        default_name(i, &text);
    }
    return names;
}

/* Return the next of some texts between commas, and move behind it; at is NULL behind the last. */
static struct slice next_of(const char **at)
{
    struct slice name = {*at, strcspn(*at, ",")};
    *at = name.at[name.n] ? name.at + name.n + 1 : NULL;
    return name;
}

static bool is_among(struct slice text, const char *words)
{
    while (words)
        if (same_slice(text, next_of(&words))) return true;
    return false;
}

static bool is_missing(struct slice text)
{
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
        if (same_letters(text, WORDS[i])) return true;
    if (is_among(text, options.missing)) return true;
    for (const char *words = options.missing; words;) /* -999 stands for -999,0 as well */
        if (is_same_number(text, next_of(&words))) return true;
    return false;
}

bool is_data(struct slice field) { return is_number(stripped(field), ".,"); }

struct slice header_name(const struct layout *known, size_t field)
{
    size_t start = field ? known->ends[field - 1] : 0;
    struct slice name = {known->names + start, known->ends[field] - start};
    return name;
}

void add_column_name(struct text *text, const struct layout *known, size_t column)
{
    if (known->n_header) add_slice(text, header_name(known, known->positions[column]));
    else default_name(column, text);
}

bool is_called(const struct layout *known, size_t column, struct slice name)
{
    static char bytes[LINE_BYTES];
    struct text text = {bytes, 0, sizeof bytes, false};
    add_column_name(&text, known, column);
    struct slice found = {text.at, text.n};
    return same_slice(found, name);
}

void add_asked_name(struct text *text, const struct layout *known, size_t column)
{
    const char *names = options.columns;
    struct slice name = {NULL, 0};
    if (known->n_header || !names) {
        add_column_name(text, known, column);
        return;
    }
    for (size_t i = 0; i <= column; i++) name = next_of(&names);
    add_slice(text, name);
}

/* Say which columns the first line has, shortened. */
static void add_found(struct text *text, const struct layout *known)
{
    for (size_t i = 0; i < known->n_header && text->n < 200; i++) {
        struct slice name = header_name(known, i);
        if (i) add(text, ", ");
        add_plain(text, name);
    }
}

/* Find the one column that is asked for by name, or has a default one; -1 for none or several. */
static long position_of(const struct layout *known, size_t column, struct slice name, size_t *n)
{
    char lower[24];
    struct text text = {lower, 0, sizeof lower, false};
    long place = -1;
    *n = 0;
    default_name(column, &text);
    for (size_t i = 0; i < known->n_header; i++) {
        struct slice found = header_name(known, i);
        if (name.at ? !same_slice(found, name) : !same_letters(found, lower)) continue;
        place = (long)i;
        ++*n;
    }
    if (*n == 0 && !name.at && known->n_header == COLUMNS) {
        *n = 1;
        return (long)column;
    }
    return *n == 1 ? place : -1;
}

static void refuse_columns(const struct layout *known, const char *source, size_t column,
                           struct slice name, size_t n)
{
    char what[512], found[512];
    struct text text = {what, 0, sizeof what, false}, names = {found, 0, sizeof found, false};
    if (name.at) add_shown(&text, name);
    else add(&text, "'"), default_name(column, &text), add(&text, "'");
    add_found(&names, known);
    if (n)
        fail(REFUSED, "%s has %lu columns named %s; its columns are %s. Name the right ones with "
             "--columns.", source, (unsigned long)n, what, found);
    fail(REFUSED, "%s has no column %s; its columns are %s. Name the right ones with --columns.",
         source, what, found);
}

void find_positions(struct layout *known, const char *source)
{
    const char *names = options.columns;
    char found[512];
    struct text text = {found, 0, sizeof found, false};
    for (size_t i = 0; i < COLUMNS; i++) {
        struct slice name = {NULL, 0};
        size_t n;
        if (names) name = next_of(&names);
        long place = position_of(known, i, name, &n);
        if (place < 0) refuse_columns(known, source, i, name, n);
        known->positions[i] = (size_t)place;
        for (size_t k = 0; k < i; k++) {
            if (known->positions[k] != known->positions[i]) continue;
            add_found(&text, known);
            fail(REFUSED, "%s: two of the wanted columns are the same one of %s; name them with "
                 "--columns.", source, found);
        }
    }
}

void find_layout(const struct fields *fields, char delimiter, const char *source,
                 struct layout *known)
{
    bool is_header = true;
    size_t n = 0;
    for (size_t i = 0; i < fields->n && is_header; i++) is_header = !is_data(fields->at[i]);
    known->delimiter = delimiter;
    known->n_fields = fields->n;
    known->n_header = is_header ? fields->n : 0;
    for (size_t i = 0; i < known->n_header; i++) {
        struct slice name = stripped(fields->at[i]);
        memcpy(known->names + n, name.at, name.n);
        n += name.n;
        known->ends[i] = (uint32_t)n;
    }
    if (is_header) find_positions(known, source);
    else if (options.columns || fields->n != COLUMNS)
        fail(REFUSED, "%s starts with %lu columns of data and no header; add a header line, or "
             "give exactly the columns %s.", source, (unsigned long)fields->n, wish());
    else
        for (size_t i = 0; i < COLUMNS; i++) known->positions[i] = i;
    known->is_known = true;
}

enum row_state read_row(const struct layout *known, const struct fields *fields, struct row *row)
{
    struct text why_not = {row->reason, 0, sizeof row->reason, false};
    bool is_without = false;
    row->reason[0] = 0;
    if (fields->n != known->n_fields) {
        add_format(&why_not, "the line has %lu columns where %lu are expected",
                   (unsigned long)fields->n, (unsigned long)known->n_fields);
        return ROW_BAD;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        struct slice field = stripped(fields->at[known->positions[i]]);
        row->texts[i] = field;
        if (is_missing(field)) {
            is_without = true;
            continue;
        }
        why_not.n = 0;
        add(&why_not, "column ");
        if (known->n_header) add_plain(&why_not, header_name(known, known->positions[i]));
        else default_name(i, &why_not);
        add(&why_not, " ");
        if (!parse_number(field, &row->numbers[i], &why_not)) return ROW_BAD;
    }
    if (is_without) why_not.n = 0, add(&why_not, "a cell holds no value");
    return is_without ? ROW_MISSING : ROW_GOOD;
}
