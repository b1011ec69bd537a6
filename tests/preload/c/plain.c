/* A client whose peer is not under Viaduct: what it calls is what the kernel gets. `plain PORT ROUNDS`: sends and receives, by
 * turns, in each of the usual ways; the peer echoes. */
#include "common.h"

int main(int argc, char **argv) {
    CHECK(argc == 3);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    unsigned char out[16], in[16];
    uint64_t rounds = (uint64_t)atoi(argv[2]);
    for (uint64_t i = 0; i < rounds; i++) {
        if (i == 3) usleep(60000); /* long enough to see that no other side comes */
        fill(out, sizeof out, i);
        CHECK(send(fd, out, sizeof out, 0) == sizeof out);
        CHECK(recv(fd, in, sizeof in, MSG_WAITALL) == sizeof in);
        check(in, sizeof in, i);
        CHECK(write(fd, out, sizeof out) == sizeof out);
        struct pollfd entry = {fd, POLLIN, 0};
        CHECK(poll(&entry, 1, 60000) == 1);
        CHECK(read(fd, in, 1) == 1);
        get(fd, in + 1, sizeof in - 1);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i}, got;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(send(fd, out, sizeof out, MSG_NOSIGNAL) == sizeof out);
        CHECK(epoll_wait(set, &got, 1, 60000) == 1 && got.data.u64 == i);
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
        CHECK(recv(fd, in, sizeof in, MSG_WAITALL) == sizeof in);
        check(in, sizeof in, i);
    }
    close(fd);
    puts("plain");
    return 0;
}
