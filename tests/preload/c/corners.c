/* Calls at the corners of the interface: sets of epoll that are shared, signals that leave or restart a call, half-closed
 * streams, descriptors in ranges, ends without a goodbye. The same lines must come with and without the library.
 * Usage: corners SCENARIO */
#include "common.h"

#include <linux/sockios.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* A client that answers each byte with the next, until the stream ends. */
static void counting_client(int fd) {
    warm_client(fd);
    unsigned char c;
    for (;;) {
        ssize_t count = read(fd, &c, 1);
        CHECK(count >= 0);
        if (count == 0) break;
        c++;
        put(fd, &c, 1);
    }
}

static unsigned char turn(int fd, unsigned char c) {
    put(fd, &c, 1);
    get(fd, &c, 1);
    return c;
}

/* --- sets of epoll: with EPOLLEXCLUSIVE, shared with a child, used by several threads --- */
enum { MESSAGES = 400, READERS = 4 };

static void numbers_client(int fd) {
    warm_client(fd);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        put(fd, &i, sizeof i);
        if (i % 16 == 0) usleep(500);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    char c;
    CHECK(read(fd, &c, 1) == 0);
}

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum, bytes_seen;
static int over;

/* Takes a message if there is one; 1 at the end of the stream. */
static int take_one(int fd) {
    uint32_t word;
    pthread_mutex_lock(&guard);
    ssize_t count = over ? 0 : recv(fd, &word, sizeof word, MSG_DONTWAIT | MSG_PEEK);
    if (count == sizeof word) {
        CHECK(recv(fd, &word, sizeof word, 0) == sizeof word);
        sum += word;
        bytes_seen += sizeof word;
    }
    CHECK(count >= 0 || errno == EAGAIN);
    if (count == 0) over = 1;
    pthread_mutex_unlock(&guard);
    return count == 0;
}

static int shared_fd;

static void *exclusive_reader(void *mode) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | *(uint32_t *)mode, .data.fd = shared_fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, shared_fd, &event) == 0);
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == shared_fd);
        if (take_one(shared_fd)) break;
    }
    close(set);
    return NULL;
}

static void exclusive_server(int fd) {
    static uint32_t mode = EPOLLEXCLUSIVE;
    warm_server(fd);
    shared_fd = fd;
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(readers + i, NULL, exclusive_reader, &mode) == 0);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(readers[i], NULL) == 0);
    printf("sum %llu of %llu bytes\n", (unsigned long long)sum, (unsigned long long)bytes_seen);
    close(fd);
}

static void *once_reader(void *set) {
    for (;;) {
        struct epoll_event event;
        CHECK(epoll_wait(*(int *)set, &event, 1, 60000) == 1);
        int ended = take_one(shared_fd);
        event.events = EPOLLIN | EPOLLONESHOT;
        event.data.fd = shared_fd;
        CHECK(epoll_ctl(*(int *)set, EPOLL_CTL_MOD, shared_fd, &event) == 0);
        if (ended) return NULL;
    }
}

static void crew_server(int fd) {
    warm_server(fd);
    shared_fd = fd;
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(readers + i, NULL, once_reader, &set) == 0);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(readers[i], NULL) == 0);
    printf("sum %llu of %llu bytes\n", (unsigned long long)sum, (unsigned long long)bytes_seen);
    close(fd);
}

/* A set that was made and filled before a fork: the child waits with it. */
static void inherited_server(int fd) {
    warm_server(fd);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++) {
            unsigned char c = (unsigned char)i;
            put(fd, &c, 1);
            CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == fd);
            get(fd, &c, 1);
            CHECK(c == i + 1);
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    put(fd, "a", 1);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.events == EPOLLIN);
    char c;
    get(fd, &c, 1);
    printf("the child and then %c\n", c);
    close(fd);
}

/* What epoll says of ends: half closed, then closed. */
static void ends_client(int fd) {
    warm_client(fd);
    put(fd, "last", 4);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    char c;
    get(fd, &c, 1);
    close(fd);
    exit(0);
}

static void ends_server(int fd) {
    warm_server(fd);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    do CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    while (!(event.events & EPOLLRDHUP));
    printf("half: %x\n", event.events);
    char text[4];
    get(fd, text, 4);
    do CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    while (!(event.events & EPOLLIN)); /* room is there all the time, and may be reported by itself */
    printf("read: %x, then %zd\n", event.events, read(fd, text, 1));
    put(fd, "x", 1);
    struct pollfd entry = {fd, POLLIN | POLLRDHUP, 0};
    CHECK(poll(&entry, 1, 60000) == 1);
    printf("poll: %x\n", entry.revents);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    do CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    while (!(event.events & EPOLLHUP));
    printf("whole: %x\n", event.events);
    close(fd);
}

/* What a program asks to be told is its own, whatever it looks like, and for several descriptors it may be one and the same. */
static void tokens_client(int fd) {
    warm_client(fd);
    unsigned char c;
    while (read(fd, &c, 1) == 1) put(fd, "twelve bytes", 12);
}

/* Asks the client for bytes, and waits until they are there. */
static void ask_for_bytes(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    put(fd, "?", 1);
    CHECK(poll(&entry, 1, 60000) == 1);
}

static int told(int set, uint64_t token) {
    struct epoll_event events[8];
    int count = epoll_wait(set, events, 8, 100);
    for (int i = 0; i < count; i++) CHECK(events[i].events == EPOLLIN && events[i].data.u64 == token);
    return count;
}

static void tokens_server(int fd) {
    warm_server(fd);
    int pipes[2], set = epoll_create1(0);
    char text[12];
    CHECK(pipe(pipes) == 0);
    static const uint64_t tokens[] = {0xf1a9000000000000, 0xf1a9000112345678, 0xf1a9c53e00000000, 0xf1a9c53effffffff,
                                      0xf1a9ffffffffffff, UINT64_MAX, 0};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = tokens[i]};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && told(set, tokens[i]) == 0);
        ask_for_bytes(fd);
        printf("connection %zu: %d\n", i, told(set, tokens[i]));
        get(fd, text, 12);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0 && write(pipes[1], "x", 1) == 1);
        printf("pipe %zu: %d\n", i, told(set, tokens[i]));
        CHECK(read(pipes[0], text, 1) == 1);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, pipes[0], NULL) == 0 && epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
    }
    /* One token for two descriptors of a connection, and for a pipe. */
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    int copy = dup(fd);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0);
    ask_for_bytes(fd);
    printf("two descriptors: %d\n", told(set, 7));
    get(fd, text, 12);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, copy, NULL) == 0 && close(copy) == 0);
    /* What is reported of the pipe does not use up the one event of the connection. */
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0 && write(pipes[1], "x", 1) == 1);
    printf("pipe: %d\n", told(set, 7));
    CHECK(read(pipes[0], text, 1) == 1);
    ask_for_bytes(fd);
    printf("connection: %d\n", told(set, 7));
    printf("once: %d\n", told(set, 7));
    get(fd, text, 12);
    close(fd);
}

/* --- signals --- */
static sigjmp_buf place;
static volatile sig_atomic_t seen;

static void leave(int signal) {
    (void)signal;
    siglongjmp(place, 1);
}

static void note(int signal) {
    (void)signal;
    seen++;
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* Handlers that never return leave a blocked recv, a blocked poll and a blocked send. */
static void jumping_server(int fd) {
    warm_server(fd);
    handle(SIGALRM, leave, 0);
    char c;
    if (sigsetjmp(place, 1) == 0) {
        ualarm(30000, 0);
        recv(fd, &c, 1, 0);
        CHECK(0);
    }
    struct pollfd entry = {fd, POLLIN, 0};
    if (sigsetjmp(place, 1) == 0) {
        ualarm(30000, 0);
        poll(&entry, 1, -1);
        CHECK(0);
    }
    static unsigned char bytes[1 << 22];
    memset(bytes, 7, sizeof bytes);
    if (sigsetjmp(place, 1) == 0) {
        ualarm(30000, 0);
        for (;;) send(fd, bytes, sizeof bytes, 0);
    }
    /* The client reads all that was sent; what a call that was left has sent is not known to it. */
    handle(SIGALRM, note, SA_RESTART);
    put(fd, bytes, 1000);
    puts("left");
    close(fd);
}

static void jumping_client(int fd) {
    /* The client starts to read after a while. */
    warm_client(fd);
    usleep(200000);
    static unsigned char bytes[100000];
    for (;;) {
        ssize_t count = read(fd, bytes, sizeof bytes);
        CHECK(count >= 0);
        if (count == 0) break;
        for (ssize_t i = 0; i < count; i++) CHECK(bytes[i] == 7);
    }
}

/* Handlers of both kinds: recv and send go on after one, and end after the other. */
static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended++;
}

static void mixed_client(int fd) {
    warm_client(fd);
    char c;
    get(fd, &c, 1);
    CHECK(c == 'q');
    put(fd, "r", 1);
    usleep(200000);
    static unsigned char bytes[100000];
    while (read(fd, bytes, sizeof bytes) > 0) {}
}

static void mixed_server(int fd) {
    warm_server(fd);
    handle(SIGTERM, end, 0);
    CHECK(signal(SIGALRM, note) != SIG_ERR); /* restarts */
    seen = 0;
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++) {
            usleep(10000);
            kill(self, SIGALRM);
        }
        usleep(50000);
        kill(self, SIGTERM);
        usleep(200000);
        put(fd, "q", 1); /* the client answers */
        _exit(0);
    }
    char c;
    CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR);
    printf("after the second kind: %d\n", ended);
    CHECK(seen == 5);
    CHECK(recv(fd, &c, 1, 0) == 1 && c == 'r');
    int status;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    CHECK(status == 0);
    ualarm(10000, 10000);
    static unsigned char bytes[1 << 22];
    put(fd, bytes, sizeof bytes); /* the client reads after a while */
    ualarm(0, 0);
    /* One that the program has blocked wakes nothing, and comes when it is let in. */
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    int before = seen;
    raise(SIGALRM);
    child = fork();
    if (child == 0) {
        usleep(100000);
        kill(self, SIGTERM);
        _exit(0);
    }
    CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR && seen == before);
    CHECK(sigprocmask(SIG_UNBLOCK, &mask, NULL) == 0 && seen == before + 1);
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    puts("mixed");
    close(fd);
}

/* recv and send go on after a handler with SA_RESTART; poll, select and epoll_wait do not. */
static void restart_server(int fd) {
    warm_server(fd);
    handle(SIGALRM, note, SA_RESTART);
    struct pollfd entry = {fd, POLLIN, 0};
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    struct timeval limit = {60, 0};
    ualarm(20000, 20000); /* again and again: one may come before the call has begun */
    CHECK(poll(&entry, 1, 60000) == -1 && errno == EINTR);
    CHECK(epoll_wait(set, &event, 1, 60000) == -1 && errno == EINTR);
    CHECK(select(fd + 1, &in, NULL, NULL, &limit) == -1 && errno == EINTR);
    ualarm(0, 0);
    CHECK(seen >= 3);
    /* A signal that is blocked but for the time of the call. */
    sigset_t mask, none;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    int before = seen;
    raise(SIGALRM);
    CHECK(seen == before);
    CHECK(ppoll(&entry, 1, NULL, &none) == -1 && errno == EINTR && seen == before + 1);
    raise(SIGALRM);
    CHECK(epoll_pwait(set, &event, 1, 60000, &none) == -1 && errno == EINTR && seen == before + 2);
    raise(SIGALRM);
    FD_SET(fd, &in);
    CHECK(pselect(fd + 1, &in, NULL, NULL, NULL, &none) == -1 && errno == EINTR && seen == before + 3);
    CHECK(sigprocmask(SIG_UNBLOCK, &mask, NULL) == 0);
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++) {
            usleep(10000);
            kill(self, SIGALRM);
        }
        put(fd, "q", 1); /* the client answers */
        _exit(0);
    }
    char c;
    CHECK(recv(fd, &c, 1, 0) == 1 && c == 'r');
    int status;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    printf("restarted, %d\n", seen > before + 3);
    close(fd);
}

/* A handler sends on the connection on which the thread that it interrupts is sending: each message stays in one piece. */
enum { BLOCK = 10, BLOCKS = 20000 };
static int handler_fd;
static volatile sig_atomic_t from_handler;

static void interject(int signal) {
    (void)signal;
    int saved = errno;
    if (send(handler_fd, "h", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) from_handler++;
    errno = saved;
}

static void handler_client(int fd) {
    warm_client(fd);
    uint32_t counts[2] = {0, 0};
    char c, block[BLOCK];
    while (read(fd, &c, 1) == 1) {
        if (c == 'h') {
            counts[0]++;
        } else {
            CHECK(c == 'm');
            get(fd, block, BLOCK - 1);
            CHECK(memcmp(block, "mmmmmmmmm", BLOCK - 1) == 0);
            counts[1]++;
        }
    }
    put(fd, counts, sizeof counts);
}

static void handler_server(int fd) {
    warm_server(fd);
    handler_fd = fd;
    handle(SIGALRM, interject, SA_RESTART);
    ualarm(700, 700);
    for (int i = 0; i < BLOCKS; i++) put(fd, "mmmmmmmmmm", BLOCK);
    ualarm(0, 0);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    uint32_t counts[2];
    get(fd, counts, sizeof counts);
    CHECK(counts[0] == (uint32_t)from_handler && from_handler > 0);
    printf("%u messages in one piece\n", counts[1]);
    close(fd);
}

/* A stream that no one reads: a signal, or only an error. */
static void pipe_client(int fd) {
    warm_client(fd);
    close(fd);
    exit(0);
}

static void pipe_server(int fd) {
    warm_server(fd);
    handle(SIGPIPE, note, 0);
    char c;
    CHECK(read(fd, &c, 1) == 0);
    ssize_t count;
    int tries = 0;
    do {
        count = send(fd, "x", 1, MSG_NOSIGNAL);
        if (count == 1) usleep(1000);
    } while (count == 1 && ++tries < 10000);
    printf("send %zd, %s, %d signals\n", count, errno == EPIPE ? "broken" : strerror(errno), seen);
    count = write(fd, "x", 1);
    printf("write %zd, %s, %d signals\n", count, errno == EPIPE ? "broken" : strerror(errno), seen);
    close(fd);
}

/* --- half-closed --- */
static void half_server(int fd) {
    warm_server(fd);
    signal(SIGPIPE, SIG_IGN);
    CHECK(turn(fd, 'a') == 'b');
    CHECK(shutdown(fd, SHUT_RD) == 0);
    char c;
    printf("read %zd\n", read(fd, &c, 1));
    put(fd, "c", 1); /* the other way is open */
    CHECK(shutdown(fd, SHUT_WR) == 0);
    ssize_t count = write(fd, "x", 1);
    printf("write %zd, %s\n", count, errno == EPIPE ? "broken" : "no");
    CHECK(shutdown(fd, 77) == -1 && errno == EINVAL);
    close(fd);
}

static void half_client(int fd) {
    warm_client(fd);
    char c;
    get(fd, &c, 1);
    c++;
    put(fd, &c, 1);
    get(fd, &c, 1);
    CHECK(c == 'c' && read(fd, &c, 1) == 0);
}

/* --- held back and let go --- */
static void held_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[5000];
    for (int round = 0; round < 6; round++) {
        get(fd, bytes, 5000);
        check(bytes, 5000, (uint64_t)round * 5000);
        put(fd, "k", 1);
    }
}

static void held_server(int fd) {
    warm_server(fd);
    static unsigned char bytes[5000];
    int one = 1, zero = 0;
    char c;
    for (int round = 0; round < 6; round++) {
        fill(bytes, 5000, (uint64_t)round * 5000);
        if (round % 2) {
            for (int i = 0; i < 5; i++)
                CHECK(send(fd, bytes + i * 1000, 1000, i < 4 ? MSG_MORE : 0) == 1000);
        } else {
            CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof one) == 0);
            for (int i = 0; i < 5; i++) CHECK(write(fd, bytes + i * 1000, 1000) == 1000);
            CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &zero, sizeof zero) == 0);
        }
        get(fd, &c, 1);
    }
    int count = -1;
    CHECK(ioctl(fd, SIOCOUTQ, &count) == 0);
    printf("held, %d unsent\n", count);
    close(fd);
}

/* --- a connection that is made without waiting, over IPv6 --- */
static void unwaited(void) {
    int door = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    socklen_t len = sizeof address;
    if (bind(door, (void *)&address, len) != 0) {
        puts("no IPv6 here");
        return;
    }
    CHECK(getsockname(door, (void *)&address, &len) == 0 && listen(door, 4) == 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
        int done = connect(fd, (void *)&address, sizeof address);
        CHECK(done == 0 || errno == EINPROGRESS);
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, 60000) == 1);
        int error = -1;
        len = sizeof error;
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
        warm_client(fd);
        _exit(0);
    }
    int fd = accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(fd >= 0);
    warm_server(fd);
    char c;
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && read(fd, &c, 1) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("connected without waiting");
}

/* --- ranges of descriptors, numbers that are used again --- */
static void ranges_server(int fd) {
    warm_server(fd);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    CHECK(high >= 200 && fcntl(high, F_GETFD) == FD_CLOEXEC);
    CHECK(turn(high, 1) == 2);
    CHECK(syscall(SYS_close_range, (unsigned)high, (unsigned)high, 0) == 0 || errno == ENOSYS);
    CHECK(close_range(150, 250, 0) == 0 && write(high, "x", 1) == -1 && errno == EBADF);
    CHECK(dup3(fd, 300, O_CLOEXEC) == 300 && turn(300, 5) == 6);
    int other = open("/dev/null", O_RDWR);
    CHECK(dup2(other, 300) == 300 && write(300, "x", 1) == 1 && read(300, &other, 1) == 0);
    CHECK(turn(fd, 7) == 8);
    closefrom(100);
    CHECK(turn(fd, 9) == 10);
    puts("ranges");
    close(fd);
}

/* --- a child by the system call alone --- */
static void clone_server(int fd) {
    warm_server(fd);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 50; i++) CHECK(turn(fd, (unsigned char)i) == i + 1);
        syscall(SYS_exit_group, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(turn(fd, 90) == 91);
    puts("cloned");
    close(fd);
}

/* --- writes that do not wait, of a socket that does --- */
static int gate[2];

static void unwaiting_client(int fd) {
    static unsigned char bytes[4096];
    uint64_t got = 0, told;
    warm_client(fd);
    get(fd, &told, sizeof told);
    CHECK(read(gate[0], bytes, 1) == 1);
    while (got < told) {
        ssize_t count = recv(fd, bytes, sizeof bytes < told - got ? sizeof bytes : told - got, 0);
        CHECK(count > 0);
        check(bytes, (size_t)count, got);
        got += (uint64_t)count;
    }
    put(fd, "w", 1);
}

static void unwaiting_server(int fd) {
    static unsigned char bytes[16384];
    enum { MOST = 64 << 20 };
    uint64_t put_in = 0, total = MOST;
    warm_server(fd);
    put(fd, &total, sizeof total);
    ssize_t count;
    do {
        fill(bytes, sizeof bytes, put_in);
        struct iovec part = {bytes, sizeof bytes};
        count = pwritev2(fd, &part, 1, -1, RWF_NOWAIT);
        put_in += count > 0 ? (uint64_t)count : 0;
        if (count < 0 && errno == EAGAIN) {
            struct pollfd entry = {fd, POLLOUT, 0};
            puts("full");
            CHECK(write(gate[1], "", 1) == 1);
            CHECK(poll(&entry, 1, 60000) == 1);
            break;
        }
        CHECK(count > 0);
    } while (put_in < MOST / 2);
    while (put_in < total) {
        size_t len = sizeof bytes < total - put_in ? sizeof bytes : (size_t)(total - put_in);
        fill(bytes, len, put_in);
        put(fd, bytes, len);
        put_in += len;
    }
    char c;
    get(fd, &c, 1);
    close(fd);
}

/* --- system calls by their numbers --- */
static void numbers_server(int fd) {
    warm_server(fd);
    unsigned char c = 1;
    CHECK(syscall(SYS_sendto, fd, &c, 1, 0, NULL, 0) == 1);
    struct pollfd entry = {fd, POLLIN, 0};
    struct timespec limit = {60, 0};
    CHECK(syscall(SYS_ppoll, &entry, 1, &limit, NULL, 8) == 1 && entry.revents == POLLIN);
    CHECK(syscall(SYS_recvfrom, fd, &c, 1, 0, NULL, NULL) == 1 && c == 2);
    int set = (int)syscall(SYS_epoll_create1, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(set >= 0 && syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 8) == 0);
    struct iovec part = {&c, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    CHECK(syscall(SYS_sendmmsg, fd, &message, 1, 0) == 1);
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 60000, NULL, 8) == 1 && event.data.fd == fd);
    CHECK(syscall(SYS_recvmmsg, fd, &message, 1, 0, NULL) == 1 && c == 3);
    CHECK(syscall(SYS_pwritev2, fd, &part, 1, -1L, 0, 0) == 1);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    sigset_t none;
    sigemptyset(&none);
    struct { const sigset_t *mask; size_t size; } sixth = {&none, 8};
    CHECK(syscall(SYS_pselect6, fd + 1, &in, NULL, NULL, &limit, &sixth) == 1 && FD_ISSET(fd, &in));
    int count = 0;
    CHECK(syscall(SYS_ioctl, fd, FIONREAD, &count) == 0 && count == 1);
    CHECK(syscall(SYS_preadv2, fd, &part, 1, -1L, 0, 0) == 1 && c == 4);
    CHECK(syscall(SYS_preadv2, fd, &part, 1, -1L, 0, RWF_NOWAIT) == -1 && errno == EAGAIN);
    long copy = syscall(SYS_fcntl, fd, F_DUPFD, 50);
    CHECK(copy >= 50 && turn((int)copy, 5) == 6 && syscall(SYS_close, copy) == 0);
    CHECK(syscall(SYS_fcntl, fd, F_SETFL, O_NONBLOCK) == 0 && read(fd, &c, 1) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_fcntl, fd, F_SETFL, 0) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "\6", 1) == 1);
    CHECK(syscall(SYS_splice, pipes[0], NULL, fd, NULL, 1, 0) == 1);
    get(fd, &c, 1);
    CHECK(c == 7);
    char name[] = "/tmp/viaduct-corners-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && write(file, "\7", 1) == 1);
    off_t at = 0;
    CHECK(syscall(SYS_sendfile, fd, file, &at, 1) == 1 && at == 1);
    get(fd, &c, 1);
    printf("by number, %d\n", c);
    pid_t child = fork();
    if (child == 0) {
        put(fd, "a", 1);
        syscall(SYS_exit_group, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    get(fd, &c, 1);
    CHECK(c == 'b');
    close(fd);
}

/* --- no memory is asked for, and no thread started, on the way --- */
static volatile long allocations;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

void *malloc(size_t len) {
    allocations++;
    return __libc_malloc(len);
}

void *calloc(size_t count, size_t len) {
    allocations++;
    return __libc_calloc(count, len);
}

void *realloc(void *at, size_t len) {
    allocations++;
    return __libc_realloc(at, len);
}

static void memory_server(int fd) {
    long before = allocations;
    warm_server(fd); /* the claim is on this way */
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int i = 0; i < 100; i++) {
        unsigned char c = (unsigned char)i;
        put(fd, &c, 1);
        if (i % 2) CHECK(epoll_wait(set, &event, 1, 60000) == 1);
        struct pollfd entry = {fd, POLLIN, 0};
        CHECK(poll(&entry, 1, 60000) == 1);
        get(fd, &c, 1);
        int copy = dup(fd);
        CHECK(copy >= 0 && turn(copy, c) == (unsigned char)(c + 1) && close(copy) == 0);
    }
    pid_t child = fork();
    if (child == 0) {
        before = allocations;
        turn(fd, 1);
        _exit(allocations != before);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    long asked = allocations - before;
    char text[4096] = {0};
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(read(file, text, sizeof text - 1) > 0);
    char *threads = strstr(text, "Threads:");
    printf("%ld, %d, %.10s\n", asked, status, threads ? threads : "");
    close(fd);
}

/* --- signals that tell of bytes --- */
static void signalled_client(int fd) {
    warm_client(fd);
    for (int i = 0; i < 2; i++) {
        unsigned char c;
        get(fd, &c, 1); /* the server is ready */
        usleep(20000);
        put(fd, "12345678", 8);
        get(fd, &c, 1);
    }
    warm_client(fd);
}

static void signalled_server(int fd) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    warm_server(fd);
    CHECK(fcntl(fd, F_SETOWN, getpid()) == 0);
    for (int i = 0; i < 2; i++) {
        int on = 1, off = 0;
        if (i == 0) CHECK(fcntl(fd, F_SETFL, O_ASYNC) == 0 && fcntl(fd, F_SETFL, 0) == 0);
        if (i == 1) CHECK(ioctl(fd, FIOASYNC, &off) == 0);
        CHECK(i == 0 ? fcntl(fd, F_SETFL, O_ASYNC) == 0 : ioctl(fd, FIOASYNC, &on) == 0);
        struct timespec limit = {0, 0};
        while (sigtimedwait(&set, NULL, &limit) == SIGIO) {} /* of what was before */
        put(fd, "x", 1);
        limit.tv_sec = 60;
        char text[8];
        ssize_t count;
        do CHECK(sigtimedwait(&set, NULL, &limit) == SIGIO);
        while ((count = recv(fd, text, 8, MSG_DONTWAIT)) < 0);
        CHECK(count == 8);
        put(fd, "x", 1);
    }
    warm_server(fd);
    puts("signalled");
    close(fd);
}

/* --- looking at all that is to come --- */
static void peek_client(int fd) {
    warm_client(fd);
    put(fd, "abc", 3);
    usleep(50000);
    put(fd, "defgh", 5);
    unsigned char c;
    get(fd, &c, 1);
    put(fd, "12", 2);
    get(fd, &c, 1);
    put(fd, "34", 2);
}

static void peek_server(int fd) {
    warm_server(fd);
    char text[16] = {0};
    CHECK(recv(fd, text, 8, MSG_PEEK | MSG_WAITALL) == 8 && memcmp(text, "abcdefgh", 8) == 0);
    CHECK(recv(fd, text, 16, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT) == 8);
    CHECK(recv(fd, text, 8, 0) == 8 && memcmp(text, "abcdefgh", 8) == 0);
    CHECK(recv(fd, text, 8, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT) == -1 && errno == EAGAIN);
    put(fd, "x", 1);
    struct timeval limit = {0, 300000}, none = {0, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    ssize_t count = -1;
    while (count < 0) count = recv(fd, text, 8, MSG_PEEK | MSG_WAITALL); /* until two are there, then until time is over */
    CHECK(count == 2 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    put(fd, "x", 1);
    CHECK(recv(fd, text, 8, MSG_PEEK | MSG_WAITALL) == 4 && memcmp(text, "1234", 4) == 0); /* the end */
    CHECK(recv(fd, text, 8, MSG_WAITALL) == 4 && recv(fd, text, 8, MSG_PEEK | MSG_WAITALL) == 0);
    puts("peek");
    close(fd);
}

/* --- no room for what is to come --- */
static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void nothing_server(int fd) {
    warm_server(fd);
    char text[12];
    struct msghdr none = {0};
    struct timeval limit = {0, 200000}, never = {0, 0};
    CHECK(recv(fd, text, 0, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(recvmsg(fd, &none, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(read(fd, text, 0) == 0 && readv(fd, NULL, 0) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    uint64_t start = now_ms();
    ssize_t count = recv(fd, text, 0, 0);
    printf("%zd after a while: %d\n", count, now_ms() - start >= 150);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never) == 0);
    put(fd, "?", 1); /* the answer comes */
    count = recv(fd, text, 0, 0);
    printf("%zd, then %zd\n", count, recv(fd, text, 12, MSG_DONTWAIT));
    ask_for_bytes(fd);
    CHECK(recv(fd, text, 0, 0) == 0 && recv(fd, text, 0, MSG_DONTWAIT) == 0 && recv(fd, text, 0, MSG_PEEK) == 0);
    get(fd, text, 12);
    close(fd);
}

/* --- a connection that always has bytes, and a pipe, in a set that reports one at a time --- */
static void busy_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[4096];
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
    _exit(0);
}

static void busy_server(int fd) {
    warm_server(fd);
    int pipes[2], set = epoll_create1(0), most = 0;
    CHECK(pipe(pipes) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    event.data.fd = pipes[0];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    for (int round = 0; round < 20; round++) {
        char c;
        int others = -1;
        CHECK(write(pipes[1], "x", 1) == 1);
        do {
            CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.events & EPOLLIN);
            if (event.data.fd == fd) CHECK(read(fd, &c, 1) == 1);
            others++;
        } while (event.data.fd == fd && others < 1000);
        CHECK(event.data.fd == pipes[0] && read(pipes[0], &c, 1) == 1);
        if (others > most) most = others;
    }
    printf("the pipe has its turn: %d\n", most < 1000);
    close(fd);
}

/* --- a handler that uses the connection, its copies and its set while the thread is in a call on it --- */
static int used_fd, used_set;

static void use(int signal) {
    char c;
    int before = errno, copy = dup(used_fd);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = copy};
    (void)signal;
    seen++;
    recv(used_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    if (copy >= 0) {
        epoll_ctl(used_set, EPOLL_CTL_ADD, copy, &event);
        recv(copy, &c, 1, MSG_PEEK | MSG_DONTWAIT);
        epoll_ctl(used_set, EPOLL_CTL_DEL, copy, NULL);
        close(copy);
    }
    event = (struct epoll_event){.events = EPOLLIN, .data.fd = used_fd};
    epoll_ctl(used_set, EPOLL_CTL_MOD, used_fd, &event);
    errno = before;
}

static void meddling_server(int fd) {
    warm_server(fd);
    used_fd = fd;
    used_set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(used_set, EPOLL_CTL_ADD, fd, &event) == 0);
    seen = 0;
    handle(SIGALRM, use, SA_RESTART);
    ualarm(500, 500);
    for (int i = 0; i < 4000 || seen < 200; i++) {
        unsigned char c = (unsigned char)i;
        put(fd, &c, 1);
        if (i % 3 == 0)
            while (epoll_wait(used_set, &event, 1, 60000) < 0) CHECK(errno == EINTR);
        get(fd, &c, 1);
        CHECK(c == (unsigned char)(i + 1));
    }
    ualarm(0, 0);
    puts("meddled");
    close(fd);
}

/* --- ends without a goodbye: what was sent arrives --- */
static void sent_and(int fd, void (*end)(void)) {
    warm_client(fd);
    static unsigned char bytes[60000];
    fill(bytes, sizeof bytes, 0);
    put(fd, bytes, sizeof bytes);
    end();
}

static void by_exit(void) { _exit(0); }
static void exit_client(int fd) { sent_and(fd, by_exit); }

/* The process that sends is the one that aborts, and the last that holds the connection. */
static void abort_client(int fd) {
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    pid_t child = fork();
    if (child == 0) sent_and(fd, abort);
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    _exit(0);
}

static void arrival_server(int fd) {
    warm_server(fd);
    usleep(50000);
    static unsigned char bytes[60000];
    get(fd, bytes, sizeof bytes);
    check(bytes, sizeof bytes, 0);
    printf("all, then %zd\n", read(fd, bytes, 1));
    close(fd);
}

/* --- other sockets --- */
static void others(void) {
    int pair[2], one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    CHECK(bind(two, (void *)&address, len) == 0 && getsockname(two, (void *)&address, &len) == 0);
    CHECK(connect(one, (void *)&address, len) == 0);
    char text[8];
    for (int i = 0; i < 100; i++) {
        CHECK(send(one, "packet", 6, 0) == 6 && recv(two, text, 8, 0) == 6);
        CHECK(write(pair[0], "stream", 6) == 6 && read(pair[1], text, 8) == 6);
    }
    puts("others");
}

static const struct {
    const char *name;
    end_fn *server, *client;
} SCENARIOS[] = {
    {"exclusive", exclusive_server, numbers_client}, {"crew", crew_server, numbers_client},
    {"inherited", inherited_server, counting_client}, {"ends", ends_server, ends_client},
    {"jumping", jumping_server, jumping_client},    {"restart", restart_server, counting_client},
    {"mixed", mixed_server, mixed_client},            {"busy", busy_server, busy_client},
    {"meddling", meddling_server, counting_client},
    {"pipe", pipe_server, pipe_client},              {"half", half_server, half_client},
    {"held", held_server, held_client},              {"ranges", ranges_server, counting_client},
    {"clone", clone_server, counting_client},        {"exit", arrival_server, exit_client},
    {"abort", arrival_server, abort_client},         {"numbers", numbers_server, counting_client},
    {"unwaiting", unwaiting_server, unwaiting_client},
    {"handler", handler_server, handler_client},     {"memory", memory_server, counting_client},
    {"signalled", signalled_server, signalled_client}, {"peek", peek_server, peek_client},
    {"tokens", tokens_server, tokens_client},         {"nothing", nothing_server, tokens_client},
};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "unwaited") == 0) return unwaited(), 0;
    if (argc > 1 && strcmp(argv[1], "others") == 0) return others(), 0;
    CHECK(pipe(gate) == 0);
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) {
            both(AF_INET, SCENARIOS[i].server, SCENARIOS[i].client);
            return 0;
        }
    fprintf(stderr, "no such scenario\n");
    return 2;
}
