/* What the example uses of FreeRTOS, for tests: it ends after N_SECONDS. */
#include <stdlib.h>
#ifndef N_SECONDS
#define N_SECONDS 30
#endif
#define pdMS_TO_TICKS(ms) (ms)
static inline void vTaskDelay(int ticks)
{
    static int waited;
    waited += ticks;
    if (waited == 1000 * N_SECONDS) exit(0);
}
void app_main(void);
int main(void)
{
    app_main();
}
