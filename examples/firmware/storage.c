/* Two slots of flash take turns, so that a power cut while one is written leaves the other.

   A slot's first page is its header, and it is written last: a slot without it was not finished.
   The snapshot behind it is Edgefold's own file (.npz), which carries its hash: what a cut or a
   worn flash has damaged is refused, and the other slot is taken. */
#include "storage.h"

#include <string.h>

#include "board.h"

struct header {
    uint32_t magic, number, n_bytes;
};

enum { MAGIC = 0x45464C44, N_SLOTS = 2 };

struct writer {
    size_t slot, n_bytes;
    unsigned char page[BOARD_PAGE_BYTES];
};

struct reader {
    const unsigned char *from;
    size_t left;
};

static struct header header_of(size_t slot)
{
    struct header found;
    memcpy(&found, board_flash() + slot * BOARD_SLOT_BYTES, sizeof found);
    const int is_whole = found.magic == MAGIC &&
                         found.n_bytes <= BOARD_SLOT_BYTES - BOARD_PAGE_BYTES;
    return is_whole ? found : (struct header){0, 0, 0};
}

static size_t newest_slot(void)
{
    return header_of(1).number > header_of(0).number ? 1 : 0;
}

static size_t place_of(const struct writer *writer)
{
    const size_t n_pages = writer->n_bytes / BOARD_PAGE_BYTES;
    return writer->slot * BOARD_SLOT_BYTES + (1 + n_pages) * BOARD_PAGE_BYTES;
}

/* Called by edgefold_cmanp_save, with some bytes at a time. */
static size_t write_some(void *to, const void *bytes, size_t n)
{
    struct writer *writer = to;
    if (writer->n_bytes + n > BOARD_SLOT_BYTES - BOARD_PAGE_BYTES) {
        return 0; /* the slot is too small: EDGEFOLD_IO */
    }
    for (size_t i = 0; i < n; i++) {
        const size_t place = writer->n_bytes % BOARD_PAGE_BYTES;
        writer->page[place] = ((const unsigned char *)bytes)[i];
        if (place == BOARD_PAGE_BYTES - 1) {
            board_flash_program(place_of(writer), writer->page);
        }
        writer->n_bytes++;
    }
    return n;
}

static size_t read_some(void *from, void *bytes, size_t n)
{
    struct reader *reader = from;
    n = n < reader->left ? n : reader->left;
    memcpy(bytes, reader->from, n);
    reader->from += n;
    reader->left -= n;
    return n;
}

enum edgefold_status storage_save(struct edgefold_cmanp *stream)
{
    static struct writer writer;
    const size_t last = newest_slot();
    const struct header header_before = header_of(last);
    writer.slot = header_before.number ? 1 - last : 0;
    writer.n_bytes = 0;
    board_flash_erase(writer.slot * BOARD_SLOT_BYTES, BOARD_SLOT_BYTES);
    const enum edgefold_status status = edgefold_cmanp_save(stream, write_some, &writer, NULL, 0);
    if (status != EDGEFOLD_OK) {
        return status;
    }
    if (writer.n_bytes % BOARD_PAGE_BYTES) {
        board_flash_program(place_of(&writer), writer.page);
    }
    const struct header header = {MAGIC, header_before.number + 1, (uint32_t)writer.n_bytes};
    memset(writer.page, 0xFF, sizeof writer.page);
    memcpy(writer.page, &header, sizeof header);
    board_flash_program(writer.slot * BOARD_SLOT_BYTES, writer.page);
    return EDGEFOLD_OK;
}

enum edgefold_status storage_load(struct edgefold_cmanp *stream)
{
    const size_t newest = newest_slot();
    enum edgefold_status status = EDGEFOLD_NO_SNAPSHOT;
    for (size_t i = 0; i < N_SLOTS && status != EDGEFOLD_OK; i++) {
        const size_t slot = (newest + i) % N_SLOTS;
        const struct header header = header_of(slot);
        const unsigned char *start = board_flash() + slot * BOARD_SLOT_BYTES + BOARD_PAGE_BYTES;
        struct reader reader = {start, header.n_bytes};
        if (header.number) {
            status = edgefold_cmanp_load(stream, read_some, &reader, NULL, 0);
        }
    }
    return status;
}
