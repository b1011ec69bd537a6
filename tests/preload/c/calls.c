/* Calls on a connection that is the kernel's, to be counted: `calls NAME ROUNDS`. Both ends are here, so that nothing waits.
 * Names that end in "-with-threads" are counted in a process that had a second thread, where calls can be cancelled.
 * Without arguments: the names, with how many calls a round makes. */
#include "common.h"

static int one, other, set, door, file;
static struct pollfd entry;
static const struct timespec SECOND = {1, 0};

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

static void by_ppoll(void) { CHECK(ppoll(&entry, 1, &SECOND, NULL) == 1); }

static void by_select(void) {
    fd_set out;
    FD_ZERO(&out);
    FD_SET(one, &out);
    struct timeval limit = {1, 0};
    CHECK(select(one + 1, NULL, &out, NULL, &limit) == 1);
}

static void by_pselect(void) {
    fd_set out;
    FD_ZERO(&out);
    FD_SET(one, &out);
    CHECK(pselect(one + 1, NULL, &out, NULL, &SECOND, NULL) == 1);
}

static void by_epoll_pwait(void) {
    struct epoll_event event;
    CHECK(epoll_pwait(set, &event, 1, 1000, NULL) == 1);
}

static void by_many_messages(void) {
    char c = 'x';
    struct iovec part = {&c, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    CHECK(sendmmsg(one, &message, 1, 0) == 1 && recvmmsg(other, &message, 1, 0, NULL) == 1);
}

static void by_file(void) {
    char c;
    off_t at = 0;
    CHECK(sendfile(one, file, &at, 1) == 1 && recv(other, &c, 1, 0) == 1);
}

static void by_ioctl(void) {
    int count;
    CHECK(ioctl(one, FIONREAD, &count) == 0);
}

static void by_option(void) {
    int value = 1;
    CHECK(setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
}

/* socket, connect and accept, and two calls of close. */
static void by_connection(void) {
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    CHECK(getsockname(door, (void *)&to, &len) == 0);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(near >= 0 && connect(near, (void *)&to, sizeof to) == 0);
    int far = accept(door, NULL, NULL);
    CHECK(far >= 0 && close(near) == 0 && close(far) == 0);
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
    {"ppoll", 1, by_ppoll}, {"select", 1, by_select}, {"pselect", 1, by_pselect},
    {"epoll_pwait", 1, by_epoll_pwait}, {"sendmmsg-recvmmsg", 2, by_many_messages}, {"sendfile-recv", 2, by_file},
    {"ioctl", 1, by_ioctl}, {"setsockopt", 1, by_option}, {"connect-accept-close", 5, by_connection},
};

static void *nothing(void *argument) { return argument; }

int main(int argc, char **argv) {
    uint16_t port;
    door = listener(AF_INET, &port);
    file = open("/proc/self/exe", O_RDONLY);
    one = dial(port);
    other = accept(door, NULL, NULL);
    set = epoll_create1(0);
    entry = (struct pollfd){one, POLLOUT, 0};
    struct epoll_event event = {.events = EPOLLOUT};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &event) == 0);
    for (int i = 0; i < 3; i++) by_send(); /* what becomes of the connection is known from here on */
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const char *threads = "-with-threads";
        size_t len = strlen(KINDS[i].name);
        if (argc < 3) printf("%s %d\n%s%s %d\n", KINDS[i].name, KINDS[i].calls, KINDS[i].name, threads, KINDS[i].calls);
        if (argc < 3 || strncmp(argv[1], KINDS[i].name, len) != 0) continue;
        int alone = argv[1][len] == 0;
        pthread_t thread;
        /* Once it has had a second thread, a process counts as one with threads. */
        if (strcmp(argv[1] + len, threads) == 0) CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
        else if (!alone) continue;
        {
            for (int round = atoi(argv[2]); round > 0; round--) KINDS[i].round();
        }
    }
    return 0;
}
