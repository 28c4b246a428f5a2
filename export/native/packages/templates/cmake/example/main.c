/* SPDX-License-Identifier: Apache-2.0
 *
 * <<what_it_does>> */
#include <stdio.h>

#include "<<library>>.h"

<<turn>>
int main(void)
{
    <<init>>;
    for (unsigned n = 0; n < <<n_rows>>; n++) {
        const int status = turn(n);
@if sensor
        if (status != 0)
            printf("%u was refused: %s\n", n, <<library>>_name(status));
        else if (!row.is_known)
            printf("%u no forecast yet\n", n);
        else
            printf("%u mean %.3f%s%s\n", n, row.mean, row.alarm ? ", ALARM: " : "",
                   row.alarm ? <<library>>_name(row.event) : "");
@end
@if !sensor
        if (status != EDGEFOLD_OK) {
            fprintf(stderr, "row %u was refused, status %d\n", n, status);
            return 1;
        }
        printf("%u <<first>> %.3f\n", n, (double)stream.prediction_<<first>>[0]);
@end
    }
    return 0;
}
