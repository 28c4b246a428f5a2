/* Split one line of CSV as Python's csv module does with strict=True: a quote may stand at the
 * start of a field, two of them are one, and only the delimiter may follow the closing one. */
#include <string.h>

#include "program.h"

/* Read a field that begins behind `at[-1] == '"'` into `bytes`; returns its end in the line, or
 * NULL if the closing quote is missing. */
static const char *unquoted(const char *at, const char *end, char *bytes, size_t *n)
{
    *n = 0;
    for (; at < end; at++) {
        if (*at == '"') {
            if (at + 1 == end || at[1] != '"') return at + 1;
            at++;
        }
        bytes[(*n)++] = *at;
    }
    return NULL;
}

bool split(struct slice line, char delimiter, struct fields *fields)
{
    const char *at = line.at, *end = line.at + line.n;
    char *free = fields->bytes;
    fields->n = 0;
    for (;;) {
        struct slice *field = &fields->at[fields->n++];
        if (at < end && *at == '"') {
            field->at = free;
            at = unquoted(at + 1, end, free, &field->n);
            if (!at || (at < end && *at != delimiter)) return false;
            free += field->n;
        } else {
            field->at = at;
            while (at < end && *at != delimiter) {
                if (*at == '\r' || *at == '\n') return false;
                at++;
            }
            field->n = (size_t)(at - field->at);
        }
        if (at == end) return true;
        at++;
    }
}

static bool is_digit(struct slice line, size_t at)
{
    return at < line.n && line.at[at] >= '0' && line.at[at] <= '9';
}

char find_delimiter(struct slice line, char decimal)
{
    static const char others[3] = {';', '\t', '|'};
    size_t n_signs[3] = {0, 0, 0}, commas = 0, best = 0;
    for (size_t i = 0; i < line.n; i++) {
        for (size_t k = 0; k < 3; k++) n_signs[k] += line.at[i] == others[k];
        if (line.at[i] == ',') commas += !(i > 0 && is_digit(line, i - 1) && is_digit(line, i + 1));
    }
    for (size_t k = 1; k < 3; k++)
        if (n_signs[k] > n_signs[best]) best = k;
    if (!n_signs[best]) return ',';
    if (decimal == ',') return others[best];
    return commas >= n_signs[best] ? ',' : others[best];
}
