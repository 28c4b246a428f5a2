/* Start of a Cortex-M, its output by semihosting, and its counter of instructions.

   The counter is SysTick, whose interrupt counts its turns. Under `qemu -icount shift=0` an
   instruction takes 1 ns, so that a tick of MACHINE_TICK_NS stands for so many instructions: 40 on
   boards of 25 MHz, 50 on one of 20 MHz, 31.25 on one of 32 MHz. */
#include "machine.h"
#include "semihosting.h"
#include "start.h"

#ifndef MACHINE_TICK_NS
#define MACHINE_TICK_NS 40
#endif

/* Registers of the Armv7-M and Armv8-M Architecture Reference Manuals. */
#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define SYSTICK_VALUE (*(volatile uint32_t *)0xE000E018u)
#define COPROCESSOR_ACCESS (*(volatile uint32_t *)0xE000ED88u)

#define SYSTICK_BITS 0xFFFFFFu
#define SYSTICK_PROCESSOR_CLOCK_AND_INTERRUPT_AND_ON 7u
#define FPU_FULL_ACCESS (0xFu << 20)

int main(void);

void reset_handler(void)
{
#if defined(__ARM_FP)
    COPROCESSOR_ACCESS |= FPU_FULL_ACCESS;
    __asm__ volatile("dsb\nisb" ::: "memory");
#endif
    start_memory();
    machine_exit(main());
}

static void fault_handler(void)
{
    machine_print("FAULT: the processor stopped the program\n");
    machine_exit(3);
}

static volatile uint32_t systick_turns;

static void systick_handler(void)
{
    systick_turns++;
}

/* The table that the processor reads at its reset. */
struct vectors {
    uint32_t *initial_stack;
    void (*reset)(void);
    void (*faults[6])(void); /* NMI, hard, memory, bus, usage, secure */
    void (*others[7])(void);
    void (*systick)(void);
};

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    linker_stack_top,
    reset_handler,
    {fault_handler, fault_handler, fault_handler, fault_handler, fault_handler, fault_handler},
    {0},
    systick_handler,
};

void machine_begin(void)
{
    SYSTICK_RELOAD = SYSTICK_BITS;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = SYSTICK_PROCESSOR_CLOCK_AND_INTERRUPT_AND_ON;
}

void machine_print(const char *text)
{
    semihosting_print(text);
}

uint64_t machine_instructions(void)
{
    uint32_t turns, left;
    do {
        turns = systick_turns;
        left = SYSTICK_VALUE; /* it counts down */
    } while (turns != systick_turns);
    const uint64_t ticks = (uint64_t)turns * (SYSTICK_BITS + 1u) + (SYSTICK_BITS - left);
    return (uint64_t)(ticks * MACHINE_TICK_NS);
}

uint32_t machine_resolution(void)
{
    return (uint32_t)MACHINE_TICK_NS;
}

uint32_t machine_stack_bytes(void)
{
    return stack_bytes_used();
}

void machine_exit(int code)
{
    semihosting_exit(code);
}
