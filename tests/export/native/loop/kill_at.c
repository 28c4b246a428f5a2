/* Ends the program at the k-th change of the disk: before a call that opens, cuts, renames or syncs
 * a file, or in the middle of a write. Linked with -Wl,--wrap=write,... KILL_AT is k; 0 is never. At
 * its end the program says on standard error how many changes it made. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __GLIBC__ /* which gives calls for large files names of their own */
#define LARGE(name) name##64
#else
#define LARGE(name) name
#endif

ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int LARGE(__real_ftruncate)(int fd, off_t length);
int __real_unlink(const char *path);
int LARGE(__real_open)(const char *path, int flags, ...);

static long count;

static long chosen(void)
{
    const char *text = getenv("KILL_AT");
    return text ? atol(text) : 0;
}

static void passed(void)
{
    if (++count == chosen()) kill(getpid(), SIGKILL);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (fd == 2) return __real_write(fd, bytes, n);
    if (count + 1 == chosen() && __real_write(fd, bytes, n / 2) < 0) abort();
    passed();
    return __real_write(fd, bytes, n);
}

int __wrap_fsync(int fd)
{
    passed();
    return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    passed();
    return __real_rename(from, to);
}

int LARGE(__wrap_ftruncate)(int fd, off_t length)
{
    passed();
    return LARGE(__real_ftruncate)(fd, length);
}

int __wrap_unlink(const char *path)
{
    passed();
    return __real_unlink(path);
}

int LARGE(__wrap_open)(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (flags & O_CREAT) passed();
    return LARGE(__real_open)(path, flags, mode);
}

int __real_main(int n, char **words);

int __wrap_main(int n, char **words)
{
    int code = __real_main(n, words);
    dprintf(2, "changes %ld\n", count);
    return code;
}
