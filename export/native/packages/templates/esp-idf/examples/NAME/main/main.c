/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a row each second, then learns it, and prints the prediction. */
#include <stdio.h>

#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

#include "<<library>>.h"

<<turn>>
void app_main(void)
{
    <<init>>;
    for (unsigned n = 0;; n++) {
        const int status = turn(n);
        if (status == EDGEFOLD_OK) {
            printf("%u <<first>> %.3f\n", n, (double)<<shown>>);
        } else {
            printf("%u was refused, status %d\n", n, status);
        }
        vTaskDelay(pdMS_TO_TICKS(1000));
    }
}
