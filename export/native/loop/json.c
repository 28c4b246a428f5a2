/* Read values out of a text of JSON: whole once, then member by member, in place. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { DEEPEST = 32 };

static void skip_space(struct json *at)
{
    while (at->at < at->end && strchr(" \t\r\n", *at->at) && *at->at) at->at++;
}

static bool take(struct json *at, char sign)
{
    skip_space(at);
    if (at->at >= at->end || *at->at != sign) return false;
    at->at++;
    return true;
}

static bool skip_string(struct json *at)
{
    if (!take(at, '"')) return false;
    while (at->at < at->end && *at->at != '"') at->at += *at->at == '\\' ? 2 : 1;
    return at->at < at->end && *at->at++ == '"';
}

static bool skip_value(struct json *at, int depth);

/* Skip the items of a list or the members of an object, whose first sign was taken. */
static bool skip_items(struct json *at, char last, int depth)
{
    if (take(at, last)) return true;
    do {
        if (last == '}' && !(skip_string(at) && take(at, ':'))) return false;
        if (!skip_value(at, depth + 1)) return false;
    } while (take(at, ','));
    return take(at, last);
}

static bool skip_value(struct json *at, int depth)
{
    const char *start;
    if (depth > DEEPEST) return false;
    if (take(at, '{')) return skip_items(at, '}', depth);
    if (take(at, '[')) return skip_items(at, ']', depth);
    skip_space(at);
    if (at->at < at->end && *at->at == '"') return skip_string(at);
    for (start = at->at; at->at < at->end && *at->at && !strchr(",]} \t\r\n", *at->at);) at->at++;
    return at->at > start;
}

bool json_whole(struct json *value, const char *text, size_t n)
{
    struct json rest = {text, text + n};
    value->at = text, value->end = text + n;
    if (!skip_value(&rest, 0)) return false;
    skip_space(&rest);
    return rest.at == rest.end;
}

/* Take the value at the start of what is left. */
static bool take_value(struct json *rest, struct json *value)
{
    skip_space(rest);
    value->at = rest->at;
    if (!skip_value(rest, 0)) return false;
    value->end = rest->at;
    return true;
}

bool json_member(struct json object, const char *name, struct json *value)
{
    struct slice wanted = slice_of(name);
    if (!take(&object, '{')) return false;
    do {
        struct json key;
        if (!take_value(&object, &key) || *key.at != '"' || !take(&object, ':')) return false;
        struct slice found = {key.at + 1, (size_t)(key.end - key.at) - 2};
        if (!take_value(&object, value)) return false;
        if (same_slice(found, wanted)) return true;
    } while (take(&object, ','));
    return false;
}

bool json_array(struct json value, struct json *rest)
{
    *rest = value;
    return take(rest, '[');
}

bool json_next(struct json *rest, struct json *item)
{
    take(rest, ',');
    return !take(rest, ']') && take_value(rest, item);
}

/* Read four hexadecimal digits; 0x110000 if they are not. */
static uint32_t hexadecimal(const char *at, const char *end)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, at++) {
        const char *digits = "0123456789abcdef", *found;
        char c = at < end ? *at : 0;
        if (c >= 'A' && c <= 'F') c = (char)(c + 32);
        if (!c || !(found = strchr(digits, c))) return 0x110000;
        code = code << 4 | (uint32_t)(found - digits);
    }
    return code;
}

static void add_code(struct text *text, uint32_t code)
{
    char bytes[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xff) | code);
    add_bytes(text, bytes, n);
}

bool json_string(struct json value, struct text *text)
{
    const char *end = value.end - 1;
    if (*value.at != '"') return false;
    for (const char *at = value.at + 1; at < end; at++) {
        if (*at != '\\') {
            add_bytes(text, at, 1);
            continue;
        }
        static const char signs[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        const char *found = strchr(signs, *++at);
        if (*at != 'u') {
            if (!found || !*at) return false;
            add_bytes(text, &meant[found - signs], 1);
            continue;
        }
        uint32_t code = hexadecimal(at + 1, end);
        at += 4;
        if (code >= 0xd800 && code < 0xdc00 && end - at > 6 && at[1] == '\\' && at[2] == 'u') {
            uint32_t low = hexadecimal(at + 3, end);
            if (low < 0xdc00 || low >= 0xe000) return false;
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
        add_code(text, code);
    }
    return !text->is_cut;
}

bool json_number(struct json value, double *number)
{
    char copy[64], *end;
    size_t n = (size_t)(value.end - value.at);
    if (n >= sizeof copy) return false;
    memcpy(copy, value.at, n);
    copy[n] = 0;
    struct slice written = {copy, n};
    *number = strtod(copy, &end);
    return is_number(written, ".");
}

bool json_integer(struct json value, int64_t *number)
{
    int64_t found = 0;
    const char *at = value.at;
    bool is_negative = at < value.end && *at == '-';
    at += is_negative;
    if (at == value.end || value.end - at > 18) return false;
    for (; at < value.end; at++) {
        if (*at < '0' || *at > '9') return false;
        found = found * 10 + (*at - '0');
    }
    *number = is_negative ? -found : found;
    return true;
}

bool json_is_null(struct json value)
{
    return value.end - value.at == 4 && memcmp(value.at, "null", 4) == 0;
}
