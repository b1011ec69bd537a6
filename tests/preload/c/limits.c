/* As many entries, sets and bits as a program may name: what comes to an upgraded connection is reported all the same.
 * Usage: limits SCENARIO */
#include "common.h"

#include <sys/resource.h>

static void limit(rlim_t most) {
    struct rlimit now;
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0);
    now.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
}

/* Sends a byte some time after each that comes. */
static void late_client(int fd) {
    warm_client(fd);
    char c;
    while (recv(fd, &c, 1, 0) == 1) {
        usleep(20000);
        put(fd, &c, 1);
    }
}

static void ask(int fd) { put(fd, "q", 1); }

static void take(int fd) {
    char c;
    get(fd, &c, 1);
    CHECK(c == 'q');
}

/* --- poll: as many entries as the process may have descriptors, most of which wait for nothing --- */
static void entries_server(int fd) {
    static const int COUNTS[] = {40, 60, 99, 100};
    warm_server(fd);
    limit(100);
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++)
        for (int turn = 0; turn < 3; turn++) {
            struct pollfd all[101];
            int count = COUNTS[i], place = turn == 0 ? 0 : turn == 1 ? count / 2 : count - 1;
            for (int at = 0; at < count; at++) all[at] = (struct pollfd){-1 - at, POLLIN, 77};
            all[place].fd = fd;
            ask(fd);
            int found = poll(all, (nfds_t)count, 60000), others = 0;
            for (int at = 0; at < count; at++) others += at != place && all[at].revents != 0;
            printf("%d: %d %x, others %d\n", count, found, all[place].revents, others);
            take(fd);
        }
    struct pollfd all[101];
    for (int at = 0; at < 101; at++) all[at] = (struct pollfd){-1, 0, 0};
    all[0] = (struct pollfd){fd, POLLIN, 0};
    int found = poll(all, 101, 60000);
    printf("101: %d %s\n", found, strerror(errno));
    close(fd);
}

/* --- select: more bits than libc's type has --- */
#define BITS 2048

static void add(unsigned long *set, int fd) { set[fd / 64] |= 1ul << fd % 64; }

static int has(const unsigned long *set, int fd) { return (int)(set[fd / 64] >> fd % 64 & 1); }

static void bits_server(int fd) {
    warm_server(fd);
    limit(2000);
    /* So many were named, but the kernel has fewer places: what stands behind the set is not looked at. */
    struct {
        fd_set set;
        unsigned char behind[256];
    } small;
    memset(&small, 255, sizeof small);
    FD_ZERO(&small.set);
    FD_SET(fd, &small.set);
    struct timeval minute = {60, 0};
    ask(fd);
    int found = select(1999, &small.set, NULL, NULL, &minute), whole = 1;
    for (size_t i = 0; i < sizeof small.behind; i++) whole &= small.behind[i] == 255;
    printf("small: %d %d, the rest whole: %d\n", found, FD_ISSET(fd, &small.set) != 0, whole);
    take(fd);
    int high = dup2(fd, 1500), pipes[2];
    CHECK(high == 1500 && pipe(pipes) == 0 && dup2(pipes[0], 1800) == 1800);
    for (int turn = 0; turn < 3; turn++) {
        unsigned long set[BITS / 64] = {0};
        add(set, 1800);
        add(set, turn == 1 ? fd : high);
        minute = (struct timeval){60, 0};
        ask(fd);
        found = select(1801, (fd_set *)set, NULL, NULL, &minute);
        printf("bytes: %d %d%d%d\n", found, has(set, fd), has(set, high), has(set, 1800));
        take(turn == 2 ? high : fd);
        memset(set, 0, sizeof set);
        add(set, 1800);
        add(set, high);
        struct timespec long_time = {60, 0};
        CHECK(write(pipes[1], "p", 1) == 1);
        found = pselect(1801, (fd_set *)set, NULL, NULL, &long_time, NULL);
        printf("a pipe: %d %d%d\n", found, has(set, high), has(set, 1800));
        char c;
        CHECK(read(pipes[0], &c, 1) == 1);
    }
    close(high);
    close(fd);
}

/* --- epoll: more sets than are looked after --- */
static void sets_server(int fd) {
    static int sets[1030];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    warm_server(fd);
    limit(2000);
    for (int i = 0; i < 1030; i++) CHECK((sets[i] = epoll_create1(0)) >= 0);
    /* A set that is looked after, in one that is not; then the connection itself. */
    struct epoll_event inner = {.events = EPOLLIN, .data.u32 = 8};
    CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_ctl(sets[1028], EPOLL_CTL_ADD, sets[0], &inner) == 0);
    for (int turn = 0; turn < 3; turn++) {
        struct epoll_event found = {0};
        ask(fd);
        int count = epoll_wait(sets[1028], &found, 1, 60000);
        printf("nested: %d %u\n", count, found.data.u32);
        take(fd);
    }
    CHECK(epoll_ctl(sets[1029], EPOLL_CTL_ADD, fd, &event) == 0);
    for (int turn = 0; turn < 3; turn++) {
        struct epoll_event found = {0};
        ask(fd);
        int count = epoll_wait(sets[1029], &found, 1, 60000);
        printf("late: %d %u\n", count, found.data.u32);
        count = epoll_wait(sets[0], &found, 1, 60000);
        printf("early: %d %u\n", count, found.data.u32);
        take(fd);
    }
    close(fd);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        end_fn *server;
    } SCENARIOS[] = {{"entries", entries_server}, {"bits", bits_server}, {"sets", sets_server}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) return both(AF_INET, SCENARIOS[i].server, late_client), 0;
    fprintf(stderr, "no such scenario\n");
    return 2;
}
