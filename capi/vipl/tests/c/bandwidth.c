/* Streams of messages with a window of receives and credits by empty messages, as libraries of that age did it. */
#include "kit.h"

#define WINDOW 16
#define MESSAGES 200
#define SIZE 40000
#define CREDITS 40 /* descriptors of credits */

static void server(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    int i, taken;
    open_node(&node, WINDOW * SIZE);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (i = 0; i < WINDOW; i++)
        MUST(VipPostRecv(vi, fill(&node, i, data(&node, (size_t)i * SIZE), SIZE), node.handle));
    accept_at(&node, vi, 1);
    for (taken = 0; taken < MESSAGES; taken++) {
        VIP_DESCRIPTOR *d = received(vi), *credit;
        CHECK(d == descriptor(&node, taken % WINDOW) && d->CS.Length == SIZE);
        check_pattern(data(&node, (size_t)(taken % WINDOW) * SIZE), SIZE, (unsigned)taken);
        MUST(VipPostRecv(vi, d, node.handle));
        /* One credit, every other time with a segment of no bytes. */
        credit = fill(&node, CREDITS, taken & 1 ? data(&node, 0) : NULL, 0);
        credit->CS.Control = VIP_CONTROL_IMMEDIATE;
        credit->CS.ImmediateData = (VIP_UINT32)taken;
        MUST(VipPostSend(vi, credit, node.handle));
        CHECK(sent(vi) == credit);
    }
    end_vi(vi);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    int i, posted, told = 0, back = 0;
    unsigned looks = 0;
    open_node(&node, WINDOW * SIZE);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (i = 0; i < WINDOW; i++)
        MUST(VipPostRecv(vi, fill(&node, CREDITS + i, NULL, 0), node.handle));
    connect_to(&node, vi, 1);
    for (posted = 0; told < MESSAGES;) {
        VIP_DESCRIPTOR *d = NULL;
        if (posted < MESSAGES && posted - told < WINDOW && posted - back < WINDOW) {
            char *from = data(&node, (size_t)(posted % WINDOW) * SIZE);
            pattern(from, SIZE, (unsigned)posted);
            MUST(VipPostSend(vi, fill(&node, posted % WINDOW, from, SIZE), node.handle));
            posted++;
        }
        if (VipSendDone(vi, &d) == VIP_SUCCESS) {
            CHECK(d == descriptor(&node, back % WINDOW));
            back++;
        }
        if (VipRecvDone(vi, &d) == VIP_SUCCESS) {
            CHECK(d->CS.ImmediateData == (VIP_UINT32)told && d->CS.Length == 0);
            MUST(VipPostRecv(vi, d, node.handle));
            told++;
            looks = 0;
        } else {
            breathe(&looks);
        }
    }
    while (back < MESSAGES) {
        CHECK(sent(vi) == descriptor(&node, back % WINDOW));
        back++;
    }
    end_vi(vi);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
