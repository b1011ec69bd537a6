/* Standard input is an upgraded connection, and libc puts something else in its place by itself: what is read then is that. The
 * same lines must come with the library and without. Usage: standard daemon|terminal */
#include "common.h"

#include <pty.h>
#include <utmp.h>

static int terminal, said;

static void client(int fd) {
    warm_client(fd);
    put(fd, "bytes of the connection", 23);
    char c;
    get(fd, &c, 1);
}

/* What a read of standard input gives now, told to the parent. */
static void look(void) {
    char text[32];
    ssize_t count = read(0, text, sizeof text);
    dprintf(said, "read %zd: %.4s\n", count, count > 0 ? text : "none");
    _exit(0);
}

static void server(int fd) {
    int pipes[2], master, slave;
    char text[64] = {0};
    warm_server(fd);
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && pipe(pipes) == 0);
    said = pipes[1];
    pid_t child = terminal ? 0 : fork();
    if (terminal) {
        CHECK(dup2(fd, 0) == 0);
        child = forkpty(&master, NULL, NULL, NULL);
        CHECK(child >= 0);
        if (child == 0) look();
        CHECK(write(master, "tty\n", 4) == 4);
    } else if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && daemon(0, 0) == 0);
        look();
    }
    CHECK(read(pipes[0], text, sizeof text - 1) > 0);
    printf("%s", text);
    waitpid(child, NULL, 0);
    if (terminal) {
        child = fork();
        if (child == 0) {
            CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0 && dup2(fd, 0) == 0 && write(master, "two\n", 4) == 4);
            CHECK(login_tty(slave) == 0);
            look();
        }
        memset(text, 0, sizeof text);
        CHECK(read(pipes[0], text, sizeof text - 1) > 0);
        printf("%s", text);
        waitpid(child, NULL, 0);
    }
    char bytes[23];
    get(fd, bytes, 23);
    CHECK(memcmp(bytes, "bytes of the connection", 23) == 0);
    put(fd, "x", 1);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    terminal = argc > 1 && strcmp(argv[1], "terminal") == 0;
    both(AF_INET, server, client);
    return 0;
}
