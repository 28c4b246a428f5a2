/* What is written of a prediction: its numbers, errors and an anomaly flag, as columns; and how
 * good predictions were. Errors exist where there is a central value and rows hold y; the flag and
 * the band's coverage need a standard deviation as well. */
#include <math.h>
#include <string.h>

#include "program.h"

static const double BAND_90 = 1.6448536269514722; /* half a normal's central 90 %, in deviations */

struct counters counters;
const struct named_count counts[N_COUNTS] = {
    {"lines", &counters.lines},
    {"rows", &counters.rows},
    {"predicted", &counters.predicted},
    {"malformed", &counters.malformed},
    {"missing", &counters.missing},
    {"not_learned", &counters.not_learned},
    {"refused_in_a_row", &counters.refused_in_a_row},
    {"anomalies", &counters.anomalies},
    {"within_90", &counters.within_90},
};

/* Square with a rounding of its own, as in Python: a compiler may not join it with an addition. */
static double squared(double number)
{
    volatile double square = number * number;
    return square;
}

static void add_names(struct text *text, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (n == 1) add_format(text, ",%s", name);
        else add_format(text, ",%s%lu", name, (unsigned long)i + 1);
}

void add_header(struct text *text)
{
    add_format(text, "line%s%s", COLUMNS ? "," : "", wish());
    for (size_t i = 0; i < model.n_told; i++)
        add_names(text, model.told[i].name, model.told[i].n);
    if (model.center) add_names(text, "error", model.n_errors);
    if (model.deviation) add_names(text, "anomaly", 1);
    add(text, "\n");
}

static void add_number(struct text *text, double number)
{
    if (isnan(number)) add(text, ",nan");
    else add_format(text, ",%.9g", number);
}

/* Write a word as a field of CSV: with a comma, quote or line break it gets quotes. */
static void add_word(struct text *text, const char *word)
{
    bool is_quoted = strpbrk(word, ",\"\r\n") != NULL;
    add(text, is_quoted ? ",\"" : ",");
    for (; *word; word++) {
        if (*word == '"') add(text, "\"");
        add_bytes(text, word, 1);
    }
    if (is_quoted) add(text, "\"");
}

static void add_errors(struct text *text, const double *y)
{
    bool is_anomaly = false;
    for (size_t i = 0; i < model.n_errors; i++) {
        double error = y[i] - model.center[i];
        add_number(text, error);
        counters.squared_error[i] += squared(error);
        if (!model.deviation) continue;
        counters.within_90 += fabs(error) <= BAND_90 * model.deviation[i];
        is_anomaly = is_anomaly || fabs(error) > options.anomaly_z * model.deviation[i];
    }
    if (!model.deviation) return;
    counters.anomalies += is_anomaly;
    add(text, is_anomaly ? ",1" : ",0");
}

void add_prediction(struct text *text, const double *y)
{
    for (size_t i = 0; i < model.n_told; i++) {
        const struct told *told = &model.told[i];
        for (size_t k = 0; k < told->n; k++)
            if (told->words) add_word(text, told->words[(size_t)told->values[k]]);
            else add_number(text, told->values[k]);
    }
    counters.predicted++;
    if (model.center) add_errors(text, y);
}

void mixture_center(const double *means, size_t n, size_t n_outputs, double *center)
{
    for (size_t y = 0; y < n_outputs; y++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += means[i * n_outputs + y];
        center[y] = sum / (double)n;
    }
}

void mixture_deviation(const double *means, const double *stds, size_t n, size_t n_outputs,
                       const double *center, double *deviation)
{
    for (size_t y = 0; y < n_outputs; y++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            size_t at = i * n_outputs + y;
            sum += squared(stds[at]) + squared(means[at] - center[y]);
        }
        deviation[y] = sqrt(sum / (double)n);
    }
}

size_t largest(const double *values, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

double class_probability(const double *scores, size_t n, size_t chosen)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp(scores[i] - scores[chosen]);
    return exp(-log(sum));
}
