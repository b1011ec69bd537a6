/* Calls the service of calls.x: client PORT COUNT SIZE, where SIZE is `void` for the call without an argument, a number of bytes,
 * or such a number with `e` in front for the call that answers with its argument. Every answer is checked; prints microseconds a call, after a tenth of the calls that does not count. */
#include <arpa/inet.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int call(CLIENT *client, long size, int echo, long number)
{
    static char bytes[MOST];
    if (size < 0)
        return nothing_1(NULL, client) != NULL;
    u_int sum = 0;
    for (long k = 0; k < size; k++)
        sum += (unsigned char)(bytes[k] = (char)(number * 31 + k * 7));
    block argument = { .block_len = size, .block_val = bytes };
    if (!echo) {
        u_int *answer = sum_1(&argument, client);
        return answer && *answer == sum;
    }
    block *answer = echo_1(&argument, client);
    int good = answer && (long)answer->block_len == size && !memcmp(answer->block_val, bytes, size);
    if (answer)
        clnt_freeres(client, (xdrproc_t)xdr_block, (char *)answer);
    return good;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    struct sockaddr_in address = { .sin_family = AF_INET };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(atoi(words[1]));
    int echo = words[3][0] == 'e';
    long calls = atol(words[2]), size = strcmp(words[3], "void") ? atol(words[3] + echo) : -1;
    int fd = RPC_ANYSOCK;
    CLIENT *client = clnttcp_create(&address, PLAIN_CALLS, PLAIN_CALLS_ONE, &fd, 0, 0);
    if (!client) {
        clnt_pcreateerror("client");
        return 1;
    }
    double begun = 0;
    for (long k = -calls / 10; k < calls; k++) {
        if (k == 0)
            begun = now();
        if (!call(client, size, echo, k)) {
            clnt_perror(client, "client: call failed");
            return 1;
        }
    }
    printf("result %.4f\n", (now() - begun) / calls);
    clnt_destroy(client);
    return 0;
}
