/* A SunRPC program with client and server: the transport is the word on its command line, tcp or via. What it prints
 * does not depend on it. */
#include "check.h"

#include <rpc/rpc.h>
#include <sovia.h>
#include <sovia_rpc.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM 0x20005641
#define VERSION 1
#define ADD 1
#define ECHO 2
#define SUM 3
#define END 4
#define FLOOD 5
#define LONGEST 100000
/* More than any connection holds that is not read. */
#define FLOODED (4 << 20)

struct pair {
	int a, b;
};

struct numbers {
	u_int count;
	double *values;
};

static bool_t xdr_pair(XDR *x, struct pair *p)
{
	return xdr_int(x, &p->a) && xdr_int(x, &p->b);
}

static bool_t xdr_text(XDR *x, char **text)
{
	return xdr_string(x, text, LONGEST);
}

static bool_t xdr_numbers(XDR *x, struct numbers *n)
{
	return xdr_array(x, (char **)&n->values, &n->count, LONGEST, sizeof(double), (xdrproc_t)xdr_double);
}

static bool_t xdr_flood(XDR *x, struct numbers *n)
{
	return xdr_array(x, (char **)&n->values, &n->count, FLOODED, sizeof(double), (xdrproc_t)xdr_double);
}

/* A reply of 32 MiB, for a client that does not read it. */
static void flood(SVCXPRT *transport)
{
	struct numbers n = {FLOODED, calloc(FLOODED, sizeof(double))};
	CHECK(n.values != NULL);
	CHECK(!svc_sendreply(transport, (xdrproc_t)xdr_flood, (caddr_t)&n));
	free(n.values);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	switch (request->rq_proc) {
	case NULLPROC:
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
		break;
	case ADD: {
		struct pair p;
		int sum;
		if (!svc_getargs(transport, (xdrproc_t)xdr_pair, (caddr_t)&p))
			svcerr_decode(transport);
		else {
			sum = p.a + p.b;
			svc_sendreply(transport, (xdrproc_t)xdr_int, (caddr_t)&sum);
		}
		break;
	}
	case ECHO: {
		char *text = NULL;
		if (!svc_getargs(transport, (xdrproc_t)xdr_text, (caddr_t)&text))
			svcerr_decode(transport);
		else
			svc_sendreply(transport, (xdrproc_t)xdr_text, (caddr_t)&text);
		svc_freeargs(transport, (xdrproc_t)xdr_text, (caddr_t)&text);
		break;
	}
	case SUM: {
		struct numbers n = {0, NULL};
		double sum = 0;
		if (!svc_getargs(transport, (xdrproc_t)xdr_numbers, (caddr_t)&n))
			svcerr_decode(transport);
		else {
			for (u_int i = 0; i < n.count; i++)
				sum += n.values[i];
			svc_sendreply(transport, (xdrproc_t)xdr_double, (caddr_t)&sum);
		}
		svc_freeargs(transport, (xdrproc_t)xdr_numbers, (caddr_t)&n);
		break;
	}
	case FLOOD:
		flood(transport);
		break;
	case END:
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
		svc_exit();
		break;
	default:
		svcerr_noproc(transport);
	}
}

static void serve(const char *name, int tell)
{
	SVCXPRT *transport = strcmp(name, "via") == 0 ? svcvia_create_for(PROGRAM, VERSION) : svctcp_create(RPC_ANYSOCK, 0, 0);
	CHECK(transport != NULL);
	CHECK(svc_register(transport, PROGRAM, VERSION, dispatch, 0));
	CHECK(write(tell, &transport->xp_port, sizeof transport->xp_port) == sizeof transport->xp_port);
	svc_run();
}

static CLIENT *connect_to(const char *name, unsigned short port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = RPC_ANYSOCK;
	if (strcmp(name, "via") == 0)
		return clnt_create("localhost", PROGRAM, VERSION, "via");
	/* Without a port mapper. */
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return clnttcp_create(&at, PROGRAM, VERSION, &s, 0, 0);
}

static void calls(CLIENT *client)
{
	struct timeval limit = {.tv_sec = 60};
	struct pair p = {40, 2};
	struct numbers n;
	struct rpc_err error;
	double sum = 0;
	int answer = 0;
	char *text, *back = NULL;

	CHECK(clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit) == RPC_SUCCESS);
	CHECK(clnt_call(client, ADD, (xdrproc_t)xdr_pair, (caddr_t)&p, (xdrproc_t)xdr_int, (caddr_t)&answer, limit) ==
	      RPC_SUCCESS);
	printf("add: %d\n", answer);
	for (int len = 0; len < LONGEST; len = 3 * len + 1) {
		text = malloc((size_t)len + 1);
		CHECK(text != NULL);
		for (int i = 0; i < len; i++)
			text[i] = (char)('a' + i % 23);
		text[len] = 0;
		back = NULL;
		CHECK(clnt_call(client, ECHO, (xdrproc_t)xdr_text, (caddr_t)&text, (xdrproc_t)xdr_text, (caddr_t)&back,
				limit) == RPC_SUCCESS);
		CHECK(strcmp(text, back) == 0);
		printf("echo: %zu bytes\n", strlen(back));
		clnt_freeres(client, (xdrproc_t)xdr_text, (caddr_t)&back);
		free(text);
	}
	n.count = 5000;
	n.values = calloc(n.count, sizeof *n.values);
	CHECK(n.values != NULL);
	for (u_int i = 0; i < n.count; i++)
		n.values[i] = i / 8.0;
	CHECK(clnt_call(client, SUM, (xdrproc_t)xdr_numbers, (caddr_t)&n, (xdrproc_t)xdr_double, (caddr_t)&sum, limit) ==
	      RPC_SUCCESS);
	free(n.values);
	printf("sum: %.3f\n", sum);
	CHECK(clnt_call(client, 99, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit) == RPC_PROCUNAVAIL);
	clnt_geterr(client, &error);
	printf("99: %s\n", clnt_sperrno(error.re_status));
}

/* Microseconds of an empty call, in the middle of many: figure 10 at 0 bytes. */
static double empty_call(CLIENT *client, int rounds)
{
	struct timeval limit = {.tv_sec = 60};
	struct timespec from, to;
	double best = 1e9;
	for (int round = 0; round < 10; round++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < rounds; i++)
			CHECK(clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit) ==
			      RPC_SUCCESS);
		clock_gettime(CLOCK_MONOTONIC, &to);
		double us = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / 1e3 / rounds;
		best = us < best ? us : best;
	}
	return best;
}

/* A client that sends `len` bytes of a call and stops. */
static int stalled(unsigned short port, const char *bytes, size_t len)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = sov_socket(AF_INET, SOCK_VIA, 0), one = 1;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(s >= 0 && sov_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	CHECK(sov_connect(s, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(sov_send(s, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
	return s;
}

/* An empty call as it goes over a stream: a fragment of 40 bytes, the last of its record. */
static const unsigned char EMPTY_CALL[44] = {
	0x80, 0, 0, 40, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, PROGRAM >> 24, PROGRAM >> 16 & 255, PROGRAM >> 8 & 255,
	PROGRAM & 255, 0, 0, 0, VERSION,
};

/* Others are served while some clients have stopped in the middle of a record; one of them goes on, byte by byte. */
static void stall(unsigned short port, CLIENT *client)
{
	const char *call = (const char *)EMPTY_CALL;
	char many[3 * sizeof EMPTY_CALL], reply[28];
	int slow = stalled(port, call, 2), other = stalled(port, call, 30), at_once;

	CHECK(slow >= 0 && other >= 0);
	calls(client);
	for (size_t i = 2; i < sizeof EMPTY_CALL; i++) {
		CHECK(sov_send(slow, call + i, 1, MSG_NOSIGNAL) == 1);
		if (i % 8 == 0)
			calls(client);
	}
	CHECK(sov_recv(slow, reply, sizeof reply, MSG_WAITALL) == sizeof reply);
	CHECK(reply[0] == (char)0x80 && reply[3] == 24 && reply[7] == 9 && reply[11] == 1);
	/* Several calls that come at once are answered one by one. */
	for (int i = 0; i < 3; i++)
		memcpy(many + i * (int)sizeof EMPTY_CALL, call, sizeof EMPTY_CALL);
	at_once = stalled(port, many, sizeof many);
	for (int i = 0; i < 3; i++)
		CHECK(sov_recv(at_once, reply, sizeof reply, MSG_WAITALL) == sizeof reply);
	CHECK(sov_close(at_once) == 0 && sov_close(slow) == 0 && sov_close(other) == 0);
	calls(client);
}

/* Others are served, though a client does not read its reply; that one is dropped. */
static void unread(unsigned short port, CLIENT *client)
{
	char call[sizeof EMPTY_CALL];
	int lazy;
	memcpy(call, EMPTY_CALL, sizeof call);
	call[27] = FLOOD;
	lazy = stalled(port, call, sizeof call);
	calls(client);
	/* What was under way may be read, and then the end. */
	while (sov_recv(lazy, call, sizeof call, 0) > 0)
		;
	CHECK(sov_close(lazy) == 0);
	calls(client);
}

int main(int count, char **words)
{
	struct timeval limit = {.tv_sec = 60};
	int told[2], status;
	unsigned short port;
	CLIENT *client;
	pid_t child;

	CHECK(count >= 2);
	alarm(100);
	CHECK(pipe(told) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* It would keep our output open, and the test waiting. */
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		close(told[0]);
		serve(words[1], told[1]);
		return 0;
	}
	close(told[1]);
	CHECK(read(told[0], &port, sizeof port) == sizeof port);
	client = connect_to(words[1], port);
	CHECK(client != NULL);
	calls(client);
	if (count > 2 && strcmp(words[2], "stall") == 0)
		stall(port, client);
	else if (count > 2 && strcmp(words[2], "unread") == 0)
		unread(port, client);
	else if (count > 2)
		printf("empty call: %.1f us\n", empty_call(client, atoi(words[2])));
	CHECK(clnt_call(client, END, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit) == RPC_SUCCESS);
	clnt_destroy(client);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
