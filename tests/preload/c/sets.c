/* Sets of epoll that leave their process: passed on in a message, kept over exec, or inherited and then added to. What
 * they report is what the program asked for, and nothing else. */
#include "common.h"

#define DATA 42
#define TURNS 20

/* Answers each byte with the next one, after a while in which the other end falls asleep. */
static void client(int fd) {
    warm_client(fd);
    unsigned char c;
    while (recv(fd, &c, 1, 0) == 1) {
        usleep(5000);
        c++;
        put(fd, &c, 1);
    }
    close(fd);
}

static void add(int set, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = DATA};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void turns(int set, int fd) {
    for (int i = 0; i < TURNS; i++) {
        unsigned char c = (unsigned char)i;
        struct epoll_event event;
        put(fd, &c, 1);
        CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.u64 == DATA && event.events == EPOLLIN);
        get(fd, &c, 1);
        CHECK(c == i + 1);
        CHECK(epoll_wait(set, &event, 1, 1) == 0);
    }
}

static void ended(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child was there before the set, and gets it by a message. */
static void passed(int fd) {
    int pair[2];
    warm_server(fd);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct epoll_event event;
    if (child == 0) {
        int set;
        CHECK(recvmsg(pair[1], &message, 0) == 1);
        memcpy(&set, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof set);
        for (int i = 0; i < TURNS; i++) {
            CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.u64 == DATA);
            CHECK(write(pair[1], "", 1) == 1 && read(pair[1], &byte, 1) == 1);
            CHECK(epoll_wait(set, &event, 1, 1) == 0);
            CHECK(write(pair[1], "", 1) == 1);
        }
        _exit(0);
    }
    int set = epoll_create1(EPOLL_CLOEXEC);
    add(set, fd);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof set), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &set, sizeof set);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    for (int i = 0; i < TURNS; i++) {
        unsigned char c = (unsigned char)i;
        put(fd, &c, 1);
        CHECK(read(pair[0], &byte, 1) == 1);
        get(fd, &c, 1);
        CHECK(c == i + 1);
        CHECK(write(pair[0], "", 1) == 1 && read(pair[0], &byte, 1) == 1);
    }
    ended(child);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    puts("passed");
    close(fd);
}

static void kept(int fd) {
    warm_server(fd);
    int set = epoll_create1(0);
    add(set, fd);
    char words[2][12];
    sprintf(words[0], "%d", set);
    sprintf(words[1], "%d", fd);
    execl("/proc/self/exe", "sets", "turns", words[0], words[1], NULL);
    CHECK(0);
}

/* The connection has left TCP when the child adds it to a set of its parent. */
static void added(int fd) {
    int set = epoll_create1(0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        warm_server(fd);
        add(set, fd);
        turns(set, fd);
        _exit(0);
    }
    close(fd);
    ended(child);
    puts("added");
}

int main(int argc, char **argv) {
    if (argc == 4) {
        turns(atoi(argv[2]), atoi(argv[3]));
        puts("kept");
        return 0;
    }
    end_fn *server = strcmp(argv[1], "passed") == 0 ? passed : strcmp(argv[1], "kept") == 0 ? kept : added;
    both(AF_INET, server, client);
    return 0;
}
