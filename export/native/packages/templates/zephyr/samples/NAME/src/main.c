/* SPDX-License-Identifier: Apache-2.0
 *
 * <<what_it_does>> */
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "<<library>>.h"

<<turn>>
int main(void)
{
    <<init>>;
    for (unsigned n = 0;; n++) {
        const int status = turn(n);
@if sensor
        if (status != 0)
            printk("%u was refused: %s\n", n, <<library>>_name(status));
        else if (!row.is_known)
            printk("%u no forecast yet\n", n);
        else
            printk("%u mean %.3f%s%s\n", n, row.mean, row.alarm ? ", ALARM: " : "",
                   row.alarm ? <<library>>_name(row.event) : "");
@end
@if !sensor
        if (status == EDGEFOLD_OK) {
            printk("%u <<first>> %.3f\n", n, (double)stream.prediction_<<first>>[0]);
        } else {
            printk("%u was refused, status %d\n", n, status);
        }
@end
        k_sleep(K_SECONDS(1));
    }
    return 0;
}
