/* What a sketch uses of Arduino's core, for tests: prints go to the standard output. */
#include <stdint.h>
#include <stdio.h>

class SerialStub {
public:
    void begin(unsigned long) {}
    void print(const char *text) { fputs(text, stdout); }
    void print(unsigned number) { printf("%u", number); }
    void print(double number, int digits) { printf("%.*f", digits, number); }
    void println() { puts(""); }
    void println(const char *text) { puts(text); }
    void println(double number, int digits) { printf("%.*f\n", digits, number); }
    void println(int number) { printf("%d\n", number); }
};
static SerialStub Serial;
static inline void delay(unsigned long) {}
