/* What the sample uses of Zephyr, for tests. */
#include <stdlib.h>
#define K_SECONDS(n) (n)
static inline void k_sleep(int seconds)
{
    static int slept;
    slept += seconds;
    if (slept == 30) exit(0);
}
