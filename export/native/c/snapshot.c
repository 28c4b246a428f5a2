/* A snapshot: an .npz of a record in JSON, the caller's arrays and the state's. Its digest is a
 * SHA-256 over the record and all arrays by name, as edgefold.runtime.stream.snapshot has it. */

#define SNAPSHOT_MOST_POINTS ((uint64_t)1 << 62)

struct snapshot {
    const char *bundle; /* hash of the bundle, 64 digits */
    const char *const *resumes; /* those of bundles whose snapshots it takes, too; then NULL */
    uint64_t n_points, n_recent;
    struct edgefold_array *state; /* sorted by name */
    size_t n_state;
    const struct edgefold_array *extra;
    size_t n_extra;
};

typedef void snapshot_use(void *to, const char *lead, const struct edgefold_array *array);

/* Uses each array once, in the order of the digest: extra before state, each by name. */
static void snapshot_each(const struct snapshot *snapshot, snapshot_use *use, void *to)
{
    const char *last = "";
    for (size_t turn = 0; turn < snapshot->n_extra; turn++) {
        const struct edgefold_array *next = NULL;
        for (size_t i = 0; i < snapshot->n_extra; i++) {
            const struct edgefold_array *found = snapshot->extra + i;
            if (strcmp(found->name, last) <= 0) continue;
            if (!next || strcmp(found->name, next->name) < 0) next = found;
        }
        if (!next) break; /* two have one name */
        use(to, "extra.", next);
        last = next->name;
    }
    for (size_t i = 0; i < snapshot->n_state; i++) use(to, "state.", snapshot->state + i);
}

static void snapshot_hash(void *to, const char *lead, const struct edgefold_array *array)
{
    char own[NPZ_SHAPE];
    const char *shape = npz_shape(array, own);
    sha256_add(to, lead, strlen(lead));
    sha256_add(to, array->name, strlen(array->name));
    sha256_add(to, array->type, strlen(array->type));
    sha256_add(to, shape, strlen(shape));
    sha256_add(to, array->data, array->n_bytes);
}

/* The record as Python's json writes it; without a digest, it is what the digest begins with. */
static void snapshot_record(struct npz_text *text, const struct snapshot *snapshot,
                            const char *digest)
{
    text->n = 0;
    npz_add(text, "{\"bundle_hash\": \"");
    npz_add(text, snapshot->bundle);
    npz_add(text, "\", \"n_points\": ");
    npz_add_number(text, snapshot->n_points);
    npz_add(text, ", \"n_recent\": ");
    npz_add_number(text, snapshot->n_recent);
    npz_add(text, ", \"schema\": 1");
    if (digest) {
        npz_add(text, ", \"sha256\": \"");
        npz_add(text, digest);
        npz_add(text, "\"");
    }
    npz_add(text, "}");
}

/* Builds the whole record. */
static void snapshot_sealed(struct npz_text *text, const struct snapshot *snapshot)
{
    struct sha256 hash;
    char digest[65];
    snapshot_record(text, snapshot, NULL);
    sha256_begin(&hash);
    sha256_add(&hash, text->bytes, text->n);
    snapshot_each(snapshot, snapshot_hash, &hash);
    sha256_end(&hash, digest);
    snapshot_record(text, snapshot, digest);
}

static enum edgefold_status snapshot_write(const struct snapshot *snapshot, edgefold_write *write,
                                           void *to)
{
    struct npz_writer writer = {write, to, 0, 0, 0, 0};
    struct edgefold_array record = {"record", "|u1", NULL, NULL, 0, 0};
    struct npz_text text;
    if (snapshot->n_extra + snapshot->n_state > 255) return EDGEFOLD_TOO_MANY; /* for Python */
    snapshot_sealed(&text, snapshot);
    record.data = text.bytes;
    record.n_bytes = text.n;
    npz_write_member(&writer, "", &record);
    snapshot_each(snapshot, npz_write_member, &writer);
    npz_write_entry(&writer, "", &record);
    snapshot_each(snapshot, npz_write_entry, &writer);
    npz_write_end(&writer);
    return writer.failed ? EDGEFOLD_IO : EDGEFOLD_OK;
}

/* Reads a member's data to its end, into memory or over the header; hashes it on the way, if
 * asked. */
static int snapshot_data(struct npz_reader *reader, const struct npz_member *member, void *data,
                         struct sha256 *hash)
{
    void *into = data ? data : reader->other->bytes;
    uint64_t left = member->n_bytes;
    while (left) {
        const size_t part = data || left < NPZ_TEXT ? (size_t)left : NPZ_TEXT;
        if (!npz_read(reader, into, part)) return 0;
        if (hash) sha256_add(hash, into, part);
        left -= part;
    }
    return reader->crc == member->crc;
}

static uint64_t snapshot_count(const char *text, const char *label)
{
    const char *digit = strstr(text, label);
    uint64_t count = 0;
    for (digit = digit ? digit + strlen(label) : ""; *digit >= '0' && *digit <= '9'; digit++) {
        count = count * 10 + (uint64_t)(*digit - '0');
    }
    return count;
}

/* Reads the record, and begins the hash with it. */
static enum edgefold_status snapshot_begin(struct npz_reader *reader, struct snapshot *snapshot,
                                           struct sha256 *hash, char digest[65])
{
    struct npz_member member;
    struct npz_text *expected;
    const char *const *earlier = snapshot->resumes;
    char *text, *bundle;
    int is_foreign;
    if (!npz_open(reader, &member) || strcmp(reader->name->bytes, "record") ||
        !npz_read_header(reader, &member) || member.n_bytes < 150 || member.n_bytes >= NPZ_TEXT ||
        !snapshot_data(reader, &member, NULL, NULL)) {
        return EDGEFOLD_BAD_SNAPSHOT;
    }
    expected = reader->name;
    text = reader->other->bytes;
    text[member.n_bytes] = 0;
    bundle = text + strlen("{\"bundle_hash\": \"");
    snapshot->n_points = snapshot_count(text, ", \"n_points\": ");
    snapshot->n_recent = snapshot_count(text, ", \"n_recent\": ");
    memcpy(digest, text + member.n_bytes - 66, 64);
    digest[64] = 0;
    while (memcmp(bundle, snapshot->bundle, 64) && *earlier) snapshot->bundle = *earlier++;
    is_foreign = memcmp(bundle, snapshot->bundle, 64) != 0;
    snapshot_record(expected, snapshot, NULL);
    sha256_begin(hash);
    sha256_add(hash, expected->bytes, expected->n);
    memcpy(bundle, snapshot->bundle, 64);
    snapshot_record(expected, snapshot, digest);
    if (expected->n != member.n_bytes || memcmp(text, expected->bytes, expected->n) ||
        snapshot->n_recent > snapshot->n_points || snapshot->n_points >= SNAPSHOT_MOST_POINTS) {
        return EDGEFOLD_BAD_SNAPSHOT;
    }
    return is_foreign ? EDGEFOLD_FOREIGN_SNAPSHOT : EDGEFOLD_OK;
}

/* Reads a member into the array that waits for it; extra ones that nobody asks for are skipped. */
static int snapshot_member(struct npz_reader *reader, struct npz_member *member,
                           struct edgefold_array *arrays, size_t n_arrays, struct sha256 *hash)
{
    const char *const name = reader->name->bytes + strlen("state.");
    struct edgefold_array *wanted = NULL;
    if (!npz_read_header(reader, member)) return 0;
    for (size_t i = 0; i < n_arrays; i++) {
        if (!strcmp(arrays[i].name, name)) wanted = arrays + i;
    }
    if (wanted) {
        char own[NPZ_SHAPE];
        if (wanted->n_bytes || member->n_bytes > wanted->room) return 0;
        wanted->n_bytes = (size_t)member->n_bytes;
        if (strcmp(wanted->type, member->type) || strcmp(npz_shape(wanted, own), member->shape)) {
            return 0;
        }
    } else if (!hash) {
        return 0; /* no tensor of the state has this name */
    }
    if (hash) {
        sha256_add(hash, reader->name->bytes, strlen(reader->name->bytes));
        sha256_add(hash, member->type, strlen(member->type));
        sha256_add(hash, member->shape, strlen(member->shape));
    }
    return snapshot_data(reader, member, wanted ? wanted->data : NULL, hash);
}

static int snapshot_members(struct npz_reader *reader, const struct snapshot *snapshot,
                            struct edgefold_array *extra, struct sha256 *hash)
{
    struct npz_member member;
    char signature[4];
    int is_first = 1; /* of the extra arrays */
    while (npz_read(reader, signature, sizeof signature)) {
        int sound;
        if (!memcmp(signature, "PK\1\2", 4)) return 1;
        if (memcmp(signature, "PK\3\4", 4) || !npz_open(reader, &member)) return 0;
        const char *name = reader->name->bytes, *last = reader->other->bytes;
        if (!strncmp(name, "state.", 6)) {
            sound = snapshot_member(reader, &member, snapshot->state, snapshot->n_state, NULL);
        } else { /* the digest takes them by name, so they must come so */
            sound = !strncmp(name, "extra.", 6) && (is_first || strcmp(last, name) < 0) &&
                    snapshot_member(reader, &member, extra, snapshot->n_extra, hash);
            is_first = 0;
        }
        if (!sound) return 0;
    }
    return 0;
}

/* Reads a snapshot in one pass. It fills the state's and the caller's arrays on the way: what they
 * hold is of use only if it returns EDGEFOLD_OK. */
static enum edgefold_status snapshot_read(struct snapshot *snapshot, struct edgefold_array *extra,
                                          edgefold_read *read, void *from)
{
    struct npz_reader reader;
    struct sha256 hash;
    char signature[4], digest[65];
    enum edgefold_status status;
    npz_begin(&reader, read, from);
    for (size_t i = 0; i < snapshot->n_extra; i++) extra[i].n_bytes = 0;
    for (size_t i = 0; i < snapshot->n_state; i++) {
        snapshot->state[i].room = snapshot->state[i].n_bytes;
        snapshot->state[i].n_bytes = 0;
    }
    if (!npz_read(&reader, signature, 4) || memcmp(signature, "PK\3\4", 4)) {
        return EDGEFOLD_NO_SNAPSHOT;
    }
    status = snapshot_begin(&reader, snapshot, &hash, digest);
    if (status != EDGEFOLD_OK) return status;
    if (!snapshot_members(&reader, snapshot, extra, &hash)) return EDGEFOLD_BAD_SNAPSHOT;
    for (size_t i = 0; i < snapshot->n_state; i++) {
        if (snapshot->state[i].n_bytes != snapshot->state[i].room) return EDGEFOLD_BAD_SNAPSHOT;
        snapshot_hash(&hash, "state.", snapshot->state + i);
    }
    sha256_end(&hash, reader.other->bytes);
    return strcmp(reader.other->bytes, digest) ? EDGEFOLD_BAD_SNAPSHOT : EDGEFOLD_OK;
}

/* Whether all numbers of a tensor of floats are finite: none has an exponent of ones. */
static int snapshot_is_finite(const struct edgefold_array *array)
{
    static const unsigned char exponents[3][2] = {{0x00, 0x7c}, {0x80, 0x7f}, {0xf0, 0x7f}};
    const size_t n = npz_item_bytes(array->type); /* 2, 4 or 8 */
    const unsigned char *bytes = array->data, *mask = exponents[n / 4];
    for (size_t i = n; i <= array->n_bytes; i += n) {
        if ((bytes[i - 2] & mask[0]) == mask[0] && (bytes[i - 1] & mask[1]) == mask[1]) return 0;
    }
    return 1;
}
