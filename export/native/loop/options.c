/* The command line: the options of `edgefold run` that this program has, with their meanings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

struct options options;

static const char *const HELP =
    "usage: edgefold-run --input FILE [options]\n\n"
    "Predicts each row of a CSV file, then learns from it; resumes after any stop. It is\n"
    "`edgefold run` of one bundle as one program: the same rows, output and snapshots.\n\n"
    "  --input FILE       rows to read as CSV; - is stdin\n"
    "  --output CSV       predictions to write, or - for stdout\n"
    "  --columns A,B,..   columns of inputs, then outputs (default: x1,..,y1,..)\n"
    "  --delimiter SIGN   what stands between the columns: a sign, tab or space (default: found)\n"
    "  --decimal . or ,   what stands before a number's fraction\n"
    "  --missing WORD,..  what stands in a cell without a value besides nothing, NA, null, ...\n"
    "  --strict           stop at the first bad row; what came before it is kept\n"
    "  --anomaly-z Z      flag values further than Z deviations from their prediction (default 4)\n"
    "  --snapshot FILE    save progress here, and resume from it if it exists\n"
    "  --every N          lines per snapshot (default 100)\n"
    "  --force            start over, and replace the output and the snapshot\n"
    "  --seed N           of the random numbers that a model computes (default 0)\n"
    "  --quiet            say nothing but errors\n"
    "  --version, --help  show this and exit\n\n"
    "exit codes: 0 done, 1 input refused, 2 wrong usage, 6 the machine failed (a full disk),\n"
    "130 interrupted by a second Ctrl-C, 141 the reader of the output went away\n";

static void refuse_usage(const char *name, const char *wrong)
{
    static char line[1024];
    snprintf(line, sizeof line, "edgefold: error: argument %.100s: %.800s", name, wrong);
    say(line);
    _exit(USAGE);
}

static void show(const char *text)
{
    size_t n = strlen(text);
    while (n) {
        ssize_t part = write(1, text, n);
        if (part < 0) _exit(MACHINE);
        text += part, n -= (size_t)part;
    }
    _exit(DONE);
}

static void show_version(void)
{
    static char line[512];
    snprintf(line, sizeof line, "edgefold-run %s of %.200s, bundle %s\n", model.version, model.name,
             model.bundle);
    show(line);
}

static uint64_t whole_number(const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || number < least || number > most)
        refuse_usage(name, "it is no whole number of the allowed range");
    return number;
}

static double positive_number(const char *name, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (!is_number(slice_of(text), ".") || *end || !(number > 0 && number <= 1.7976931348623157e308))
        refuse_usage(name, "it is not a positive number");
    return number;
}

static char delimiter_of(const char *name, const char *text)
{
    static const char *const words[][2] = {{"tab", "\t"}, {"\\t", "\t"}, {"space", " "}};
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(text, words[i][0])) return words[i][1][0];
    bool is_letter = (*text >= '0' && *text <= '9') || ((*text | 32) >= 'a' && (*text | 32) <= 'z');
    if (strlen(text) != 1 || is_letter || (unsigned char)*text > 126 ||
        strchr("\"'\r\n.+-_:/{", *text))
        refuse_usage(name, "the delimiter must be one sign of ASCII that is in no number, such as "
                     "; or , (type tab and space as words)");
    return *text;
}

static char decimal_of(const char *name, const char *text)
{
    if (strcmp(text, ".") && strcmp(text, ",")) refuse_usage(name, "it must be . or a comma");
    return *text;
}

static bool is_switch(const char *name)
{
    if (!strcmp(name, "--strict")) options.strict = true;
    else if (!strcmp(name, "--force")) options.force = true;
    else if (!strcmp(name, "--quiet")) options.quiet = true;
    else if (!strcmp(name, "--version")) show_version();
    else if (!strcmp(name, "--help") || !strcmp(name, "-h")) show(HELP);
    else return false;
    return true;
}

static bool take_option(const char *name, const char *text)
{
    if (!strcmp(name, "--input")) options.input = text;
    else if (!strcmp(name, "--output")) options.output = text;
    else if (!strcmp(name, "--snapshot")) options.snapshot = text;
    else if (!strcmp(name, "--columns")) options.columns = text;
    else if (!strcmp(name, "--missing")) options.missing = text;
    else if (!strcmp(name, "--delimiter")) options.delimiter = delimiter_of(name, text);
    else if (!strcmp(name, "--decimal")) options.decimal = decimal_of(name, text);
    else if (!strcmp(name, "--anomaly-z")) options.anomaly_z = positive_number(name, text);
    else if (!strcmp(name, "--every")) options.every = whole_number(name, text, 1, 1000000000000);
    else if (!strcmp(name, "--seed"))
        options.has_seed = true, options.seed = whole_number(name, text, 0, (1ull << 62) - 1);
    else return false;
    return true;
}

static bool is_option_elsewhere(const char *name)
{
    static const char *const names[] = {"--time",   "--value",     "--mark",      "--time-format",
                                        "--stream", "--streams",   "--rotate",    "--next-file",
                                        "--backend", "--buffered", "--threads",   "--memory-limit",
                                        "--expect-hash", "--trusted-key"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Take the option that begins at a word; returns how many words it has. */
static int take_words(int n, char **words)
{
    char name[32];
    const char *equals = strchr(words[0], '=');
    size_t length = equals ? (size_t)(equals - words[0]) : strlen(words[0]);
    snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), words[0]);
    if (is_option_elsewhere(name))
        refuse_usage(name, "this program does not have it; `edgefold run` does");
    if (!equals && is_switch(name)) return 1;
    const char *text = equals ? equals + 1 : n > 1 ? words[1] : NULL;
    if (!take_option(name, text ? text : ""))
        refuse_usage(name, "it is no option of this program; --help lists them");
    if (!text || (!equals && !strncmp(text, "--", 2))) refuse_usage(name, "it needs a value");
    return equals ? 1 : 2;
}

void read_options(int n, char **words)
{
    options.every = 100;
    options.anomaly_z = 4.0;
    options.delimiter = model.delimiter;
    options.decimal = model.decimal;
    options.missing = model.missing;
    for (int at = 1; at < n;) at += take_words(n - at, words + at);
    if (options.output && options.snapshot && !is_utf8(slice_of(options.output)))
        refuse_usage("--output", "its name is not UTF-8, and a snapshot cannot keep it; choose "
                     "another name");
    if (!options.input) refuse_usage("--input", "it is required: a file of rows, or - for stdin");
}
