/* The board's calls with the Pico SDK 2: for a Pico 2 (RP2350), and for a Pico (RP2040). */
#include "board.h"

#include <stdio.h>

#include "hardware/adc.h"
#include "hardware/flash.h"
#include "hardware/sync.h"
#include "pico/stdlib.h"

enum { N_READINGS = 64 };

/* The last two slots of the flash, far behind the program. */
#define SNAPSHOTS_OFFSET (PICO_FLASH_SIZE_BYTES - 2u * BOARD_SLOT_BYTES)

void board_begin(void)
{
    stdio_init_all();
    adc_init();
    adc_set_temp_sensor_enabled(true);
    adc_select_input(ADC_TEMPERATURE_CHANNEL_NUM); /* another one on the RP2350B */
}

uint64_t board_seconds(void)
{
    return time_us_64() / 1000000u;
}

/* The sensor's formula of the datasheets, section "Temperature sensor"; the mean of some readings,
   as one step of the ADC is half a degree. */
double board_celsius(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < N_READINGS; i++) {
        sum += adc_read();
    }
    const double volts = 3.3 * sum / (4096.0 * N_READINGS);
    return 27.0 - (volts - 0.706) / 0.001721;
}

void board_print(const char *line)
{
    puts(line);
}

void board_sleep(uint64_t until_seconds)
{
    const uint64_t now = board_seconds();
    if (until_seconds > now) {
        sleep_ms((uint32_t)(until_seconds - now) * 1000u);
    }
}

const unsigned char *board_flash(void)
{
    return (const unsigned char *)(XIP_BASE + SNAPSHOTS_OFFSET);
}

/* While the flash is written no code may be read from it: interrupts are off, and the second core
   must not run. The SDK keeps these two functions themselves in RAM. */
void board_flash_erase(size_t offset, size_t n_bytes)
{
    const uint32_t interrupts = save_and_disable_interrupts();
    flash_range_erase(SNAPSHOTS_OFFSET + offset, n_bytes);
    restore_interrupts(interrupts);
}

void board_flash_program(size_t offset, const unsigned char *page)
{
    const uint32_t interrupts = save_and_disable_interrupts();
    flash_range_program(SNAPSHOTS_OFFSET + offset, page, BOARD_PAGE_BYTES);
    restore_interrupts(interrupts);
}
