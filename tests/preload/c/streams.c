/* Two processes and a connection: each scenario checks every byte and prints what it saw. The same lines must come
 * with and without the library. Usage: streams SCENARIO */
#include "common.h"

#include <sys/mman.h>

/* --- bulk: odd sizes both ways, then the end of the stream --- */
enum { BULK = 8 << 20 };

static void bulk_client(int fd) {
    static unsigned char bytes[100003];
    uint64_t at = 0, back = 0;
    size_t len = 1;
    get(fd, bytes, 1); /* both are there */
    while (at < BULK) {
        size_t now = len < BULK - at ? len : BULK - at;
        fill(bytes, now, at);
        put(fd, bytes, now);
        at += now;
        len = len * 7 % sizeof bytes + 1;
        ssize_t count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count > 0) {
            check(bytes, (size_t)count, back);
            back += (size_t)count;
        } else
            CHECK(count < 0 && errno == EAGAIN);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    for (;;) {
        ssize_t count = read(fd, bytes, sizeof bytes);
        CHECK(count >= 0);
        if (count == 0) break;
        check(bytes, (size_t)count, back);
        back += (size_t)count;
    }
    CHECK(back == BULK / 4);
}

static void bulk_server(int fd) {
    static unsigned char bytes[77777];
    uint64_t at = 0, back = 0;
    put(fd, "h", 1);
    for (;;) {
        ssize_t count = read(fd, bytes, at % 3 ? sizeof bytes : 1013);
        CHECK(count >= 0);
        if (count == 0) break;
        check(bytes, (size_t)count, at);
        at += (size_t)count;
        if (back < BULK / 8) {
            fill(bytes, 1024, back);
            put(fd, bytes, 1024);
            back += 1024;
        }
    }
    printf("received %llu\n", (unsigned long long)at);
    /* The other side has ended its stream: this one goes on. */
    while (back < BULK / 4) {
        size_t len = sizeof bytes < BULK / 4 - back ? sizeof bytes : BULK / 4 - back;
        fill(bytes, len, back);
        put(fd, bytes, len);
        back += len;
    }
    close(fd);
}

/* --- vectors and messages --- */
static void vectors_client(int fd) {
    warm_client(fd);
    unsigned char bytes[3000];
    fill(bytes, sizeof bytes, 0);
    struct iovec parts[4] = {{bytes, 1}, {bytes + 1, 0}, {bytes + 1, 999}, {bytes + 1000, 2000}};
    CHECK(writev(fd, parts, 4) == 3000);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    CHECK(sendmsg(fd, &message, 0) == 3000);
    CHECK(pwritev2(fd, parts, 4, -1, 0) == 3000 && pwritev64v2(fd, parts, 4, -1, 0) == 3000);
    char answer;
    get(fd, &answer, 1);
}

static void vectors_server(int fd) {
    warm_server(fd);
    unsigned char bytes[3000];
    struct iovec parts[3] = {{bytes, 10}, {bytes + 10, 490}, {bytes + 500, 2500}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    CHECK(recvmsg(fd, &message, MSG_WAITALL) == 3000 && message.msg_flags == 0);
    check(bytes, 3000, 0);
    for (int way = 0; way < 3; way++) {
        memset(bytes, 0, sizeof bytes);
        for (size_t done = 0; done < 3000;) {
            struct iovec rest[2] = {{bytes + done, 1}, {bytes + done + 1, 3000 - done - 1}};
            ssize_t count = way == 0 ? readv(fd, rest, 2)
                            : way == 1 ? preadv2(fd, rest, 2, -1, 0)
                                       : preadv64v2(fd, rest, 2, -1, 0);
            CHECK(count > 0);
            done += (size_t)count;
        }
        check(bytes, 3000, 0);
    }
    put(fd, "x", 1);
    puts("vectors");
    close(fd);
}

/* --- flags --- */
static void flags_client(int fd) {
    warm_client(fd);
    put(fd, "abcdefgh", 8);
    char c;
    get(fd, &c, 1);
    put(fd, "12345678", 8);
    get(fd, &c, 1);
}

static void flags_server(int fd) {
    warm_server(fd);
    char text[16] = {0};
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1);
    CHECK(recv(fd, text, 16, MSG_PEEK) == 8 && memcmp(text, "abcdefgh", 8) == 0);
    int count = 0;
    CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 8);
    CHECK(recv(fd, text, 3, 0) == 3 && recv(fd, NULL, 2, MSG_TRUNC) == 2);
    CHECK(recv(fd, text, 16, MSG_DONTWAIT) == 3 && memcmp(text, "fgh", 3) == 0);
    CHECK(recv(fd, text, 16, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    struct timeval limit = {0, 50000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(recv(fd, text, 16, 0) == -1 && errno == EAGAIN);
    limit.tv_usec = 0; /* none: the client takes the time it needs */
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(read(fd, text, 16) == -1 && errno == EAGAIN);
    CHECK(fcntl(fd, F_SETFL, flags) == 0);
    CHECK(poll(&entry, 1, 20) == 0);
    put(fd, "x", 1);
    CHECK(poll(&entry, 1, 60000) == 1 && entry.revents == POLLIN);
    CHECK(recv(fd, text, 8, MSG_WAITALL) == 8);
    put(fd, "x", 1);
    CHECK(recv(fd, text, 8, 0) == 0);
    puts("flags");
    close(fd);
}

/* --- event loops: the server echoes, in one of several ways --- */
enum { ROUNDS = 300, LARGEST = 200000 };

static void echo_client(int fd) {
    static unsigned char bytes[LARGEST], back[LARGEST];
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    uint64_t at = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = round % 50 == 49 ? LARGEST : (size_t)(round * 37 % 4000 + 1), out = 0, in = 0;
        fill(bytes, len, at);
        while (in < len) {
            struct pollfd entry = {fd, (short)(POLLIN | (out < len ? POLLOUT : 0)), 0};
            CHECK(poll(&entry, 1, 60000) == 1);
            if (out < len) {
                ssize_t count = write(fd, bytes + out, len - out);
                CHECK(count > 0 || errno == EAGAIN);
                if (count > 0) out += (size_t)count;
            }
            ssize_t count = read(fd, back + in, len - in);
            CHECK(count > 0 || (count < 0 && errno == EAGAIN));
            if (count > 0) in += (size_t)count;
        }
        check(back, len, at);
        at += len;
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && read(fd, back, 1) == 0);
}

static unsigned char held[1 << 20];
static size_t held_len;
static int ended;

/* Moves what can be moved; 1 when all is done. */
static int echo(int fd) {
    for (;;) {
        int moved = 0;
        if (!ended && held_len < sizeof held) {
            ssize_t count = read(fd, held + held_len, sizeof held - held_len);
            CHECK(count >= 0 || errno == EAGAIN);
            if (count > 0) held_len += (size_t)count, moved = 1;
            if (count == 0) ended = 1;
        }
        if (held_len > 0) {
            ssize_t count = write(fd, held, held_len);
            CHECK(count > 0 || errno == EAGAIN);
            if (count > 0) memmove(held, held + count, held_len -= (size_t)count), moved = 1;
        }
        if (ended && held_len == 0) return 1;
        if (!moved) return 0;
    }
}

static void epoll_server(int fd, uint32_t mode) {
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | mode, .data.u64 = 0x1234567890abcdefULL};
    if (mode & EPOLLET) event.events |= EPOLLOUT;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    int done = 0;
    while (!done) {
        struct epoll_event events[4];
        int count = epoll_wait(set, events, 4, 60000);
        CHECK(count == 1 && events[0].data.u64 == 0x1234567890abcdefULL);
        done = echo(fd);
        event.events = (mode & EPOLLET ? EPOLLIN | EPOLLOUT : EPOLLIN | (held_len ? EPOLLOUT : 0)) | mode;
        if (!(mode & EPOLLET)) CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    }
    puts("echoed");
    close(fd);
    close(set);
}

/* As event loops do that register for what they want next: deleted and added again at every turn. */
static void turns_server(int fd) {
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    int set = epoll_create1(0), status;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, events[4];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int done = 0; !done;) {
        CHECK(epoll_wait(set, events, 4, 60000) == 1 && events[0].data.u64 == event.data.u64);
        CHECK(!(events[0].events & EPOLLIN) || event.events & EPOLLIN);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EEXIST);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == -1 && errno == ENOENT);
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == -1 && errno == ENOENT);
        if (event.data.u64 % 50 == 0) CHECK(epoll_wait(set, events, 4, 0) == 0);
        done = echo(fd);
        event.data.u64++;
        event.events = EPOLLIN | (held_len ? EPOLLOUT : 0);
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        event.events = held_len ? EPOLLOUT : EPOLLIN;
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    }
    /* The end of the stream is there from now on, for those that ask for it. */
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
    pid_t child = fork();
    if (child == 0) _exit(epoll_wait(set, events, 4, 20) != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(set, events, 4, 60000) == 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
    int copy = dup(fd);
    close(fd);
    CHECK(epoll_wait(set, events, 4, 20) == 0);
    puts("echoed");
    close(copy);
    close(set);
}

static void level_server(int fd) { epoll_server(fd, 0); }
static void edge_server(int fd) { epoll_server(fd, EPOLLET); }
static void once_server(int fd) { epoll_server(fd, EPOLLONESHOT); }

static void select_server(int fd) {
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    for (int done = 0; !done; done = echo(fd)) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(fd, &in);
        if (held_len) FD_SET(fd, &out);
        struct timeval limit = {60, 0};
        CHECK(select(fd + 1, &in, &out, NULL, &limit) >= 1);
        CHECK(FD_ISSET(fd, &in) || FD_ISSET(fd, &out));
    }
    puts("echoed");
    close(fd);
}

static void nested_server(int fd) {
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = inner};
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    event.data.fd = fd;
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int done = 0; !done;) {
        struct epoll_event events[4];
        CHECK(epoll_wait(outer, events, 4, 60000) == 1 && events[0].data.fd == inner);
        int count = epoll_wait(inner, events, 4, 0);
        if (count == 1) {
            CHECK(events[0].data.fd == fd);
            done = echo(fd);
            event.events = EPOLLIN | (held_len ? EPOLLOUT : 0);
            CHECK(epoll_ctl(inner, EPOLL_CTL_MOD, fd, &event) == 0);
        }
    }
    puts("echoed");
    close(fd);
}

/* --- parent and child on one socket, in turns; dup and close on the way --- */
static void shared_client(int fd) {
    warm_client(fd);
    unsigned char bytes[64];
    for (int i = 0; i < 200; i++) {
        get(fd, bytes, 64);
        check(bytes, 64, (uint64_t)i * 64);
        put(fd, bytes, 1);
    }
    CHECK(read(fd, bytes, 1) == 0);
}

static void shared_server(int fd) {
    warm_server(fd);
    int turns[2][2];
    CHECK(pipe(turns[0]) == 0 && pipe(turns[1]) == 0);
    pid_t child = fork();
    int side = child == 0;
    unsigned char bytes[64], word;
    for (int i = 0; i < 200; i++) {
        if (i % 2 == side) {
            fill(bytes, 64, (uint64_t)i * 64);
            int copy = dup(fd);
            CHECK(copy >= 0 && dup2(copy, 77) == 77 && close(copy) == 0);
            put(77, bytes, 64);
            get(77, &word, 1);
            CHECK(close(77) == 0 && word == pattern((uint64_t)i * 64));
            CHECK(write(turns[1 - side][1], "t", 1) == 1);
        } else
            CHECK(read(turns[side][0], &word, 1) == 1);
    }
    close(fd);
    if (child == 0) _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    puts("shared");
}

/* --- exec: the same connection in a new program; and in a child started with the socket as its input --- */
static void exec_client(int fd) {
    warm_client(fd);
    put(fd, "to the new program\n", 19);
    char text[32] = {0};
    get(fd, text, 19);
    CHECK(memcmp(text, "TO THE NEW PROGRAM\n", 19) == 0);
    CHECK(read(fd, text, 1) == 0);
}

static void exec_server(int fd) {
    warm_server(fd);
    puts("becomes another");
    fflush(stdout);
    pid_t program = fork();
    if (program == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execlp("sh", "sh", "-c", "read line; echo \"$line\" | tr a-z A-Z", NULL);
        _exit(127);
    }
    close(fd);
    CHECK(waitpid(program, NULL, 0) == program);
}

/* --- descriptors in messages --- */
static void passing_server(int fd) {
    warm_server(fd);
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (child == 0) {
        close(fd);
        close(pair[0]);
        CHECK(recvmsg(pair[1], &message, 0) == 1);
        int got;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        char text[19];
        get(got, text, 19);
        for (int i = 0; i < 19; i++) text[i] = (char)(text[i] >= 'a' ? text[i] - 32 : text[i]);
        put(got, text, 19);
        _exit(0);
    }
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("passed");
}

/* --- the peer dies --- */
static void killed_client(int fd) {
    warm_client(fd);
    unsigned char bytes[5000];
    fill(bytes, sizeof bytes, 0);
    put(fd, bytes, sizeof bytes);
    raise(SIGKILL);
}

static void killed_server(int fd) {
    warm_server(fd);
    unsigned char bytes[5000];
    get(fd, bytes, sizeof bytes);
    check(bytes, sizeof bytes, 0);
    CHECK(read(fd, bytes, 1) == 0);
    int error = 0;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 100000 && !error; i++)
        if (send(fd, bytes, 100, 0) < 0) error = errno;
    puts(error == EPIPE || error == ECONNRESET ? "the peer is gone" : "no error");
    close(fd);
}

/* --- a peer that closes with unread bytes resets --- */
static void unread_client(int fd) {
    warm_client(fd);
    char c;
    get(fd, &c, 1);
    close(fd);
    exit(0);
}

static void unread_server(int fd) {
    warm_server(fd);
    put(fd, "0123456789", 10);
    char c;
    ssize_t count = read(fd, &c, 1);
    printf("read %zd, %s\n", count, count < 0 && errno == ECONNRESET ? "reset" : "no reset");
    printf("read again %zd\n", read(fd, &c, 1));
    close(fd);
}

/* --- threads: one is cancelled in recv, two read one socket, a signal interrupts --- */
static void *reader(void *fd) {
    char c;
    recv(*(int *)fd, &c, 1, 0);
    return NULL;
}

static void on_signal(int signal) { (void)signal; }

static void threads_client(int fd) {
    warm_client(fd);
    char c;
    get(fd, &c, 1);
    put(fd, "yz", 2);
    get(fd, &c, 1);
}

static void threads_server(int fd) {
    warm_server(fd);
    pthread_t one, two;
    void *result;
    CHECK(pthread_create(&one, NULL, reader, &fd) == 0);
    usleep(50000);
    CHECK(pthread_cancel(one) == 0 && pthread_join(one, &result) == 0 && result == PTHREAD_CANCELED);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    char c;
    ualarm(50000, 50000); /* again and again: one may come before the call has begun */
    CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR);
    ualarm(0, 0);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    ualarm(50000, 0);
    CHECK(pthread_create(&one, NULL, reader, &fd) == 0 && pthread_create(&two, NULL, reader, &fd) == 0);
    usleep(100000);
    put(fd, "x", 1);
    CHECK(pthread_join(one, &result) == 0 && result == NULL && pthread_join(two, &result) == 0 && result == NULL);
    put(fd, "x", 1);
    puts("threads");
    close(fd);
}

/* --- two writers that were started long after the connection was made; one is held up in the middle of its sends --- */
enum { LATE_PARTS = 12, LATE_PART = 32 << 10, LATE_HALF = LATE_PART / 2, LATE_CYCLE = 113 };

struct late {
    pthread_t thread;
    int fd;
    unsigned char kind;
    uint64_t sent;
};

static unsigned char *late_bytes;
static volatile int late_done;

static void late_open(void) { CHECK(mprotect(late_bytes + LATE_HALF, LATE_HALF, PROT_READ | PROT_WRITE) == 0); }

/* Comes where the library reads the second half; the kernel's own send says EFAULT there. */
static void on_late_read(int signal) {
    (void)signal;
    usleep(30000);
    late_open();
}

/* Each byte says whose it is, and has a count that no lost part of a usual length leaves as it was. */
static void late_send(struct late *late, unsigned char *bytes, size_t len, int closes) {
    for (size_t i = 0; i < len; i++) bytes[i] = (unsigned char)(late->kind | (late->sent + i) % LATE_CYCLE);
    if (closes) CHECK(mprotect(bytes + LATE_HALF, LATE_HALF, PROT_NONE) == 0);
    for (size_t done = 0; done < len;) {
        ssize_t count = send(late->fd, bytes + done, len - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EFAULT && closes) {
            late_open();
            continue;
        }
        CHECK(count > 0);
        done += (size_t)count;
    }
    late->sent += len;
}

static void *late_holder(void *late) {
    for (int i = 0; i < LATE_PARTS; i++) {
        late_send(late, late_bytes, LATE_PART, 1);
        usleep(1000);
    }
    late_done = 1;
    return NULL;
}

static void *late_other(void *late) {
    unsigned char bytes[2048];
    while (!late_done) {
        late_send(late, bytes, sizeof bytes, 0);
        usleep(50);
    }
    return NULL;
}

static void late_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[LATE_PART];
    uint64_t got[2] = {0, 0};
    for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) != 0;) {
        CHECK(count > 0);
        for (ssize_t i = 0; i < count; i++) {
            int kind = bytes[i] >> 7;
            CHECK((bytes[i] & 127) == (int)(got[kind]++ % LATE_CYCLE));
        }
    }
    put(fd, got, sizeof got);
}

static void late_server(int fd) {
    warm_server(fd);
    sleep(3);
    struct sigaction action = {.sa_handler = on_late_read};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    late_bytes = mmap(NULL, LATE_PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(late_bytes != MAP_FAILED);
    struct late holder = {.fd = fd, .kind = 0}, other = {.fd = fd, .kind = 128};
    CHECK(pthread_create(&holder.thread, NULL, late_holder, &holder) == 0);
    CHECK(pthread_create(&other.thread, NULL, late_other, &other) == 0);
    CHECK(pthread_join(holder.thread, NULL) == 0 && pthread_join(other.thread, NULL) == 0);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    uint64_t got[2];
    get(fd, got, sizeof got);
    CHECK(got[0] == holder.sent && got[1] == other.sent);
    puts("late");
    close(fd);
}

/* --- stdio and sendfile --- */
static void stdio_client(int fd) {
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    char line[64];
    for (int i = 0; i < 50; i++) {
        fprintf(out, "line %d\n", i);
        fflush(out);
        CHECK(fgets(line, sizeof line, in) && atoi(line) == i * 2);
    }
    fclose(out);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    static char bytes[300000];
    CHECK(fread(bytes, 1, sizeof bytes, in) == sizeof bytes && fgetc(in) == EOF);
    check((unsigned char *)bytes, sizeof bytes, 0);
    fclose(in);
    int other = open("/dev/null", O_RDWR);
    CHECK(other == fd && write(other, "x", 1) == 1);
}

static void stdio_server(int fd) {
    FILE *in = fdopen(fd, "r");
    char line[64];
    while (fgets(line, sizeof line, in)) dprintf(fd, "%d\n", atoi(line + 5) * 2);
    char name[] = "/tmp/viaduct-streams-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    static unsigned char bytes[300000];
    fill(bytes, sizeof bytes, 0);
    CHECK(write(file, bytes, sizeof bytes) == sizeof bytes);
    off_t at = 0;
    while (at < (off_t)sizeof bytes) CHECK(sendfile(fd, file, &at, sizeof bytes - (size_t)at) > 0);
    puts("stdio");
    fclose(in);
}

static const struct {
    const char *name;
    int family;
    end_fn *server, *client;
} SCENARIOS[] = {
    {"bulk", AF_INET, bulk_server, bulk_client},       {"mapped", AF_INET6, bulk_server, bulk_client},
    {"vectors", AF_INET, vectors_server, vectors_client}, {"flags", AF_INET, flags_server, flags_client},
    {"turns", AF_INET, turns_server, echo_client},
    {"level", AF_INET, level_server, echo_client},     {"edge", AF_INET, edge_server, echo_client},
    {"once", AF_INET, once_server, echo_client},       {"select", AF_INET, select_server, echo_client},
    {"nested", AF_INET, nested_server, echo_client},   {"shared", AF_INET, shared_server, shared_client},
    {"exec", AF_INET, exec_server, exec_client},       {"passing", AF_INET, passing_server, exec_client},
    {"killed", AF_INET, killed_server, killed_client}, {"unread", AF_INET, unread_server, unread_client},
    {"threads", AF_INET, threads_server, threads_client}, {"stdio", AF_INET, stdio_server, stdio_client},
    {"late", AF_INET, late_server, late_client},
};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 2 && strcmp(argv[2], "one-core") == 0) {
        cpu_set_t cpus;
        CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
        int first = 0;
        while (!CPU_ISSET(first, &cpus)) first++;
        CPU_ZERO(&cpus);
        CPU_SET(first, &cpus);
        CHECK(sched_setaffinity(0, sizeof cpus, &cpus) == 0);
    }
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) {
            both(SCENARIOS[i].family, SCENARIOS[i].server, SCENARIOS[i].client);
            return 0;
        }
    fprintf(stderr, "no such scenario\n");
    return 2;
}
