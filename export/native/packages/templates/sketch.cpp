/* SPDX-License-Identifier: Apache-2.0
 *
 * <<what_it_does>> */
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
@if sensor
    if (status != 0) {
        Serial.print(" was refused: ");
        Serial.println(<<library>>_name(status));
    } else if (!row.is_known) {
        Serial.println(" no forecast yet");
    } else {
        Serial.print(" mean ");
        Serial.print(row.mean, 3);
        if (row.alarm) {
            Serial.print(", ALARM: ");
            Serial.print(<<library>>_name(row.event));
        }
        Serial.println();
    }
@end
@if !sensor
    if (status == EDGEFOLD_OK) {
        Serial.print(" <<first>> ");
        Serial.println(stream.prediction_<<first>>[0], 3);
    } else {
        Serial.print(" was refused, status ");
        Serial.println(status);
    }
@end
    delay(1000);
}
