/* Handlers of signals that never return: they leave calls of epoll_wait and send wherever these are, hundreds of times.
 * Usage: jumps SCENARIO */
#include "common.h"

#include <setjmp.h>
#include <sys/time.h>

static sigjmp_buf place;
static volatile sig_atomic_t armed;
static int rounds = 400;

static void leave(int signal) {
    (void)signal;
    if (armed) {
        armed = 0;
        siglongjmp(place, 1);
    }
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

/* The signal comes once, at a time that is another one in each round. */
static void soon(int round) {
    armed = 1;
    struct itimerval time = {{0, 0}, {0, 80 + round * 37 % 300}};
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
}

static void echo(int fd) {
    warm_client(fd);
    char c;
    while (recv(fd, &c, 1, 0) == 1) put(fd, &c, 1);
}

/* --- out of epoll_wait: what comes afterwards is reported, to this thread and to another one --- */
static int set;

static void *one_more(void *argument) {
    int fd = *(int *)argument;
    struct epoll_event event;
    put(fd, "x", 1);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    char c;
    get(fd, &c, 1);
    CHECK(c == 'x');
    return NULL;
}

static void leave_waits(int fd, int flags) {
    warm_server(fd);
    struct epoll_event event = {.events = EPOLLIN};
    set = epoll_create1(0);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    handle(leave, flags);
    for (volatile int round = 0; round < rounds; round++) {
        if (sigsetjmp(place, 1) == 0) {
            soon(round);
            for (;;) epoll_wait(set, &event, 1, 0);
        }
        if (round % 10 == 0) one_more(&fd);
        if (round % 100 == 0) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, one_more, &fd) == 0 && pthread_join(thread, NULL) == 0);
        }
    }
    puts("waits were left");
    close(fd);
}

static void waits(int fd) { leave_waits(fd, 0); }

static void waits_apart(int fd) {
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    leave_waits(fd, SA_ONSTACK);
}

/* --- out of send: another thread, and another process, send afterwards --- */
static void sink(int fd) {
    static char bytes[1 << 20];
    warm_client(fd);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {}
}

static void *another(void *argument) {
    CHECK(send(*(int *)argument, "o", 1, MSG_NOSIGNAL) == 1);
    return NULL;
}

static void sends(int fd) {
    static char bytes[60000];
    warm_server(fd);
    handle(leave, 0);
    for (volatile int round = 0; round < rounds / 2; round++) {
        if (sigsetjmp(place, 1) == 0) {
            soon(round);
            for (;;) CHECK(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0);
        }
        if (round % 4 == 0) {
            pid_t child = fork();
            if (child == 0) {
                another(&fd);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        } else {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, another, &fd) == 0 && pthread_join(thread, NULL) == 0);
        }
    }
    puts("sends were left");
    close(fd);
}

/* --- inside of a handler: what the handler has interrupted goes on, and keeps what it holds --- */
static volatile sig_atomic_t jumped;

static void turn(int signal) {
    (void)signal;
    sigjmp_buf here;
    if (sigsetjmp(here, 1) == 0) siglongjmp(here, 1);
    jumped++;
}

/* Numbers of one sender, each of which is sent as a whole. */
static void *number(void *argument) {
    uint32_t words[2] = {pthread_equal(*(pthread_t *)argument, pthread_self()), 0};
    extern int shared;
    for (int i = 0; i < 40000; i++) {
        CHECK(send(shared, words, sizeof words, MSG_NOSIGNAL) == sizeof words);
        words[1]++;
    }
    return NULL;
}

int shared;

static void inside(int fd) {
    warm_server(fd);
    shared = fd;
    pthread_t here = pthread_self(), thread;
    sigset_t alarm;
    CHECK(sigemptyset(&alarm) == 0 && sigaddset(&alarm, SIGALRM) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, number, &here) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    handle(turn, SA_RESTART);
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    number(&here);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && jumped > 0);
    shutdown(fd, SHUT_WR);
    char c;
    CHECK(recv(fd, &c, 1, 0) == 0);
}

static void inside_client(int fd) {
    warm_client(fd);
    uint32_t words[2], next[2] = {0, 0};
    for (int i = 0; i < 80000; i++) {
        get(fd, words, sizeof words);
        CHECK(words[0] < 2 && words[1] == next[words[0]]);
        next[words[0]]++;
    }
    char c;
    CHECK(recv(fd, &c, 1, 0) == 0);
    puts("all numbers came");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        end_fn *server, *client;
    } SCENARIOS[] = {{"waits", waits, echo}, {"waits-apart", waits_apart, echo}, {"sends", sends, sink}, {"inside", inside, inside_client}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) return both(AF_INET, SCENARIOS[i].server, SCENARIOS[i].client), 0;
    fprintf(stderr, "no such scenario\n");
    return 2;
}
