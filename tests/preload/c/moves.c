/* Connections that were upgraded and then have to be the kernel's again. The same lines must come with and without the
 * library. Usage: moves SCENARIO BARE, where BARE is the statically linked program bare.c */
#include "common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char **environ;
static const char *bare;
static char *own_program;

/* --- programs without the library --- */
enum { MANY = 100000 };

/* Sends before it waits, so that the bytes lie in the ring when the other side starts its program. */
static void line_client(int fd) {
    warm_client(fd);
    char text[32] = {0};
    put(fd, "to the new program\n", 19);
    get(fd, text, 19);
    CHECK(memcmp(text, "TO THE NEW PROGRAM\n", 19) == 0);
    put(fd, "and to the old\n", 15); /* the process that has the library uses it again */
    get(fd, text, 15);
    CHECK(memcmp(text, "and to the old\n", 15) == 0);
    CHECK(read(fd, text, 1) == 0);
}

static void waiting(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1);
}

static void after(int fd, pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
    char text[15];
    get(fd, text, 15);
    put(fd, text, 15);
    close(fd);
}

static void exec_bare_server(int fd) {
    warm_server(fd);
    waiting(fd);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execl(bare, bare, "upper", NULL);
        _exit(127);
    }
    after(fd, child);
}

/* Without waiting for the bytes: whatever has arrived, and by which way. */
static void exec_at_once_server(int fd) {
    warm_server(fd);
    pid_t child = fork();
    if (child == 0) {
        char *words[] = {(char *)bare, "upper", NULL};
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execvp(bare, words);
        _exit(127);
    }
    after(fd, child);
}

static void vfork_server(int fd) {
    warm_server(fd);
    waiting(fd);
    char *words[] = {(char *)bare, "upper", NULL};
    pid_t child = vfork();
    if (child == 0) {
        if (dup2(fd, 0) != 0 || dup2(fd, 1) != 1) _exit(126);
        syscall(SYS_close_range, 3, ~0U, 0);
        execv(bare, words);
        _exit(127);
    }
    after(fd, child);
}

static void spawn_server(int fd) {
    warm_server(fd);
    waiting(fd);
    CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
    char *words[] = {(char *)bare, "upper", NULL};
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    pid_t child;
    CHECK(posix_spawnp(&child, bare, &actions, NULL, words, environ) == 0);
    after(fd, child);
}

/* A shell that loads the library, and does not use the connection, starts the program. */
static void shell_server(int fd) {
    warm_server(fd);
    waiting(fd);
    char command[1000];
    snprintf(command, sizeof command, "true; exec %s upper", bare);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    after(fd, child);
}

/* As above, but the shell goes on, and starts it as a child. */
static void shell_child_server(int fd) {
    warm_server(fd);
    waiting(fd);
    char command[1000];
    snprintf(command, sizeof command, "%s upper; exit $?", bare);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    after(fd, child);
}

/* A program that could load the library but gets no variable. */
static void scrubbed_server(int fd) {
    warm_server(fd);
    waiting(fd);
    pid_t child = fork();
    if (child == 0) {
        char *variables[] = {"PATH=/usr/bin:/bin", NULL};
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execle("/bin/sh", "sh", "-c", "read line; echo \"$line\" | tr a-z A-Z", NULL, variables);
        _exit(127);
    }
    after(fd, child);
}

static void system_server(int fd) {
    warm_server(fd);
    waiting(fd);
    char command[100];
    snprintf(command, sizeof command, "read line <&%d; echo \"$line\" | tr a-z A-Z >&%d", fd, fd);
    unsetenv("LD_PRELOAD");
    printf("the program ended with %d\n", system(command));
    char text[15];
    get(fd, text, 15);
    put(fd, text, 15);
    close(fd);
}

/* A ring that is nearly full. */
static void many_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[MANY];
    fill(bytes, MANY, 0);
    put(fd, bytes, MANY);
    get(fd, bytes, 1);
    CHECK(bytes[0] == 'k');
    CHECK(read(fd, bytes, 1) == 0);
}

static void many_server(int fd) {
    warm_server(fd);
    usleep(100000);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        execlp(bare, bare, "count", "100000", NULL);
        _exit(127);
    }
    int status;
    close(fd);
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
}

/* The same while the peer waits with epoll. */
static void watcher_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[MANY];
    fill(bytes, MANY, 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (size_t sent = 0; sent < MANY;) {
        CHECK(epoll_wait(set, &event, 1, 60000) == 1);
        ssize_t count = write(fd, bytes + sent, MANY - sent);
        if (count > 0) sent += (size_t)count;
    }
    event.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    CHECK(read(fd, bytes, 1) == 1 && bytes[0] == 'k');
}

/* --- the peer has ended its stream before the program is started: what it sent, and an answer to it, must arrive --- */
static void ended_client(int fd) {
    warm_client(fd);
    put(fd, "to the new program\n", 19);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    char text[20];
    get(fd, text, 19);
    CHECK(memcmp(text, "TO THE NEW PROGRAM\n", 19) == 0 && read(fd, text, 1) == 0);
}

static void gone_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[MANY];
    fill(bytes, MANY, 0);
    put(fd, bytes, MANY);
    raise(SIGKILL);
}

static void await_end(int fd) {
    struct pollfd entry = {fd, POLLRDHUP, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && entry.revents & POLLRDHUP);
}

static void ended_server(int fd) {
    warm_server(fd);
    await_end(fd);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        execl(bare, bare, "upper", NULL);
        _exit(127);
    }
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
}

static void ended_vfork_server(int fd) {
    warm_server(fd);
    await_end(fd);
    char *words[] = {(char *)bare, "upper", NULL};
    pid_t child = vfork();
    if (child == 0) {
        if (dup2(fd, 0) != 0 || dup2(fd, 1) != 1) _exit(126);
        execv(bare, words);
        _exit(127);
    }
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
}

static void gone_server(int fd) {
    warm_server(fd);
    await_end(fd);
    int count = open("/dev/null", O_WRONLY);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(count, 1) == 1);
        execlp(bare, bare, "count", "100000", NULL);
        _exit(127);
    }
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
}

/* --- urgent data --- */
static void urgent_client(int fd) {
    warm_client(fd);
    put(fd, "abc", 3);
    CHECK(send(fd, "!", 1, MSG_OOB) == 1);
    put(fd, "def", 3);
    char c;
    get(fd, &c, 1);
}

static void urgent_server(int fd) {
    warm_server(fd);
    struct pollfd entry = {fd, POLLPRI, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && entry.revents & POLLPRI);
    char text[8] = {0}, urgent = 0;
    for (int got = 0; got < 3;) {
        ssize_t count = recv(fd, text + got, (size_t)(3 - got), 0);
        CHECK(count > 0);
        got += (int)count;
    }
    printf("before the mark: %.3s\n", text);
    CHECK(recv(fd, &urgent, 1, MSG_OOB) == 1);
    printf("urgent: %c, at the mark: %d\n", urgent, sockatmark(fd));
    get(fd, text, 3);
    printf("after the mark: %.3s\n", text);
    put(fd, "x", 1);
    close(fd);
}

/* --- a connection is passed to a process without the library --- */
static void passed_to(int channel) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(channel, &message, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    char c;
    do {
        get(fd, &c, 1);
        char upper = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
        put(fd, &upper, 1);
    } while (c != '\n');
    exit(0);
}

static void pass_on(int fd) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        close(fd);
        unsetenv("LD_PRELOAD");
        snprintf(number, sizeof number, "%d", pair[1]);
        execl(own_program, own_program, "receiver", number, NULL);
        _exit(127);
    }
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    after(fd, child);
}

static void passed_server(int fd) {
    warm_server(fd);
    waiting(fd);
    pass_on(fd);
}

/* A program that this one becomes has never used the connection when it passes it on. */
static void passed_unused_server(int fd) {
    char number[12];
    warm_server(fd);
    waiting(fd);
    snprintf(number, sizeof number, "%d", fd);
    execl(own_program, own_program, "onward", number, NULL);
    CHECK(0);
}

/* The line that the other side waits for, by read and write alone. */
static void raise_line(int fd) {
    char c;
    do {
        CHECK(read(fd, &c, 1) == 1);
        char upper = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
        CHECK(write(fd, &upper, 1) == 1);
    } while (c != '\n');
}

/* --- a filter that kills the process for calls that a program with read and write does not need --- */
static void filtered_server(int fd) {
    warm_server(fd);
    waiting(fd);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    pid_t child = fork();
    if (child == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        raise_line(fd);
        _exit(0);
    }
    after(fd, child);
}

/* --- a filter that kills the process for each call that it does not make itself, and new sockets behind it --- */
static const int MADE[] = {
    SYS_read,   SYS_write,    SYS_socket,  SYS_setsockopt, SYS_bind,  SYS_listen, SYS_connect,
    SYS_accept, SYS_recvfrom, SYS_sendto,  SYS_shutdown,   SYS_close, SYS_dup,    SYS_exit_group,
#ifdef SYS_dup2
    SYS_dup2,   SYS_poll,
#else
    SYS_dup3,   SYS_ppoll,
#endif
};
enum { CALLS = sizeof MADE / sizeof *MADE };

static void enclose(void) {
    struct sock_filter code[CALLS + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (unsigned i = 0; i < CALLS; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)MADE[i], CALLS - i, 0);
    code[1 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[2 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {CALLS + 3, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void enclosed(int fd, int door, uint16_t port, int old) {
    char text[8];
    CHECK(listen(door, 4) == 0);
    int near = dial(port), far = accept(door, NULL, NULL);
    CHECK(far >= 0);
    put(near, "inside", 6);
    struct pollfd entry = {far, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1);
    get(far, text, 6);
    CHECK(memcmp(text, "inside", 6) == 0);
    CHECK(dup2(far, old) == old && close(far) == 0);
    CHECK((far = dup(old)) >= 0 && close(old) == 0);
    put(far, "back", 4);
    get(near, text, 4);
    CHECK(memcmp(text, "back", 4) == 0);
    CHECK(shutdown(near, SHUT_WR) == 0 && recv(far, text, 1, 0) == 0);
    CHECK(dup2(-1, near) == -1 && errno == EBADF);
    CHECK(close(near) == 0 && close(far) == 0 && close(door) == 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK((door = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && bind(door, (void *)&any, sizeof any) == 0);
    CHECK(listen(door, 1) == 0 && close(door) == 0);
    raise_line(fd);
}

static void enclosed_server(int fd) {
    warm_server(fd);
    waiting(fd);
    uint16_t port;
    int door = listener(AF_INET, &port);
    pid_t child = fork();
    if (child == 0) {
        int old = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(old >= 0);
        enclose();
        enclosed(fd, door, port, old);
        _exit(0);
    }
    close(door);
    after(fd, child);
}

/* --- what only the kernel can do --- */
static void options_server(int fd) {
    warm_server(fd);
    waiting(fd);
    int one = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
    char text[32];
    get(fd, text, 19);
    for (int i = 0; i < 19; i++) text[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 32 : text[i]);
    CHECK(send(fd, text, 19, MSG_ZEROCOPY) == 19);
    puts("options");
    get(fd, text, 15);
    put(fd, text, 15);
    close(fd);
}

/* Messages that say how much is left, and when packets came. */
static void told_client(int fd) {
    warm_client(fd);
    put(fd, "12345", 5);
    char c;
    get(fd, &c, 1);
    /* The kernel begins to note times some time after it was asked to. */
    for (get(fd, &c, 1); c == 'm'; get(fd, &c, 1)) {
        usleep(1000);
        put(fd, "6", 1);
    }
}

static void told_server(int fd) {
    const int one = 1, inquire = 36, length = 5;
    char text[8], space[256];
    struct iovec part = {text, 2};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    warm_server(fd);
    CHECK(setsockopt(fd, IPPROTO_TCP, inquire, &one, sizeof one) == 0);
    CHECK(recv(fd, text, length, MSG_PEEK | MSG_WAITALL) == length);
    CHECK(recvmsg(fd, &message, 0) == 2);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    CHECK(control && control->cmsg_level == IPPROTO_TCP && control->cmsg_type == inquire);
    int left;
    memcpy(&left, CMSG_DATA(control), sizeof left);
    printf("%d left\n", left);
    get(fd, text, 3);
    const int none = 0;
    CHECK(setsockopt(fd, IPPROTO_TCP, inquire, &none, sizeof none) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0);
    put(fd, "a", 1);
    int turns = 0;
    do {
        CHECK(++turns < 10000);
        put(fd, "m", 1);
        message.msg_controllen = sizeof space;
        CHECK(recvmsg(fd, &message, 0) == 1);
        control = CMSG_FIRSTHDR(&message);
    } while (control == NULL);
    CHECK(control->cmsg_level == SOL_SOCKET && control->cmsg_type == SO_TIMESTAMP);
    puts("and a time");
    put(fd, "b", 1);
    close(fd);
}

/* A device, and no other, from now on. */
static void device_server(int fd) {
    warm_server(fd);
    waiting(fd);
    int done = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
    printf("bound to a device: %s\n", done == 0 ? "yes" : strerror(errno));
    char text[32];
    get(fd, text, 19);
    for (int i = 0; i < 19; i++) text[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 32 : text[i]);
    put(fd, text, 19);
    get(fd, text, 15);
    put(fd, text, 15);
    close(fd);
}

/* Connections that are never upgraded: data in the first packet, by a send or by a write after connect, bound to a device,
 * or of a listener with messages that tell of bytes or times, or with a filter. */
static void kept(void) {
    for (int way = 0; way < 6; way++) {
        uint16_t port;
        int door = listener(AF_INET, &port), queue = 5, one = 1;
        if (way == 3) CHECK(setsockopt(door, IPPROTO_TCP, 36, &one, sizeof one) == 0);
        if (way == 4) CHECK(setsockopt(door, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) == 0);
        struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
        struct sock_fprog filter = {1, all};
        if (way == 5 && setsockopt(door, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0) {
            CHECK(errno == EPERM); /* some kernels give ordinary users no filters */
            close(door);
            break;
        }
        setsockopt(door, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof queue);
        pid_t child = fork();
        CHECK(child >= 0);
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
        if (child == 0) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (way == 0) CHECK(sendto(fd, "first", 5, MSG_FASTOPEN, (void *)&to, sizeof to) == 5);
            if (way == 1) CHECK(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one) == 0);
            if (way == 2) CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
            if (way > 0) CHECK(connect(fd, (void *)&to, sizeof to) == 0 && write(fd, "first", 5) == 5);
            for (int i = 0; i < 10; i++) warm_client(fd);
            _exit(0);
        }
        int fd = accept(door, NULL, NULL), status;
        char text[5];
        get(fd, text, 5);
        CHECK(memcmp(text, "first", 5) == 0);
        for (int i = 0; i < 10; i++) warm_server(fd);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        close(fd);
        close(door);
    }
    puts("kept");
}

/* Kernel TLS: the protocol is put above TCP while bytes lie in the ring; without keys it passes them on as they are. */
static void tls_server(int fd) {
    warm_server(fd);
    waiting(fd);
    int done = setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3);
    printf("kernel TLS: %s\n", done == 0 ? "yes" : strerror(errno));
    char text[32];
    get(fd, text, 19);
    for (int i = 0; i < 19; i++) text[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 32 : text[i]);
    put(fd, text, 19);
    get(fd, text, 15);
    put(fd, text, 15);
    close(fd);
}

/* --- splice there and back, through a pipe --- */
enum { SPLICED = 3 << 20 };

static void *splice_sender(void *fd) {
    static unsigned char bytes[50000];
    for (uint64_t at = 0; at < SPLICED;) {
        size_t len = sizeof bytes < SPLICED - at ? sizeof bytes : SPLICED - at;
        fill(bytes, len, at);
        put(*(int *)fd, bytes, len);
        at += len;
    }
    CHECK(shutdown(*(int *)fd, SHUT_WR) == 0);
    return NULL;
}

static void splice_client(int fd) {
    warm_client(fd);
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, splice_sender, &fd) == 0);
    static unsigned char bytes[70001];
    uint64_t at = 0;
    for (;;) {
        ssize_t count = read(fd, bytes, sizeof bytes);
        CHECK(count >= 0);
        if (count == 0) break;
        check(bytes, (size_t)count, at);
        at += (uint64_t)count;
    }
    CHECK(at == SPLICED && pthread_join(sender, NULL) == 0);
}

static void splice_server(int fd) {
    warm_server(fd);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    uint64_t moved = 0;
    for (;;) {
        ssize_t in = splice(fd, NULL, pipes[1], NULL, 40000, SPLICE_F_MOVE);
        CHECK(in >= 0);
        if (in == 0) break;
        for (ssize_t out = 0; out < in;) {
            ssize_t count = splice(pipes[0], NULL, fd, NULL, (size_t)(in - out), SPLICE_F_MOVE);
            CHECK(count > 0);
            out += count;
        }
        moved += (uint64_t)in;
    }
    CHECK(splice(pipes[0], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    printf("spliced %llu\n", (unsigned long long)moved);
    close(fd);
}

/* --- many messages in one call --- */
static void messages_client(int fd) {
    warm_client(fd);
    unsigned char bytes[300];
    fill(bytes, sizeof bytes, 0);
    struct iovec parts[3] = {{bytes, 100}, {bytes + 100, 50}, {bytes + 150, 150}};
    struct mmsghdr messages[3] = {0};
    for (int i = 0; i < 3; i++) messages[i].msg_hdr = (struct msghdr){.msg_iov = parts + i, .msg_iovlen = 1};
    CHECK(sendmmsg(fd, messages, 3, 0) == 3 && messages[0].msg_len == 100 && messages[2].msg_len == 150);
    char c;
    get(fd, &c, 1);
}

static void messages_server(int fd) {
    warm_server(fd);
    unsigned char bytes[300];
    usleep(50000);
    struct iovec parts[3] = {{bytes, 120}, {bytes + 120, 120}, {bytes + 240, 120}};
    struct mmsghdr messages[3] = {0};
    for (int i = 0; i < 3; i++) messages[i].msg_hdr = (struct msghdr){.msg_iov = parts + i, .msg_iovlen = 1};
    parts[2].iov_len = 60;
    CHECK(recvmmsg(fd, messages, 3, MSG_WAITALL, NULL) == 3);
    check(bytes, 300, 0);
    CHECK(recvmmsg(fd, messages, 3, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
    put(fd, "x", 1);
    puts("messages");
    close(fd);
}

/* --- lingering --- */
static void abort_client(int fd) {
    warm_client(fd);
    struct linger linger = {1, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    char c;
    get(fd, &c, 1);
    close(fd);
    exit(0);
}

static void abort_server(int fd) {
    warm_server(fd);
    put(fd, "x", 1);
    char c;
    ssize_t count = read(fd, &c, 1);
    printf("read %zd, %s\n", count, count < 0 && errno == ECONNRESET ? "reset" : "no reset");
    signal(SIGPIPE, SIG_IGN);
    count = write(fd, &c, 1);
    printf("write %zd, %s\n", count, errno == EPIPE ? "broken" : "no");
    close(fd);
}

static void linger_client(int fd) {
    warm_client(fd);
    struct linger linger = {1, 20};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    static unsigned char bytes[MANY];
    fill(bytes, MANY, 0);
    put(fd, bytes, MANY);
    CHECK(close(fd) == 0);
    exit(0);
}

static void linger_server(int fd) {
    warm_server(fd);
    usleep(100000);
    static unsigned char bytes[MANY];
    get(fd, bytes, MANY);
    check(bytes, MANY, 0);
    printf("all, then %zd\n", read(fd, bytes, 1));
    close(fd);
}

/* --- limits in time --- */
static int turn[2]; /* tells the client when to read */

static void times_server(int fd) {
    warm_server(fd);
    char c;
    struct timeval limit = {0, 30000}, back;
    socklen_t len = sizeof back;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len) == 0 && back.tv_sec == 0 && back.tv_usec >= 30000);
    CHECK(recv(fd, &c, 1, 0) == -1 && errno == EAGAIN);
    CHECK(recv(fd, &c, 1, MSG_WAITALL) == -1 && errno == EAGAIN);
    static unsigned char bytes[1 << 20];
    memset(bytes, 7, sizeof bytes);
    ssize_t count;
    int parts = 0;
    while ((count = send(fd, bytes, sizeof bytes, 0)) > 0) parts++; /* a part, then nothing */
    CHECK(count == -1 && errno == EAGAIN && parts > 0);
    puts("times");
    CHECK(write(turn[1], "x", 1) == 1);
    limit.tv_usec = 0;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    put(fd, bytes, 1000);
    close(fd);
}

static void times_slow_client(int fd) {
    warm_client(fd);
    char c;
    close(turn[1]);
    CHECK(read(turn[0], &c, 1) == 1); /* the other side fills all buffers meanwhile */
    static unsigned char bytes[65536];
    for (;;) {
        ssize_t count = read(fd, bytes, sizeof bytes);
        CHECK(count >= 0);
        if (count == 0) break;
        for (ssize_t i = 0; i < count; i++) CHECK(bytes[i] == 7);
    }
}

static const struct {
    const char *name;
    end_fn *server, *client;
} SCENARIOS[] = {
    {"exec", exec_bare_server, line_client},     {"exec-at-once", exec_at_once_server, line_client},
    {"vfork", vfork_server, line_client},        {"spawn", spawn_server, line_client},
    {"shell", shell_server, line_client},        {"shell-child", shell_child_server, line_client},
    {"scrubbed", scrubbed_server, line_client},  {"system", system_server, line_client},
    {"many", many_server, many_client},          {"watcher", many_server, watcher_client},
    {"urgent", urgent_server, urgent_client},    {"passed", passed_server, line_client},
    {"passed-unused", passed_unused_server, line_client}, {"told", told_server, told_client},
    {"filtered", filtered_server, line_client},  {"options", options_server, line_client},
    {"splice", splice_server, splice_client},    {"messages", messages_server, messages_client},
    {"abort", abort_server, abort_client},       {"linger", linger_server, linger_client},
    {"times", times_server, times_slow_client},  {"enclosed", enclosed_server, line_client},
    {"device", device_server, line_client},
    {"tls", tls_server, line_client},            {"ended", ended_server, ended_client},
    {"ended-vfork", ended_vfork_server, ended_client}, {"gone", gone_server, gone_client},
};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    own_program = argv[0];
    if (argc == 3 && strcmp(argv[1], "receiver") == 0) passed_to(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "onward") == 0) return pass_on(atoi(argv[2])), 0;
    if (argc > 1 && strcmp(argv[1], "kept") == 0) return kept(), 0;
    CHECK(pipe(turn) == 0);
    bare = argc > 2 ? argv[2] : "";
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) {
            both(AF_INET, SCENARIOS[i].server, SCENARIOS[i].client);
            return 0;
        }
    fprintf(stderr, "no such scenario\n");
    return 2;
}
