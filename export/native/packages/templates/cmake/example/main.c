/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts 48 rows, learns each, and prints the predictions. */
#include <stdio.h>

#include "<<library>>.h"

<<turn>>
int main(void)
{
    <<init>>;
    for (unsigned n = 0; n < 48; n++) {
        const int status = turn(n);
        if (status != EDGEFOLD_OK) {
            fprintf(stderr, "row %u was refused, status %d\n", n, status);
            return 1;
        }
        printf("%u <<first>> %.3f\n", n, (double)<<shown>>);
    }
    return 0;
}
