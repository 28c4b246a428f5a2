/* What the sample uses of Zephyr, for tests: it ends after N_SECONDS. */
#include <stdlib.h>
#ifndef N_SECONDS
#define N_SECONDS 30
#endif
#define K_SECONDS(n) (n)
static inline void k_sleep(int seconds)
{
    static int slept;
    slept += seconds;
    if (slept == N_SECONDS) exit(0);
}
