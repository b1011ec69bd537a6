/* A sender that waits for room learns that its peer is gone: however it waits, and however the peer went.
 * Usage: hangup PEER WAY, the peer one of unread, killed, drained, half, the way one of those below. */
#include "common.h"

static const char *peer, *way;
static int gate[2];
static volatile sig_atomic_t pipes;
static char bytes[65536];

static int is(const char *one, const char *other) { return strcmp(one, other) == 0; }

static void count_pipe(int signal) {
    (void)signal;
    pipes = pipes + 1;
}

static const char *named(int error) {
    return error == ECONNRESET ? "ECONNRESET" : error == EPIPE ? "EPIPE" : error == EAGAIN ? "EAGAIN" : strerror(error);
}

static uint64_t sent;

/* Fills all that is between the two ends: kernels find room again for a while. */
static void stuff(int fd) {
    for (int full = 0; full < 3;) {
        fill((unsigned char *)bytes, sizeof bytes, sent);
        ssize_t count = send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        CHECK(count > 0 || errno == EAGAIN);
        if (count > 0) sent += (uint64_t)count;
        full = count > 0 ? 0 : full + 1;
        if (count < 0) usleep(10000);
    }
}

/* A peer that has shut down sending is there: no byte is to be lost, and none to be added. */
static void listen_on(int fd) {
    uint64_t total = 0;
    CHECK(shutdown(fd, SHUT_WR) == 0);
    usleep(200000);
    for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) != 0; total += (uint64_t)count) {
        CHECK(count > 0);
        check((unsigned char *)bytes, (size_t)count, total);
    }
    CHECK(write(gate[1], &total, sizeof total) == sizeof total);
    exit(0);
}

static void talk_on(int fd) {
    char c;
    for (int i = 0; i < 40; i++) {
        fill((unsigned char *)bytes, sizeof bytes, sent);
        ssize_t count = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        CHECK(count > 0 || errno == EAGAIN);
        if (count > 0) sent += (uint64_t)count;
        struct pollfd entry = {fd, POLLOUT, 0};
        CHECK(poll(&entry, 1, 10000) == 1 && entry.revents == POLLOUT);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    uint64_t total;
    CHECK(read(gate[0], &total, sizeof total) == sizeof total && total == sent);
    CHECK(read(fd, &c, 1) == 0);
    puts("all has come");
    close(fd);
}

static void client(int fd) {
    char c;
    warm_client(fd);
    CHECK(read(gate[0], &c, 1) == 1);
    if (is(peer, "half")) listen_on(fd);
    if (is(peer, "drained"))
        for (int dry = 0; dry < 5;) {
            dry = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0 ? 0 : dry + 1;
            if (dry) usleep(10000);
        }
    else
        usleep(200000); /* the sender sleeps by now */
    if (is(peer, "killed")) raise(SIGKILL);
    CHECK(close(fd) == 0);
    if (is(peer, "drained")) CHECK(write(gate[1], "x", 1) == 1);
    exit(0);
}

static void report(const char *what, unsigned events) { printf("%s reports %#x\n", what, events); }

static void wait_by_poll(int fd, int others) {
    struct pollfd entries[2] = {{fd, POLLOUT, 0}, {gate[0], POLLPRI, 0}};
    CHECK(poll(entries, others ? 2 : 1, 10000) == 1);
    report("poll", (unsigned)entries[0].revents);
}

static void wait_by_select(int fd, int read_too) {
    fd_set in, out, odd;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&odd);
    FD_SET(fd, &out);
    if (read_too) {
        FD_SET(fd, &in);
        FD_SET(fd, &odd);
    }
    struct timeval limit = {10, 0};
    int count = select(fd + 1, &in, &out, &odd, &limit);
    printf("select %d: %d %d %d\n", count, FD_ISSET(fd, &in) != 0, FD_ISSET(fd, &out) != 0, FD_ISSET(fd, &odd) != 0);
}

/* What the kernel refuses beside EPOLLEXCLUSIVE stays refused. */
static void refuse(int set, int fd) {
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 4711};
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == -1 && errno == EINVAL);
    event.events = EPOLLOUT | EPOLLEXCLUSIVE;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EEXIST);
    int other = epoll_create1(0);
    event.events = EPOLLOUT | EPOLLEXCLUSIVE | EPOLLRDHUP;
    CHECK(epoll_ctl(other, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EINVAL);
    close(other);
}

static void wait_by_epoll(int fd, uint32_t events, int nested) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = events, .data.u64 = 4711};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    if (events & EPOLLEXCLUSIVE) refuse(set, fd);
    if (nested) {
        struct pollfd entry = {set, POLLIN, 0};
        CHECK(poll(&entry, 1, 10000) == 1);
    }
    if (is(way, "child")) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) {
            CHECK(waitpid(child, NULL, 0) == child);
            close(set);
            return;
        }
    }
    int count;
    do count = epoll_wait(set, &event, 1, 10000);
    while (events & EPOLLET && count == 1 && !(event.events & EPOLLERR) && !is(peer, "drained"));
    printf("%d of %llu: ", count, (unsigned long long)event.data.u64);
    report("epoll", event.events);
    if (events & EPOLLONESHOT) printf("again %d\n", epoll_wait(set, &event, 1, 50));
    else if (!(events & EPOLLET)) printf("again %d\n", epoll_wait(set, &event, 1, 0));
    if (is(way, "child")) _exit(0);
    close(set);
}

static void try(int fd, int flags) {
    int before = pipes;
    ssize_t count = send(fd, bytes, 100, flags);
    int error = errno, signals = pipes - before;
    printf("send %s, %d signals\n", count < 0 ? named(error) : "goes on", signals);
}

static void look(int fd, const char *when) {
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    CHECK(poll(&entry, 1, 0) == 1);
    printf("%s ", when);
    report("poll of all", (unsigned)entry.revents);
}

/* A registration that was made before the connection left TCP. */
static int early_set(int fd) {
    struct epoll_event event = {.events = EPOLLOUT | EPOLLEXCLUSIVE, .data.u64 = 4711};
    int set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    return set;
}

static void wait_by_early_set(int set) {
    struct epoll_event event;
    for (int turn = 0; turn < 2; turn++) {
        int count = epoll_wait(set, &event, 1, 10000);
        printf("%d of %llu: ", count, (unsigned long long)event.data.u64);
        report("epoll", event.events);
    }
    close(set);
}

static void server(int fd) {
    char c;
    int early = is(way, "exclusive-early") ? early_set(fd) : -1;
    warm_server(fd);
    signal(SIGPIPE, count_pipe);
    stuff(fd);
    CHECK(write(gate[1], "x", 1) == 1);
    CHECK(fcntl(fd, F_SETFL, is(way, "send") ? 0 : O_NONBLOCK) == 0);
    if (is(peer, "drained")) {
        usleep(300000);
        CHECK(read(gate[0], &c, 1) == 1);
    }
    if (is(peer, "half") && is(way, "level")) {
        struct epoll_event event = {.events = EPOLLOUT};
        int set = epoll_create1(0);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(epoll_wait(set, &event, 1, 10000) == 1 && event.events == EPOLLOUT);
    }
    if (is(peer, "half")) {
        talk_on(fd);
        return;
    }
    if (is(way, "poll")) wait_by_poll(fd, 0);
    if (is(way, "mixed")) wait_by_poll(fd, 1);
    if (is(way, "select")) wait_by_select(fd, 0);
    if (is(way, "select-all")) wait_by_select(fd, 1);
    if (is(way, "level")) wait_by_epoll(fd, EPOLLOUT, 0);
    if (is(way, "both")) wait_by_epoll(fd, EPOLLOUT | EPOLLIN, 0);
    if (is(way, "child")) wait_by_epoll(fd, EPOLLOUT, 0);
    if (is(way, "told")) wait_by_epoll(fd, EPOLLOUT | EPOLLRDHUP, 0);
    if (is(way, "edge")) wait_by_epoll(fd, EPOLLOUT | EPOLLET, 0);
    if (is(way, "once")) wait_by_epoll(fd, EPOLLOUT | EPOLLONESHOT, 0);
    if (is(way, "exclusive")) wait_by_epoll(fd, EPOLLOUT | EPOLLEXCLUSIVE, 0);
    if (is(way, "exclusive-both")) wait_by_epoll(fd, EPOLLOUT | EPOLLIN | EPOLLEXCLUSIVE, 0);
    if (is(way, "exclusive-edge")) wait_by_epoll(fd, EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE, 0);
    if (early >= 0) wait_by_early_set(early);
    if (is(way, "nested")) wait_by_epoll(fd, EPOLLOUT, 1);
    if (is(way, "later")) usleep(500000);
    if (is(way, "read")) {
        usleep(500000);
        ssize_t count = read(fd, &c, 1);
        printf("read %zd %s, ", count, count < 0 ? named(errno) : "");
        count = read(fd, &c, 1);
        printf("then %zd %s\n", count, count < 0 ? named(errno) : "");
        look(fd, "after that");
    }
    if (is(peer, "drained")) {
        /* What is sent first is told from what follows by nothing but the peer's answer. */
        ssize_t count = 1;
        for (int i = 0; i < 100 && count > 0; i++) count = send(fd, bytes, 100, 0), usleep(1000);
        printf("sends %s, %d signals\n", count < 0 ? named(errno) : "go on", (int)pipes);
    } else {
        if (is(way, "socket-error")) {
            int error = 0;
            wait_by_poll(fd, 0);
            CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
            printf("the socket says %s\n", error ? "an error" : "nothing");
        } else
            try(fd, 0);
        look(fd, "after the first");
        try(fd, MSG_NOSIGNAL);
        try(fd, 0);
    }
    look(fd, "at last");
    printf("read %zd\n", read(fd, &c, 1));
    close(fd);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(argc == 3);
    peer = argv[1], way = argv[2];
    CHECK(pipe(gate) == 0);
    both(AF_INET, server, client);
    return 0;
}
