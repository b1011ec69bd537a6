/* Connections that are not claimed at once, because those of their listener were short: threads that were left to the kernel
 * before the claim get what comes after it. Both ends answer what each scenario says, with the library and without. */
#include "common.h"

/* Enough for a listener to be known. */
#define SHORT 10
/* More calls than a connection has to make before it is claimed, and then some. */
#define MESSAGES 60

static int peer;

static void *by_recv(void *unused) {
    (void)unused;
    unsigned char word[8];
    get(peer, word, sizeof word);
    check(word, sizeof word, 7);
    return NULL;
}

static void *by_poll(void *unused) {
    (void)unused;
    unsigned char word[8];
    struct pollfd entry = {peer, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && entry.revents == POLLIN);
    get(peer, word, sizeof word);
    check(word, sizeof word, 7);
    return NULL;
}

static void *by_select(void *unused) {
    (void)unused;
    unsigned char word[8];
    fd_set set;
    FD_ZERO(&set);
    FD_SET(peer, &set);
    CHECK(select(peer + 1, &set, NULL, NULL, NULL) == 1);
    get(peer, word, sizeof word);
    check(word, sizeof word, 7);
    return NULL;
}

static void short_client(uint16_t port) {
    int fd = dial(port);
    warm_client(fd);
    close(fd);
}

static void short_server(int door) {
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    warm_server(fd);
    close(fd);
}

/* One thread waits from the beginning; this one sends many messages, and the answer comes after the last. */
static void client(uint16_t port, void *(*waiter)(void *)) {
    pthread_t thread;
    unsigned char word[8];
    peer = dial(port);
    CHECK(pthread_create(&thread, NULL, waiter, NULL) == 0);
    usleep(100000);
    for (int i = 0; i < MESSAGES; i++) {
        fill(word, sizeof word, (uint64_t)i * 8);
        put(peer, word, sizeof word);
        usleep(1000);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    close(peer);
}

static void server(int door) {
    unsigned char word[8];
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    for (int i = 0; i < MESSAGES; i++) {
        get(fd, word, sizeof word);
        check(word, sizeof word, (uint64_t)i * 8);
    }
    fill(word, sizeof word, 7);
    put(fd, word, sizeof word);
    CHECK(recv(fd, word, 1, 0) == 0);
    close(fd);
}

int main(void) {
    void *(*waiters[])(void *) = {by_recv, by_poll, by_select};
    uint16_t port;
    int door = listener(AF_INET, &port);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(door);
        for (int i = 0; i < SHORT; i++) short_client(port);
        for (size_t i = 0; i < sizeof waiters / sizeof *waiters; i++) client(port, waiters[i]);
        exit(0);
    }
    for (int i = 0; i < SHORT; i++) short_server(door);
    for (size_t i = 0; i < sizeof waiters / sizeof *waiters; i++) server(door);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("early");
    return 0;
}
