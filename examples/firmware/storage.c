/* Two slots of flash take turns, so that a power cut while one is written leaves the other.

   A slot's first page is its header, and it is written last: a slot without it was not finished.
   The snapshot behind it is Edgefold's own file (.npz), which carries its hash: what a cut or a
   worn flash has damaged is refused, and the other slot is taken. So a header alone does not make a
   slot good: the one that was last loaded or saved well is remembered, and never written over. */
#include "storage.h"

#include <string.h>

#include "board.h"

struct header {
    uint32_t magic, number, n_bytes, check; /* check: the other three together */
};

enum {
    MAGIC = 0x45464C44,
    N_SLOTS = 2,
    NO_SLOT = N_SLOTS,
    ROOM_BYTES = BOARD_SLOT_BYTES - BOARD_PAGE_BYTES
};

typedef char a_slot_holds_a_snapshot[EDGEFOLD_CMANP_SNAPSHOT_BYTES <= ROOM_BYTES ? 1 : -1];

struct writer {
    size_t slot, n_bytes;
    unsigned char page[BOARD_PAGE_BYTES];
};

struct reader {
    const unsigned char *from;
    size_t left;
};

static size_t good_slot = NO_SLOT; /* the last that was loaded or saved without an error */

static uint32_t check_of(const struct header *header)
{
    return ~(header->magic ^ header->number ^ header->n_bytes);
}

static struct header header_of(size_t slot)
{
    struct header found;
    memcpy(&found, board_flash() + slot * BOARD_SLOT_BYTES, sizeof found);
    const int is_whole = found.magic == MAGIC && found.check == check_of(&found) &&
                         found.n_bytes <= ROOM_BYTES;
    return is_whole ? found : (struct header){0, 0, 0, 0};
}

static size_t newest_slot(void)
{
    return header_of(1).number > header_of(0).number ? 1 : 0;
}

/* Programs a page and reads it back; 0 where the flash holds something else. */
static int program(size_t offset, const unsigned char *page)
{
    board_flash_program(offset, page);
    return memcmp(board_flash() + offset, page, BOARD_PAGE_BYTES) == 0;
}

/* Programs the page that was filled last. */
static int program_last(const struct writer *writer)
{
    const size_t n_before = (writer->n_bytes - 1) / BOARD_PAGE_BYTES;
    const size_t offset = writer->slot * BOARD_SLOT_BYTES + (1 + n_before) * BOARD_PAGE_BYTES;
    return program(offset, writer->page);
}

/* Called by edgefold_cmanp_save, with some bytes at a time. Fewer than n are EDGEFOLD_IO. */
static size_t write_some(void *to, const void *bytes, size_t n)
{
    struct writer *writer = to;
    for (size_t i = 0; i < n; i++) {
        if (writer->n_bytes == ROOM_BYTES) {
            return i;
        }
        writer->page[writer->n_bytes++ % BOARD_PAGE_BYTES] = ((const unsigned char *)bytes)[i];
        if (writer->n_bytes % BOARD_PAGE_BYTES == 0 && !program_last(writer)) {
            return i;
        }
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
    const size_t newest = newest_slot();
    const size_t kept = good_slot == NO_SLOT ? newest : good_slot;
    struct header header = {MAGIC, header_of(newest).number + 1, 0, 0};
    writer.slot = header.number == 1 ? 0 : 1 - kept; /* 1: no slot has a header yet */
    writer.n_bytes = 0;
    board_flash_erase(writer.slot * BOARD_SLOT_BYTES, BOARD_SLOT_BYTES);
    const enum edgefold_status status = edgefold_cmanp_save(stream, write_some, &writer, NULL, 0);
    if (status != EDGEFOLD_OK) {
        return status;
    }
    if (writer.n_bytes % BOARD_PAGE_BYTES && !program_last(&writer)) {
        return EDGEFOLD_IO;
    }
    header.n_bytes = (uint32_t)writer.n_bytes;
    header.check = check_of(&header);
    memset(writer.page, 0xFF, sizeof writer.page);
    memcpy(writer.page, &header, sizeof header);
    if (!program(writer.slot * BOARD_SLOT_BYTES, writer.page)) {
        return EDGEFOLD_IO;
    }
    good_slot = writer.slot;
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
        if (status == EDGEFOLD_OK) {
            good_slot = slot;
        }
    }
    return status;
}
