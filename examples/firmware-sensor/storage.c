/* Each sensor has two slots of flash, which take turns, so that a power cut while one is written
   leaves the other.

       slot:  header page | snapshot ............ | free
              written last, when the snapshot lies in the flash and was read back

   The header has the sensor's place, a number that rises with each save, the length of the
   snapshot, its CRC, and a CRC of itself. A slot is sound if it is of this sensor and both CRCs are
   right; what a cut has left half erased or half written is not. The newest sound slot is never
   written over. The sector of the header is erased first, and the others when they are reached. */
#include "storage.h"

#include <string.h>

#include "board.h"

struct header {
    uint32_t magic, place, number, n_bytes, crc, own_crc;
};

enum {
    MAGIC = 0x45465332,
    N_SLOTS = 2, /* of each sensor */
    ROOM_BYTES = BOARD_SLOT_BYTES - BOARD_PAGE_BYTES
};

typedef char a_slot_holds_a_snapshot[EDGEFOLD_SENSORS_SENSOR_SNAPSHOT_BYTES <= ROOM_BYTES ? 1 : -1];

struct writer {
    size_t start, n_bytes; /* of the slot in the flash; that were written */
    uint32_t crc;
    unsigned char page[BOARD_PAGE_BYTES];
};

struct reader {
    const unsigned char *from;
    size_t left;
};

static struct {
    size_t next;     /* the slot that the next save takes: not the newest sound one */
    uint32_t number; /* of the newest snapshot */
} turns[N_SENSORS];

/* CRC-32 of IEEE 802.3, bit by bit: no table. Begin with 0. */
static uint32_t crc_of(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    crc = ~crc;
    while (n--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static size_t start_of(size_t place, size_t slot)
{
    return (place * N_SLOTS + slot) * BOARD_SLOT_BYTES;
}

/* Reads the header of the slot that begins at `start`; whether the slot is sound. */
static int read_header(size_t place, size_t start, struct header *header)
{
    const unsigned char *slot = board_flash() + start;
    memcpy(header, slot, sizeof *header);
    return header->magic == MAGIC && header->place == place && header->n_bytes <= ROOM_BYTES &&
           header->own_crc == crc_of(0, header, offsetof(struct header, own_crc)) &&
           header->crc == crc_of(0, slot + BOARD_PAGE_BYTES, header->n_bytes);
}

/* Programs a page and reads it back; 0 if the flash holds something else. */
static int program(size_t offset, const unsigned char *page)
{
    board_flash_program(offset, page);
    return memcmp(board_flash() + offset, page, BOARD_PAGE_BYTES) == 0;
}

/* Programs the page that was filled last, behind the header's; erases its sector if it is the first
   page there. */
static int program_last(const struct writer *writer)
{
    const size_t n_before = (writer->n_bytes - 1) / BOARD_PAGE_BYTES;
    const size_t offset = writer->start + (1 + n_before) * BOARD_PAGE_BYTES;
    if (offset % BOARD_SECTOR_BYTES == 0) {
        board_flash_erase(offset);
    }
    return program(offset, writer->page);
}

/* Called by edgefold_sensors_save_sensor, with some bytes at a time. Fewer than n are EDGEFOLD_IO. */
static size_t write_some(void *to, const void *bytes, size_t n)
{
    struct writer *writer = to;
    writer->crc = crc_of(writer->crc, bytes, n);
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

enum edgefold_status storage_save(size_t place, struct edgefold_sensors_sensor *sensor)
{
    static struct writer writer;
    if (place >= N_SENSORS) {
        return EDGEFOLD_TOO_MANY;
    }
    struct header header = {MAGIC, (uint32_t)place, turns[place].number + 1, 0, 0, 0};
    writer.start = start_of(place, turns[place].next);
    writer.n_bytes = 0;
    writer.crc = 0;
    board_flash_erase(writer.start);
    const enum edgefold_status status = edgefold_sensors_save_sensor(sensor, write_some, &writer);
    if (status != EDGEFOLD_OK) {
        return status;
    }
    if (writer.n_bytes % BOARD_PAGE_BYTES && !program_last(&writer)) {
        return EDGEFOLD_IO;
    }
    header.n_bytes = (uint32_t)writer.n_bytes;
    header.crc = writer.crc;
    header.own_crc = crc_of(0, &header, offsetof(struct header, own_crc));
    memset(writer.page, 0xFF, sizeof writer.page);
    memcpy(writer.page, &header, sizeof header);
    if (!program(writer.start, writer.page)) {
        return EDGEFOLD_IO;
    }
    turns[place].next = 1 - turns[place].next;
    turns[place].number = header.number;
    return EDGEFOLD_OK;
}

enum edgefold_status storage_load(size_t place, struct edgefold_sensors_sensor *sensor)
{
    struct header headers[N_SLOTS];
    int are_sound[N_SLOTS];
    if (place >= N_SENSORS) {
        return EDGEFOLD_TOO_MANY;
    }
    for (size_t slot = 0; slot < N_SLOTS; slot++) {
        are_sound[slot] = read_header(place, start_of(place, slot), &headers[slot]);
    }
    const size_t later = are_sound[1] && (!are_sound[0] || headers[1].number > headers[0].number);
    for (size_t i = 0; i < N_SLOTS; i++) {
        const size_t slot = i == 0 ? later : 1 - later;
        const unsigned char *from = board_flash() + start_of(place, slot) + BOARD_PAGE_BYTES;
        struct reader reader = {from, headers[slot].n_bytes};
        if (are_sound[slot] &&
            edgefold_sensors_load_sensor(sensor, read_some, &reader) == EDGEFOLD_OK) {
            turns[place].next = 1 - slot;
            turns[place].number = headers[slot].number;
            return EDGEFOLD_OK;
        }
    }
    return EDGEFOLD_NO_SNAPSHOT; /* or one of another model */
}
