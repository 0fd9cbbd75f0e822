/* A disk that fails when it is told to. Preloaded into a process, it looks at the file named by KANAME_FAULT before every
   write and sync of a journal: "full", "write", "sync" fail with ENOSPC or EIO; "torn" writes half a page and kills. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fault(int descriptor, const char *wanted) {
    char name[64], path[4096], told[16] = "";
    const char *place = getenv("KANAME_FAULT");
    int control = place ? open(place, O_RDONLY) : -1;
    if (control < 0) return 0;
    ssize_t got = read(control, told, sizeof told - 1);
    close(control);
    told[got > 0 ? got : 0] = 0;
    if (strcmp(told, wanted)) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    got = readlink(name, path, sizeof path - 1);
    path[got > 0 ? got : 0] = 0;
    return strstr(path, "journal.db") && !strstr(path, "-shm") && !strstr(path, "-owners");
}

static int failing(int descriptor) {
    if (fault(descriptor, "full")) return ENOSPC;
    return fault(descriptor, "write") ? EIO : 0;
}

typedef ssize_t (*writer)(int, const void *, size_t, off_t);

static ssize_t checked(const char *name, int descriptor, const void *data, size_t size, off_t place) {
    writer real = (writer)dlsym(RTLD_NEXT, name);
    if ((errno = failing(descriptor))) return -1;
    if (size > 1000 && fault(descriptor, "torn")) {
        real(descriptor, data, size / 2, place);
        kill(getpid(), SIGKILL);
    }
    return real(descriptor, data, size, place);
}

ssize_t pwrite(int d, const void *b, size_t n, off_t o) { return checked("pwrite", d, b, n, o); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { return checked("pwrite64", d, b, n, o); }

int fdatasync(int d) {
    if (fault(d, "sync")) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(d);
}

int fsync(int d) {
    if (fault(d, "sync")) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(d);
}
