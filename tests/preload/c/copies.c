/* Two descriptors of one connection: one is registered with a set of epoll, the other sends. What comes is reported for the
 * first, though it was never used. */
#include "common.h"

#define TURNS 5
#define MESSAGES 8

/* An answer after several messages: by then the connection has left TCP. */
static void server(int fd) {
    unsigned char word[8];
    warm_server(fd);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < MESSAGES; i++) {
            get(fd, word, sizeof word);
            check(word, sizeof word, (uint64_t)i);
        }
        fill(word, sizeof word, (uint64_t)turn);
        put(fd, word, sizeof word);
    }
    CHECK(recv(fd, word, 1, 0) == 0);
    puts("copies");
}

static void answers(int in, int out) {
    unsigned char word[8];
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = in};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, in, &event) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < MESSAGES; i++) {
            fill(word, sizeof word, (uint64_t)i);
            put(out, word, sizeof word);
            usleep(1000);
        }
        CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == in && event.events == EPOLLIN);
        get(in, word, sizeof word);
        check(word, sizeof word, (uint64_t)turn);
    }
}

/* As a program that inetd starts: it did not make its descriptors. */
static void become(int fd, const char *how) {
    CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
    close(fd);
    execl("/proc/self/exe", "copies", "answers", how, NULL);
    CHECK(0);
}

/* Registered before the connection is used, while it is warmed by the copy that sends. */
static void by_dup(int fd) {
    int copy = dup(fd);
    unsigned char word[8];
    struct epoll_event event = {.events = EPOLLIN, .data.fd = copy};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0);
    for (int i = 0; i < 6; i++) {
        put(fd, word, sizeof word);
        CHECK(epoll_wait(set, &event, 1, 60000) == 1);
        get(fd, word, sizeof word);
    }
    CHECK(close(set) == 0);
    answers(copy, fd);
}

static void by_exec(int fd) {
    warm_client(fd);
    become(fd, "warm");
}

static void by_cold_exec(int fd) { become(fd, "cold"); }

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "answers") == 0) {
        if (strcmp(argv[2], "cold") == 0) warm_client(1);
        answers(0, 1);
        return 0;
    }
    end_fn *client = strcmp(argv[1], "dup") == 0 ? by_dup : strcmp(argv[1], "exec") == 0 ? by_exec : by_cold_exec;
    both(AF_INET, server, client);
    return 0;
}
