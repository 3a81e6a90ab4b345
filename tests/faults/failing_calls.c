/* Loaded with LD_PRELOAD: the n-th call that changes a file below a folder fails, or ends the process.
   fail_call(folder, n, kill) arms it, calls_made() says how many calls there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static long at = 0, made = 0;
static int kills = 0;

void fail_call(const char *below, long n, int kill_it) {
    snprintf(folder, sizeof folder, "%s", below);
    at = n, made = 0, kills = kill_it;
}
long calls_made(void) { return made; }

static int is_below(const char *path) {
    char whole[8192];
    if (path[0] != '/') {
        if (!getcwd(whole, 4096)) return 0;
        strncat(whole, "/", sizeof whole - strlen(whole) - 1);
        strncat(whole, path, sizeof whole - strlen(whole) - 1);
        path = whole;
    }
    return at > 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(const char *path) {
    if (!is_below(path)) return 0;
    if (__sync_add_and_fetch(&made, 1) != at) return 0;
    if (kills) kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return 1;
}

static int fails_of(int handle) {
    char link[64], path[4096];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = at > 0 ? readlink(link, path, sizeof path - 1) : -1;
    errno = saved;
    if (size < 0) return 0;
    path[size] = 0;
    return fails(path);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int handle, const void *data, size_t size) {
    REAL(write);
    return fails_of(handle) ? -1 : real(handle, data, size);
}
ssize_t pwrite(int handle, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    return fails_of(handle) ? -1 : real(handle, data, size, offset);
}
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    return fails_of(handle) ? -1 : real(handle, data, size, offset);
}
ssize_t writev(int handle, const struct iovec *parts, int count) {
    REAL(writev);
    return fails_of(handle) ? -1 : real(handle, parts, count);
}
size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(fwrite);
    return fails_of(fileno(file)) ? 0 : real(data, size, count, file);
}
int fsync(int handle) {
    REAL(fsync);
    return fails_of(handle) ? -1 : real(handle);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    return fails(from) ? -1 : real(from, to);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    return fails(from) ? -1 : real(from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    REAL(renameat2);
    return fails(from) ? -1 : real(from_folder, from, to_folder, to, flags);
}
int ftruncate(int handle, off_t size) {
    REAL(ftruncate);
    return fails_of(handle) ? -1 : real(handle, size);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails(path) ? -1 : real(path, mode);
}
int link(const char *from, const char *to) {
    REAL(link);
    return fails(to) ? -1 : real(from, to);
}
