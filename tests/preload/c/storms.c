/* Connections under stress: processes that are killed anywhere, descriptors that wander, upgrades at any offset. Every byte
 * is checked. Usage: storms SCENARIO SEED ROUNDS */
#include "common.h"

#include <sys/resource.h>
#include <time.h>

static uint64_t state;

static uint32_t dice(uint32_t sides) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % sides;
}

static int rounds;

static void meet(uint16_t *port, int *door) { *door = listener(AF_INET, port); }

static int welcome(int door) {
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    return fd;
}

/* --- a writer is killed: all that arrives is right, and then the stream ends --- */
static void write_until_killed(int fd) {
    static unsigned char bytes[30000];
    warm_client(fd);
    for (uint64_t at = 0;;) {
        size_t len = 1 + dice(dice(2) ? 100 : sizeof bytes);
        fill(bytes, len, at);
        put(fd, bytes, len);
        at += len;
    }
}

static void killed_writer(void) {
    static unsigned char bytes[40000];
    uint16_t port;
    int door;
    meet(&port, &door);
    for (int round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            close(door);
            write_until_killed(dial(port));
        }
        int fd = welcome(door);
        warm_server(fd);
        uint64_t at = 0, limit = dice(3) ? dice(3000) : dice(600000);
        int alive = 1;
        for (;;) {
            if (alive && at >= limit) {
                CHECK(kill(child, SIGKILL) == 0);
                alive = 0;
            }
            ssize_t count = read(fd, bytes, 1 + dice(sizeof bytes));
            if (count <= 0) {
                CHECK(!alive && (count == 0 || errno == ECONNRESET));
                break;
            }
            check(bytes, (size_t)count, at);
            at += (uint64_t)count;
        }
        close(fd);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    puts("writers were killed");
}

/* --- a reader is killed: the writer hears of it --- */
static void killed_reader(void) {
    static unsigned char bytes[30000];
    uint16_t port;
    int door;
    meet(&port, &door);
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            close(door);
            int fd = dial(port);
            warm_client(fd);
            for (uint64_t at = 0;;) {
                ssize_t count = read(fd, bytes, 1 + dice(sizeof bytes));
                CHECK(count > 0);
                check(bytes, (size_t)count, at);
                at += (uint64_t)count;
            }
        }
        int fd = welcome(door);
        warm_server(fd);
        uint64_t at = 0, limit = dice(400000);
        int alive = 1;
        for (;;) {
            if (alive && at >= limit) {
                CHECK(kill(child, SIGKILL) == 0);
                alive = 0;
            }
            size_t len = 1 + dice(sizeof bytes);
            fill(bytes, len, at);
            ssize_t count = send(fd, bytes, len, 0);
            if (count < 0) {
                CHECK(!alive && (errno == EPIPE || errno == ECONNRESET));
                break;
            }
            at += (uint64_t)count;
        }
        close(fd);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    puts("readers were killed");
}

/* --- two processes write to one connection, and one of them is killed. Each has bytes of its own, in sequence. --- */
static void write_sequence(int fd, unsigned char kind, uint64_t most) {
    static unsigned char bytes[3000];
    for (uint64_t at = 0; at < most;) {
        size_t len = 1 + dice(sizeof bytes);
        if (len > most - at) len = most - at;
        for (size_t i = 0; i < len; i++) bytes[i] = kind | (unsigned char)((at + i) % 128);
        put(fd, bytes, len);
        at += len;
    }
}

static void killed_sharer(void) {
    static unsigned char bytes[40000];
    uint16_t port;
    int door;
    meet(&port, &door);
    for (int round = 0; round < rounds; round++) {
        int pids[2];
        CHECK(pipe(pids) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(door);
            int fd = dial(port);
            warm_client(fd);
            pid_t other = fork();
            if (other == 0) {
                write_sequence(fd, 128, UINT64_MAX);
                _exit(1);
            }
            CHECK(write(pids[1], &other, sizeof other) == sizeof other);
            state += 77;
            write_sequence(fd, 0, 300000);
            int status;
            CHECK(waitpid(other, &status, 0) == other && WIFSIGNALED(status));
            write_sequence(fd, 0, 1280);
            _exit(0);
        }
        close(pids[1]);
        int fd = welcome(door);
        warm_server(fd);
        pid_t victim = 0;
        CHECK(read(pids[0], &victim, sizeof victim) == sizeof victim);
        close(pids[0]);
        uint64_t seen[2] = {0, 0}, limit = dice(100000);
        int alive = 1;
        for (;;) {
            if (alive && seen[1] >= limit) {
                CHECK(kill(victim, SIGKILL) == 0);
                alive = 0;
            }
            ssize_t count = read(fd, bytes, sizeof bytes);
            CHECK(count >= 0);
            if (count == 0) break;
            for (ssize_t i = 0; i < count; i++) {
                int kind = bytes[i] >> 7;
                if (kind == 0 && seen[0] == 300000) seen[0] = 300032; /* the second sequence starts anew */
                uint64_t want = seen[0] >= 300032 && kind == 0 ? seen[0] - 300032 : seen[kind];
                CHECK((bytes[i] & 127) == want % 128);
                seen[kind]++;
            }
        }
        CHECK(!alive && seen[0] == 300032 + 1280);
        close(fd);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("sharers were killed");
}

/* --- a descriptor wanders: dup, fork, exec, messages; the stream goes on with each --- */
static const char *own_program;

static void answer_all(int fd) {
    unsigned char word[64];
    for (uint64_t at = 0;; at += 64) {
        size_t got = 0;
        while (got < 64) {
            ssize_t count = read(fd, word + got, 64 - got);
            CHECK(count >= 0);
            if (count == 0) {
                CHECK(got == 0);
                exit(0);
            }
            got += (size_t)count;
        }
        check(word, 64, at);
        put(fd, word, 64);
    }
}

static uint64_t ask(int fd, uint64_t at) {
    unsigned char word[64];
    fill(word, 64, at);
    put(fd, word, 64);
    get(fd, word, 64);
    check(word, 64, at);
    return at + 64;
}

static void leave_to(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void wander(int fd, int step, uint64_t at) {
    for (; step < rounds; step++) {
        for (uint32_t i = dice(6); i > 0; i--) at = ask(fd, at);
        int flags = fcntl(fd, F_GETFL);
        switch (dice(9)) {
        case 0: { /* another number */
            int copy = dup(fd);
            close(fd);
            fd = copy;
            break;
        }
        case 1: { /* over one that is open */
            int to = 20 + (int)dice(20), other = open("/dev/null", O_RDONLY);
            if (to != fd) {
                CHECK(dup2(other, to) == to && dup2(fd, to) == to);
                close(fd);
                fd = to;
            }
            close(other);
            break;
        }
        case 2: { /* a child goes on */
            pid_t child = fork();
            if (child) {
                if (dice(2)) close(fd);
                leave_to(child);
            }
            break;
        }
        case 3: { /* a child has one turn */
            pid_t child = fork();
            if (child == 0) {
                ask(fd, at);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            at += 64;
            break;
        }
        case 4: { /* a new program goes on */
            char words[4][24];
            snprintf(words[0], 24, "%llu", (unsigned long long)state);
            snprintf(words[1], 24, "%d", rounds);
            snprintf(words[2], 24, "%d", fd);
            snprintf(words[3], 24, "%llu", (unsigned long long)at);
            char number[24];
            snprintf(number, 24, "%d", step + 1);
            execl(own_program, own_program, "resume", words[0], words[1], words[2], words[3], number, NULL);
            CHECK(0);
            break;
        }
        case 5: { /* in a message to a child, which goes on */
            int pair[2];
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
            pid_t child = fork();
            char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
            struct iovec part = {&byte, 1};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
            if (child == 0) {
                close(fd);
                CHECK(recvmsg(pair[1], &message, 0) == 1);
                memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
                close(pair[0]);
                close(pair[1]);
                break;
            }
            struct cmsghdr *control = CMSG_FIRSTHDR(&message);
            control->cmsg_level = SOL_SOCKET;
            control->cmsg_type = SCM_RIGHTS;
            control->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(control), &fd, sizeof fd);
            CHECK(sendmsg(pair[0], &message, 0) == 1);
            close(fd);
            leave_to(child);
            break;
        }
        case 6: { /* without blocking */
            CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
            at = ask(fd, at);
            CHECK(fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
            break;
        }
        case 7: { /* a shell has the other numbers */
            int status = system("exec >/dev/null; ls /");
            CHECK(status == 0);
            break;
        }
        case 8: { /* in a set, which a child inherits */
            int set = epoll_create1(0);
            struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
            unsigned char word[64];
            fill(word, 64, at);
            put(fd, word, 64);
            CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.data.fd == fd);
            get(fd, word, 64);
            check(word, 64, at);
            at += 64;
            close(set);
            break;
        }
        }
    }
    close(fd);
    puts("wandered");
    exit(0);
}

static void wandering(void) {
    uint16_t port;
    int door;
    meet(&port, &door);
    pid_t child = fork();
    if (child == 0) {
        close(door);
        answer_all(dial(port));
    }
    int fd = welcome(door);
    close(door);
    pid_t walker = fork();
    if (walker == 0) wander(fd, 0, 0);
    close(fd);
    int status;
    CHECK(waitpid(walker, &status, 0) == walker && status == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* --- the upgrade comes after so many bytes --- */
enum { BEHIND = 3000 };

/* How many bytes have come by TCP. */
static uint64_t came_by_tcp(int fd) {
    unsigned char info[256];
    socklen_t len = sizeof info;
    uint64_t received;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 && len >= 136);
    memcpy(&received, info + 128, sizeof received);
    return received;
}

static void expect_by_tcp(int fd, uint64_t expected) {
    if (getenv("LD_PRELOAD") == NULL || came_by_tcp(fd) == expected) return;
    fprintf(stderr, "%llu bytes came by TCP, not %llu\n", (unsigned long long)came_by_tcp(fd), (unsigned long long)expected);
    exit(1);
}

/* A call that moves no byte. */
static void look(int fd) {
    char byte;
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno == EAGAIN);
}

static void tell(int fd) { CHECK(write(fd, "x", 1) == 1); }

static void hear(int fd) {
    char c;
    CHECK(read(fd, &c, 1) == 1);
}

/* The receiver's side makes its first call when so many bytes have been sent, and the sender goes on after its second: the
 * bytes that follow are the first that the ring can have, and all of them go there. */
static void one_offset(int door, uint16_t port, uint64_t offset) {
    static unsigned char bytes[70000];
    int sent[2], known[2];
    CHECK(pipe(sent) == 0 && pipe(known) == 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = dial(port);
        look(fd);
        for (uint64_t at = 0; at < offset;) {
            size_t len = 1 + dice(offset < 100 ? 10 : (uint32_t)offset / 2);
            if (len > offset - at) len = offset - at;
            fill(bytes, len, at);
            put(fd, bytes, len);
            at += len;
        }
        tell(sent[1]);
        hear(known[0]);
        for (uint64_t at = offset; at < offset + BEHIND; at += 300) {
            fill(bytes, 300, at);
            put(fd, bytes, 300);
        }
        get(fd, bytes, BEHIND);
        check(bytes, BEHIND, 0);
        expect_by_tcp(fd, 0);
        _exit(0);
    }
    int fd = welcome(door);
    hear(sent[0]);
    look(fd);
    look(fd);
    tell(known[1]);
    for (uint64_t at = 0; at < offset + BEHIND;) {
        size_t len = 1 + dice(2000);
        if (len > offset + BEHIND - at) len = offset + BEHIND - at;
        ssize_t count = read(fd, bytes, len);
        CHECK(count > 0);
        check(bytes, (size_t)count, at);
        at += (uint64_t)count;
    }
    expect_by_tcp(fd, offset);
    for (uint64_t at = 0; at < BEHIND; at += 500) {
        fill(bytes, 500, at);
        put(fd, bytes, 500);
    }
    CHECK(read(fd, bytes, 1) == 0);
    int all[] = {fd, sent[0], sent[1], known[0], known[1]};
    for (int i = 0; i < 5; i++) close(all[i]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void offsets(void) {
    uint16_t port;
    int door;
    meet(&port, &door);
    for (int offset = 0; offset < rounds; offset++) one_offset(door, port, (uint64_t)offset);
    for (int more = 0; more < 20 + rounds / 20; more++) one_offset(door, port, dice(65536));
    puts("offsets");
}

/* --- many connections that do nothing --- */
static double cpu_seconds(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void idle_rest(int set, const char *name) {
    struct epoll_event event;
    double before = cpu_seconds();
    for (int i = 0; i < 4; i++) CHECK(epoll_wait(set, &event, 1, 500) == 0);
    double used = cpu_seconds() - before;
    if (used > 0.02) printf("%s used %.3f s of two\n", name, used); /* a line that plain TCP does not have */
}

static void limit_descriptors(rlim_t most) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Connections that are upgraded where they can be, a rest, and then a message on each of them. */
static void idle(void) {
    uint16_t port;
    int door;
    meet(&port, &door);
    CHECK(listen(door, 4096) == 0);
    int turn[2];
    CHECK(pipe(turn) == 0);
    pid_t child = fork();
    int set = epoll_create1(0), *fds = calloc((size_t)rounds, sizeof *fds);
    unsigned char word[8];
    if (child == 0) {
        for (int i = 0; i < rounds; i++) {
            fds[i] = dial(port);
            struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0);
            warm_client(fds[i]);
        }
        idle_rest(set, "the client");
        CHECK(read(turn[0], word, 1) == 1);
        for (int i = 0; i < rounds; i++) put(fds[i], "12345678", 8);
        for (int i = 0; i < rounds; i++) get(fds[i], word, 8);
        _exit(0);
    }
    for (int i = 0; i < rounds; i++) {
        fds[i] = welcome(door);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) == 0);
        warm_server(fds[i]);
    }
    idle_rest(set, "the server");
    CHECK(write(turn[1], "x", 1) == 1);
    for (int done = 0; done < rounds;) {
        struct epoll_event events[64];
        int count = epoll_wait(set, events, 64, 60000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            get(events[i].data.fd, word, 8);
            put(events[i].data.fd, word, 8);
            done++;
        }
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("idle");
}

/* --- many processes at once, each with a connection --- */
static void crowd(void) {
    limit_descriptors(RLIM_INFINITY);
    uint16_t port;
    int door, turn[2], *fds = calloc((size_t)rounds, sizeof *fds);
    meet(&port, &door);
    CHECK(listen(door, 4096) == 0 && pipe(turn) == 0);
    for (int i = 0; i < rounds; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(turn[1]);
            for (int j = 0; j < i; j++) close(fds[j]); /* those of the others */
            int fd = dial(port);
            warm_client(fd);
            char c;
            CHECK(read(turn[0], &c, 1) == 0); /* all are there */
            warm_client(fd);
            _exit(0);
        }
        fds[i] = welcome(door);
        warm_server(fds[i]);
    }
    close(turn[0]);
    close(turn[1]);
    for (int i = 0; i < rounds; i++) warm_server(fds[i]);
    for (int i = 0; i < rounds; i++) {
        int status;
        CHECK(waitpid(-1, &status, 0) > 0 && status == 0);
    }
    puts("a crowd");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    own_program = argv[0];
    if (argc < 4) return 2;
    state = strtoull(argv[2], NULL, 10);
    rounds = atoi(argv[3]);
    if (strcmp(argv[1], "resume") == 0) {
        CHECK(argc == 7);
        wander(atoi(argv[4]), atoi(argv[6]), strtoull(argv[5], NULL, 10));
    }
    if (strcmp(argv[1], "killed-writer") == 0) killed_writer();
    if (strcmp(argv[1], "killed-reader") == 0) killed_reader();
    if (strcmp(argv[1], "killed-sharer") == 0) killed_sharer();
    if (strcmp(argv[1], "wandering") == 0) wandering();
    if (strcmp(argv[1], "offsets") == 0) offsets();
    if (strcmp(argv[1], "idle") == 0) {
        limit_descriptors(RLIM_INFINITY);
        idle();
    }
    if (strcmp(argv[1], "crammed") == 0) {
        limit_descriptors((rlim_t)rounds + 12); /* each end has its connections, and hardly a descriptor more */
        idle();
    }
    if (strcmp(argv[1], "crowd") == 0) crowd();
    return 0;
}
