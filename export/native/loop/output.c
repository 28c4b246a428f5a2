/* Where rows go: a file that a later run cuts back to a snapshot, or a pipe. Rows leave the process
 * when a block is full, when no further line of a pipe is waiting, and before each snapshot. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "sha256.h"

enum { SEAM_BYTES = 4096, WAKE_MS = 200, GRACE_MS = 1000 };

static int file = -1;
static bool is_file; /* a regular file, not a pipe or a device */
static char buffer[BLOCK_BYTES + ROW_BYTES];
static size_t n_buffer;

static bool is_standard(void) { return !strcmp(options.output, "-"); }

static const char *name(void) { return is_standard() ? "standard output" : options.output; }

bool output_exists(void)
{
    return options.output && !is_standard() && is_regular(options.output);
}

/* Whether it is a device or a named pipe, which cannot be cut back or overwritten. */
static bool is_special(void)
{
    struct stat found;
    return !is_standard() && stat(options.output, &found) == 0 && !S_ISREG(found.st_mode);
}

void refuse_output(int error)
{
    n_buffer = 0;
    if (error == EPIPE) _exit(PIPE_GONE); /* its reader knows that it left */
    fail(code_of(error), "%s cannot be written: %s. Free some space or choose "
         "another place; with a snapshot, the same command resumes from there.", name(),
         strerror(error));
}

void refuse_existing(void)
{
    fail(REFUSED, "%s exists and there is no snapshot to continue it from; it was left as it is. "
         "Choose another name, or overwrite it with --force.", name());
}

/* Open a device or a named pipe; wait for the pipe's reader, until told to stop. */
static void open_special(void)
{
    struct stat found;
    for (;;) {
        file = open(options.output, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (file >= 0) break;
        int error = errno;
        bool is_pipe = stat(options.output, &found) == 0 && S_ISFIFO(found.st_mode);
        if (error != ENXIO || !is_pipe) refuse_output(error);
        if (is_stopped()) fail(REFUSED, "%s has no reader; stopped before the first row.", name());
        poll(NULL, 0, WAKE_MS);
    }
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
}

static void hold_output(void)
{
    int error = hold(file);
    if (error == EWOULDBLOCK)
        fail(REFUSED, "%s is being written by another run; wait for it or stop it, or choose "
             "another name.", name());
    if (error) refuse_output(error);
}

static void create(bool force)
{
    struct stat found;
    if (!options.output) return;
    if (is_standard()) {
        file = 1;
    } else if (is_special()) {
        open_special();
    } else {
        file = open(options.output, O_RDWR | O_CREAT | O_CLOEXEC | (force ? 0 : O_EXCL), 0666);
        if (file < 0 && errno == EEXIST) refuse_existing();
        if (file < 0) refuse_output(errno);
    }
    is_file = !is_standard() && fstat(file, &found) == 0 && S_ISREG(found.st_mode);
    if (!is_file) return;
    hold_output();
    if (ftruncate(file, 0) < 0) refuse_output(errno);
    int error = sync_folder_of(options.output); /* else a snapshot could outlive it */
    if (error) refuse_output(error);
}

void begin_output(const char *header)
{
    create(options.force);
    write_output(slice_of(header));
}

/* Read bytes of the file; returns how many there are. */
static size_t read_back(void *bytes, size_t n, uint64_t position)
{
    ssize_t found = read_at(file, bytes, n, position);
    if (found < 0)
        fail(code_of(errno), "%s cannot be read: %s. With a snapshot, the same command resumes once "
             "it can be read.", name(), strerror(errno));
    return (size_t)found;
}

/* Digest the last bytes before a length. */
static void seam_before(uint64_t length, char digits[65])
{
    static char seam[SEAM_BYTES];
    size_t n = length < SEAM_BYTES ? (size_t)length : SEAM_BYTES;
    struct sha256 hash;
    size_t found = read_back(seam, n, length - n);
    sha256_begin(&hash);
    sha256_add(&hash, seam, found);
    sha256_end(&hash, digits);
}

/* Cut the file back to a mark and continue behind it. */
static void cut_back(const struct output_mark *mark, const char *header)
{
    static char begun[ROW_BYTES];
    struct stat found;
    char seam[65];
    uint64_t length = (uint64_t)mark->length;
    size_t n = strlen(header) < ROW_BYTES ? strlen(header) : ROW_BYTES;
    if (fstat(file, &found) < 0) refuse_output(errno);
    hold_output();
    size_t n_begun = read_back(begun, n, 0);
    bool is_same = !memcmp(begun, header, n_begun);
    if (is_same && (uint64_t)found.st_size >= length) {
        seam_before(length, seam);
        is_same = !strcmp(seam, mark->seam);
    } else {
        is_same = false;
    }
    if (!is_same)
        fail(REFUSED, "%s is not the output that the snapshot was made with: it differs before "
             "byte %llu. %s, or start over with --force.", name(), (unsigned long long)length,
             length ? "Put it back" : "Move it away");
    if (ftruncate(file, (off_t)length) < 0) refuse_output(errno);
    lseek(file, (off_t)length, SEEK_SET);
}

static void refuse_lost(const struct output_mark *mark)
{
    if (strcmp(mark->name->at, options.output))
        fail(REFUSED, "%s does not exist, and the snapshot continues %s: give that name with "
             "--output, or start over with --force.", name(), mark->name->at);
    fail(REFUSED, "%s is gone, and the snapshot continues it behind byte %lld. Put it back, or "
         "start over with --force.", name(), (long long)mark->length);
}

void resume_output(const struct output_mark *mark, const char *header, bool is_new)
{
    if (mark->has_length && (!options.output || is_standard()))
        fail(REFUSED, "the snapshot continues a file of predictions; name it with --output, or "
             "start over with --force.");
    if (!mark->has_length) {
        create(false);
        if (is_new) write_output(slice_of(header));
        return;
    }
    if (!mark->length && !output_exists()) {
        create(false);
    } else {
        file = open(options.output, O_RDWR | O_CLOEXEC);
        if (file < 0 && errno == ENOENT) refuse_lost(mark);
        if (file < 0) refuse_output(errno);
        is_file = true;
        cut_back(mark, header);
    }
    if (!mark->length) write_output(slice_of(header));
}

void write_output(struct slice rows)
{
    if (file < 0) return;
    while (rows.n) {
        size_t room = sizeof buffer - n_buffer, n = rows.n < room ? rows.n : room;
        memcpy(buffer + n_buffer, rows.at, n);
        n_buffer += n;
        rows.at += n, rows.n -= n;
        if (n_buffer >= BLOCK_BYTES) flush_output();
    }
}

/* Wait until a pipe takes bytes without blocking; not for long once told to stop. */
static void wait_for_reader(void)
{
    struct pollfd asked = {file, POLLOUT, 0};
    int left_ms = GRACE_MS;
    while (poll(&asked, 1, WAKE_MS) <= 0) {
        left_ms -= is_stopped() ? WAKE_MS : 0;
        if (left_ms > 0) continue;
        n_buffer = 0;
        fail(REFUSED, "nobody reads %s; stopped with rows not delivered. With a snapshot, the same "
             "command resumes from there.", name());
    }
}

void flush_output(void)
{
    size_t done = 0, n = n_buffer;
    while (done < n) {
        size_t part = is_file || n - done < PIPE_BUF ? n - done : PIPE_BUF;
        if (!is_file) wait_for_reader();
        int error = write_all(file, buffer + done, part);
        if (error) refuse_output(error);
        done += part;
    }
    n_buffer = 0;
}

/* Refuse to go on where the rows are in a file that has lost its name. */
static void require_in_sight(void)
{
    struct stat named, open_one;
    bool is_there = stat(options.output, &named) == 0;
    if (fstat(file, &open_one) < 0) refuse_output(errno);
    if (is_there && named.st_dev == open_one.st_dev && named.st_ino == open_one.st_ino) return;
    fail(REFUSED, "%s is not the file any more that this run writes: it was removed, renamed or "
         "replaced. Put that file back, and the same command resumes from the last snapshot; "
         "`edgefold run --rotate` begins new files by size or day.", name());
}

void sync_output(void)
{
    flush_output();
    if (!is_file) return;
    if (fsync(file) < 0) refuse_output(errno);
    require_in_sight();
}

void mark_output(struct text *json, bool is_first)
{
    char seam[65];
    uint64_t length = 0;
    bool has_mark = options.output && !is_standard() && !is_special();
    if (!has_mark) {
        add(json, "{}");
        return;
    }
    if (is_first) {
        struct sha256 hash;
        sha256_begin(&hash);
        sha256_end(&hash, seam);
    } else {
        length = (uint64_t)lseek(file, 0, SEEK_CUR);
        seam_before(length, seam);
    }
    add(json, "{\"name\": ");
    add_json(json, slice_of(options.output));
    add_format(json, ", \"part\": 1, \"day\": null, \"ahead\": null, \"length\": %llu, \"seam\": "
               "\"%s\"}", (unsigned long long)length, seam);
}

void close_output(void)
{
    if (file >= 0) flush_output();
    file = -1;
}
