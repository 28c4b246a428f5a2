/* The snapshot: the model's state and the loop's record in one file, replaced as a whole. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

static char block[BLOCK_BYTES];
static size_t n_block;
static int read_error; /* 0: the file's end was reached, if anything */
static char record[RECORD_BYTES];

static void flush(int fd)
{
    int error = write_all(fd, block, n_block);
    if (error) refuse_saving(strerror(error), error);
    n_block = 0;
}

static size_t write_part(void *to, const void *bytes, size_t n)
{
    const char *at = bytes;
    for (size_t left = n; left;) {
        size_t part = sizeof block - n_block < left ? sizeof block - n_block : left;
        memcpy(block + n_block, at, part);
        n_block += part;
        at += part, left -= part;
        if (n_block == sizeof block) flush(*(int *)to);
    }
    return n;
}

static void refuse_reading(int error)
{
    fail(code_of(error), "snapshot %s cannot be read: %s.", options.snapshot, strerror(error));
}

static size_t read_part(void *from, void *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t part = read(*(int *)from, (char *)bytes + done, n - done);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) read_error = errno;
        if (part <= 0) break;
        done += (size_t)part;
    }
    return done;
}

struct text begin_record(void)
{
    struct text text = {record, 0, sizeof record, false};
    return text;
}

void save_snapshot(struct text json)
{
    if (json.is_cut)
        fail(REFUSED, "snapshot %s was not written: the input's header is too long for it; "
             "shorten the names of the columns.", options.snapshot);
    int fd = begin_replacing();
    n_block = 0;
    const char *wrong = model_save(write_part, &fd, json.at, json.n);
    flush(fd);
    if (wrong) refuse_saving(wrong, EINVAL);
    finish_replacing(fd);
}

bool has_snapshot(void) { return options.snapshot && access(options.snapshot, F_OK) == 0; }

struct slice load_snapshot(void)
{
    struct slice json = {record, 0};
    int fd = open(options.snapshot, O_RDONLY | O_CLOEXEC);
    if (fd < 0) refuse_reading(errno);
    const char *wrong = model_load(read_part, &fd, record, sizeof record, &json.n);
    close(fd);
    if (read_error) refuse_reading(read_error);
    if (wrong) fail(REFUSED, "snapshot %s %s", options.snapshot, wrong);
    return json;
}
