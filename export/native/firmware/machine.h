/* What a firmware needs of the machine that it runs on. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

/* Prepare what the two functions below need. */
void machine_begin(void);

/* Print a text, without a new line. */
void machine_print(const char *text);

/* Instructions that were run since machine_begin(), in steps of machine_resolution(). */
uint64_t machine_instructions(void);
uint32_t machine_resolution(void);

/* Bytes of stack that the program has used so far, 0 where that is unknown. */
uint32_t machine_stack_bytes(void);

/* End the program: 0 is success. It does not return. */
void machine_exit(int code);

#endif
