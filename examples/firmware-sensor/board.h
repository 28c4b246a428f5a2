/* All that this project asks of a board. board_qemu.c answers for an emulated one. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>

#ifndef N_SENSORS
#define N_SENSORS 1 /* whose snapshots the flash holds */
#endif

void board_begin(void);
void board_print(const char *line); /* with a new line */

/* Waits for the next row: its time in seconds since 1970, and the measured value, NAN if the sensor
   did not answer. newest: the time of the newest row of the snapshot, NAN if there is none; a board
   without a clock of its own goes on from there. Returns 0 if no row will come any more. */
int board_wait_for_row(double newest, double *time, double *value);

/* Flash for snapshots: two slots for each sensor. It reads as memory; a sector is erased to bytes of
   255, a page is written once. Offsets are multiples of the sector's or the page's size. */
enum { BOARD_SECTOR_BYTES = 4096, BOARD_PAGE_BYTES = 256, BOARD_SLOT_BYTES = 131072 };
const unsigned char *board_flash(void);
void board_flash_erase(size_t offset); /* one sector */
void board_flash_program(size_t offset, const unsigned char *page);

#endif
