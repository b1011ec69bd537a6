/* sovia.h - SOVIA: user-level sockets over the Virtual Interface Architecture, over Viaduct.
 *
 * The calls of sockets with sov_ before their names. A socket of type SOCK_VIA goes over VIA; any other number is handed
 * to the kernel, so that a program has both kinds side by side and waits for both with sov_poll or sov_select.
 * See sovia(7). Link with -lsovia.
 */
#ifndef VIADUCT_SOVIA_H
#define VIADUCT_SOVIA_H

#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type of a socket over VIA; SOCK_NONBLOCK and SOCK_CLOEXEC may be added. */
#define SOCK_VIA 0x56

int sov_socket(int domain, int type, int protocol);
int sov_bind(int s, const struct sockaddr *name, socklen_t len);
int sov_listen(int s, int backlog);
int sov_accept(int s, struct sockaddr *peer, socklen_t *len);
int sov_connect(int s, const struct sockaddr *peer, socklen_t len);
int sov_shutdown(int s, int how);
int sov_close(int s);
int sov_getsockname(int s, struct sockaddr *name, socklen_t *len);
int sov_getpeername(int s, struct sockaddr *name, socklen_t *len);

ssize_t sov_send(int s, const void *buffer, size_t len, int flags);
ssize_t sov_recv(int s, void *buffer, size_t len, int flags);
ssize_t sov_write(int s, const void *buffer, size_t len);
ssize_t sov_read(int s, void *buffer, size_t len);
ssize_t sov_writev(int s, const struct iovec *parts, int count);
ssize_t sov_readv(int s, const struct iovec *parts, int count);

int sov_setsockopt(int s, int level, int name, const void *value, socklen_t len);
int sov_getsockopt(int s, int level, int name, void *value, socklen_t *len);
int sov_fcntl(int s, int command, long argument);

int sov_poll(struct pollfd *fds, nfds_t count, int timeout);
int sov_select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);

#ifdef __cplusplus
}
#endif

#endif
