/* The functions of C's library that the shipped models call, so that one compiled library needs
   no C library and loads with glibc and with musl alike. Compile with -ffreestanding, or the loops
   become calls of the functions themselves. */
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t n);
HIDDEN void *memset(void *to, int byte, size_t n);

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    unsigned char *const out = to;
    const unsigned char *const in = from;
    for (size_t i = 0; i < n; i++) out[i] = in[i];
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    unsigned char *const out = to;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)byte;
    return to;
}
