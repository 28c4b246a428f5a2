/* What the loop writes about itself into a snapshot, as JSON beside the state: the very text that
 * `edgefold run` writes, so that each of the two goes on where the other stopped. */
#include <string.h>

#include "program.h"

static void add_list(struct text *json, size_t n, bool is_header)
{
    static char bytes[LINE_BYTES];
    add(json, "[");
    for (size_t i = 0; i < n; i++) {
        struct text name = {bytes, 0, sizeof bytes, false};
        if (is_header) add_slice(&name, header_name(&layout, i));
        else add_column_name(&name, &layout, i);
        struct slice found = {name.at, name.n};
        if (i) add(json, ", ");
        add_json(json, found);
    }
    add(json, "]");
}

static void add_layout(struct text *json)
{
    struct slice delimiter = {&layout.delimiter, 1};
    add(json, "{\"names\": ");
    add_list(json, COLUMNS, false);
    add(json, ", \"positions\": [");
    for (size_t i = 0; i < COLUMNS; i++)
        add_format(json, "%s%lu", i ? ", " : "", (unsigned long)layout.positions[i]);
    add_format(json, "], \"n_fields\": %lu, \"delimiter\": ", (unsigned long)layout.n_fields);
    add_json(json, delimiter);
    add(json, ", \"header\": ");
    add_list(json, layout.n_header, true);
    add(json, ", \"kind\": \"csv\"}");
}

static void add_counters(struct text *json)
{
    add(json, "{");
    for (size_t i = 0; i < N_COUNTS; i++)
        add_format(json, "\"%s\": %llu, ", counts[i].name, (unsigned long long)*counts[i].count);
    add(json, "\"squared_error\": [");
    for (size_t i = 0; i < model.n_errors; i++) {
        if (i) add(json, ", ");
        add_repr(json, counters.squared_error[i]);
    }
    add(json, "]}");
}

void add_record(struct text *json, const char *header, bool is_first)
{
    add(json, "{\"settings\": {\"input\": ");
    add_list(json, COLUMNS, false);
    add(json, ", \"columns\": ");
    add_json(json, slice_of(header));
    add(json, ", \"anomaly_z\": ");
    add_repr(json, options.anomaly_z);
    add(json, "}, \"input\": ");
    mark_input(json);
    add(json, ", \"layout\": ");
    if (counters.lines) add_layout(json);
    else add(json, "null");
    add(json, ", \"output\": ");
    mark_output(json, is_first);
    add(json, ", \"counters\": ");
    add_counters(json);
    add(json, "}");
}

/* Reading. Whoever wrote the file, what is not such a record is refused. ----------------------- */

static void refuse(const char *why)
{
    fail(REFUSED, "snapshot %s: it was not made by `edgefold run` or this program (%s); choose "
         "another file.", options.snapshot, why);
}

static struct json member(struct json object, const char *name)
{
    struct json value;
    if (!json_member(object, name, &value)) refuse(name);
    return value;
}

static uint64_t count(struct json object, const char *name)
{
    int64_t number;
    if (!json_integer(member(object, name), &number) || number < 0) refuse(name);
    return (uint64_t)number;
}

static void string(struct json object, const char *name, struct text *text)
{
    if (!json_string(member(object, name), text)) refuse(name);
}

static void digest(struct json object, const char *name, char digits[65])
{
    struct text text = {digits, 0, 65, false};
    digits[0] = 0;
    string(object, name, &text);
}

static void read_counters(struct json form)
{
    struct json rest, item;
    size_t n = 0;
    for (size_t i = 0; i < N_COUNTS; i++) *counts[i].count = count(form, counts[i].name);
    if (!json_array(member(form, "squared_error"), &rest)) refuse("squared_error");
    for (; json_next(&rest, &item); n++) {
        double *error = &counters.squared_error[n < model.n_errors ? n : 0];
        if (!json_number(item, error) || !(*error >= 0)) refuse("squared_error");
    }
    if (n != model.n_errors) refuse("its counters are not those of this bundle");
}

static void read_layout(struct json form)
{
    struct text names = {layout.names, 0, sizeof layout.names, false};
    char delimiter[8];
    struct text sign = {delimiter, 0, sizeof delimiter, false};
    struct json rest, item, kind;
    size_t n = 0;
    if (json_member(form, "kind", &kind) && kind.end - kind.at != 5)
        fail(REFUSED, "snapshot %s was made of JSON lines, which this program does not read; "
             "`edgefold run` does.", options.snapshot);
    string(form, "delimiter", &sign);
    layout.n_fields = count(form, "n_fields");
    if (sign.n != 1 || strchr("\"\r\n", delimiter[0]) || layout.n_fields > LINE_BYTES)
        refuse("a layout is damaged");
    layout.delimiter = delimiter[0];
    if (!json_array(member(form, "header"), &rest)) refuse("header");
    for (layout.n_header = 0; json_next(&rest, &item); layout.n_header++) {
        if (layout.n_header >= layout.n_fields || !json_string(item, &names)) refuse("header");
        layout.ends[layout.n_header] = (uint32_t)names.n;
    }
    if (!json_array(member(form, "positions"), &rest)) refuse("positions");
    for (int64_t place; json_next(&rest, &item); n++) {
        if (n == COLUMNS || !json_integer(item, &place) || place < 0 ||
            (uint64_t)place >= layout.n_fields)
            refuse("positions");
        layout.positions[n] = (size_t)place;
    }
    if (n != COLUMNS || (layout.n_header && layout.n_header != layout.n_fields))
        refuse("a layout is damaged");
    layout.is_known = true;
}

/* Refuse other columns, another output or another --anomaly-z than the snapshot's. */
static void require_same(struct json settings, const char *header)
{
    static char bytes[LINE_BYTES + ROW_BYTES];
    struct json rest, item;
    double anomaly_z = 0;
    size_t n = 0;
    bool is_same = json_number(member(settings, "anomaly_z"), &anomaly_z) &&
                   anomaly_z == options.anomaly_z;
    struct text text = {bytes, 0, sizeof bytes, false};
    string(settings, "columns", &text);
    is_same = is_same && !strcmp(bytes, header);
    if (!json_array(member(settings, "input"), &rest)) refuse("input");
    if (layout.n_header) find_positions(&layout, input.name);
    for (; json_next(&rest, &item); n++) {
        text.n = 0;
        if (n == COLUMNS || !json_string(item, &text)) refuse("input");
        size_t end = text.n;
        add_asked_name(&text, &layout, n);
        struct slice saved = {bytes, end}, asked = {bytes + end, text.n - end};
        is_same = is_same && (!layout.is_known || same_slice(saved, asked));
    }
    if (!is_same || n != COLUMNS)
        fail(REFUSED, "snapshot %s was made with other columns or another --anomaly-z; give the "
             "same options, or start over with --force.", options.snapshot);
}

static void read_marks(struct json form, struct record *record)
{
    struct json found = member(form, "input"), value;
    record->input.position = (int64_t)count(found, "position");
    record->input.has_head = json_member(found, "head", &value);
    if (record->input.has_head) {
        digest(found, "head", record->input.head);
        digest(found, "seam", record->input.seam);
    }
    found = member(form, "output");
    record->output.has_length = json_member(found, "length", &value);
    if (!record->output.has_length) return;
    record->output.length = (int64_t)count(found, "length");
    digest(found, "seam", record->output.seam);
    if (json_member(found, "name", &value) && !json_string(value, record->output.name))
        refuse("name");
    if ((json_member(found, "part", &value) && (value.end - value.at != 1 || *value.at != '1')) ||
        json_member(found, "finished", &value))
        fail(REFUSED, "snapshot %s continues an output in several files, which this program does "
             "not write; `edgefold run --rotate` does.", options.snapshot);
}

void read_record(struct slice json, const char *header, struct record *record)
{
    struct json form, value;
    if (!json_whole(&form, json.at, json.n)) refuse("it holds no record of a loop");
    if (json_member(form, "names", &value))
        fail(REFUSED, "snapshot %s is of several sensors, and this program serves one; `edgefold "
             "run` serves several.", options.snapshot);
    value = member(form, "layout");
    if (!json_is_null(value)) read_layout(value);
    require_same(member(form, "settings"), header);
    read_marks(form, record);
    read_counters(member(form, "counters"));
}
