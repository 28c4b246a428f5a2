/* The parts of an .npz: a zip whose members are stored as they are, each one array with its header.
 *
 * Only what a snapshot needs (APPNOTE.TXT 4.3, numpy.lib.format 1.0): nothing is compressed, and all
 * bytes come and go once, in order.
 */

enum {
    NPZ_TEXT = 320, /* bytes of a name, of an array's header, of the record */
    NPZ_MAGIC = 10,  /* before the text of an array's header */
    NPZ_FIELDS = 26, /* that a member's header and its entry in the directory have in common */
    NPZ_MOST_BYTES = 0x7ffffffe /* of a file that needs no larger numbers; Python's limit, too */
};

/* A text that is built piece by piece; what does not fit is cut off. */
struct npz_text {
    size_t n;
    char bytes[NPZ_TEXT];
};

static void npz_add(struct npz_text *text, const char *more)
{
    while (*more && text->n < NPZ_TEXT) text->bytes[text->n++] = *more++;
}

static void npz_add_number(struct npz_text *text, uint64_t number)
{
    char digits[21] = {0};
    int first = 20;
    do digits[--first] = (char)('0' + number % 10);
    while (number /= 10);
    npz_add(text, digits + first);
}

static uint32_t npz_crc(uint32_t crc, const void *bytes, size_t n)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    const unsigned char *from = bytes;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc = table[(crc ^ from[i]) & 15u] ^ crc >> 4;
        crc = table[(crc ^ (uint32_t)from[i] >> 4) & 15u] ^ crc >> 4;
    }
    return ~crc;
}

static void npz_put(unsigned char *to, uint64_t number, int n)
{
    for (int i = 0; i < n; i++) to[i] = (unsigned char)(number >> 8 * i);
}

static uint64_t npz_get(const unsigned char *from, int n)
{
    uint64_t number = 0;
    for (int i = 0; i < n; i++) number |= (uint64_t)from[i] << 8 * i;
    return number;
}

static size_t npz_item_bytes(const char *type)
{
    size_t n = 0;
    for (const char *digit = type + 2; *digit >= '0' && *digit <= '9'; digit++) {
        n = 10 * n + (size_t)(*digit - '0');
    }
    return type[1] == 'U' ? 4 * n : n;
}

/* The shape as Python writes it; an array without one has a single axis. */
static void npz_add_shape(struct npz_text *text, const struct edgefold_array *array)
{
    if (array->shape) {
        npz_add(text, array->shape);
        return;
    }
    npz_add(text, "(");
    npz_add_number(text, array->n_bytes / npz_item_bytes(array->type));
    npz_add(text, ",)");
}

/* What stands before an array's data: a magic, the length of the text, the text. */
static void npz_header(struct npz_text *text, const struct edgefold_array *array)
{
    text->n = 0;
    npz_add(text, "\x93NUMPY\x01___{'descr': '"); /* the version's zero and the length come last */
    npz_add(text, array->type);
    npz_add(text, "', 'fortran_order': False, 'shape': ");
    npz_add_shape(text, array);
    npz_add(text, ", }");
    while (text->n % 64 != 63 && text->n < NPZ_TEXT) npz_add(text, " ");
    npz_add(text, "\n");
    npz_put((unsigned char *)text->bytes + 7, (uint64_t)(text->n - NPZ_MAGIC) << 8, 3);
}

/* Finds type and shape in the text of a header, and ends each with a zero; 0 if it is none. */
static int npz_parse(char *text, const char **type, const char **shape)
{
    static const char before[] = "{'descr': '", after[] = ", }";
    static const char between[] = "', 'fortran_order': False, 'shape': ";
    char *end;
    if (strncmp(text, before, sizeof before - 1)) return 0;
    *type = text + sizeof before - 1;
    end = strchr(*type, '\'');
    if (!end || strncmp(end, between, sizeof between - 1)) return 0;
    *end = 0;
    *shape = end + sizeof between - 1;
    end = strchr(*shape, ')');
    if (!end || strncmp(end + 1, after, sizeof after - 1)) return 0;
    if (end[sizeof after + strspn(end + sizeof after, " \n")]) return 0;
    end[1] = 0;
    return 1;
}

struct npz_writer {
    edgefold_write *write;
    void *to;
    uint64_t at;     /* bytes written */
    uint64_t offset; /* in the directory: where the next entry's member begins */
    uint64_t n_members; /* in the directory */
    int failed;
};

static void npz_write(struct npz_writer *writer, const void *bytes, size_t n)
{
    if (n > NPZ_MOST_BYTES - writer->at) writer->failed = 1;
    if (n && !writer->failed) writer->failed = writer->write(writer->to, bytes, n) != n;
    if (!writer->failed) writer->at += n;
}

/* What the header before a member and its entry in the directory have in common. */
struct npz_form {
    struct npz_text name, header;
    unsigned char fields[NPZ_FIELDS];
};

static void npz_describe(struct npz_form *form, const char *lead,
                         const struct edgefold_array *array)
{
    uint32_t crc;
    uint64_t flags = 0;
    form->name.n = 0;
    npz_add(&form->name, lead);
    npz_add(&form->name, array->name);
    npz_add(&form->name, ".npy");
    npz_header(&form->header, array);
    crc = npz_crc(npz_crc(0, form->header.bytes, form->header.n), array->data, array->n_bytes);
    for (size_t i = 0; i < form->name.n; i++) {
        if (form->name.bytes[i] & 0x80) flags = 0x800; /* the name is UTF-8 */
    }
    memset(form->fields, 0, sizeof form->fields);
    npz_put(form->fields, 20, 2); /* of the format that a reader must know: 2.0 */
    npz_put(form->fields + 2, flags, 2);
    npz_put(form->fields + 8, 0x21, 2); /* the first of January 1980, as numpy writes it */
    npz_put(form->fields + 10, crc, 4);
    npz_put(form->fields + 14, form->header.n + array->n_bytes, 4);
    npz_put(form->fields + 18, form->header.n + array->n_bytes, 4);
    npz_put(form->fields + 22, form->name.n, 2);
}

static void npz_write_member(void *to, const char *lead, const struct edgefold_array *array)
{
    struct npz_writer *writer = to;
    struct npz_form form;
    npz_describe(&form, lead, array);
    npz_write(writer, "PK\3\4", 4);
    npz_write(writer, form.fields, sizeof form.fields);
    npz_write(writer, form.name.bytes, form.name.n);
    npz_write(writer, form.header.bytes, form.header.n);
    npz_write(writer, array->data, array->n_bytes);
}

static void npz_write_entry(void *to, const char *lead, const struct edgefold_array *array)
{
    struct npz_writer *writer = to;
    struct npz_form form;
    unsigned char rest[14] = {0};
    npz_describe(&form, lead, array);
    npz_put(rest + 10, writer->offset, 4);
    npz_write(writer, "PK\1\2\24", 6); /* made by version 2.0; the text's end is the other byte */
    npz_write(writer, form.fields, sizeof form.fields);
    npz_write(writer, rest, sizeof rest);
    npz_write(writer, form.name.bytes, form.name.n);
    writer->n_members++;
    writer->offset += 4 + NPZ_FIELDS + form.name.n + form.header.n + array->n_bytes;
}

static void npz_write_end(struct npz_writer *writer)
{
    unsigned char end[22] = {'P', 'K', 5, 6};
    npz_put(end + 8, writer->n_members, 2);
    npz_put(end + 10, writer->n_members, 2);
    npz_put(end + 12, writer->at - writer->offset, 4);
    npz_put(end + 16, writer->offset, 4);
    npz_write(writer, end, sizeof end);
}

