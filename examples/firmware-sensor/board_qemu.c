/* The board's calls for mps2-an386 in qemu: a simulated sensor, and a flash in a file of the host.

   Each erase and each page reach the file at once, so that an end of qemu at any moment is a power
   cut. Write this file anew for a board of yours. */
#include "board.h"

#include <math.h>
#include <string.h>

#include "adc.h"
#include "machine.h"
#include "semihosting.h"

enum { SYS_OPEN = 1, SYS_WRITE = 5, SYS_READ = 6, SYS_SEEK = 10 };
enum { UPDATE_BYTES = 3, NEW_BYTES = 7 }; /* "r+b" and "w+b" */

#ifndef N_ROWS
#define N_ROWS 500 /* until the program ends */
#endif

static unsigned char flash[2 * N_SENSORS * BOARD_SLOT_BYTES];
static uintptr_t file;

static uintptr_t open_flash(uintptr_t mode)
{
    static const char name[] = "flash.bin";
    const uintptr_t arguments[3] = {(uintptr_t)name, mode, sizeof name - 1};
    return semihosting(SYS_OPEN, (uintptr_t)arguments);
}

static void write_through(size_t offset, size_t n)
{
    const uintptr_t place[2] = {file, offset};
    const uintptr_t arguments[3] = {file, (uintptr_t)(flash + offset), n};
    semihosting(SYS_SEEK, (uintptr_t)place);
    if (semihosting(SYS_WRITE, (uintptr_t)arguments) != 0) {
        machine_print("flash.bin cannot be written\n");
        machine_exit(1);
    }
}

void board_begin(void)
{
    machine_begin();
    memset(flash, 0xFF, sizeof flash);
    file = open_flash(UPDATE_BYTES);
    if (file == (uintptr_t)-1) {
        file = open_flash(NEW_BYTES);
        write_through(0, sizeof flash);
    } else {
        const uintptr_t arguments[3] = {file, (uintptr_t)flash, sizeof flash};
        semihosting(SYS_READ, (uintptr_t)arguments);
    }
}

void board_print(const char *line)
{
    machine_print(line);
    machine_print("\n");
}

int board_wait_for_row(double newest, double *time, double *value)
{
    static long n_rows;
    *time = isnan(newest) ? ADC_FIRST : newest + ADC_STEP;
    *value = adc_value(*time);
    return n_rows++ < N_ROWS;
}

const unsigned char *board_flash(void)
{
    return flash;
}

void board_flash_erase(size_t offset)
{
    memset(flash + offset, 0xFF, BOARD_SECTOR_BYTES);
    write_through(offset, BOARD_SECTOR_BYTES);
}

void board_flash_program(size_t offset, const unsigned char *page)
{
    memcpy(flash + offset, page, BOARD_PAGE_BYTES);
    write_through(offset, BOARD_PAGE_BYTES);
}
