/* Parts of the replays of recorded streams: they print numbers, and keep a snapshot in memory.

   REPLAY_SNAPSHOT_BYTES, the largest snapshot, is defined before. */
#include <string.h>

#include "machine.h"

static void print_count(uint64_t number)
{
    char text[21];
    char *digit = text + sizeof text - 1;
    *digit = '\0';
    do {
        *--digit = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    machine_print(digit);
}

static unsigned char snapshot[REPLAY_SNAPSHOT_BYTES];
static size_t n_saved, place;

/* Take bytes of a snapshot; those of a second one must be the first one's. */
static size_t save_some(void *to, const void *bytes, size_t n)
{
    const int *is_second = to;
    if (n > sizeof snapshot - place || (*is_second && memcmp(snapshot + place, bytes, n))) {
        return 0;
    }
    memcpy(snapshot + place, bytes, n);
    place += n;
    return n;
}

static size_t load_some(void *from, void *bytes, size_t n)
{
    (void)from;
    n = n > n_saved - place ? n_saved - place : n;
    memcpy(bytes, snapshot + place, n);
    place += n;
    return n;
}
