/* The service of calls.x at a port of 127.0.0.1, without rpcbind: server PORT. */
#include <arpa/inet.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "calls.h"

void plain_calls_1(struct svc_req *request, SVCXPRT *transport);

void *nothing_1_svc(void *argument, struct svc_req *request)
{
    static char done;
    (void)argument;
    (void)request;
    return &done;
}

u_int *sum_1_svc(block *argument, struct svc_req *request)
{
    static u_int answer;
    (void)request;
    answer = 0;
    for (u_int k = 0; k < argument->block_len; k++)
        answer += (unsigned char)argument->block_val[k];
    return &answer;
}

block *echo_1_svc(block *argument, struct svc_req *request)
{
    static block answer;
    static char bytes[MOST];
    (void)request;
    memcpy(bytes, argument->block_val, argument->block_len);
    answer.block_val = bytes;
    answer.block_len = argument->block_len;
    return &answer;
}

int main(int count, char **words)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(count > 1 ? atoi(words[1]) : 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64)) {
        perror("server");
        return 1;
    }
    SVCXPRT *transport = svc_vc_create(fd, 0, 0);
    /* Protocol 0: no rpcbind is asked. */
    if (!transport || !svc_register(transport, PLAIN_CALLS, PLAIN_CALLS_ONE, plain_calls_1, 0)) {
        fprintf(stderr, "server: cannot offer the service\n");
        return 1;
    }
    svc_run();
    return 1;
}
