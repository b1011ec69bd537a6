/* A program that sets no handler of errors: the library says on standard error what befell which VI. The test that runs it
 * compares that with the handles that are printed here. */
#include "kit.h"

#define LONG 100
#define SHORT 64

static void server(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *d = NULL;
    open_node(&node, 4096);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), SHORT), node.handle));
    accept_at(&node, vi, 50);
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, VIP_INFINITE, &d));
    CHECK(d->CS.Status & VIP_STATUS_LENGTH_ERROR);
    printf("too long at %p\n", vi);
    fflush(stdout);
    end_vi(vi);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *d = NULL;
    open_node(&node, 4096);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipPostRecv(vi, fill(&node, 1, data(&node, 1), 1), node.handle));
    connect_to(&node, vi, 50);
    MUST(VipPostSend(vi, fill(&node, 0, data(&node, 0), LONG), node.handle));
    /* The end of the connection gives back what is posted. */
    VipRecvWait(vi, VIP_INFINITE, &d);
    CHECK(d == descriptor(&node, 1));
    end_vi(vi);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
