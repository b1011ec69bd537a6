/* A plain program with send and recv. `stream serve PORT` receives; `stream PORT messages SIZE COUNT` sends so many messages of
 * so many bytes (a multiple of eight) over one connection, after a tenth of them that does not count; `stream PORT connections
 * SIZE COUNT` makes a connection for each message. The receiver answers a transfer with the sum of all its words, which the
 * sender checks. Prints `result NUMBER`: messages, or connections, a second. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 16 };

struct transfer {
    uint64_t size, count;
};

static uint64_t words[MOST / 8 + 2];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int get(int fd, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t count = recv(fd, (char *)bytes + done, len - done, 0);
        if (count <= 0)
            return 0;
        done += count;
    }
    return 1;
}

static int put(int fd, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t count = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (count <= 0)
            return 0;
        done += count;
    }
    return 1;
}

/* Receives what a transfer announces, in pieces as they come, and answers. */
static int serve(int fd)
{
    struct transfer transfer;
    if (!get(fd, &transfer, sizeof transfer))
        return 0;
    uint64_t left = transfer.size * transfer.count, sum = 0;
    size_t held = 0;
    while (left > 0) {
        size_t room = sizeof words - held;
        ssize_t count = recv(fd, (char *)words + held, left < room ? left : room, 0);
        if (count <= 0)
            return 0;
        left -= count;
        held += count;
        for (size_t k = 0; k < held / 8; k++)
            sum += words[k];
        memmove(words, (char *)words + held / 8 * 8, held % 8);
        held %= 8;
    }
    return put(fd, &sum, sizeof sum);
}

static int dial(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        perror("stream: connect");
        exit(1);
    }
    return fd;
}

static void transfer(int fd, uint64_t size, uint64_t count)
{
    struct {
        struct transfer head;
        char bytes[MOST];
    } all = { .head = { size, count } };
    uint64_t each = 0, sum = 0;
    for (uint64_t k = 0; k < size / 8; k++)
        each += words[k];
    /* The first message goes with the announcement. */
    memcpy(all.bytes, words, size);
    int good = put(fd, &all, sizeof all.head + size);
    for (uint64_t k = 1; good && k < count; k++)
        good = put(fd, words, size);
    if (!good || !get(fd, &sum, sizeof sum) || sum != each * count) {
        fprintf(stderr, "stream: the sum is wrong, or the peer is gone\n");
        exit(1);
    }
}

static int listening(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, 128)) {
        perror("stream: listen");
        exit(1);
    }
    return door;
}

int main(int count, char **arguments)
{
    if (count == 3 && !strcmp(arguments[1], "serve")) {
        int door = listening(atoi(arguments[2]));
        for (;;) {
            int fd = accept(door, NULL, NULL);
            while (fd >= 0 && serve(fd))
                ;
            close(fd);
        }
    }
    if (count != 5)
        return 2;
    int port = atoi(arguments[1]), one_each = !strcmp(arguments[2], "connections");
    uint64_t size = strtoull(arguments[3], NULL, 10), times = strtoull(arguments[4], NULL, 10);
    if (size == 0 || size > MOST || size % 8 || times < 10)
        return 2;
    for (uint64_t k = 0; k < size / 8; k++)
        words[k] = (k + 1) * 0x9e3779b97f4a7c15u;
    int fd = one_each ? -1 : dial(port);
    double begun = 0;
    if (!one_each) {
        transfer(fd, size, times / 10);
        begun = now();
        transfer(fd, size, times);
    } else {
        for (uint64_t k = 0; k < times + times / 10; k++) {
            if (k == times / 10)
                begun = now();
            fd = dial(port);
            transfer(fd, size, 1);
            close(fd);
        }
    }
    printf("result %.3f\n", times / (now() - begun));
    return 0;
}
