/* What the example uses of FreeRTOS, for tests: it ends after 30 seconds. */
#include <stdlib.h>
#define pdMS_TO_TICKS(ms) (ms)
static inline void vTaskDelay(int ticks)
{
    static int waited;
    waited += ticks;
    if (waited == 30000) exit(0);
}
void app_main(void);
int main(void)
{
    app_main();
}
