/* Texts: pieces of a line that stay where they are, and messages in fixed buffers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

struct slice slice_of(const char *text)
{
    struct slice slice = {text, strlen(text)};
    return slice;
}

bool same_slice(struct slice a, struct slice b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

bool same_letters(struct slice text, const char *lower)
{
    size_t i;
    for (i = 0; i < text.n; i++) {
        char c = text.at[i];
        if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != lower[i] || !lower[i]) return false;
    }
    return !lower[i];
}

/* Decode the character at the start of a text: its length, or 0 if that is not UTF-8. */
static size_t decode(struct slice text, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text.at;
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > text.n || at[0] > 0xf4) return 0;
    *code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (at[i] & 0x3f);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

bool is_utf8(struct slice text)
{
    uint32_t code;
    while (text.n) {
        size_t n = (unsigned char)text.at[0] < 0x80 ? 1 : decode(text, &code);
        if (!n) return false;
        text.at += n, text.n -= n;
    }
    return true;
}

static bool is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

struct slice stripped(struct slice text)
{
    uint32_t code;
    size_t n;
    while (text.n && (n = decode(text, &code)) != 0 && is_space(code)) text.at += n, text.n -= n;
    while (text.n) {
        struct slice last = {text.at + text.n - 1, 1};
        while (last.at > text.at && ((unsigned char)last.at[0] & 0xc0) == 0x80) last.at--, last.n++;
        if (decode(last, &code) != last.n || !is_space(code)) break;
        text.n -= last.n;
    }
    return text;
}

void add_bytes(struct text *text, const void *bytes, size_t n)
{
    size_t left = text->room - 1 - text->n;
    text->is_cut = text->is_cut || n > left;
    n = n < left ? n : left;
    memcpy(text->at + text->n, bytes, n);
    text->n += n;
    text->at[text->n] = 0;
}

void add(struct text *text, const char *more) { add_bytes(text, more, strlen(more)); }

void add_slice(struct text *text, struct slice more) { add_bytes(text, more.at, more.n); }

static void add_arguments(struct text *text, const char *format, va_list arguments)
{
    size_t left = text->room - text->n;
    int n = vsnprintf(text->at + text->n, left, format, arguments);
    if (n < 0) return;
    text->is_cut = text->is_cut || (size_t)n >= left;
    text->n += (size_t)n < left ? (size_t)n : left - 1;
}

void add_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_arguments(text, format, arguments);
    va_end(arguments);
}

void add_count(struct text *text, uint64_t count)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
    for (int i = 0; i < n; i++) {
        add_bytes(text, digits + i, 1);
        if ((n - i) % 3 == 1 && i < n - 1) add(text, ",");
    }
}

void add_shown(struct text *text, struct slice field)
{
    bool is_long = false;
    size_t n = 0, n_letters = 0, cut = 0;
    for (; n < field.n; n++) {
        if (((unsigned char)field.at[n] & 0xc0) == 0x80) continue;
        if (n_letters++ == 37) cut = n;
        if (n_letters > 40) is_long = true;
    }
    if (is_long) field.n = cut;
    bool has_single = memchr(field.at, '\'', field.n), has_double = memchr(field.at, '"', field.n);
    const char *quote = has_single && !has_double ? "\"" : "'";
    add(text, quote);
    for (size_t i = 0; i < field.n; i++) {
        unsigned char c = (unsigned char)field.at[i];
        if (c == '\\' || c == (unsigned char)*quote) add_format(text, "\\%c", c);
        else if (c == '\t') add(text, "\\t");
        else if (c == '\r') add(text, "\\r");
        else if (c < 32 || c == 127) add_format(text, "\\x%02x", c);
        else add_bytes(text, &c, 1);
    }
    if (is_long) add(text, "...");
    add(text, quote);
}

void add_json(struct text *text, struct slice string)
{
    uint32_t code = 0;
    add(text, "\"");
    while (string.n) {
        size_t n = decode(string, &code);
        if (!n) code = 0xdc00u | (unsigned char)string.at[0]; /* as Python names a stray byte */
        if (code == '"' || code == '\\') add_format(text, "\\%c", (char)code);
        else if (code >= 32 && code < 127) add_bytes(text, string.at, 1);
        else if (code == '\n') add(text, "\\n");
        else if (code == '\r') add(text, "\\r");
        else if (code == '\t') add(text, "\\t");
        else if (code == '\b') add(text, "\\b");
        else if (code == '\f') add(text, "\\f");
        else if (code < 0x10000) add_format(text, "\\u%04x", (unsigned)code);
        else
            add_format(text, "\\u%04x\\u%04x", 0xd7c0u + (unsigned)(code >> 10),
                       0xdc00u + (unsigned)(code & 0x3ff));
        n = n ? n : 1;
        string.at += n, string.n -= n;
    }
    add(text, "\"");
}

void say(const char *line)
{
    static char shown[8192];
    struct text text = {shown, 0, sizeof shown, false};
    for (const unsigned char *at = (const unsigned char *)line; *at; at++) {
        bool is_second = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* control, in UTF-8 */
        if (is_second || ((*at < 32 || *at == 127) && *at != '\n' && *at != '\t')) add(&text, "?");
        else add_bytes(&text, at, 1);
        at += is_second;
    }
    if (text.is_cut) text.n--;
    shown[text.n] = '\n';
    if (write(2, shown, text.n + 1) < 0) return; /* nobody reads them: no fault */
}

void fail(int code, const char *format, ...)
{
    static char line[4096];
    struct text text = {line, 0, sizeof line, false};
    va_list arguments;
    va_start(arguments, format);
    add(&text, "edgefold: error: ");
    add_arguments(&text, format, arguments);
    va_end(arguments);
    close_output();
    say(line);
    _exit(code);
}
