/* What the programs of this folder share: a connection between two processes, and checks of every byte. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                          \
    do {                                                                                     \
        if (!(what)) {                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d, pid %d)\n", __FILE__, __LINE__, #what, errno, getpid()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static unsigned char pattern(uint64_t at) { return (unsigned char)((at * 2654435761u) >> 13); }

static void fill(unsigned char *bytes, size_t len, uint64_t at) {
    for (size_t i = 0; i < len; i++) bytes[i] = pattern(at + i);
}

static void check(const unsigned char *bytes, size_t len, uint64_t at) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != pattern(at + i)) {
            fprintf(stderr, "byte %llu is wrong (pid %d)\n", (unsigned long long)(at + i), getpid());
            exit(1);
        }
}

static void put(int fd, const void *bytes, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t count = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd entry = {fd, POLLOUT, 0};
            CHECK(poll(&entry, 1, 60000) == 1);
            continue;
        }
        CHECK(count > 0);
        done += (size_t)count;
    }
}

static void get(int fd, void *bytes, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t count = recv(fd, (char *)bytes + done, len - done, 0);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd entry = {fd, POLLIN, 0};
            CHECK(poll(&entry, 1, 60000) == 1);
            continue;
        }
        CHECK(count > 0);
        done += (size_t)count;
    }
}

/* A few round trips, after which both directions have left TCP if they ever do. */
static void warm_client(int fd) {
    for (uint64_t i = 0; i < 6; i++) {
        unsigned char word[8];
        fill(word, 8, i * 8);
        put(fd, word, 8);
        get(fd, word, 8);
        check(word, 8, i * 8);
    }
}

static void warm_server(int fd) {
    for (int i = 0; i < 6; i++) {
        unsigned char word[8];
        get(fd, word, 8);
        put(fd, word, 8);
    }
}

static int listener(int family, uint16_t *port) {
    int fd = socket(family, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (family == AF_INET) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof address;
        CHECK(bind(fd, (void *)&address, len) == 0 && getsockname(fd, (void *)&address, &len) == 0);
        *port = address.sin_port;
    } else {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6};
        socklen_t len = sizeof address;
        CHECK(bind(fd, (void *)&address, len) == 0 && getsockname(fd, (void *)&address, &len) == 0);
        *port = address.sin6_port;
    }
    CHECK(listen(fd, 64) == 0);
    return fd;
}

static int dial(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
    CHECK(fd >= 0 && connect(fd, (void *)&address, sizeof address) == 0);
    int one = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    return fd;
}

typedef void end_fn(int fd);

/* Server here, client in a child. */
__attribute__((unused)) static void both(int family, end_fn *server, end_fn *client) {
    uint16_t port;
    int door = listener(family, &port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(door);
        int fd = dial(port);
        client(fd);
        exit(0);
    }
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    close(door);
    server(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) exit(1);
        puts("client was killed");
    }
}
