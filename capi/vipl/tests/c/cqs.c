/* Completion queues: entries of both queues of several VIs, Done that succeeds at once, resize, sizes just enough. */
#include "kit.h"

#define VIS 6
#define ROUNDS 50
#define SIZE 512

static VIP_VI_HANDLE vis[VIS];

static int number_of(VIP_VI_HANDLE vi)
{
    int i;
    for (i = 0; i < VIS; i++)
        if (vis[i] == vi)
            return i;
    CHECK(!"one of ours");
    return -1;
}

static void server(void)
{
    NODE node;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    int i, left = VIS * ROUNDS, replies = VIS * ROUNDS;
    open_node(&node, 2 * VIS * SIZE);
    MUST(VipCreateCQ(node.nic, 1, &cq));
    EXPECT(VIP_NOT_DONE, VipCQDone(cq, &vi, &recv));
    EXPECT(VIP_TIMEOUT, VipCQWait(cq, 5, &vi, &recv));
    for (i = 0; i < VIS; i++) {
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
        VipSetUserData(vis[i], &vis[i]);
        /* One entry is reserved for each descriptor, no more. */
        if (i > 0)
            EXPECT(VIP_ERROR_RESOURCE, VipPostRecv(vis[i], fill(&node, i, data(&node, 0), SIZE), node.handle));
        MUST(VipResizeCQ(cq, (VIP_ULONG)i + 1));
        MUST(VipPostRecv(vis[i], fill(&node, i, data(&node, (size_t)i * SIZE), SIZE), node.handle));
        accept_at(&node, vis[i], i);
    }
    EXPECT(VIP_ERROR_RESOURCE, VipResizeCQ(cq, VIS - 1));
    MUST(VipResizeCQ(cq, 2 * VIS));
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyCQ(cq));
    while (left + replies > 0) {
        VIP_DESCRIPTOR *d = NULL;
        MUST(VipCQWait(cq, VIP_INFINITE, &vi, &recv));
        i = number_of(vi);
        CHECK(VipGetUserData(vi) == &vis[i]);
        if (!recv) {
            MUST(VipSendDone(vi, &d));
            CHECK(d == descriptor(&node, VIS + i));
            replies--;
            continue;
        }
        MUST(VipRecvDone(vi, &d));
        CHECK(d == descriptor(&node, i) && d->CS.Length == SIZE);
        left--;
        memcpy(data(&node, (size_t)(VIS + i) * SIZE), data(&node, (size_t)i * SIZE), SIZE);
        MUST(VipPostRecv(vi, d, node.handle));
        MUST(VipPostSend(vi, fill(&node, VIS + i, data(&node, (size_t)(VIS + i) * SIZE), SIZE), node.handle));
    }
    for (i = 0; i < VIS; i++) {
        VIP_DESCRIPTOR *d = NULL;
        EXPECT(VIP_ERROR_RESOURCE, VipRecvWait(vis[i], 5, &d));
        end_vi(vis[i]);
    }
    MUST(VipDestroyCQ(cq));
    close_node(&node);
}

static void client(void)
{
    NODE node;
    int i, round;
    open_node(&node, 2 * SIZE);
    for (i = 0; i < VIS; i++) {
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        connect_to(&node, vis[i], i);
    }
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < VIS; i++) {
            VIP_DESCRIPTOR *d;
            MUST(VipPostRecv(vis[i], fill(&node, 0, data(&node, 0), SIZE), node.handle));
            pattern(data(&node, SIZE), SIZE, (unsigned)(round + i));
            MUST(VipPostSend(vis[i], fill(&node, 1, data(&node, SIZE), SIZE), node.handle));
            d = received(vis[i]);
            CHECK(d->CS.Length == SIZE);
            check_pattern(data(&node, 0), SIZE, (unsigned)(round + i));
            sent(vis[i]);
        }
    }
    for (i = 0; i < VIS; i++)
        end_vi(vis[i]);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
