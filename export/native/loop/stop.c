/* SIGTERM and Ctrl-C as a question that the loop asks between two rows. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

static volatile sig_atomic_t has_stopped;

static void stop(int number)
{
    if (has_stopped && number == SIGINT) _exit(INTERRUPTED); /* a second Ctrl-C ends at once */
    has_stopped = 1;
}

void watch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL); /* a write then says that the reader went away */
    sigaction(SIGXFSZ, &action, NULL); /* or that a file would be larger than its limit */
}

bool is_stopped(void) { return has_stopped; }
