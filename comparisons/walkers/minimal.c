/* The minimum of a walker: openat, getdents64, one statx per entry, one thread.
 *
 * Prints files, directories, bytes and disk bytes. Its processor time is that of the kernel; what
 * another walker uses beyond that is its own. A stack holds the paths of subdirectories relative to
 * the root, so memory stays small.
 *
 * cc -O2 -Wall -o minimal minimal.c && ./minimal DIR
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct record {
    uint64_t inode;
    int64_t position;
    uint16_t length;
    uint8_t kind;
    char name[];
};

static char buffer[64 << 10] __attribute__((aligned(8)));
static uint64_t files, directories, bytes, blocks;

/* Paths of pending directories, relative to the root. */
static char **stack;
static size_t waiting, room;

static void push(const char *above, const char *name) {
    if (waiting == room) {
        room = room ? 2 * room : 1024;
        stack = realloc(stack, room * sizeof *stack);
    }
    char *path = malloc(strlen(above) + strlen(name) + 2);
    if (!stack || !path) {
        perror("memory");
        exit(1);
    }
    sprintf(path, "%s%s%s", above, *above ? "/" : "", name);
    stack[waiting++] = path;
}

static int ask(int dir, const char *name, int flags) {
    struct statx answer;
    unsigned mask = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BLOCKS | STATX_NLINK;
    if (statx(dir, name, flags | AT_NO_AUTOMOUNT, mask, &answer))
        return -1;
    bytes += answer.stx_size;
    blocks += answer.stx_blocks;
    return 0;
}

static int one(int root, const char *path) {
    int dir = openat(root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || ask(dir, "", AT_EMPTY_PATH))
        return -1;
    directories++;
    long filled;
    while ((filled = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < filled;) {
            struct record *entry = (struct record *)(buffer + at);
            at += entry->length;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            if (entry->kind == DT_DIR) {
                push(path, entry->name);
                continue;
            }
            if (ask(dir, entry->name, AT_SYMLINK_NOFOLLOW))
                return -1;
            files++;
        }
    }
    close(dir);
    return filled < 0 ? -1 : 0;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "--version")) {
        puts("minimal 1");
        return 0;
    }
    if (count != 2) {
        fprintf(stderr, "usage: minimal DIR\n");
        return 2;
    }
    int root = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        perror(arguments[1]);
        return 1;
    }
    push("", "");
    while (waiting) {
        char *path = stack[--waiting];
        if (one(root, path)) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            return 1;
        }
        free(path);
    }
    printf("files %lu directories %lu bytes %lu disk_bytes %lu\n", (unsigned long)files,
           (unsigned long)directories, (unsigned long)bytes, (unsigned long)(blocks * 512));
    return 0;
}
