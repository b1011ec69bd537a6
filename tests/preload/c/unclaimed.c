/* Connections that several processes hold before any of them has used one: one process asks, another waits for the answer, in each way
 * of sharing and of waiting. Usage: unclaimed SCENARIO; programs that it starts are itself, under other names. */
#include "common.h"

#include <spawn.h>

extern char **environ;

/* By the last of them a connection has left TCP if it ever does. */
#define MESSAGES 12
/* Enough short connections for a listener to be known for them, and more messages than are left alone then. */
#define SHORT 10
#define LONG 60

static void server_of(int fd, int messages) {
    unsigned char word[8];
    for (int i = 0; i < messages; i++) {
        get(fd, word, sizeof word);
        check(word, sizeof word, (uint64_t)i * 8);
    }
    fill(word, sizeof word, 7);
    put(fd, word, sizeof word);
    CHECK(recv(fd, word, 1, 0) == 0);
    close(fd);
}

static void server(int fd) {
    server_of(fd, MESSAGES);
    puts("answered");
}

static void ask_from(int fd, int first, int messages) {
    unsigned char word[8];
    for (int i = first; i < messages; i++) {
        fill(word, sizeof word, (uint64_t)i * 8);
        put(fd, word, sizeof word);
        usleep(1000);
    }
}

static void answer(int fd) {
    unsigned char word[8];
    get(fd, word, sizeof word);
    check(word, sizeof word, 7);
}

static int watch(int fd) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

static void watched_answer(int set, int fd) {
    struct epoll_event event;
    CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == fd && event.events == EPOLLIN);
    answer(fd);
}

static void ended(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* --- parent and child --- */
static pid_t asking_child(int fd, int before, int *told) {
    CHECK(told == NULL || pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep((useconds_t)before);
        ask_from(fd, 0, MESSAGES);
        if (told) CHECK(write(told[1], "", 1) == 1);
        _exit(0);
    }
    return child;
}

/* The child claims when the parent sleeps. */
static void watched_client(int fd) {
    pid_t child = asking_child(fd, 50000, NULL);
    watched_answer(watch(fd), fd);
    ended(child);
}

/* The child has claimed when the parent comes. */
static void watched_late_client(int fd) {
    int told[2];
    char byte;
    pid_t child = asking_child(fd, 0, told);
    CHECK(read(told[0], &byte, 1) == 1);
    watched_answer(watch(fd), fd);
    ended(child);
}

/* Registered before there is a child. */
static void watched_early_client(int fd) {
    int set = watch(fd);
    pid_t child = asking_child(fd, 50000, NULL);
    watched_answer(set, fd);
    ended(child);
}

/* As the others, with the parts exchanged. */
static void watching_child_client(int fd) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        watched_answer(watch(fd), fd);
        _exit(0);
    }
    usleep(50000);
    ask_from(fd, 0, MESSAGES);
    ended(child);
}

/* --- programs that are started --- */
static void words_of(char *name, int fd, char **words) {
    static char number[12];
    snprintf(number, sizeof number, "%d", fd);
    char *all[] = {name, "ask", number, NULL};
    memcpy(words, all, sizeof all);
}

enum { BY_SPAWN, BY_FORK, BY_VFORK, BY_VFORK_MOVED };

static pid_t start(int how, int fd) {
    char *words[4];
    words_of("asker", how == BY_VFORK_MOVED ? 0 : fd, words);
    pid_t child;
    if (how == BY_SPAWN) {
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) == 0);
        return child;
    }
    child = how == BY_FORK ? fork() : vfork();
    CHECK(child >= 0);
    if (child == 0) {
        if (how == BY_VFORK_MOVED) {
            dup2(fd, 0);
            close(fd);
        }
        execv("/proc/self/exe", words);
        _exit(127);
    }
    return child;
}

/* The process sleeps in a set when the program that it has started claims. */
static void watching_starter(int fd, int how) {
    int set = watch(fd);
    pid_t child = start(how, fd);
    watched_answer(set, fd);
    ended(child);
}

static void spawned_client(int fd) { watching_starter(fd, BY_SPAWN); }
static void forked_client(int fd) { watching_starter(fd, BY_FORK); }
static void vforked_client(int fd) { watching_starter(fd, BY_VFORK); }
static void vforked_moved_client(int fd) { watching_starter(fd, BY_VFORK_MOVED); }

/* A rule against this program, under this name, leaves its connection to the kernel; none is against what it starts. */
static void ruled(uint16_t port, int how) {
    unsigned char word[8];
    int fd = dial(port);
    fill(word, sizeof word, 0);
    put(fd, word, sizeof word);
    pid_t child = start(how, fd);
    answer(fd);
    ended(child);
}

static int by_rule(const char *how) {
    uint16_t port;
    int door = listener(AF_INET, &port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char number[12];
        close(door);
        snprintf(number, sizeof number, "%d", port);
        execl("/proc/self/exe", "ruled", "ruled", number, how, NULL);
        CHECK(0);
    }
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    server(fd);
    ended(child);
    return 0;
}

/* --- messages --- */
static void pass(int channel, int fd) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    CHECK(sendmsg(channel, &message, 0) == 1);
}

static int passed(int channel) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(channel, &message, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static pid_t receiver(int pair[2], int with_library) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char number[12];
        if (!with_library) unsetenv("LD_PRELOAD");
        snprintf(number, sizeof number, "%d", pair[1]);
        execl("/proc/self/exe", "receiver", with_library ? "receive-all" : "receive", number, NULL);
        _exit(127);
    }
    return child;
}

/* Connections of this child are passed on unused: to a program without the library, which waits for the answer to what this one asks, or to
 * one with the library, which is all that uses it. */
static int passed_on(int with_library) {
    uint16_t port;
    int door = listener(AF_INET, &port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int pair[2];
        close(door);
        pid_t other = receiver(pair, with_library);
        int fd = dial(port);
        pass(pair[0], fd);
        if (with_library) close(fd);
        else ask_from(fd, 0, MESSAGES);
        ended(other);
        exit(0);
    }
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    server(fd);
    ended(child);
    return 0;
}

/* --- listeners that are known for short connections --- */
static pthread_t waiter;

static void *by_recv(void *fd) {
    answer(*(int *)fd);
    return NULL;
}

static void learned_client(uint16_t port, int with_thread) {
    int fd = dial(port);
    if (with_thread) CHECK(pthread_create(&waiter, NULL, by_recv, &fd) == 0);
    usleep(50000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(50000);
        ask_from(fd, 0, LONG);
        _exit(0);
    }
    if (with_thread) CHECK(pthread_join(waiter, NULL) == 0);
    else answer(fd);
    ended(child);
    close(fd);
}

static int learned(void) {
    uint16_t port;
    int door = listener(AF_INET, &port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(door);
        for (int i = 0; i < SHORT; i++) {
            int fd = dial(port);
            warm_client(fd);
            close(fd);
        }
        learned_client(port, 1); /* this one stays on TCP, so that the listener stays known */
        learned_client(port, 0);
        exit(0);
    }
    for (int i = 0; i < SHORT + 2; i++) {
        int fd = accept(door, NULL, NULL);
        CHECK(fd >= 0);
        if (i < SHORT) {
            warm_server(fd);
            close(fd);
        } else {
            server_of(fd, LONG);
        }
    }
    ended(child);
    puts("learned");
    return 0;
}

static const struct {
    const char *name;
    end_fn *client;
} SCENARIOS[] = {
    {"watched", watched_client},
    {"watched-late", watched_late_client},
    {"watched-early", watched_early_client},
    {"watching-child", watching_child_client},
    {"spawned", spawned_client},
    {"forked", forked_client},
    {"vforked", vforked_client},
    {"vforked-moved", vforked_moved_client},
};

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "learned") == 0) return learned();
    if (strcmp(argv[1], "ruled-spawn") == 0) return by_rule("0");
    if (strcmp(argv[1], "ruled-fork") == 0) return by_rule("1");
    if (strcmp(argv[1], "ruled-vfork") == 0) return by_rule("2");
    if (strcmp(argv[1], "ruled-moved") == 0) return by_rule("3");
    if (strcmp(argv[1], "passed") == 0) return passed_on(0);
    if (strcmp(argv[1], "passed-whole") == 0) return passed_on(1);
    if (strcmp(argv[1], "ask") == 0) {
        int ruled_starter = getenv("ASK_FROM") != NULL;
        ask_from(atoi(argv[2]), ruled_starter, MESSAGES);
        return 0;
    }
    if (strcmp(argv[1], "ruled") == 0) {
        CHECK(setenv("ASK_FROM", "1", 1) == 0);
        ruled((uint16_t)atoi(argv[2]), atoi(argv[3]));
        return 0;
    }
    if (strncmp(argv[1], "receive", 7) == 0) {
        int fd = passed(atoi(argv[2]));
        if (strcmp(argv[1], "receive-all") == 0) ask_from(fd, 0, MESSAGES);
        answer(fd);
        return 0;
    }
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (strcmp(argv[1], SCENARIOS[i].name) == 0) {
            both(AF_INET, server, SCENARIOS[i].client);
            return 0;
        }
    fprintf(stderr, "no such scenario\n");
    return 2;
}
