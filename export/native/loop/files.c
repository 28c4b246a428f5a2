/* The files of a run: they differ from each other, no other run uses its snapshot, and the snapshot
 * is replaced as a whole:
 *
 *     temporary file beside it ──> fsync ──> rename ──> fsync of the folder
 *
 * A temporary file is named SNAPSHOT.HOST-RANDOM.tmp and locked while it is written. What a killed
 * run leaves behind has no lock; the next run removes it at its start. */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { MOST_LINKS = 40, OTHER_HOST_S = 3600 };

static char place[PATH_BYTES], beside[PATH_BYTES + 32]; /* the snapshot, and what replaces it */
static const char *name_in_folder;
static int folder = -1;

bool is_regular(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

static void copy_path(char to[PATH_BYTES], const char *path)
{
    size_t n = strlen(path);
    if (n >= PATH_BYTES) fail(REFUSED, "%s: the path is too long.", path);
    memmove(to, path, n + 1);
}

/* Follow the links of a path's folder, and keep its last name; false if there is no such folder. */
static bool resolve_folder(const char *path, char real[PATH_BYTES])
{
    char above[PATH_BYTES], whole[2 * PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(above, path, n);
    above[n] = 0;
    if (!realpath(n ? above : slash ? "/" : ".", real)) return false;
    bool is_root = !strcmp(real, "/");
    snprintf(whole, sizeof whole, "%s/%s", is_root ? "" : real, slash ? slash + 1 : path);
    copy_path(real, whole);
    return true;
}

/* Follow links, also the last name's to a file that does not exist yet. */
static void real_path(const char *path, char real[PATH_BYTES])
{
    char present[PATH_BYTES], target[PATH_BYTES], whole[2 * PATH_BYTES];
    copy_path(present, path);
    for (int i = 0; i < MOST_LINKS; i++) {
        if (realpath(present, real)) return;
        if (errno == ELOOP) break;
        if (!resolve_folder(present, real)) {
            copy_path(real, present); /* opening it will say what is wrong */
            return;
        }
        ssize_t n = readlink(real, target, sizeof target - 1);
        if (n < 0) return; /* no link: the file's own place */
        target[n] = 0;
        int n_above = (int)(strrchr(real, '/') - real);
        if (target[0] == '/') copy_path(present, target);
        else {
            snprintf(whole, sizeof whole, "%.*s/%s", n_above, real, target);
            copy_path(present, whole);
        }
    }
    fail(REFUSED, "%s: %s; name the file itself.", path, strerror(ELOOP));
}

/* What makes a path or a standard stream one of a kind; a device or a pipe is never the same. */
struct identity {
    const char *role, *path;
    char real[PATH_BYTES];
    dev_t device;
    ino_t inode;
    bool has_inode;
};

static void identify(struct identity *file, const char *role, const char *path, int standard)
{
    struct stat found;
    bool is_standard = !strcmp(path, "-") && standard >= 0;
    bool exists = is_standard ? fstat(standard, &found) == 0 : stat(path, &found) == 0;
    file->role = role;
    file->path = path;
    file->real[0] = 0;
    file->has_inode = exists && S_ISREG(found.st_mode);
    if (!is_standard && (!exists || file->has_inode)) real_path(path, file->real);
    if (file->has_inode) file->device = found.st_dev, file->inode = found.st_ino;
}

static bool same_file(const struct identity *a, const struct identity *b)
{
    bool one_inode = a->has_inode && b->has_inode && a->device == b->device && a->inode == b->inode;
    return one_inode || (a->real[0] && !strcmp(a->real, b->real));
}

void refuse_same_files(void)
{
    static struct identity files[4];
    static char lock[PATH_BYTES + 8];
    size_t n = 0;
    identify(&files[n++], "--input", options.input, 0);
    if (options.output) identify(&files[n++], "--output", options.output, 1);
    if (options.snapshot) {
        real_path(options.snapshot, place);
        snprintf(lock, sizeof lock, "%s.lock", place);
        identify(&files[n++], "--snapshot", options.snapshot, -1);
        identify(&files[n++], "the snapshot's lock", lock, -1);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            if (same_file(&files[i], &files[k]))
                fail(REFUSED, "%s (%s) and %s (%s) are the same file, which would be destroyed; "
                     "nothing was written. Give each its own name.", files[i].role, files[i].path,
                     files[k].role, files[k].path);
}

int hold(int fd)
{
    while (flock(fd, LOCK_EX | LOCK_NB) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

/* CRC-32 of the machine's name: what tells its temporary files from those of other machines. */
static uint32_t host(void)
{
    struct utsname machine;
    uint32_t crc = 0xffffffffu;
    if (uname(&machine) < 0) return 0;
    for (const char *at = machine.nodename; *at; at++) {
        crc ^= (unsigned char)*at;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Whether a name is SNAPSHOT.HOST-RANDOM.tmp. */
static bool is_temporary(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = strlen(name_in_folder);
    if (strncmp(name, name_in_folder, n)) return false;
    name += n;
    return strlen(name) == 22 && name[0] == '.' && strspn(name + 1, digits) == 8 &&
           name[9] == '-' && strspn(name + 10, digits) == 8 && !strcmp(name + 18, ".tmp");
}

/* Whether nobody writes a temporary file any more; the locks of other machines may not reach here,
 * so theirs must be old. */
static bool is_left(const char *name, int fd)
{
    char own[16];
    struct stat found;
    snprintf(own, sizeof own, ".%08x-", (unsigned)host());
    bool is_own = !strncmp(name + strlen(name_in_folder), own, 10);
    bool is_old = fstat(fd, &found) == 0 && time(NULL) - found.st_mtime > OTHER_HOST_S;
    return (is_own || is_old) && hold(fd) == 0;
}

/* Remove the temporary files of runs that were killed while they wrote this snapshot. */
static void remove_leftovers(const char *folder_name)
{
    DIR *names = opendir(folder_name);
    if (!names) return;
    for (struct dirent *entry; (entry = readdir(names)) != NULL;) {
        if (!is_temporary(entry->d_name)) continue;
        int fd = openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (is_left(entry->d_name, fd)) unlinkat(folder, entry->d_name, 0);
        close(fd);
    }
    closedir(names);
}

/* Open the folder that a path leads to, and write its name to `above`; -1 on an error. */
static int open_folder_of(const char *path, char above[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t n = !slash || slash == path ? 1 : (size_t)(slash - path);
    memcpy(above, slash ? path : ".", n);
    above[n] = 0;
    return open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Open the snapshot's folder, which each rename is brought to the disk by. */
static void open_folder(void)
{
    char above[PATH_BYTES], *slash = strrchr(place, '/');
    name_in_folder = slash ? slash + 1 : place;
    folder = open_folder_of(place, above);
    if (folder < 0)
        fail(code_of(errno), "snapshot %s: its folder cannot be opened (%s); choose another place.",
             options.snapshot, strerror(errno));
    remove_leftovers(above);
}

/* Say why a lock cannot be had: whose it is, or that its place cannot be written. */
static void refuse_lock(const char *lock, int error)
{
    struct stat found;
    if (stat(lock, &found) == 0)
        fail(code_of(error), "%s cannot be opened (%s): it was made by user %lu, and this is user "
             "%lu. Run as that user; or, if none of its runs uses the snapshot, remove the file, "
             "which holds nothing.", lock, strerror(error), (unsigned long)found.st_uid,
             (unsigned long)geteuid());
    fail(code_of(error), "%s cannot be made (%s); it keeps a second run away from the snapshot. "
         "Choose a place for --snapshot that can be written.", lock, strerror(error));
}

void hold_snapshot(void)
{
    char lock[PATH_BYTES + 8];
    struct stat found;
    if (!options.snapshot) return;
    if (!*options.snapshot) fail(REFUSED, "--snapshot \"\" is no name; name a file.");
    if (stat(options.snapshot, &found) == 0 && !S_ISREG(found.st_mode))
        fail(REFUSED, "snapshot %s is %s; name a file.", options.snapshot,
             S_ISDIR(found.st_mode) ? "a folder" : "a device or a pipe");
    snprintf(lock, sizeof lock, "%s.lock", place);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) refuse_lock(lock, errno);
    int error = hold(fd); /* stays open: the lock ends with the process */
    if (error == EWOULDBLOCK)
        fail(REFUSED, "snapshot %s is in use by another run; wait for it or stop it, or give this "
             "one another snapshot and output.", options.snapshot);
    if (error)
        fail(code_of(error), "%s cannot be locked (%s): its file system has no locks, so nothing "
             "keeps a second run away. Choose a place on another file system.", lock,
             strerror(error));
    open_folder();
}

void refuse_saving(const char *why, int error)
{
    bool is_full = error == ENOSPC || error == EDQUOT;
    if (beside[0]) unlink(beside);
    fail(code_of(error), "snapshot %s was not written: %s; any older "
         "snapshot is intact. %s another path, then run the same command again.", options.snapshot,
         why, is_full ? "Free space or choose" : "Choose");
}

static void refuse_system(void)
{
    int error = errno;
    refuse_saving(strerror(error), error);
}

int begin_replacing(void)
{
    struct stat former;
    uint32_t random = 0;
    bool exists = stat(place, &former) == 0;
    int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (source < 0 || read(source, &random, sizeof random) < 0) random = (uint32_t)getpid();
    if (source >= 0) close(source);
    snprintf(beside, sizeof beside, "%s.%08x-%08x.tmp", place, (unsigned)host(), (unsigned)random);
    /* A link at the temporary name is never followed, and a file there is never taken. */
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(beside, flags, exists ? 0600 : 0666);
    if (fd < 0) {
        beside[0] = 0;
        refuse_system();
    }
    hold(fd); /* without locks nobody removes leftovers either */
    if (exists && fchmod(fd, former.st_mode & 0777) < 0 && errno != EPERM) refuse_system();
    return fd;
}

void finish_replacing(int fd)
{
    if (fsync(fd) < 0 || rename(beside, place) < 0) refuse_system();
    beside[0] = 0;
    close(fd);
    if (fsync(folder) < 0) refuse_system();
}

int sync_folder_of(const char *path)
{
    char real[PATH_BYTES], above[PATH_BYTES];
    real_path(path, real);
    int fd = open_folder_of(real, above);
    if (fd < 0) return errno == EACCES ? 0 : errno; /* files may be made there, and not listed */
    int error = fsync(fd) < 0 ? errno : 0;
    close(fd);
    return error;
}

ssize_t read_at(int fd, void *bytes, size_t n, uint64_t position)
{
    size_t done = 0;
    while (done < n) {
        ssize_t part = pread(fd, (char *)bytes + done, n - done, (off_t)(position + done));
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return -1;
        if (part == 0) break;
        done += (size_t)part;
    }
    return (ssize_t)done;
}

int write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n) {
        ssize_t part = write(fd, at, n);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) return errno;
        at += part, n -= (size_t)part;
    }
    return 0;
}
