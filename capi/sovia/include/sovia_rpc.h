/* sovia_rpc.h - the transport "via" of SunRPC (ONC RPC), on libtirpc and libsovia.
 *
 * SOVIA, section 5.4: a client chooses the transport by its name in clnt_create(), a server makes a transport handle with
 * svcvia_create(); nothing else of a program changes. Compile sovia_rpc.c with the program; link with -lsovia -ltirpc.
 *
 * There is no port mapper behind VIA. A program has the port sov_rpc_port(program, version), unless both sides say
 * another one.
 */
#ifndef VIADUCT_SOVIA_RPC_H
#define VIADUCT_SOVIA_RPC_H

#include <rpc/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The port of a program on VIA. */
unsigned short sov_rpc_port(rpcprog_t program, rpcvers_t version);

/* A client over VIA to a host ("localhost", a name, or numbers); port 0 is that of the program. */
CLIENT *clntvia_create(const char *host, rpcprog_t program, rpcvers_t version, unsigned short port);

/* As clnt_create(), and knows "via" beside the transports of libtirpc. */
CLIENT *sov_clnt_create(const char *host, rpcprog_t program, rpcvers_t version, const char *transport);

/* A server's handle on a socket of type SOCK_VIA that is bound, and one on the port of a program.
 * Sizes are those of the buffers; 0 is the usual one. */
SVCXPRT *svcvia_create(int s, u_int sendsize, u_int recvsize);
SVCXPRT *svcvia_create_for(rpcprog_t program, rpcvers_t version);

/* As svc_run() and svc_exit(), for transports of both kinds. */
void sov_svc_run(void);
void sov_svc_exit(void);

#ifndef SOVIA_RPC_OWN_NAMES
#define clnt_create(host, program, version, transport) sov_clnt_create(host, program, version, transport)
#define svc_run() sov_svc_run()
#define svc_exit() sov_svc_exit()
#endif

#ifdef __cplusplus
}
#endif

#endif
