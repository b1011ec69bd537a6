/* Programs that inherit an upgraded connection and could load the library: what they read is what was sent, however they
 * are set up. The same lines must come with the library and without. Usage: heirs SCENARIO BARE RULES, where BARE is the
 * statically linked program bare.c and RULES a file that forbids every connection of /bin/sh. */
#include "common.h"

static const char *bare, *rules;

/* Ends its stream before the new program starts. */
static void ended_client(int fd) {
    warm_client(fd);
    put(fd, "to the new program\n", 19);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    char text[20];
    get(fd, text, 19);
    CHECK(memcmp(text, "TO THE NEW PROGRAM\n", 19) == 0 && read(fd, text, 1) == 0);
}

/* Goes on: what it sends next, and the answer to that, go the way that the new program knows. */
static void open_client(int fd) {
    warm_client(fd);
    put(fd, "to the new program\n", 19);
    char text[20];
    get(fd, text, 19);
    CHECK(memcmp(text, "TO THE NEW PROGRAM\n", 19) == 0);
    put(fd, "again\n", 6);
    get(fd, text, 6);
    CHECK(memcmp(text, "AGAIN\n", 6) == 0 && read(fd, text, 1) == 0);
}

static void await_end(int fd) {
    struct pollfd entry = {fd, POLLRDHUP, 0};
    CHECK(poll(&entry, 1, 60000) == 1 && entry.revents & POLLRDHUP);
}

static void await_bytes(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, 60000) == 1);
}

static const char UPPER[] = "read line; echo \"$line\" | tr a-z A-Z";
static const char TWICE[] = "read line; echo \"$line\" | tr a-z A-Z; read line; echo \"$line\" | tr a-z A-Z";

static void nothing(void) {}

/* A shell with the connection as its input and output, after `set_up` in the child. */
static void shell(int fd, const char *command, void (*set_up)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(fd, 0) == 0 && dup2(fd, 1) == 1);
        close(fd);
        set_up();
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    close(fd);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the program ended with %d\n", status);
}

static void ended_server(int fd) {
    warm_server(fd);
    await_end(fd);
    shell(fd, UPPER, nothing);
}

/* The shell does not use it, and becomes, or starts, a program that does not load the library. */
static void onward_server(int fd) {
    char command[1000];
    warm_server(fd);
    await_end(fd);
    snprintf(command, sizeof command, "true; exec %s upper", bare);
    shell(fd, command, nothing);
}

static void onward_child_server(int fd) {
    char command[1000];
    warm_server(fd);
    await_end(fd);
    snprintf(command, sizeof command, "%s upper; exit $?", bare);
    shell(fd, command, nothing);
}

static void ruled(void) { CHECK(setenv("VIADUCT_RULES", rules, 1) == 0); }
static void off(void) { CHECK(setenv("VIADUCT_RUN", "off", 1) == 0); }
static void never(void) { CHECK(setenv("VIADUCT_RUN", "never", 1) == 0); }
static void elsewhere(void) { CHECK(setenv("VIADUCT_CLAIM", "viaduct-test-elsewhere", 1) == 0); }
static void other_user(void) { CHECK(setgid(65534) == 0 && setuid(65534) == 0); }

static void with(int fd, void (*set_up)(void)) {
    warm_server(fd);
    await_bytes(fd);
    shell(fd, TWICE, set_up);
}

static void ruled_server(int fd) { with(fd, ruled); }
static void off_server(int fd) { with(fd, off); }
static void never_server(int fd) { with(fd, never); }
static void elsewhere_server(int fd) { with(fd, elsewhere); }
static void user_server(int fd) { with(fd, other_user); }

/* The shell, which does not use it, turns the library off for what it becomes. */
static void later_off_server(int fd) {
    warm_server(fd);
    await_bytes(fd);
    char command[1000];
    snprintf(command, sizeof command, "export VIADUCT_RUN=off; exec /bin/sh -c '%s'", TWICE);
    shell(fd, command, nothing);
}

/* Until a line comes: meanwhile the agent is another. */
static void replaced_server(int fd) {
    warm_server(fd);
    await_bytes(fd);
    char line[8];
    puts("up");
    CHECK(fgets(line, sizeof line, stdin) != NULL);
    shell(fd, TWICE, nothing);
}

static const struct {
    const char *name;
    end_fn *server, *client;
} SCENARIOS[] = {
    {"ended", ended_server, ended_client},       {"onward", onward_server, ended_client},
    {"onward-child", onward_child_server, ended_client}, {"ruled", ruled_server, open_client},
    {"off", off_server, open_client},            {"never", never_server, open_client},
    {"elsewhere", elsewhere_server, open_client}, {"user", user_server, open_client},
    {"later-off", later_off_server, open_client}, {"replaced", replaced_server, open_client},
};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    bare = argc > 2 ? argv[2] : "";
    rules = argc > 3 ? argv[3] : "";
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (argc > 1 && strcmp(argv[1], SCENARIOS[i].name) == 0) {
            both(AF_INET, SCENARIOS[i].server, SCENARIOS[i].client);
            return 0;
        }
    fprintf(stderr, "no such scenario\n");
    return 2;
}
