/* Where lines come from: a file that a later run resumes at a position, or a pipe.
 *
 *     |start|   head, 64 KiB   |   ...   | seam, 4 KiB |
 *     0     1 KiB                                      ^ position
 *
 * A file may be cut, rewritten or rotated while it is read. Digests of what was read of it are
 * therefore kept as it came, and compared with the file before each snapshot. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "sha256.h"

enum { START_BYTES = 1024, HEAD_BYTES = 65536, SEAM_BYTES = 4096 };
enum { PIPE_BYTES = 4096, WAKE_MS = 200 };

struct place {
    uint64_t position;
    struct sha256 head;
    size_t n_seam;
    unsigned char seam[SEAM_BYTES];
};

struct input input;
static struct place taken, whole, kept; /* what was read, its whole lines, those processed */
static char start[START_BYTES];
static size_t n_start;
static char buffer[LINE_BYTES + BLOCK_BYTES];
static size_t begin, end;
static bool has_ended, keeps_half_lines;
static int file = -1;

static void follow(struct place *place, const char *block, size_t n)
{
    if (place->position < HEAD_BYTES) {
        size_t left = HEAD_BYTES - (size_t)place->position;
        sha256_add(&place->head, block, n < left ? n : left);
    }
    place->position += n;
    size_t n_new = n < SEAM_BYTES ? n : SEAM_BYTES;
    size_t n_old = SEAM_BYTES - n_new < place->n_seam ? SEAM_BYTES - n_new : place->n_seam;
    memmove(place->seam, place->seam + place->n_seam - n_old, n_old);
    memcpy(place->seam + n_old, block + n - n_new, n_new);
    place->n_seam = n_old + n_new;
}

static void begin_place(struct place *place, uint64_t position)
{
    memset(place, 0, sizeof *place);
    sha256_begin(&place->head);
    place->position = position;
}

static void start_at(const struct place *place)
{
    taken = whole = kept = *place;
    input.position = place->position;
}

void open_input(void)
{
    struct stat found;
    static struct place first;
    bool is_named = strcmp(options.input, "-") != 0;
    input.name = is_named ? options.input : "standard input";
    file = is_named ? open(options.input, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : 0;
    if (file < 0 || fstat(file, &found) < 0)
        fail(code_of(errno), "cannot read %s (%s); give a readable CSV file.", options.input,
             strerror(errno));
    if (S_ISDIR(found.st_mode))
        fail(REFUSED, "cannot read %s (a folder); give a readable CSV file.", options.input);
    if (is_named) fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
    input.is_seekable = S_ISREG(found.st_mode) && lseek(file, 0, SEEK_CUR) == 0;
    keeps_half_lines = options.snapshot && input.is_seekable;
    begin_place(&first, 0);
    start_at(&first);
}

bool has_line(void) { return memchr(buffer + begin, '\n', end - begin) != NULL; }

static void refuse_reading(int error)
{
    fail(code_of(error), "cannot read %s (%s); give a readable file of rows.", input.name,
         strerror(error));
}

/* Read a whole block of a file, or all that is left of it. */
static size_t read_block(int fd, void *bytes, size_t n, uint64_t position)
{
    ssize_t found = read_at(fd, bytes, n, position);
    if (found < 0) refuse_reading(errno);
    return (size_t)found;
}

static bool wait_for_bytes(void)
{
    struct pollfd asked = {file, POLLIN, 0};
    while (!is_stopped())
        if (poll(&asked, 1, WAKE_MS) > 0) return true;
    return false;
}

/* Read another block; false at the end, or when told to stop. */
static bool fill(void)
{
    ssize_t n;
    if (!input.is_seekable && !wait_for_bytes()) return false;
    memmove(buffer, buffer + begin, end - begin);
    end -= begin;
    begin = 0;
    do n = read(file, buffer + end, input.is_seekable ? BLOCK_BYTES : PIPE_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0) refuse_reading(errno);
    end += (size_t)n;
    has_ended = n == 0;
    return n > 0;
}

/* Whether the file's present line has an end; else it is left, however long it is. */
static bool has_line_end(void)
{
    static char block[BLOCK_BYTES];
    uint64_t at = whole.position;
    while (!is_stopped()) {
        size_t n = read_block(file, block, sizeof block, at);
        if (memchr(block, '\n', n)) return true;
        at += n;
        if (!n) {
            input.n_left = at - whole.position;
            return false;
        }
    }
    return false;
}

static struct slice take(size_t length)
{
    struct slice piece = {buffer + begin, length};
    if (input.is_seekable) {
        size_t more = START_BYTES - n_start < length ? START_BYTES - n_start : length;
        memcpy(start + n_start, piece.at, more);
        n_start += more;
        follow(&taken, piece.at, length);
    } else {
        taken.position += length;
    }
    begin += length;
    if (has_ended || (length && piece.at[length - 1] == '\n')) {
        whole = taken;
        input.position = whole.position;
    }
    return piece;
}

struct slice read_line(void)
{
    static const struct slice nothing = {"", 0};
    for (;;) {
        size_t n = end - begin, most = n < LINE_BYTES ? n : LINE_BYTES;
        const char *found = memchr(buffer + begin, '\n', most);
        if (found) return take((size_t)(found - buffer) - begin + 1);
        if (n >= LINE_BYTES) {
            bool is_first = taken.position == whole.position;
            if (keeps_half_lines && is_first && !has_line_end()) return nothing;
            return take(LINE_BYTES);
        }
        if (fill()) continue;
        if (!has_ended) return nothing; /* stopped: half a line stays where it is */
        if (!keeps_half_lines) return take(end - begin);
        input.n_left = taken.position - whole.position + (end - begin);
        return nothing;
    }
}

void keep_input(void) { kept = whole; }

/* Read the digests of a file before a position; false if it is shorter. */
static bool read_place(int fd, uint64_t position, struct place *place)
{
    static char head[HEAD_BYTES];
    size_t n_head = position < HEAD_BYTES ? (size_t)position : HEAD_BYTES;
    begin_place(place, position);
    place->n_seam = position < SEAM_BYTES ? (size_t)position : SEAM_BYTES;
    if (read_block(fd, head, n_head, 0) < n_head) return false;
    if (read_block(fd, place->seam, place->n_seam, position - place->n_seam) < place->n_seam)
        return false;
    sha256_add(&place->head, head, n_head);
    if (fd == file && !n_start) {
        n_start = n_head < START_BYTES ? n_head : START_BYTES;
        memcpy(start, head, n_start);
    }
    return true;
}

static void head_of(const struct place *place, char digits[65])
{
    struct sha256 hash = place->head;
    sha256_end(&hash, digits);
}

static void seam_of(const struct place *place, char digits[65])
{
    struct sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, place->seam, place->n_seam);
    sha256_end(&hash, digits);
}

static bool is_in(int fd)
{
    static struct place found;
    char digests[4][65];
    if (!read_place(fd, kept.position, &found)) return false;
    head_of(&kept, digests[0]);
    head_of(&found, digests[1]);
    seam_of(&kept, digests[2]);
    seam_of(&found, digests[3]);
    return !strcmp(digests[0], digests[1]) && !strcmp(digests[2], digests[3]);
}

static uint64_t size_of(int fd)
{
    struct stat found;
    return fstat(fd, &found) < 0 ? 0 : (uint64_t)found.st_size;
}

/* Count the bytes behind a position; 0 where only blank lines are left. */
static uint64_t n_unread(uint64_t position)
{
    char rest[START_BYTES];
    uint64_t n = size_of(file) - position;
    if (n > START_BYTES) return n;
    size_t n_rest = read_block(file, rest, sizeof rest, position);
    for (size_t i = 0; i < n_rest; i++)
        if (!isspace((unsigned char)rest[i])) return n;
    return 0;
}

/* Write the first bytes as a text in which each byte is a character. */
static void add_start(struct text *json)
{
    static char letters[2 * START_BYTES];
    struct slice shown = {letters, 0};
    for (size_t i = 0; i < n_start && i < kept.position; i++) {
        unsigned char c = (unsigned char)start[i];
        if (c >= 128) letters[shown.n++] = (char)(0xc0 | c >> 6);
        letters[shown.n++] = (char)(c < 128 ? c : 0x80 | (c & 0x3f));
    }
    add_json(json, shown);
}

void mark_input(struct text *json)
{
    char digits[65];
    add_format(json, "{\"position\": %llu", (unsigned long long)kept.position);
    if (input.is_seekable) {
        add(json, ", \"start\": ");
        add_start(json);
        head_of(&kept, digits);
        add_format(json, ", \"head\": \"%s\"", digits);
        seam_of(&kept, digits);
        add_format(json, ", \"seam\": \"%s\", \"at_end\": %s", digits,
                   n_unread(kept.position) ? "false" : "true");
    }
    add(json, "}");
}

void require_unchanged(void)
{
    const char *advice = "The last snapshot stands where the file was still whole: with that file "
                         "in its place the same command goes on from there; without it, start over "
                         "with --force.";
    uint64_t n = size_of(file);
    unsigned long long position = kept.position;
    if (!input.is_seekable) return;
    if (n < kept.position)
        fail(REFUSED, "%s was cut to %llu bytes after %llu had been read. %s", input.name,
             (unsigned long long)n, position, advice);
    if (!is_in(file))
        fail(REFUSED, "%s was rewritten: its first %llu bytes are not those that had been read. %s",
             input.name, position, advice);
}

void require_in_place(void)
{
    struct stat found;
    if (!input.is_seekable || !strcmp(options.input, "-")) return;
    int other = open(options.input, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (other < 0) return; /* it was removed, after it had been read */
    bool is_same = fstat(other, &found) == 0 && S_ISREG(found.st_mode) && is_in(other);
    close(other);
    if (!is_same)
        fail(REFUSED, "%s is now another file: the one that was read got another name or was "
             "removed. Everything up to its end was read and kept. `edgefold run --next-file` goes "
             "on with a file that follows.", input.name);
}

/* Take the end of a last line that was read without one, and has got one since. */
static void take_line_end(struct place *place)
{
    char last[3] = {'\n', 0, 0};
    if (place->position) read_block(file, last, 1, place->position - 1);
    if (last[0] == '\n') return;
    size_t n = read_block(file, last + 1, 2, place->position);
    bool is_end = last[1] == '\n' || (n == 2 && last[1] == '\r' && last[2] == '\n');
    if (n && !is_end)
        fail(REFUSED, "%s: the last line that was read had no end and has grown since; start over "
             "with --force, and append whole lines.", input.name);
    if (n) follow(place, last + 1, last[1] == '\n' ? 1 : 2);
}

void resume_input(const struct input_mark *mark)
{
    static struct place place;
    char head[65], seam[65];
    uint64_t position = (uint64_t)mark->position;
    if (!input.is_seekable || !mark->has_head) {
        begin_place(&place, input.is_seekable ? 0 : position);
        start_at(&place);
        return;
    }
    bool is_same = read_place(file, position, &place);
    head_of(&place, head);
    seam_of(&place, seam);
    if (!is_same || strcmp(head, mark->head) || strcmp(seam, mark->seam))
        fail(REFUSED, "%s is not the input that the snapshot was made of: it differs before byte "
             "%llu. Give the same file, or start over with --force; `edgefold run --next-file` "
             "goes on with a file that follows.", input.name, (unsigned long long)position);
    take_line_end(&place);
    start_at(&place);
    lseek(file, (off_t)place.position, SEEK_SET);
}
