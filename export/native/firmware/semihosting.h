/* Semihosting: a debugger, or an emulator, prints and ends the program for the processor.
   Arm: "Semihosting for AArch32 and AArch64"; RISC-V takes the same operations. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stdint.h>

enum {
    SEMIHOSTING_WRITE0 = 0x04,
    SEMIHOSTING_EXIT_EXTENDED = 0x20,
    SEMIHOSTING_STOPPED_BY_APPLICATION = 0x20026
};

static inline uintptr_t semihosting(uintptr_t operation, uintptr_t argument)
{
#if defined(__riscv)
    register uintptr_t a0 __asm__("a0") = operation;
    register uintptr_t a1 __asm__("a1") = argument;
    /* The two shifts around ebreak mark it as a call. All three must lie in one page. */
    __asm__ volatile(".balign 16\n"
                     ".option push\n"
                     ".option norvc\n"
                     "slli zero, zero, 0x1f\n"
                     "ebreak\n"
                     "srai zero, zero, 7\n"
                     ".option pop\n"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
#else
    register uintptr_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#endif
}

static inline void semihosting_print(const char *text)
{
    semihosting(SEMIHOSTING_WRITE0, (uintptr_t)text);
}

static inline void semihosting_exit(int code)
{
    const uintptr_t reason_and_code[2] = {SEMIHOSTING_STOPPED_BY_APPLICATION, (uintptr_t)code};
    semihosting(SEMIHOSTING_EXIT_EXTENDED, (uintptr_t)reason_and_code);
    for (;;) {
    }
}

#endif
