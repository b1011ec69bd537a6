/* Notify: handlers for one completion each, in order, on the library's thread; they post and arm again. */
#include "kit.h"

#define MESSAGES 30

static NODE node;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int received_count, sent_count, entries;

static void bump(int *what)
{
    pthread_mutex_lock(&lock);
    ++*what;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *what, int wanted)
{
    pthread_mutex_lock(&lock);
    while (*what < wanted)
        pthread_cond_wait(&more, &lock);
    pthread_mutex_unlock(&lock);
}

static void on_recv(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    CHECK(context == &node && nic == node.nic && d != NULL);
    if (d->CS.Status & VIP_STATUS_ERROR_MASK)
        return;
    CHECK(d->CS.ImmediateData == (VIP_UINT32)received_count);
    MUST(VipPostRecv(vi, d, node.handle));
    MUST(VipRecvNotify(vi, context, on_recv));
    bump(&received_count);
}

static void on_sent(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    CHECK(context == NULL && nic == node.nic && vi != NULL && d == descriptor(&node, 20));
    CHECK(d->CS.Status == VIP_STATUS_DONE);
    bump(&sent_count);
}

static void on_entry(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN recv)
{
    VIP_DESCRIPTOR *d = NULL;
    CHECK(context == &entries && nic == node.nic && recv);
    MUST(VipRecvDone(vi, &d));
    CHECK(d->CS.ImmediateData == 99);
    bump(&entries);
}

static void server(void)
{
    VIP_VI_HANDLE vi, bound;
    VIP_CQ_HANDLE cq;
    VIP_DESCRIPTOR *d;
    int i;
    open_node(&node, 64);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    /* VIA has no flow control: there is a receive for each message. */
    for (i = 0; i < MESSAGES; i++)
        MUST(VipPostRecv(vi, fill(&node, 30 + i, NULL, 0), node.handle));
    MUST(VipRecvNotify(vi, &node, on_recv));
    EXPECT(VIP_INVALID_PARAMETER, VipRecvNotify(vi, &node, NULL));
    accept_at(&node, vi, 1);
    wait_for(&received_count, MESSAGES);
    d = fill(&node, 20, NULL, 0);
    MUST(VipSendNotify(vi, NULL, on_sent));
    MUST(VipPostSend(vi, d, node.handle));
    wait_for(&sent_count, 1);

    MUST(VipCreateCQ(node.nic, 8, &cq));
    bound = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
    EXPECT(VIP_ERROR_RESOURCE, VipRecvNotify(bound, NULL, on_recv));
    for (i = 0; i < 2; i++) {
        MUST(VipPostRecv(bound, fill(&node, 10 + i, NULL, 0), node.handle));
        MUST(VipCQNotify(cq, &entries, on_entry));
    }
    accept_at(&node, bound, 2);
    wait_for(&entries, 2);
    /* A handler that is armed when its VI goes is never called. */
    MUST(VipCQNotify(cq, NULL, on_entry));
    end_vi(bound);
    MUST(VipDestroyCQ(cq));
    end_vi(vi);
    close_node(&node);
}

static void client(void)
{
    VIP_VI_HANDLE vi, bound;
    VIP_DESCRIPTOR *d;
    int i;
    open_node(&node, 64);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    {
        /* The server wants another level: told at its accept; here the attributes are changed to match. */
        VIP_VI_ATTRIBUTES attributes = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
        MUST(VipSetViAttributes(vi, &attributes));
    }
    MUST(VipPostRecv(vi, fill(&node, 0, NULL, 0), node.handle));
    connect_to(&node, vi, 1);
    for (i = 0; i < MESSAGES; i++) {
        d = fill(&node, 1, NULL, 0);
        d->CS.Control = VIP_CONTROL_IMMEDIATE;
        d->CS.ImmediateData = (VIP_UINT32)i;
        MUST(VipPostSend(vi, d, node.handle));
        sent(vi);
    }
    received(vi);
    bound = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    connect_to(&node, bound, 2);
    for (i = 0; i < 2; i++) {
        d = fill(&node, 2, NULL, 0);
        d->CS.Control = VIP_CONTROL_IMMEDIATE;
        d->CS.ImmediateData = 99;
        MUST(VipPostSend(bound, d, node.handle));
        sent(bound);
    }
    {
        VIP_VI_STATE state = VIP_STATE_CONNECTED;
        while (state == VIP_STATE_CONNECTED) {
            MUST(VipQueryVi(vi, &state, NULL, NULL, NULL));
            usleep(200);
        }
    }
    end_vi(vi);
    end_vi(bound);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
