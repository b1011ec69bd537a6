/* Threads that are cancelled where they wait: they end, and the connection and the other threads go on. The same lines must
 * come with the library and without. */
#include "common.h"

enum { MANY = 200 };
static int fd, door, copies[MANY];
static volatile int cleaned;

static void *by_recv(void *c) {
    recv(fd, c, 1, 0);
    return NULL;
}

static void *by_poll(void *nothing) {
    struct pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, -1);
    return nothing;
}

static void *by_large_poll(void *nothing) {
    static struct pollfd entries[MANY];
    for (int i = 0; i < MANY; i++) entries[i] = (struct pollfd){copies[i], POLLIN, 0};
    poll(entries, MANY, -1);
    return nothing;
}

static void *by_ppoll(void *nothing) {
    struct pollfd entry = {fd, POLLIN, 0};
    ppoll(&entry, 1, NULL, NULL);
    return nothing;
}

static void *by_select(void *nothing) {
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    select(fd + 1, &in, NULL, NULL, NULL);
    return nothing;
}

static void *by_epoll(void *nothing) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    epoll_wait(set, &event, 1, -1);
    return nothing;
}

static void *by_accept(void *nothing) {
    accept(door, NULL, NULL);
    return nothing;
}

/* Until there is no more room; what was sent does not matter. */
static void *by_send(void *nothing) {
    static char bytes[100000];
    for (;;) send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    return nothing;
}

static void clean(void *argument) { cleaned += argument == &cleaned; }

static void *(*work)(void *);

static void *with_clean_up(void *c) {
    void *result;
    pthread_cleanup_push(clean, (void *)&cleaned);
    result = work(c);
    pthread_cleanup_pop(0);
    return result;
}

static void cancel(const char *name, void *(*what)(void *)) {
    char c;
    void *result;
    pthread_t thread;
    work = what;
    cleaned = 0;
    CHECK(pthread_create(&thread, NULL, with_clean_up, &c) == 0);
    usleep(30000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    printf("%s: %s, cleaned %d\n", name, result == PTHREAD_CANCELED ? "cancelled" : "ended", cleaned);
}

/* The connection is as good as before. */
static void works(void) {
    for (int i = 0; i < 20; i++) {
        unsigned char c = (unsigned char)i, back;
        put(fd, &c, 1);
        struct pollfd entry = {fd, POLLIN, 0};
        CHECK(poll(&entry, 1, 60000) == 1);
        get(fd, &back, 1);
        CHECK(back == c + 1);
    }
}

static void server(int socket) {
    uint16_t port;
    fd = socket;
    door = listener(AF_INET, &port);
    warm_server(fd);
    for (int i = 0; i < MANY; i++) CHECK((copies[i] = dup(fd)) >= 0);
    static const struct {
        const char *name;
        void *(*what)(void *);
    } KINDS[] = {
        {"recv", by_recv}, {"poll", by_poll}, {"poll of many", by_large_poll}, {"ppoll", by_ppoll},
        {"select", by_select}, {"epoll_wait", by_epoll}, {"accept", by_accept},
    };
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
            cancel(KINDS[i].name, KINDS[i].what);
            works();
        }
    cancel("send", by_send);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    unsigned char bytes[4096];
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {}
    printf("then %zd\n", count);
}

static void client(int socket) {
    warm_client(socket);
    unsigned char c, *bytes = malloc(1 << 16);
    for (int i = 0; i < 3 * 7 * 20; i++) {
        get(socket, &c, 1);
        c++;
        put(socket, &c, 1);
    }
    /* The server fills all buffers, and is cancelled in it. */
    usleep(200000);
    while (read(socket, bytes, 1 << 16) > 0) {}
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    both(AF_INET, server, client);
    return 0;
}
