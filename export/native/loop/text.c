/* Texts: pieces of a line that stay where they are, and messages in fixed buffers. */
#include <errno.h>
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

/* Whether a terminal shows a character as itself, as Python's isprintable() says; characters that
 * Unicode has not given out yet pass. */
static bool is_printable(uint32_t code)
{
    static const uint32_t others[][2] = {
        /* of formats, directions and private use, and those that are no characters */
        {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
        {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},
        {0x200b, 0x200f},   {0x202a, 0x202e},   {0x2060, 0x206f},   {0xe000, 0xf8ff},
        {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
        {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
        {0xe0000, 0xe00ff}, {0xf0000, 0x10ffff}};
    if (code == ' ') return true;
    if (code < 32 || (code >= 127 && code < 0xa0) || is_space(code)) return false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (code >= others[i][0] && code <= others[i][1]) return false;
    return true;
}

static bool is_all_printable(struct slice text)
{
    uint32_t code;
    while (text.n) {
        size_t n = decode(text, &code);
        if (!n || !is_printable(code)) return false;
        text.at += n, text.n -= n;
    }
    return true;
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

/* Choose the quotes of Python's repr. */
static char quote_of(struct slice text)
{
    return memchr(text.at, '\'', text.n) && !memchr(text.at, '"', text.n) ? '"' : '\'';
}

/* Write what stands between them. */
static void add_escaped(struct text *text, struct slice string, char quote)
{
    uint32_t code = 0;
    while (string.n) {
        size_t n = decode(string, &code);
        if (!n) n = 1, code = 0xdc00u | (unsigned char)string.at[0];
        if (code == '\\' || code == (unsigned char)quote) add_format(text, "\\%c", (char)code);
        else if (code == '\n') add(text, "\\n");
        else if (code == '\t') add(text, "\\t");
        else if (code == '\r') add(text, "\\r");
        else if ((code < 0xd800 || code > 0xdfff) && is_printable(code))
            add_bytes(text, string.at, n);
        else if (code < 0x100) add_format(text, "\\x%02x", (unsigned)code);
        else if (code < 0x10000) add_format(text, "\\u%04x", (unsigned)code);
        else add_format(text, "\\U%08lx", (unsigned long)code);
        string.at += n, string.n -= n;
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
    char quote[2] = {quote_of(field), 0};
    add(text, quote);
    add_escaped(text, field, *quote);
    if (is_long) add(text, "...");
    add(text, quote);
}

void add_plain(struct text *text, struct slice name)
{
    char bytes[NAME_BYTES];
    struct text part = {bytes, 0, sizeof bytes, false};
    bytes[0] = 0;
    if (!name.n) add(&part, "''");
    else if (is_all_printable(name)) add_slice(&part, name);
    else add_escaped(&part, name, quote_of(name));
    while (!is_utf8(slice_of(bytes))) bytes[--part.n] = 0; /* half a character */
    add(text, bytes);
    if (part.is_cut) add(text, "...");
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
    struct slice left = slice_of(line);
    while (left.n) {
        uint32_t code = 0;
        size_t n = decode(left, &code);
        bool is_shown = n && (is_printable(code) || code == '\n' || code == '\t');
        n = n ? n : 1;
        add_bytes(&text, is_shown ? left.at : "?", is_shown ? n : 1);
        left.at += n, left.n -= n;
    }
    if (text.is_cut) text.n--;
    shown[text.n] = '\n';
    if (write(2, shown, text.n + 1) < 0) return; /* nobody reads them: no fault */
}

int code_of(int error)
{
    static const int of_the_path[] = {ENOENT, EACCES, EPERM, EISDIR, ENOTDIR, EEXIST, ENAMETOOLONG,
                                      ELOOP, EINVAL, ENXIO}; /* another path cures these */
    for (size_t i = 0; i < sizeof of_the_path / sizeof of_the_path[0]; i++)
        if (error == of_the_path[i]) return REFUSED;
    return MACHINE;
}

static void (*close_files)(void);

void before_failing(void (*close)(void)) { close_files = close; }

void fail(int code, const char *format, ...)
{
    static char line[4096];
    struct text text = {line, 0, sizeof line, false};
    va_list arguments;
    va_start(arguments, format);
    add(&text, "edgefold: error: ");
    add_arguments(&text, format, arguments);
    va_end(arguments);
    if (close_files) close_files();
    say(line);
    _exit(code);
}
