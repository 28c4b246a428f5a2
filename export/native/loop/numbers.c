/* Numbers as Edgefold reads them in every language: digits, one sign before the fraction, up to
 * 1e100; and as Python's repr writes them. The program never sets a locale, so strtod and printf
 * know the decimal point alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static const double MOST = 1e100; /* larger numbers are no measurements */

static size_t digits(struct slice text, size_t from)
{
    size_t at = from;
    while (at < text.n && text.at[at] >= '0' && text.at[at] <= '9') at++;
    return at - from;
}

static bool is_sign(struct slice text, size_t at)
{
    return at < text.n && (text.at[at] == '+' || text.at[at] == '-');
}

bool is_number(struct slice text, const char *points)
{
    size_t at = is_sign(text, 0);
    size_t whole = digits(text, at), fraction = 0;
    at += whole;
    if (at < text.n && strchr(points, text.at[at]) && text.at[at]) {
        fraction = digits(text, ++at);
        at += fraction;
    }
    if (whole + fraction == 0) return false;
    if (at < text.n && (text.at[at] == 'e' || text.at[at] == 'E')) {
        at++;
        at += is_sign(text, at);
        size_t n = digits(text, at);
        if (!n) return false;
        at += n;
    }
    return at == text.n;
}

static double read_double(struct slice field)
{
    static char copy[LINE_BYTES + 1];
    memcpy(copy, field.at, field.n);
    copy[field.n] = 0;
    char *comma = strchr(copy, ',');
    if (comma) *comma = '.';
    return strtod(copy, NULL);
}

bool is_same_number(struct slice field, struct slice word)
{
    char point[2] = {options.decimal, 0};
    if (word.n > LINE_BYTES || !is_number(field, point) || !is_number(word, ".")) return false;
    double number = read_double(field);
    return number == read_double(word);
}

/* Whether Python's float() takes an infinity or NaN here. */
static bool is_not_finite(struct slice field)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    if (is_sign(field, 0)) field.at++, field.n--;
    for (size_t i = 0; i < 3; i++)
        if (same_letters(field, words[i])) return true;
    return false;
}

void add_with_point(struct text *text, struct slice number)
{
    for (size_t i = 0; i < number.n; i++)
        add_bytes(text, number.at[i] == ',' ? "." : number.at + i, 1);
}

/* Say what is wrong with a field that is no number. */
static void object(struct slice field, struct text *why_not)
{
    static char without[LINE_BYTES];
    char point[2] = {options.decimal, 0}, other[2] = {options.decimal == ',' ? '.' : ',', 0};
    struct slice rest = {without, 0};
    for (size_t i = 0; i < field.n; i++)
        if (field.at[i] != '_') without[rest.n++] = field.at[i];
    add(why_not, "is ");
    add_shown(why_not, field);
    if (is_number(field, other)) {
        add_format(why_not, ", not a number; --decimal %s reads it as ", other);
        add_with_point(why_not, field);
    } else if (rest.n < field.n && is_number(rest, point))
        add(why_not, ", not a number; write it without _");
    else
        add(why_not, is_not_finite(field) ? ", not a finite number" : ", not a number");
}

bool parse_number(struct slice field, double *number, struct text *why_not)
{
    char point[2] = {options.decimal, 0};
    if (!field.n) {
        add(why_not, "is empty");
        return false;
    }
    if (!is_number(field, point)) {
        object(field, why_not);
        return false;
    }
    *number = read_double(field);
    if (*number > MOST || *number < -MOST) {
        add(why_not, "is ");
        add_shown(why_not, field);
        add(why_not, ", beyond 1e+100");
        return false;
    }
    return true;
}

/* Write the shortest digits that read as the same number: "d.ddde+XX". Next to a power of two the
 * nearest decimal of that length may read as the neighbour, and the next larger one is right. */
static void shortest(double number, char digits[40])
{
    for (int n = 0; n < 17; n++) {
        snprintf(digits, 40, "%.*e", n, number);
        if (strtod(digits, NULL) == number) return;
        char *last = digits + n + (n > 0) + (digits[0] == '-');
        if (*last == '9') continue; /* then a shorter one would do */
        ++*last;
        if (strtod(digits, NULL) == number) return;
    }
    snprintf(digits, 40, "%.16e", number);
}

void add_repr(struct text *text, double number)
{
    char form[40], mantissa[40];
    shortest(number, form);
    char *mark = strchr(form, 'e');
    int exponent = atoi(mark + 1), n = 0;
    for (const char *c = form + (form[0] == '-'); c < mark; c++)
        if (*c != '.') mantissa[n++] = *c;
    if (form[0] == '-') add(text, "-");
    if (exponent < -4 || exponent >= 16) {
        add_bytes(text, mantissa, 1);
        if (n > 1) add(text, "."), add_bytes(text, mantissa + 1, (size_t)n - 1);
        add_format(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) add(text, "0.");
    for (int i = exponent; i < -1 && exponent < 0; i++) add(text, "0");
    for (int i = 0; i < n || i <= exponent; i++) {
        add_bytes(text, i < n ? mantissa + i : "0", 1);
        if (i == exponent) add(text, n > exponent + 1 ? "." : ".0");
    }
}
