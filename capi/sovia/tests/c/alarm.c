/* A signal handler that calls exit() while a call of the library waits, at a moment that differs from run to run. The
 * status is the one that exit() was given, and the peer sees the end. The arguments are the number of
 * rounds, and how calls of the one that exits wait. Each of those is forked while the library is open in its parent. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sovia.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal)
{
	(void)signal;
	exit(7);
}

static void wait_for_the_alarm(unsigned short port, long micros)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct itimerval soon = {.it_value = {.tv_usec = micros}};
	int s = sov_socket(AF_INET, SOCK_VIA, 0);
	char byte;

	CHECK(s >= 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(sov_connect(s, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(sov_read(s, &byte, 1) == 1);
	signal(SIGALRM, leave);
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	for (;;)
		(void)sov_read(s, &byte, 1);
}

int main(int count, char **words)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int rounds, s = -1;

	CHECK(count == 3);
	rounds = atoi(words[1]);
	alarm(300);
	for (int i = 0; i < rounds; i++) {
		int told[2], status, conn, one = 1;
		unsigned short port;
		char byte;
		pid_t child;

		CHECK(pipe(told) == 0);
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			/* It would keep our output open, and the test waiting. */
			CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
			CHECK(setenv("VIADUCT_SOVIA_WAITING", words[2], 1) == 0);
			CHECK(read(told[0], &port, sizeof port) == sizeof port);
			wait_for_the_alarm(port, 1 + i * 37 % 4000);
		}
		if (s < 0) {
			s = sov_socket(AF_INET, SOCK_VIA, 0);
			CHECK(s >= 0 && sov_bind(s, (struct sockaddr *)&at, sizeof at) == 0 && sov_listen(s, 8) == 0);
			CHECK(sov_getsockname(s, (struct sockaddr *)&at, &len) == 0);
		}
		port = ntohs(at.sin_port);
		CHECK(write(told[1], &port, sizeof port) == sizeof port);
		conn = sov_accept(s, NULL, NULL);
		CHECK(conn >= 0 && sov_send(conn, "x", 1, MSG_NOSIGNAL) == 1);
		CHECK(sov_setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
		while (sov_read(conn, &byte, 1) > 0)
			;
		CHECK(sov_close(conn) == 0);
		CHECK(waitpid(child, &status, 0) == child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
			fprintf(stderr, "round %d: status %x\n", i, status);
			return 1;
		}
		close(told[0]);
		close(told[1]);
	}
	return 0;
}
