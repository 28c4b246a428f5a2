/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a row each second, then learns it, and prints the prediction. */
#include <Arduino.h>
#include <<<library>>.h>

<<turn>>
void setup()
{
    Serial.begin(115200);
    <<init>>;
}

void loop()
{
    static unsigned n;
    const int status = turn(n);
    Serial.print(n++);
    if (status == EDGEFOLD_OK) {
        Serial.print(" <<first>> ");
        Serial.println(<<shown>>, 3);
    } else {
        Serial.print(" was refused, status ");
        Serial.println(status);
    }
    delay(1000);
}
