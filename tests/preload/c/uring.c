/* A connection that is upgraded first and then used through io_uring, whose ring is made by liburing or by the number of the
 * system call. The same lines must come with and without the library. Usage: uring liburing|number */
#include "common.h"

#include <liburing.h>
#include <sys/syscall.h>

enum { BYTES = 100000 };
static int by_number;

static void uring_client(int fd) {
    warm_client(fd);
    static unsigned char bytes[BYTES], back[BYTES];
    fill(bytes, BYTES, 0);
    put(fd, bytes, BYTES);
    get(fd, back, BYTES);
    CHECK(memcmp(bytes, back, BYTES) == 0 && read(fd, back, 1) == 0);
}

static ssize_t through(struct io_uring *ring, int receive, int fd, unsigned char *bytes, size_t len) {
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (receive)
        io_uring_prep_recv(entry, fd, bytes, len, 0);
    else
        io_uring_prep_send(entry, fd, bytes, len, 0);
    CHECK(io_uring_submit(ring) == 1);
    struct io_uring_cqe *done;
    CHECK(io_uring_wait_cqe(ring, &done) == 0);
    ssize_t result = done->res;
    io_uring_cqe_seen(ring, done);
    return result;
}

static void uring_server(int fd) {
    warm_server(fd);
    struct pollfd ready = {fd, POLLIN, 0};
    CHECK(poll(&ready, 1, 60000) == 1); /* bytes lie there */
    struct io_uring ring;
    if (by_number) {
        struct io_uring_params with = {0};
        int made = (int)syscall(SYS_io_uring_setup, 8, &with);
        if (made < 0) {
            puts("no io_uring here");
            exit(0);
        }
        CHECK(io_uring_queue_mmap(made, &with, &ring) == 0);
        for (unsigned i = 0; i < with.sq_entries; i++) ring.sq.array[i] = i; /* as liburing does it with a ring of its own */
    } else if (io_uring_queue_init(8, &ring, 0) < 0) {
        puts("no io_uring here");
        exit(0);
    }
    static unsigned char bytes[BYTES];
    for (size_t at = 0; at < BYTES;) {
        ssize_t count = through(&ring, 1, fd, bytes + at, BYTES - at);
        CHECK(count > 0);
        at += (size_t)count;
    }
    check(bytes, BYTES, 0);
    for (size_t at = 0; at < BYTES;) {
        ssize_t count = through(&ring, 0, fd, bytes + at, BYTES - at);
        CHECK(count > 0);
        at += (size_t)count;
    }
    puts("through io_uring");
    io_uring_queue_exit(&ring);
    close(fd);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    by_number = argc > 1 && strcmp(argv[1], "number") == 0;
    both(AF_INET, uring_server, uring_client);
    return 0;
}
