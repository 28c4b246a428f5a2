/* Reads the members of an .npz in one pass. Whatever they say is judged before it is used; 0 is the
 * answer to bytes that end early or that numpy does not write so. The directory behind them says
 * nothing new and is not read: the digest is of all the content. */

struct npz_reader {
    edgefold_read *read;
    void *from;
    uint32_t crc; /* of the bytes since it was last set to 0 */
};

struct npz_member {
    char name[NPZ_TEXT]; /* without .npy */
    char header[NPZ_TEXT];
    const char *type, *shape; /* in the header */
    uint64_t n_bytes;         /* of the data */
    uint32_t crc;
};

static int npz_read(struct npz_reader *reader, void *bytes, size_t n)
{
    if (n && reader->read(reader->from, bytes, n) != n) return 0;
    reader->crc = npz_crc(reader->crc, bytes, n);
    return 1;
}

static int npz_read_name(struct npz_reader *reader, char *name, size_t n)
{
    if (n < 5 || n >= NPZ_TEXT || !npz_read(reader, name, n)) return 0;
    name[n] = 0;
    if (strlen(name) != n || strcmp(name + n - 4, ".npy")) return 0;
    name[n - 4] = 0;
    return 1;
}

/* Reads all that stands before a member's data; its first four bytes were read. */
static int npz_open(struct npz_reader *reader, struct npz_member *member)
{
    unsigned char fields[NPZ_FIELDS], extra[20], magic[NPZ_MAGIC];
    uint64_t size, packed;
    size_t n_extra, n_text;
    if (!npz_read(reader, fields, sizeof fields)) return 0;
    if ((npz_get(fields + 2, 2) | 0x800u) != 0x800u || npz_get(fields + 4, 2)) return 0;
    packed = npz_get(fields + 14, 4);
    size = npz_get(fields + 18, 4);
    n_extra = (size_t)npz_get(fields + 24, 2);
    if (!npz_read_name(reader, member->name, (size_t)npz_get(fields + 22, 2))) return 0;
    if (n_extra > sizeof extra || !npz_read(reader, extra, n_extra)) return 0;
    if (size == 0xffffffffu) { /* numpy writes sizes of 64 bits before it knows them */
        if (n_extra != 20 || npz_get(extra, 4) != 0x100001u) return 0;
        size = npz_get(extra + 4, 8);
        packed = npz_get(extra + 12, 8);
    }
    reader->crc = 0;
    if (packed != size || !npz_read(reader, magic, sizeof magic)) return 0;
    n_text = (size_t)npz_get(magic + 8, 2);
    if (memcmp(magic, "\x93NUMPY\1", 8) || n_text >= NPZ_TEXT) return 0;
    if (size < NPZ_MAGIC + n_text || !npz_read(reader, member->header, n_text)) return 0;
    member->header[n_text] = 0;
    member->n_bytes = size - NPZ_MAGIC - n_text;
    member->crc = (uint32_t)npz_get(fields + 10, 4);
    return npz_parse(member->header, &member->type, &member->shape);
}
