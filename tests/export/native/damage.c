/* Loads every damaged copy of a snapshot into a stream: none may crash, or change what is there.
 *
 * Usage: damage INTACT PRESENT. The stream holds PRESENT whenever a damaged copy of INTACT comes. A
 * copy that is taken must be INTACT all the same: only bytes that mean nothing were changed. */
#include "edgefold_model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    unsigned char *data;
    size_t n, at;
};

static struct edgefold_model stream;

static size_t read_bytes(void *from, void *to, size_t n)
{
    struct bytes *bytes = from;
    const size_t left = bytes->n - bytes->at, part = n < left ? n : left;
    memcpy(to, bytes->data + bytes->at, part);
    bytes->at += part;
    return part;
}

static size_t write_bytes(void *to, const void *from, size_t n)
{
    struct bytes *bytes = to;
    memcpy(bytes->data + bytes->n, from, n);
    bytes->n += n;
    return n;
}

static struct bytes of_file(const char *path)
{
    struct bytes bytes = {malloc(1 << 20), 0, 0};
    FILE *file = fopen(path, "rb");
    if (!file || !bytes.data) exit(2);
    bytes.n = fread(bytes.data, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static int load(struct bytes bytes)
{
    char text[64];
    struct edgefold_array extra = {"loop", "|u1", NULL, text, 0, sizeof text};
    bytes.at = 0;
    return edgefold_model_load(&stream, read_bytes, &bytes, &extra, 1) == EDGEFOLD_OK;
}

/* Whether the stream holds the state that `bytes` were saved of. */
static int holds(struct bytes bytes)
{
    static unsigned char memory[1 << 20];
    struct bytes now = {memory, 0, 0};
    if (edgefold_model_save(&stream, write_bytes, &now, NULL, 0) != EDGEFOLD_OK) return 0;
    return now.n == bytes.n && !memcmp(memory, bytes.data, now.n);
}

static struct bytes saved(void)
{
    struct bytes bytes = {malloc(1 << 20), 0, 0};
    if (edgefold_model_save(&stream, write_bytes, &bytes, NULL, 0) != EDGEFOLD_OK) exit(2);
    return bytes;
}

int main(int n_arguments, char **arguments)
{
    struct bytes intact, present, intact_state, present_state, copy;
    static const unsigned char masks[] = {0x01, 0x20, 0xff};
    size_t n_taken = 0, n_refused = 0;
    unsigned random = 1;
    if (n_arguments != 3) return 2;
    intact = of_file(arguments[1]);
    present = of_file(arguments[2]);
    if (!load(intact)) return 3;
    intact_state = saved();
    if (!load(present)) return 3;
    present_state = saved();
    for (size_t turn = 0; turn < intact.n * 5; turn++) {
        const size_t place = turn % intact.n, way = turn / intact.n;
        copy.data = malloc(intact.n); /* so that a sanitizer sees each byte read beyond */
        copy.n = way == 3 ? place : intact.n;
        memcpy(copy.data, intact.data, copy.n);
        if (way < 3) copy.data[place] ^= masks[way];
        for (int i = 0; way == 4 && i < 4; i++) { /* several at once, the first of them here */
            random = random * 1103515245u + 12345u;
            copy.data[i ? (random >> 8) % intact.n : place] = (unsigned char)(random >> 16);
        }
        if (load(copy)) {
            n_taken++;
            if (!holds(intact_state) || !load(present)) return 4;
        } else {
            n_refused++;
        }
        /* Nothing mends a state that a refused copy changed, until one is taken. */
        if (turn % 16 == 0 && !holds(present_state)) return 5;
        free(copy.data);
    }
    if (!holds(present_state)) return 5;
    printf("%zu %zu\n", n_taken, n_refused);
    free(intact.data);
    free(present.data);
    free(intact_state.data);
    free(present_state.data);
    return 0;
}
