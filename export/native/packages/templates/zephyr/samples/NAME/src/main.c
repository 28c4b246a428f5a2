/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a row each second, then learns it, and prints the prediction. */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "<<library>>.h"

<<turn>>
int main(void)
{
    <<init>>;
    for (unsigned n = 0;; n++) {
        const int status = turn(n);
        if (status == EDGEFOLD_OK) {
            printk("%u <<first>> %.3f\n", n, (double)<<shown>>);
        } else {
            printk("%u was refused, status %d\n", n, status);
        }
        k_sleep(K_SECONDS(1));
    }
    return 0;
}
