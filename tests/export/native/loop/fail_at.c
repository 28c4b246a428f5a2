/* Lets the system refuse calls. FAIL is "CALL ERRNO END": CALL fails with that number on each file
 * whose path ends with END. Linked with -Wl,--wrap=read,... */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __GLIBC__ /* which gives calls for large files names of their own */
#define LARGE(name) name##64
#else
#define LARGE(name) name
#endif

ssize_t __real_read(int fd, void *bytes, size_t n);
ssize_t LARGE(__real_pread)(int fd, void *bytes, size_t n, off_t at);
int __real_fsync(int fd);
int __real_flock(int fd, int operation);
int LARGE(__real_open)(const char *path, int flags, ...);

static bool is_refused(const char *call, const char *path)
{
    char asked[16], end[256];
    int number;
    const char *wish = getenv("FAIL");
    if (!wish || sscanf(wish, "%15s %d %255s", asked, &number, end) != 3) return false;
    size_t n = strlen(path), n_end = strlen(end);
    if (strcmp(call, asked) || n < n_end || strcmp(path + n - n_end, end)) return false;
    errno = number;
    return true;
}

static bool is_refused_of(const char *call, int fd)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return is_refused(call, path);
}

ssize_t __wrap_read(int fd, void *bytes, size_t n)
{
    return is_refused_of("read", fd) ? -1 : __real_read(fd, bytes, n);
}

ssize_t LARGE(__wrap_pread)(int fd, void *bytes, size_t n, off_t at)
{
    return is_refused_of("pread", fd) ? -1 : LARGE(__real_pread)(fd, bytes, n, at);
}

int __wrap_fsync(int fd)
{
    return is_refused_of("fsync", fd) ? -1 : __real_fsync(fd);
}

int __wrap_flock(int fd, int operation)
{
    return is_refused_of("flock", fd) ? -1 : __real_flock(fd, operation);
}

int LARGE(__wrap_open)(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    return is_refused("open", path) ? -1 : LARGE(__real_open)(path, flags, mode);
}
