/* edgefold-run: predict each row of a CSV with one bundle, then learn from it; see program.h. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <unistd.h>

#include "program.h"

/* A closed descriptor 0, 1 or 2 would be taken by the next file that is opened. In place of a
   closed 1 the null device is only readable, so that predictions are not lost silently. */
static void open_standard_streams(void)
{
    bool has_output = fcntl(1, F_GETFD) >= 0;
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2) close(fd);
    if (has_output || (fd = open("/dev/null", O_RDONLY)) < 0) return;
    dup2(fd, 1);
    close(fd);
}

static void require_columns(void)
{
    size_t n = 1;
    if (!options.columns) return;
    for (const char *at = options.columns; *at; at++) n += *at == ',';
    if (n != COLUMNS)
        fail(REFUSED, "%lu column names were given; this bundle takes %d inputs and %d outputs: "
             "name %d.", (unsigned long)n, PROGRAM_INPUTS, PROGRAM_OUTPUTS, COLUMNS);
}

int main(int n, char **words)
{
    open_standard_streams();
    before_failing(close_output);
    read_options(n, words);
    watch_signals();
    begin_report();
    refuse_same_files();
    hold_snapshot();
    require_columns();
    model_begin();
    if (options.has_seed && !model_seed(options.seed))
        fail(REFUSED, "this bundle computes no random numbers; leave --seed out.");
    open_input();
    run_loop();
    close_output();
    report_end();
    return exit_code();
}
