/* Calls on a connection that is the kernel's, to be counted: `calls NAME ROUNDS`. Both ends are here, so that nothing waits.
 * Without arguments: the names, with how many calls a round makes. */
#include "common.h"

static int one, other, set;
static struct pollfd entry;

static void by_send(void) {
    char c = 'x';
    CHECK(send(one, &c, 1, 0) == 1 && recv(other, &c, 1, 0) == 1);
}

static void by_write(void) {
    char c = 'x';
    CHECK(write(one, &c, 1) == 1 && read(other, &c, 1) == 1);
}

static void by_vector(void) {
    char c = 'x';
    struct iovec part = {&c, 1};
    CHECK(writev(one, &part, 1) == 1 && readv(other, &part, 1) == 1);
}

static void by_message(void) {
    char c = 'x';
    struct iovec part = {&c, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(sendmsg(one, &message, 0) == 1 && recvmsg(other, &message, 0) == 1);
}

static void by_poll(void) { CHECK(poll(&entry, 1, 1000) == 1); }

static void by_epoll(void) {
    struct epoll_event event;
    CHECK(epoll_wait(set, &event, 1, 1000) == 1);
}

static void by_control(void) {
    struct epoll_event event = {.events = EPOLLOUT};
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, one, &event) == 0);
}

static void by_mode(void) { CHECK(fcntl(one, F_GETFL) >= 0); }

static const struct {
    const char *name;
    int calls;
    void (*round)(void);
} KINDS[] = {
    {"send-recv", 2, by_send}, {"write-read", 2, by_write}, {"writev-readv", 2, by_vector},
    {"sendmsg-recvmsg", 2, by_message}, {"poll", 1, by_poll}, {"epoll_wait", 1, by_epoll},
    {"epoll_ctl", 1, by_control}, {"fcntl", 1, by_mode},
};

int main(int argc, char **argv) {
    uint16_t port;
    int door = listener(AF_INET, &port);
    one = dial(port);
    other = accept(door, NULL, NULL);
    set = epoll_create1(0);
    entry = (struct pollfd){one, POLLOUT, 0};
    struct epoll_event event = {.events = EPOLLOUT};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &event) == 0);
    for (int i = 0; i < 3; i++) by_send(); /* what becomes of the connection is known from here on */
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        if (argc < 3) printf("%s %d\n", KINDS[i].name, KINDS[i].calls);
        if (argc == 3 && strcmp(argv[1], KINDS[i].name) == 0)
            for (int round = atoi(argv[2]); round > 0; round--) KINDS[i].round();
    }
    return 0;
}
