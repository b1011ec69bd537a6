/* One program with sockets of both kinds: the same functions serve and ask over VIA and over TCP, and wait for both. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sovia.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG 300000

static const int KINDS[2] = {SOCK_VIA, SOCK_STREAM};

static int listen_at(int kind, unsigned short *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int one = 1, s = sov_socket(AF_INET, kind, 0);
	CHECK(s >= 0);
	CHECK(sov_setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(sov_bind(s, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(sov_listen(s, 8) == 0);
	CHECK(sov_getsockname(s, (struct sockaddr *)&at, &len) == 0);
	CHECK(at.sin_port != 0);
	*port = ntohs(at.sin_port);
	return s;
}

static int call(int kind, unsigned short port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = sov_socket(AF_INET, kind, 0);
	CHECK(s >= 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(sov_connect(s, (struct sockaddr *)&at, sizeof at) == 0);
	return s;
}

/* Sends back whatever comes on any connection, of either kind, until both have ended. */
static void serve(int tell)
{
	unsigned short ports[2];
	struct pollfd fds[8];
	int count = 2, ended = 0;
	static char buffer[65536];

	for (int i = 0; i < 2; i++) {
		fds[i].fd = listen_at(KINDS[i], &ports[i]);
		fds[i].events = POLLIN;
	}
	CHECK(write(tell, ports, sizeof ports) == sizeof ports);
	while (ended < 2) {
		CHECK(sov_poll(fds, (nfds_t)count, -1) > 0);
		for (int i = 0; i < 2; i++)
			if (fds[i].revents) {
				struct sockaddr_in peer;
				socklen_t len = sizeof peer;
				CHECK(count < 8);
				fds[count].fd = sov_accept(fds[i].fd, (struct sockaddr *)&peer, &len);
				CHECK(fds[count].fd >= 0 && peer.sin_family == AF_INET);
				fds[count].events = POLLIN;
				fds[count++].revents = 0;
			}
		for (int i = 2; i < count; i++)
			if (fds[i].fd >= 0 && fds[i].revents) {
				ssize_t n = sov_read(fds[i].fd, buffer, sizeof buffer);
				CHECK(n >= 0);
				for (ssize_t at = 0; at < n;) {
					ssize_t sent = sov_write(fds[i].fd, buffer + at, (size_t)(n - at));
					CHECK(sent > 0);
					at += sent;
				}
				if (n == 0) {
					CHECK(sov_close(fds[i].fd) == 0);
					fds[i].fd = -1;
					ended++;
				}
			}
	}
	CHECK(sov_close(fds[0].fd) == 0 && sov_close(fds[1].fd) == 0);
}

static void options(int s, int kind)
{
	struct timeval soon = {.tv_usec = 20000};
	int one = 1, got = 0;
	socklen_t len = sizeof got;
	char byte;

	CHECK(sov_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	CHECK(sov_getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &got, &len) == 0 && got != 0 && len == sizeof got);
	CHECK(sov_getsockopt(s, SOL_SOCKET, SO_TYPE, &got, &len) == 0 && got == kind);
	CHECK(sov_setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	CHECK(sov_recv(s, &byte, 1, 0) < 0 && errno == EAGAIN);
	soon.tv_usec = 0;
	CHECK(sov_setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	CHECK(sov_recv(s, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(sov_fcntl(s, F_SETFL, O_NONBLOCK) == 0);
	CHECK(sov_fcntl(s, F_GETFL, 0) & O_NONBLOCK);
	CHECK(sov_read(s, &byte, 1) < 0 && errno == EAGAIN);
	CHECK(sov_fcntl(s, F_SETFL, 0) == 0);
	CHECK(sov_setsockopt(s, SOL_SOCKET, 12345, &one, sizeof one) < 0 && errno == ENOPROTOOPT);
}

/* Asks one server; every step is the same for both kinds. */
static void ask(int s, int kind)
{
	static char out[LONG], in[LONG];
	struct iovec parts[2] = {{.iov_base = out, .iov_len = 5}, {.iov_base = out + 5, .iov_len = 7}};
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	struct timeval long_time = {.tv_sec = 60};
	fd_set read_set, write_set;

	for (int i = 0; i < LONG; i++)
		out[i] = (char)(i * 7 + i / 251);
	options(s, kind);
	CHECK(sov_getpeername(s, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET);

	CHECK(sov_writev(s, parts, 2) == 12);
	FD_ZERO(&read_set);
	FD_ZERO(&write_set);
	FD_SET(s, &read_set);
	CHECK(sov_select(s + 1, &read_set, NULL, NULL, &long_time) == 1 && FD_ISSET(s, &read_set));
	FD_SET(s, &write_set);
	CHECK(sov_select(s + 1, NULL, &write_set, NULL, &long_time) == 1 && FD_ISSET(s, &write_set));
	/* A time that never comes. The kernel's select refuses some of those. */
	if (kind == SOCK_VIA) {
		struct timeval never = {.tv_sec = LONG_MAX, .tv_usec = 999999};
		CHECK(sov_select(s + 1, NULL, &write_set, NULL, &never) == 1 && FD_ISSET(s, &write_set));
	}
	CHECK(sov_recv(s, in, 1, MSG_PEEK) == 1 && in[0] == out[0]);
	CHECK(sov_recv(s, in, 12, MSG_WAITALL) == 12 && memcmp(in, out, 12) == 0);

	/* More than fits anywhere: what came is taken while the rest is sent. */
	for (size_t sent = 0, got = 0; got < LONG;) {
		struct pollfd fd = {.fd = s, .events = POLLIN};
		if (sent < LONG) {
			size_t piece = LONG - sent < 20000 ? LONG - sent : 20000;
			ssize_t n = sov_send(s, out + sent, piece, MSG_NOSIGNAL);
			CHECK(n > 0);
			sent += (size_t)n;
		}
		while (sov_poll(&fd, 1, sent < LONG ? 0 : -1) > 0) {
			ssize_t n = sov_read(s, in + got, LONG - got);
			CHECK(n > 0);
			got += (size_t)n;
			if (got == LONG)
				break;
		}
	}
	CHECK(memcmp(in, out, LONG) == 0);
	CHECK(sov_shutdown(s, SHUT_WR) == 0);
	CHECK(sov_read(s, in, 1) == 0);
	CHECK(sov_send(s, out, 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
}

static void refusals(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(1)};
	char byte = 0;
	int s = sov_socket(AF_INET, SOCK_VIA, 0);
	CHECK(s >= 0);
	CHECK(sov_send(s, &byte, 1, MSG_NOSIGNAL) < 0 && errno == ENOTCONN);
	CHECK(sov_accept(s, NULL, NULL) < 0 && errno == EINVAL);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(sov_connect(s, (struct sockaddr *)&at, 3) < 0 && errno == EINVAL);
	CHECK(sov_connect(s, (struct sockaddr *)&at, sizeof at) < 0 && errno == ECONNREFUSED);
	CHECK(sov_close(s) == 0);
	CHECK(sov_close(s) < 0 && errno == EBADF);
	CHECK(sov_read(s, &byte, 1) < 0 && errno == EBADF);
	CHECK(sov_socket(AF_UNIX, SOCK_VIA, 0) < 0 && errno == EAFNOSUPPORT);
}

/* A program that closes every number it finds, and opens files under those: they are its own. */
static void closed_behind_our_back(void)
{
	int s = sov_socket(AF_INET, SOCK_VIA, 0), other, file;
	CHECK(s >= 0);
	CHECK(close(s) == 0);
	file = open("/dev/null", O_WRONLY);
	CHECK(file == s);
	other = sov_socket(AF_INET, SOCK_VIA, 0);
	CHECK(other >= 0 && other != s);
	CHECK(sov_close(s) == 0);
	CHECK(fcntl(file, F_GETFD) < 0 && errno == EBADF);
	/* The number goes to another socket of ours. */
	CHECK(close(other) == 0);
	s = sov_socket(AF_INET, SOCK_VIA, 0);
	CHECK(s >= 0 && fcntl(s, F_GETFD) >= 0);
	CHECK(sov_close(s) == 0);
	CHECK(fcntl(s, F_GETFD) < 0 && errno == EBADF);
	/* And one whose file is still open at exit. */
	s = sov_socket(AF_INET, SOCK_VIA, 0);
	CHECK(s >= 0 && close(s) == 0 && dup(1) == s);
}

int main(void)
{
	unsigned short ports[2];
	int told[2], status, sockets[2];
	pid_t child;

	alarm(100);
	CHECK(pipe(told) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* It would keep our output open, and the test waiting. */
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		close(told[0]);
		serve(told[1]);
		return 0;
	}
	close(told[1]);
	CHECK(read(told[0], ports, sizeof ports) == sizeof ports);
	for (int i = 0; i < 2; i++)
		sockets[i] = call(KINDS[i], ports[i]);
	for (int i = 0; i < 2; i++)
		ask(sockets[i], KINDS[i]);
	refusals();
	closed_behind_our_back();
	for (int i = 0; i < 2; i++)
		CHECK(sov_close(sockets[i]) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
