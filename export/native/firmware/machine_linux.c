/* A process on Linux in place of a board: output to stdout; instructions are not counted. */
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

void machine_begin(void)
{
}

void machine_print(const char *text)
{
    fputs(text, stdout);
}

uint64_t machine_instructions(void)
{
    return 0;
}

uint32_t machine_resolution(void)
{
    return 0;
}

uint32_t machine_stack_bytes(void)
{
    return 0;
}

void machine_exit(int code)
{
    exit(code);
}
