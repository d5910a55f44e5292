/* How fast the kernel alone can answer for a whole tree, with several threads.
 *
 * Finds all directories first, untimed. Then each thread takes the next directory of that list by
 * one atomic step, opens it, lists it, and calls statx for every entry that is not a directory: two
 * kinds of calls per entry and nothing else; no queue, no stored names, no waiting for work. No
 * walker that stats each file can be faster, because it must also find the directories. With
 * "unshared" each thread has its own descriptor table, which avoids reference counts that threads
 * would share. Prints the seconds of each round.
 *
 * cc -O2 -Wall -pthread -o floor floor.c && ./floor DIR THREADS shared|unshared ROUNDS
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct record {
    uint64_t inode;
    int64_t position;
    uint16_t length;
    uint8_t kind;
    char name[];
};

struct sums {
    uint64_t files, bytes, blocks;
};

static char **paths;
static size_t count, room;
static atomic_size_t next;
static int root, unshared;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void add(char *path) {
    if (count == room) {
        room = room ? 2 * room : 1024;
        paths = realloc(paths, room * sizeof *paths);
    }
    if (!paths || !path)
        fail("memory");
    paths[count++] = path;
}

/* Lists one directory; stats its files into `sums`, or adds its directories to the list. */
static void list(const char *path, char *buffer, size_t size, struct sums *sums) {
    int dir = openat(root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        fail(path);
    long filled;
    while ((filled = syscall(SYS_getdents64, dir, buffer, size)) > 0) {
        for (long at = 0; at < filled;) {
            struct record *entry = (struct record *)(buffer + at);
            at += entry->length;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            if (entry->kind == DT_DIR) {
                char *below = NULL;
                if (!sums && asprintf(&below, "%s/%s", path, entry->name) > 0)
                    add(below);
                continue;
            }
            if (!sums)
                continue;
            struct statx answer;
            unsigned mask = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BLOCKS | STATX_NLINK;
            if (statx(dir, entry->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, mask, &answer))
                fail(entry->name);
            sums->files++;
            sums->bytes += answer.stx_size;
            sums->blocks += answer.stx_blocks;
        }
    }
    if (filled < 0)
        fail(path);
    close(dir);
}

static void *work(void *unused) {
    static _Thread_local char buffer[64 << 10] __attribute__((aligned(8)));
    struct sums *sums = calloc(1, sizeof *sums);
    (void)unused;
    if (!sums || (unshared && unshare(CLONE_FILES | CLONE_FS)))
        fail("a thread of its own");
    for (size_t at; (at = atomic_fetch_add(&next, 1)) < count;)
        list(paths[at], buffer, sizeof buffer, sums);
    return sums;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int arguments, char **argument) {
    if (arguments != 5) {
        fprintf(stderr, "usage: floor DIR THREADS shared|unshared ROUNDS\n");
        return 2;
    }
    static char buffer[64 << 10] __attribute__((aligned(8)));
    int threads = atoi(argument[2]), rounds = atoi(argument[4]);
    unshared = !strcmp(argument[3], "unshared");
    root = open(argument[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        fail(argument[1]);
    add(strdup("."));
    for (size_t at = 0; at < count; at++)
        list(paths[at], buffer, sizeof buffer, NULL);
    for (int round = 0; round < rounds; round++) {
        struct sums all = {0};
        pthread_t *started = calloc(threads, sizeof *started);
        double before = seconds();
        atomic_store(&next, 0);
        for (int nth = 0; nth < threads; nth++)
            if (pthread_create(&started[nth], NULL, work, NULL))
                fail("start a thread");
        for (int nth = 0; nth < threads; nth++) {
            struct sums *one;
            pthread_join(started[nth], (void **)&one);
            all.files += one->files, all.bytes += one->bytes, all.blocks += one->blocks;
            free(one);
        }
        printf("seconds %.4f files %lu directories %zu bytes %lu disk_bytes %lu\n",
               seconds() - before, (unsigned long)all.files, count, (unsigned long)all.bytes,
               (unsigned long)all.blocks * 512);
        free(started);
    }
    return 0;
}
