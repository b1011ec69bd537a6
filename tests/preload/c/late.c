/* Functions of libc and liburing that the library ends in: where it is turned off, and where liburing is loaded by the program
 * itself, long after the library. The same lines must come with the library and without. */
#include "common.h"

#include <dlfcn.h>
#include <spawn.h>

extern char **environ;

static int waited(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void programs(void) {
    char text[16] = {0}, *words[] = {"sh", "-c", "exit 4", NULL};
    pid_t child;
    printf("system %d\n", system("exit 3"));
    FILE *pipe = popen("echo popen", "r");
    CHECK(pipe != NULL && fgets(text, sizeof text, pipe) != NULL);
    printf("%s%d\n", text, pclose(pipe));
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, words, environ) == 0);
    printf("posix_spawnp %d\n", waited(child));
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0);
    CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ) == 0);
    printf("posix_spawn %d\n", waited(child));
    child = fork();
    if (child == 0) {
        execvpe("sh", words, environ);
        _exit(127);
    }
    printf("execvpe %d\n", waited(child));
}

/* As a part of a program that was linked with liburing and is loaded by it finds its functions. */
static void *found(void *library, const char *name) {
    void *everywhere = dlsym(RTLD_DEFAULT, name);
    return everywhere ? everywhere : dlsym(library, name);
}

static void rings(void) {
    void *library = dlopen("liburing.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        puts("no liburing");
        return;
    }
    static char ring[4096], with[256], memory[1 << 16] __attribute__((aligned(4096)));
    int (*init)(unsigned, void *, unsigned) = found(library, "io_uring_queue_init");
    int (*init_params)(unsigned, void *, void *) = found(library, "io_uring_queue_init_params");
    int (*init_mem)(unsigned, void *, void *, void *, size_t) = found(library, "io_uring_queue_init_mem");
    int (*setup)(unsigned, void *) = found(library, "io_uring_setup");
    printf("init %d\n", init(8, ring, 0));
    printf("init with parameters %d\n", init_params(8, ring, with));
    /* Older versions have fewer. */
    if (dlsym(library, "io_uring_queue_init_mem")) {
        memset(with, 0, sizeof with);
        printf("init in memory %d\n", init_mem(8, ring, with, memory, sizeof memory) >= 0);
    }
    if (dlsym(library, "io_uring_setup")) {
        memset(with, 0, sizeof with);
        printf("set up %d\n", setup(8, with) >= 0);
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    programs();
    rings();
    return 0;
}
