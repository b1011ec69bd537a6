/* sovia_rpc.c - SunRPC over SOVIA: handles of clients and servers whose records go over sockets of type SOCK_VIA.
 *
 * Records are those of RPC over TCP (RFC 5531, section 11), made and read by libtirpc's xdrrec; only the calls below that
 * read and write bytes are ours. A server's handles are registered with libtirpc, which dispatches them; sov_svc_run()
 * waits for them and for its other transports together. A server reads a call when all of its record has come, so that a
 * client that stops in the middle of one keeps no other client waiting.
 */
#define SOVIA_RPC_OWN_NAMES
#include <sovia.h>
#include <sovia_rpc.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rpc/svc_mt.h>

/* Defined by libtirpc, declared in none of its headers. */
extern void _seterr_reply(struct rpc_msg *, struct rpc_err *);

#define VIA "via"
#define FIRST_PORT 32768
#define PORTS 16384
#define BUFFER 8800
#define LONGEST_RECORD (64 << 20)
/* Longest that a client may leave a reply unread, while its server waits. libtirpc's own limit for one connection,
 * unless the compiler is told another one. */
#ifndef REPLY_SECONDS
#define REPLY_SECONDS 35
#endif

unsigned short sov_rpc_port(rpcprog_t program, rpcvers_t version)
{
	return (unsigned short)(FIRST_PORT + (program * 31u + version) % PORTS);
}

static void address_of(struct sockaddr_in *at, in_addr_t ip, unsigned short port)
{
	memset(at, 0, sizeof *at);
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = ip;
	at->sin_port = htons(port);
}

/* Writes all of it. */
static int write_all(int s, const char *bytes, int len)
{
	int done = 0;
	while (done < len) {
		ssize_t n = sov_send(s, bytes + done, (size_t)(len - done), MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		done += (int)n;
	}
	return len;
}

/* ---- client ---- */

struct client {
	CLIENT handle;
	int s;
	struct timeval limit; /* of a call, if it was set */
	bool_t limit_set;
	struct rpc_err error;
	u_int32_t xid;
	rpcprog_t program;
	rpcvers_t version;
	XDR records;
};

static struct client *client_of(CLIENT *handle)
{
	return (struct client *)handle->cl_private;
}

static int client_read(void *of, void *into, int len)
{
	struct client *c = of;
	struct pollfd fd = {.fd = c->s, .events = POLLIN};
	long wait = c->limit.tv_sec * 1000L + (c->limit.tv_usec + 999) / 1000;
	int ready;
	ssize_t n;

	if (len == 0)
		return 0;
	do
		ready = sov_poll(&fd, 1, (int)wait);
	while (ready < 0 && errno == EINTR);
	if (ready == 0) {
		c->error.re_status = RPC_TIMEDOUT;
		return -1;
	}
	n = ready < 0 ? -1 : sov_recv(c->s, into, (size_t)len, 0);
	if (n > 0)
		return (int)n;
	c->error.re_status = RPC_CANTRECV;
	c->error.re_errno = n == 0 ? ECONNRESET : errno;
	return -1;
}

static int client_write(void *of, void *from, int len)
{
	struct client *c = of;
	int n = write_all(c->s, from, len);
	if (n < 0) {
		c->error.re_status = RPC_CANTSEND;
		c->error.re_errno = errno;
	}
	return n;
}

/* Sends a call: header, procedure, credentials, arguments. */
static bool_t send_call(CLIENT *h, rpcproc_t procedure, xdrproc_t encode, void *arguments)
{
	struct client *c = client_of(h);
	struct rpc_msg header;

	memset(&header, 0, sizeof header);
	header.rm_xid = ++c->xid;
	header.rm_direction = CALL;
	header.rm_call.cb_rpcvers = RPC_MSG_VERSION;
	header.rm_call.cb_prog = c->program;
	header.rm_call.cb_vers = c->version;
	c->records.x_op = XDR_ENCODE;
	c->error.re_status = RPC_SUCCESS;
	if (!xdr_callhdr(&c->records, &header) || !xdr_u_int32_t(&c->records, &procedure) ||
	    !AUTH_MARSHALL(h->cl_auth, &c->records) || !AUTH_WRAP(h->cl_auth, &c->records, encode, arguments)) {
		if (c->error.re_status == RPC_SUCCESS)
			c->error.re_status = RPC_CANTENCODEARGS;
		(void)xdrrec_endofrecord(&c->records, TRUE);
		return FALSE;
	}
	return xdrrec_endofrecord(&c->records, TRUE);
}

/* Waits for the answer to the last call; answers to earlier calls that were given up are skipped. */
static bool_t take_reply(struct client *c, struct rpc_msg *reply)
{
	c->records.x_op = XDR_DECODE;
	for (;;) {
		memset(reply, 0, sizeof *reply);
		reply->acpted_rply.ar_verf = _null_auth;
		reply->acpted_rply.ar_results.proc = (xdrproc_t)xdr_void;
		if (!xdrrec_skiprecord(&c->records))
			return FALSE;
		if (!xdr_replymsg(&c->records, reply)) {
			if (c->error.re_status == RPC_SUCCESS)
				continue;
			return FALSE;
		}
		if (reply->rm_xid == c->xid)
			return TRUE;
	}
}

static enum clnt_stat client_call(CLIENT *h, rpcproc_t procedure, xdrproc_t encode, void *arguments, xdrproc_t decode,
				  void *results, struct timeval limit)
{
	struct client *c = client_of(h);
	struct rpc_msg reply;
	int refreshes = 2;

	if (!c->limit_set)
		c->limit = limit;
	for (;;) {
		if (!send_call(h, procedure, encode, arguments)) {
			if (c->error.re_status == RPC_SUCCESS)
				c->error.re_status = RPC_CANTSEND;
			return c->error.re_status;
		}
		/* A caller that waits for no time wants no answer. */
		if (c->limit.tv_sec == 0 && c->limit.tv_usec == 0)
			return c->error.re_status = RPC_TIMEDOUT;
		if (!take_reply(c, &reply)) {
			if (c->error.re_status == RPC_SUCCESS)
				c->error.re_status = RPC_CANTRECV;
			return c->error.re_status;
		}
		_seterr_reply(&reply, &c->error);
		if (c->error.re_status == RPC_SUCCESS) {
			if (!AUTH_VALIDATE(h->cl_auth, &reply.acpted_rply.ar_verf)) {
				c->error.re_status = RPC_AUTHERROR;
				c->error.re_why = AUTH_INVALIDRESP;
			} else if (!AUTH_UNWRAP(h->cl_auth, &c->records, decode, results)) {
				if (c->error.re_status == RPC_SUCCESS)
					c->error.re_status = RPC_CANTDECODERES;
			}
		}
		if (reply.acpted_rply.ar_verf.oa_base != NULL) {
			c->records.x_op = XDR_FREE;
			(void)xdr_opaque_auth(&c->records, &reply.acpted_rply.ar_verf);
		}
		if (c->error.re_status != RPC_AUTHERROR || refreshes-- == 0 || !AUTH_REFRESH(h->cl_auth, &reply))
			return c->error.re_status;
	}
}

static void client_abort(CLIENT *h)
{
	(void)h;
}

static void client_error(CLIENT *h, struct rpc_err *error)
{
	*error = client_of(h)->error;
}

static bool_t client_free(CLIENT *h, xdrproc_t decode, void *results)
{
	XDR *records = &client_of(h)->records;
	records->x_op = XDR_FREE;
	return (*decode)(records, results);
}

static void client_destroy(CLIENT *h)
{
	struct client *c = client_of(h);
	sov_close(c->s);
	XDR_DESTROY(&c->records);
	free(c);
}

static bool_t client_control(CLIENT *h, u_int request, void *info)
{
	struct client *c = client_of(h);
	switch (request) {
	case CLSET_TIMEOUT:
		c->limit = *(struct timeval *)info;
		c->limit_set = TRUE;
		return TRUE;
	case CLGET_TIMEOUT:
		*(struct timeval *)info = c->limit;
		return TRUE;
	case CLGET_FD:
		*(int *)info = c->s;
		return TRUE;
	case CLGET_VERS:
		*(rpcvers_t *)info = c->version;
		return TRUE;
	case CLSET_VERS:
		c->version = *(rpcvers_t *)info;
		return TRUE;
	default:
		return FALSE;
	}
}

static struct clnt_ops client_operations = {
	client_call, client_abort, client_error, client_free, client_destroy, client_control,
};

static CLIENT *no_client(enum clnt_stat why, int error)
{
	rpc_createerr.cf_stat = why;
	rpc_createerr.cf_error.re_errno = error;
	return NULL;
}

CLIENT *clntvia_create(const char *host, rpcprog_t program, rpcvers_t version, unsigned short port)
{
	struct addrinfo hints, *found = NULL;
	struct sockaddr_in at;
	struct client *c;
	int s, one = 1;

	memset(&hints, 0, sizeof hints);
	hints.ai_family = AF_INET;
	if (getaddrinfo(host, NULL, &hints, &found) != 0)
		return no_client(RPC_UNKNOWNHOST, 0);
	address_of(&at, ((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr,
		   port != 0 ? port : sov_rpc_port(program, version));
	freeaddrinfo(found);
	s = sov_socket(AF_INET, SOCK_VIA, 0);
	if (s < 0)
		return no_client(RPC_SYSTEMERROR, errno);
	/* A record is written in one go, and nothing more comes before its answer. */
	(void)sov_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (sov_connect(s, (struct sockaddr *)&at, sizeof at) < 0) {
		int error = errno;
		sov_close(s);
		return no_client(RPC_SYSTEMERROR, error);
	}
	c = calloc(1, sizeof *c);
	if (c == NULL) {
		sov_close(s);
		return no_client(RPC_SYSTEMERROR, ENOMEM);
	}
	c->s = s;
	c->program = program;
	c->version = version;
	c->xid = (u_int32_t)getpid() ^ (u_int32_t)(uintptr_t)c;
	c->limit.tv_sec = 25;
	xdrrec_create(&c->records, BUFFER, BUFFER, c, client_read, client_write);
	c->handle.cl_auth = authnone_create();
	c->handle.cl_ops = &client_operations;
	c->handle.cl_private = c;
	c->handle.cl_netid = VIA;
	c->handle.cl_tp = VIA;
	return &c->handle;
}

CLIENT *sov_clnt_create(const char *host, rpcprog_t program, rpcvers_t version, const char *transport)
{
	if (strcmp(transport, VIA) == 0)
		return clntvia_create(host, program, version, 0);
	return clnt_create(host, program, version, transport);
}

/* ---- server ---- */

struct connection {
	SVCXPRT handle;
	SVCXPRT_EXT extension;
	struct sockaddr_in peer;
	u_int sendsize, recvsize;
	u_int32_t xid;
	enum xprt_stat state;
	XDR records;
	/* What came: one whole record up to `end` (0 while there is none), of which `taken` bytes are read, and what follows. */
	char *in;
	size_t room, have, taken, end;
};

static struct connection *connection_of(SVCXPRT *handle)
{
	return (struct connection *)handle->xp_p1;
}

static struct connection *new_connection(int s, const struct xp_ops *operations, u_int sendsize, u_int recvsize);

/* The length of the first record of what came, with its fragments' headers; 0 if the rest of it has not come. */
static size_t whole_record(const struct connection *c)
{
	size_t at = 0;
	while (c->have - at >= 4) {
		const unsigned char *head = (const unsigned char *)c->in + at;
		size_t len = (size_t)(head[0] & 0x7f) << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
		bool_t last = (head[0] & 0x80) != 0;
		if (len > c->have - at - 4)
			return 0;
		at += 4 + len;
		if (last)
			return at;
	}
	return 0;
}

/* Takes in what is there, without waiting, until it is a whole record. Whether it is. */
static bool_t await_record(struct connection *c)
{
	while ((c->end = whole_record(c)) == 0) {
		ssize_t n;
		if (c->have == c->room) {
			size_t room = c->room == 0 ? BUFFER : 2 * c->room;
			char *more = room > 2 * LONGEST_RECORD ? NULL : realloc(c->in, room);
			if (more == NULL) {
				c->state = XPRT_DIED;
				return FALSE;
			}
			c->in = more;
			c->room = room;
		}
		n = sov_recv(c->handle.xp_fd, c->in + c->have, c->room - c->have, MSG_DONTWAIT);
		if (n > 0) {
			c->have += (size_t)n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
			c->state = XPRT_DIED;
		return FALSE;
	}
	c->taken = 0;
	return TRUE;
}

/* Forgets the record that was read. */
static void drop_record(struct connection *c)
{
	c->have -= c->end;
	memmove(c->in, c->in + c->end, c->have);
	c->end = c->taken = 0;
	/* What a long record needed is not kept for short ones. */
	if (c->have == 0 && c->room > 16 * BUFFER) {
		free(c->in);
		c->in = NULL;
		c->room = 0;
	}
}

/* Bytes of the record, and of no other. */
static int server_read(void *of, void *into, int len)
{
	struct connection *c = connection_of(of);
	size_t left = c->end - c->taken, n = left < (size_t)len ? left : (size_t)len;
	if (n == 0 && len != 0) {
		c->state = XPRT_DIED;
		return -1;
	}
	memcpy(into, c->in + c->taken, n);
	c->taken += n;
	return (int)n;
}

static int server_write(void *of, void *from, int len)
{
	struct connection *c = connection_of(of);
	int n = write_all(c->handle.xp_fd, from, len);
	if (n < 0)
		c->state = XPRT_DIED;
	return n;
}

static bool_t server_recv(SVCXPRT *h, struct rpc_msg *message)
{
	struct connection *c = connection_of(h);
	/* Comes again when more has come. */
	if (!await_record(c))
		return FALSE;
	c->records.x_op = XDR_DECODE;
	if (xdrrec_skiprecord(&c->records) && xdr_callmsg(&c->records, message)) {
		c->xid = message->rm_xid;
		return TRUE;
	}
	c->state = XPRT_DIED;
	return FALSE;
}

static enum xprt_stat server_stat(SVCXPRT *h)
{
	struct connection *c = connection_of(h);
	if (c->state == XPRT_DIED)
		return XPRT_DIED;
	if (c->end > 0) {
		(void)xdrrec_eof(&c->records); /* goes to the end of the record */
		drop_record(c);
	}
	return whole_record(c) > 0 ? XPRT_MOREREQS : XPRT_IDLE;
}

static bool_t server_getargs(SVCXPRT *h, xdrproc_t decode, void *arguments)
{
	return SVCAUTH_UNWRAP(&SVC_XP_AUTH(h), &connection_of(h)->records, decode, arguments);
}

static bool_t server_freeargs(SVCXPRT *h, xdrproc_t decode, void *arguments)
{
	XDR *records = &connection_of(h)->records;
	records->x_op = XDR_FREE;
	return (*decode)(records, arguments);
}

static bool_t server_reply(SVCXPRT *h, struct rpc_msg *message)
{
	struct connection *c = connection_of(h);
	xdrproc_t encode = NULL;
	void *results = NULL;
	bool_t good;

	if (message->rm_reply.rp_stat == MSG_ACCEPTED && message->rm_reply.rp_acpt.ar_stat == SUCCESS) {
		/* The results go through the authenticator, behind the header. */
		encode = message->acpted_rply.ar_results.proc;
		results = message->acpted_rply.ar_results.where;
		message->acpted_rply.ar_results.proc = (xdrproc_t)xdr_void;
		message->acpted_rply.ar_results.where = NULL;
	}
	c->records.x_op = XDR_ENCODE;
	message->rm_xid = c->xid;
	good = xdr_replymsg(&c->records, message) &&
	       (encode == NULL || SVCAUTH_WRAP(&SVC_XP_AUTH(h), &c->records, encode, results));
	return xdrrec_endofrecord(&c->records, TRUE) && good;
}

static void server_destroy(SVCXPRT *h)
{
	struct connection *c = connection_of(h);
	xprt_unregister(h);
	sov_close(h->xp_fd);
	if (c->records.x_ops != NULL)
		XDR_DESTROY(&c->records);
	free(c->in);
	free(c);
}

static const struct xp_ops server_operations = {
	server_recv, server_stat, server_getargs, server_reply, server_freeargs, server_destroy,
};

/* The handle that listens: a "call" is a connection. */
static bool_t listener_recv(SVCXPRT *h, struct rpc_msg *message)
{
	struct connection *here = connection_of(h), *c;
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	struct timeval limit = {.tv_sec = REPLY_SECONDS};
	int s = sov_accept(h->xp_fd, (struct sockaddr *)&peer, &len), one = 1;

	(void)message;
	if (s < 0)
		return FALSE;
	(void)sov_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	(void)sov_setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	c = new_connection(s, &server_operations, here->sendsize, here->recvsize);
	if (c == NULL) {
		sov_close(s);
		return FALSE;
	}
	c->peer = peer;
	memcpy(&c->handle.xp_raddr, &peer, sizeof peer);
	c->handle.xp_addrlen = (int)sizeof peer;
	c->handle.xp_rtaddr.buf = &c->peer;
	c->handle.xp_rtaddr.len = c->handle.xp_rtaddr.maxlen = sizeof c->peer;
	xdrrec_create(&c->records, c->sendsize, c->recvsize, &c->handle, server_read, server_write);
	xprt_register(&c->handle);
	return FALSE;
}

static enum xprt_stat listener_stat(SVCXPRT *h)
{
	(void)h;
	return XPRT_IDLE;
}

static bool_t listener_args(SVCXPRT *h, xdrproc_t decode, void *arguments)
{
	(void)h, (void)decode, (void)arguments;
	return FALSE;
}

static bool_t listener_reply(SVCXPRT *h, struct rpc_msg *message)
{
	(void)h, (void)message;
	return FALSE;
}

static const struct xp_ops listener_operations = {
	listener_recv, listener_stat, listener_args, listener_reply, listener_args, server_destroy,
};

static bool_t no_control(SVCXPRT *h, const u_int request, void *info)
{
	(void)h, (void)request, (void)info;
	return FALSE;
}

static const struct xp_ops2 more_operations = {no_control};

static struct connection *new_connection(int s, const struct xp_ops *operations, u_int sendsize, u_int recvsize)
{
	struct connection *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->handle.xp_fd = s;
	c->handle.xp_ops = operations;
	c->handle.xp_ops2 = &more_operations;
	c->handle.xp_netid = VIA;
	c->handle.xp_tp = VIA;
	c->handle.xp_verf = _null_auth;
	c->handle.xp_p1 = c;
	c->handle.xp_p3 = &c->extension;
	c->sendsize = sendsize != 0 ? sendsize : BUFFER;
	c->recvsize = recvsize != 0 ? recvsize : BUFFER;
	c->state = XPRT_IDLE;
	return c;
}

SVCXPRT *svcvia_create(int s, u_int sendsize, u_int recvsize)
{
	struct sockaddr_in own;
	socklen_t len = sizeof own;
	struct connection *c;

	if (sov_listen(s, 128) < 0 || sov_getsockname(s, (struct sockaddr *)&own, &len) < 0)
		return NULL;
	c = new_connection(s, &listener_operations, sendsize, recvsize);
	if (c == NULL)
		return NULL;
	c->handle.xp_port = ntohs(own.sin_port);
	xprt_register(&c->handle);
	return &c->handle;
}

SVCXPRT *svcvia_create_for(rpcprog_t program, rpcvers_t version)
{
	struct sockaddr_in at;
	SVCXPRT *handle;
	int s = sov_socket(AF_INET, SOCK_VIA, 0);

	if (s < 0)
		return NULL;
	address_of(&at, htonl(INADDR_ANY), sov_rpc_port(program, version));
	handle = sov_bind(s, (struct sockaddr *)&at, sizeof at) < 0 ? NULL : svcvia_create(s, 0, 0);
	if (handle == NULL)
		sov_close(s);
	return handle;
}

static volatile int leaving;

void sov_svc_run(void)
{
	struct pollfd *waiting = NULL;
	int room = 0;

	leaving = 0;
	while (!leaving) {
		/* Handles come and go while calls are served. */
		int count = svc_max_pollfd, ready;
		if (count > room) {
			struct pollfd *more = realloc(waiting, (size_t)count * sizeof *more);
			if (more == NULL)
				break;
			waiting = more;
			room = count;
		}
		memcpy(waiting, svc_pollfd, (size_t)count * sizeof *waiting);
		for (int i = 0; i < count; i++)
			waiting[i].revents = 0;
		ready = sov_poll(waiting, (nfds_t)count, -1);
		if (ready > 0)
			svc_getreq_poll(waiting, ready);
		else if (ready < 0 && errno != EINTR)
			break;
	}
	free(waiting);
}

void sov_svc_exit(void)
{
	leaving = 1;
}
