/* The parts of an .npz: a zip whose members are stored as they are, each one array with its header.
 *
 * Only what a snapshot needs (APPNOTE.TXT 4.3, numpy.lib.format 1.0): nothing is compressed, and all
 * bytes come and go once, in order.
 */

enum {
    NPZ_TEXT = 320, /* bytes of a name, of an array's header, of the record */
    NPZ_SHAPE = 24, /* of the shape of an array of one axis */
    NPZ_MAGIC = 10, /* before the text of an array's header */
    NPZ_FIELDS = 26, /* that a member's header and its entry in the directory have in common */
    NPZ_MOST_BYTES = 0x7ffffffe /* of a file that needs no larger numbers; Python's limit, too */
};

/* A text that is read, or built piece by piece: then what does not fit is cut off. */
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

/* The shape as Python writes it; an array without one has a single axis, told in `own`. */
static const char *npz_shape(const struct edgefold_array *array, char own[NPZ_SHAPE])
{
    uint64_t number = array->shape ? 0 : array->n_bytes / npz_item_bytes(array->type);
    char *digit = own + NPZ_SHAPE - 4;
    if (array->shape) return array->shape;
    memcpy(digit, ",)", 3);
    do *--digit = (char)('0' + number % 10);
    while (number /= 10);
    *--digit = '(';
    return digit;
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

/* Where the pieces of a header go: into a checksum, and to a writer unless it is NULL. */
struct npz_sink {
    struct npz_writer *writer;
    uint64_t n;
    uint32_t crc;
};

static void npz_pass(struct npz_sink *sink, const char *text, size_t n)
{
    if (sink->writer) npz_write(sink->writer, text, n);
    sink->crc = npz_crc(sink->crc, text, n);
    sink->n += n;
}

/* What stands before an array's data: a magic, the length of the text, the text, which ends with a
 * new line at a multiple of 64. It goes out in pieces, as the stack of a microcontroller is small. */
static void npz_header(struct npz_sink *sink, const struct edgefold_array *array)
{
    static const char version[] = "\x93NUMPY\1", before[] = "{'descr': '", after[] = ", }";
    static const char between[] = "', 'fortran_order': False, 'shape': ";
    static const char spaces[] =
        "                                                                ";
    char own[NPZ_SHAPE], length[3] = {0};
    const char *pieces[5] = {before, NULL, between, NULL, after};
    size_t n = NPZ_MAGIC + 1;
    pieces[1] = array->type;
    pieces[3] = npz_shape(array, own);
    for (int i = 0; i < 5; i++) n += strlen(pieces[i]);
    npz_put((unsigned char *)length + 1, n + (64 - n % 64) % 64 - NPZ_MAGIC, 2);
    npz_pass(sink, version, sizeof version - 1);
    npz_pass(sink, length, sizeof length);
    for (int i = 0; i < 5; i++) npz_pass(sink, pieces[i], strlen(pieces[i]));
    npz_pass(sink, spaces, (64 - n % 64) % 64);
    npz_pass(sink, "\n", 1);
}

/* What the header before a member and its entry in the directory have in common. */
struct npz_form {
    unsigned char fields[NPZ_FIELDS];
    uint64_t n_name, n_bytes; /* of the array and its header */
};

static const char npz_suffix[] = ".npy";

static int npz_is_ascii(const char *text)
{
    while (*text && !(*text & 0x80)) text++;
    return !*text;
}

static void npz_describe(struct npz_form *form, const char *lead,
                         const struct edgefold_array *array)
{
    struct npz_sink sink = {NULL, 0, 0};
    npz_header(&sink, array);
    form->n_name = strlen(lead) + strlen(array->name) + sizeof npz_suffix - 1;
    form->n_bytes = sink.n + array->n_bytes;
    memset(form->fields, 0, sizeof form->fields);
    npz_put(form->fields, 20, 2); /* of the format that a reader must know: 2.0 */
    npz_put(form->fields + 2, npz_is_ascii(array->name) ? 0 : 0x800, 2); /* UTF-8 */
    npz_put(form->fields + 8, 0x21, 2); /* the first of January 1980, as numpy writes it */
    npz_put(form->fields + 10, npz_crc(sink.crc, array->data, array->n_bytes), 4);
    npz_put(form->fields + 14, form->n_bytes, 4);
    npz_put(form->fields + 18, form->n_bytes, 4);
    npz_put(form->fields + 22, form->n_name, 2);
}

static void npz_write_name(struct npz_writer *writer, const char *lead,
                           const struct edgefold_array *array)
{
    npz_write(writer, lead, strlen(lead));
    npz_write(writer, array->name, strlen(array->name));
    npz_write(writer, npz_suffix, sizeof npz_suffix - 1);
}

static void npz_write_member(void *to, const char *lead, const struct edgefold_array *array)
{
    struct npz_sink sink = {to, 0, 0};
    struct npz_form form;
    npz_describe(&form, lead, array);
    npz_write(to, "PK\3\4", 4);
    npz_write(to, form.fields, sizeof form.fields);
    npz_write_name(to, lead, array);
    npz_header(&sink, array);
    npz_write(to, array->data, array->n_bytes);
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
    npz_write_name(writer, lead, array);
    writer->n_members++;
    writer->offset += 4 + NPZ_FIELDS + form.n_name + form.n_bytes;
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

