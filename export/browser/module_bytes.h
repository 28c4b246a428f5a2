/* The callbacks by which a snapshot goes into the memory of JavaScript, and comes from it. */
#include <stddef.h>
#include <string.h>

static size_t write_bytes(void *to, const void *bytes, size_t n)
{
    unsigned char **at = to;
    memcpy(*at, bytes, n);
    *at += n;
    return n;
}

struct part {
    const unsigned char *at;
    size_t n;
};

static size_t read_bytes(void *from, void *bytes, size_t n)
{
    struct part *part = from;
    const size_t taken = n < part->n ? n : part->n;
    memcpy(bytes, part->at, taken);
    part->at += taken;
    part->n -= taken;
    return taken;
}
