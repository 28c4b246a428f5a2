/* Reads the members of an .npz in one pass. Whatever they say is judged before it is used; 0 is the
 * answer to bytes that end early or that numpy does not write so. The directory behind them says
 * nothing new and is not read: the digest is of all the content. */

/* Two texts are all that is held at a time, as the stack of a microcontroller is small: a member's
 * name, and either the name before it, its header or a block of data that nobody asked for. */
struct npz_reader {
    edgefold_read *read;
    void *from;
    uint32_t crc;          /* of the bytes since it was last set to 0 */
    struct npz_text *name; /* without .npy, ended by a zero */
    struct npz_text *other;
    struct npz_text texts[2];
};

/* What the header of the member at hand tells. */
struct npz_member {
    const char *type, *shape; /* in the reader's other text */
    uint64_t size, n_bytes;   /* of the header and the data; of the data */
    uint32_t crc;
};

static void npz_begin(struct npz_reader *reader, edgefold_read *read, void *from)
{
    reader->read = read;
    reader->from = from;
    reader->crc = 0;
    reader->name = &reader->texts[0];
    reader->other = &reader->texts[1];
}

static int npz_read(struct npz_reader *reader, void *bytes, size_t n)
{
    if (n && reader->read(reader->from, bytes, n) != n) return 0;
    reader->crc = npz_crc(reader->crc, bytes, n);
    return 1;
}

/* Reads a member up to its name; its first four bytes were read. The name before it is then the
 * other text. */
static int npz_open(struct npz_reader *reader, struct npz_member *member)
{
    unsigned char fields[NPZ_FIELDS], extra[20];
    struct npz_text *const last = reader->name;
    char *const name = reader->other->bytes;
    uint64_t packed;
    size_t n, n_extra;
    reader->name = reader->other;
    reader->other = last;
    if (!npz_read(reader, fields, sizeof fields)) return 0;
    if ((npz_get(fields + 2, 2) | 0x800u) != 0x800u || npz_get(fields + 4, 2)) return 0;
    member->crc = (uint32_t)npz_get(fields + 10, 4);
    packed = npz_get(fields + 14, 4);
    member->size = npz_get(fields + 18, 4);
    n = (size_t)npz_get(fields + 22, 2);
    n_extra = (size_t)npz_get(fields + 24, 2);
    if (n < 5 || n >= NPZ_TEXT || !npz_read(reader, name, n)) return 0;
    name[n] = 0;
    if (strlen(name) != n || strcmp(name + n - 4, ".npy")) return 0;
    name[n - 4] = 0;
    if (n_extra > sizeof extra || !npz_read(reader, extra, n_extra)) return 0;
    if (member->size == 0xffffffffu) { /* numpy writes sizes of 64 bits before it knows them */
        if (n_extra != 20 || npz_get(extra, 4) != 0x100001u) return 0;
        member->size = npz_get(extra + 4, 8);
        packed = npz_get(extra + 12, 8);
    }
    return packed == member->size;
}

/* Reads what stands between a member's name and its data, into the other text. */
static int npz_read_header(struct npz_reader *reader, struct npz_member *member)
{
    unsigned char magic[NPZ_MAGIC];
    char *const header = reader->other->bytes;
    size_t n;
    reader->crc = 0;
    if (!npz_read(reader, magic, sizeof magic)) return 0;
    n = (size_t)npz_get(magic + 8, 2);
    if (memcmp(magic, "\x93NUMPY\1", 8) || n >= NPZ_TEXT) return 0;
    if (member->size < NPZ_MAGIC + n || !npz_read(reader, header, n)) return 0;
    header[n] = 0;
    member->n_bytes = member->size - NPZ_MAGIC - n;
    return npz_parse(header, &member->type, &member->shape);
}
