/* Processes that all connect at once, to a listener whose backlog is small and whose owner lets them wait a while. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sovia.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS 30

static struct sockaddr_in at(unsigned short port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return at;
}

static int ask(int start, unsigned char own)
{
	struct sockaddr_in to;
	unsigned char answer = 0;
	int s;
	/* The port, for the first that reads it and all others at the same time. */
	CHECK(read(start, &to, sizeof to) == (ssize_t)sizeof to);
	CHECK((s = sov_socket(AF_INET, SOCK_VIA, 0)) >= 0);
	CHECK(sov_connect(s, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(sov_send(s, &own, 1, 0) == 1);
	CHECK(sov_recv(s, &answer, 1, 0) == 1);
	CHECK(answer == own);
	CHECK(sov_close(s) == 0);
	return 0;
}

int main(void)
{
	struct sockaddr_in here = at(0);
	socklen_t len = sizeof here;
	pid_t parent = getpid();
	int start[2], s, n, status;
	CHECK(pipe(start) == 0);
	/* The last accept waits for ever if a client was turned away. */
	alarm(120);
	/* Before this process has a library of its own. */
	for (n = 0; n < CLIENTS; n++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
			exit(ask(start[0], (unsigned char)n));
		}
	}
	CHECK((s = sov_socket(AF_INET, SOCK_VIA, 0)) >= 0);
	CHECK(sov_bind(s, (struct sockaddr *)&here, sizeof here) == 0);
	CHECK(sov_listen(s, 2) == 0);
	CHECK(sov_getsockname(s, (struct sockaddr *)&here, &len) == 0);
	for (n = 0; n < CLIENTS; n++)
		CHECK(write(start[1], &here, sizeof here) == (ssize_t)sizeof here);
	for (n = 0; n < CLIENTS; n++) {
		unsigned char word;
		int stream = sov_accept(s, NULL, NULL);
		CHECK(stream >= 0);
		CHECK(sov_recv(stream, &word, 1, 0) == 1);
		CHECK(sov_send(stream, &word, 1, 0) == 1);
		CHECK(sov_close(stream) == 0);
	}
	for (n = 0; n < CLIENTS; n++)
		CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(sov_close(s) == 0);
	return 0;
}
