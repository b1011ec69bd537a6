/* Threads that share a NIC: a data server on a completion queue, several pairs at once, and a close while others wait. */
#include "kit.h"

#define PAIRS 4
#define ROUNDS 150
#define SIZE 64

static NODE node;

typedef struct {
    VIP_VI_HANDLE vi;
    int number;
} PAIR;

/* Each thread has a VI of the same NIC and plays with the other process. */
static void *play(void *argument)
{
    PAIR *pair = (PAIR *)argument;
    int i, own = 4 * pair->number;
    char *in = data(&node, (size_t)pair->number * 4 * SIZE), *out = in + SIZE;
    for (i = 0; i < ROUNDS; i++) {
        VIP_DESCRIPTOR *d;
        memset(out, i + pair->number, SIZE);
        MUST(VipPostSend(pair->vi, fill(&node, own + 1, out, SIZE), node.handle));
        d = received(pair->vi);
        CHECK(d == descriptor(&node, own) && d->CS.Length == SIZE && in[SIZE - 1] == (char)(i + pair->number));
        sent(pair->vi);
        MUST(VipPostRecv(pair->vi, fill(&node, own, in, SIZE), node.handle));
    }
    return NULL;
}

/* The data server: takes every message from one queue and answers. */
static void *serve(void *argument)
{
    VIP_CQ_HANDLE cq = argument;
    int left = PAIRS * ROUNDS;
    while (left > 0) {
        VIP_VI_HANDLE vi;
        VIP_BOOLEAN recv;
        VIP_DESCRIPTOR *d = NULL, *answer;
        char *reply;
        int number;
        MUST(VipCQWait(cq, VIP_INFINITE, &vi, &recv));
        CHECK(recv);
        /* A pair that has ended gives its receive back. */
        if (VipRecvDone(vi, &d) == VIP_DESCRIPTOR_ERROR) {
            CHECK(d && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));
            continue;
        }
        CHECK(d && !(d->CS.Status & VIP_STATUS_ERROR_MASK));
        number = (int)(((char *)d - node.memory) / SLOT) / 4;
        /* The next message comes as soon as the answer is there. */
        reply = data(&node, (size_t)(PAIRS + number) * SIZE);
        memcpy(reply, d->DS[0].Local.Data.Address, SIZE);
        MUST(VipPostRecv(vi, d, node.handle));
        answer = fill(&node, 4 * number + 1, reply, SIZE);
        MUST(VipPostSend(vi, answer, node.handle));
        CHECK(sent(vi) == answer);
        left--;
    }
    return NULL;
}

static void *wait_for_nobody(void *argument)
{
    VIP_VI_HANDLE vi = argument;
    VIP_DESCRIPTOR *d = NULL;
    EXPECT(VIP_INVALID_PARAMETER, VipRecvWait(vi, VIP_INFINITE, &d));
    return NULL;
}

static void *wait_for_request(void *argument)
{
    ADDRESS here = address_of(&node, 4711), remote;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE conn;
    EXPECT(VIP_INVALID_PARAMETER,
           VipConnectWait((VIP_NIC_HANDLE)argument, &here.address, VIP_INFINITE, &remote.address, &theirs, &conn));
    return NULL;
}

static void server(void)
{
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vis[PAIRS], idle;
    VIP_DESCRIPTOR *d = NULL;
    pthread_t thread, waiting[2];
    int i;
    open_node(&node, 16 * SIZE * PAIRS);
    MUST(VipCreateCQ(node.nic, 1024, &cq));
    CHECK(pthread_create(&thread, NULL, serve, cq) == 0);
    /* The main thread goes on connecting while the server works. */
    for (i = 0; i < PAIRS; i++) {
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
        MUST(VipPostRecv(vis[i], fill(&node, 4 * i, data(&node, (size_t)i * SIZE), SIZE), node.handle));
        accept_at(&node, vis[i], i);
    }
    pthread_join(thread, NULL);
    for (i = 0; i < PAIRS; i++) {
        VIP_VI_STATE state = VIP_STATE_CONNECTED;
        while (state == VIP_STATE_CONNECTED) {
            MUST(VipQueryVi(vis[i], &state, NULL, NULL, NULL));
            usleep(200);
        }
        end_vi(vis[i]);
    }
    /* Closing the NIC ends the waits of other threads. */
    idle = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipPostRecv(idle, fill(&node, 0, data(&node, 0), SIZE), node.handle));
    EXPECT(VIP_TIMEOUT, VipRecvWait(idle, 1, &d));
    CHECK(pthread_create(&waiting[0], NULL, wait_for_nobody, idle) == 0);
    CHECK(pthread_create(&waiting[1], NULL, wait_for_request, node.nic) == 0);
    usleep(50000);
    MUST(VipCloseNic(node.nic));
    pthread_join(waiting[0], NULL);
    pthread_join(waiting[1], NULL);
    EXPECT(VIP_INVALID_PARAMETER, VipRecvDone(idle, &d));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(idle));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyCQ(cq));
    free(node.memory);
}

static void client(void)
{
    PAIR pairs[PAIRS];
    pthread_t threads[PAIRS];
    int i;
    open_node(&node, 16 * SIZE * PAIRS);
    for (i = 0; i < PAIRS; i++) {
        pairs[i].vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        pairs[i].number = i;
        MUST(VipPostRecv(pairs[i].vi, fill(&node, 4 * i, data(&node, (size_t)i * 4 * SIZE), SIZE), node.handle));
        connect_to(&node, pairs[i].vi, i);
        CHECK(pthread_create(&threads[i], NULL, play, &pairs[i]) == 0);
    }
    for (i = 0; i < PAIRS; i++) {
        pthread_join(threads[i], NULL);
        end_vi(pairs[i].vi);
    }
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
