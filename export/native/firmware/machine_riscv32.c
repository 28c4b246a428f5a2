/* Start of a 32-bit RISC-V in machine mode, its output by semihosting, and its counter.

   `minstret` counts instructions; qemu counts them exactly with `-icount shift=0`. */
#include "machine.h"
#include "semihosting.h"
#include "start.h"

int main(void);

__attribute__((used)) static void start_in_c(void)
{
    start_memory();
    machine_exit(main());
}

__attribute__((used, aligned(4))) static void fault_handler(void)
{
    machine_print("FAULT: the processor stopped the program\n");
    machine_exit(3);
}

/* The first instruction: no stack is there yet, so it is not C. FS = 1 turns the FPU on. */
__asm__(".section .vectors, \"ax\"\n"
        ".global reset_handler\n"
        "reset_handler:\n"
        "    .option push\n"
        "    .option arch, +zicsr\n"
        "    .option norelax\n"
        "    la gp, __global_pointer$\n"
        "    la sp, linker_stack_top\n"
        "    la t0, fault_handler\n"
        "    csrw mtvec, t0\n"
        "    li t0, 0x2000\n"
        "    csrs mstatus, t0\n"
        "    la t0, start_in_c\n"
        "    jr t0\n"
        "    .option pop\n"
        ".text\n");

static uint64_t first;

/* minstret is 0xB02 and its upper half 0xB82: assemblers know the names only with an extension. */
static uint64_t counter(void)
{
    uint32_t high, low, again;
    do {
        __asm__ volatile(".option push\n.option arch, +zicsr\n"
                         "csrr %0, 0xB82\ncsrr %1, 0xB02\ncsrr %2, 0xB82\n.option pop"
                         : "=&r"(high), "=&r"(low), "=r"(again));
    } while (high != again);
    return ((uint64_t)high << 32) | low;
}

void machine_begin(void)
{
    first = counter();
}

void machine_print(const char *text)
{
    semihosting_print(text);
}

uint64_t machine_instructions(void)
{
    return counter() - first;
}

uint32_t machine_resolution(void)
{
    return 1;
}

uint32_t machine_stack_bytes(void)
{
    return stack_bytes_used();
}

void machine_exit(int code)
{
    semihosting_exit(code);
}
