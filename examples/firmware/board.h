/* All that this project asks of a board. board_pico.c answers with the Pico SDK. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

void board_begin(void);
uint64_t board_seconds(void); /* since the start */
double board_celsius(void);
void board_print(const char *line); /* with a new line */
void board_sleep(uint64_t until_seconds);

/* Flash for snapshots: two slots. It reads as memory; a sector is erased to bytes of 255, a page is
   written once. Offsets are multiples of the sector's or the page's size. */
enum { BOARD_SECTOR_BYTES = 4096, BOARD_PAGE_BYTES = 256, BOARD_SLOT_BYTES = 32768 };
const unsigned char *board_flash(void);
void board_flash_erase(size_t offset, size_t n_bytes);
void board_flash_program(size_t offset, const unsigned char *page);

#endif
