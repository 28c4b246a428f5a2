/* What every start of a board does before main(): data, zeros, and a stack that can be measured. */
#ifndef START_H
#define START_H

#include <stdint.h>

#define STACK_MARK 0x57ACDEADu

extern uint32_t linker_data_start[], linker_data_end[], linker_data_source[];
extern uint32_t linker_bss_start[], linker_bss_end[];
extern uint32_t linker_stack_bottom[], linker_stack_top[];

static inline uint32_t *stack_pointer(void)
{
    uint32_t *pointer;
#if defined(__riscv)
    __asm__ volatile("mv %0, sp" : "=r"(pointer));
#else
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
#endif
    return pointer;
}

/* Called by the start alone: it writes into all of the stack that is not in use. */
static inline void start_memory(void)
{
    const uint32_t *from = linker_data_source;
    for (uint32_t *to = linker_data_start; to < linker_data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = linker_bss_start; to < linker_bss_end; to++) {
        *to = 0;
    }
    for (uint32_t *to = linker_stack_bottom; to < stack_pointer(); to++) {
        *to = STACK_MARK;
    }
}

static inline uint32_t stack_bytes_used(void)
{
    const uint32_t *lowest = linker_stack_bottom;
    while (lowest < linker_stack_top && *lowest == STACK_MARK) {
        lowest++;
    }
    return (uint32_t)((uintptr_t)linker_stack_top - (uintptr_t)lowest);
}

#endif
