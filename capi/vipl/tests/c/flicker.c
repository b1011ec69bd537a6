/* A descriptor whose segment another thread (it could be a peer, by RDMA) changes all the time: no state of it, and no mixture
 * of two, names memory that the program did not register. */
#include "kit.h"
#include <sys/mman.h>
#include <time.h>

/* Posts during which the segment has changed, and how many seconds they may take. On a busy machine the two threads seldom
 * run at the same time. */
#define CHANGES 5000
#define SECONDS 4

static volatile int over;
static VIP_DESCRIPTOR *flickers;
static VIP_MEM_HANDLE right;

static void *flicker(void *unused)
{
    volatile VIP_UINT32 *handle = &flickers->DS[0].Local.Handle;
    while (!over) {
        *handle = 0;
        *handle = right;
    }
    return unused;
}

static void server(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *back = NULL;
    open_node(&node, 64);
    vi = make_vi(&node, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
    accept_at(&node, vi, 41);
    /* Nothing of all that is ever sent. */
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, VIP_INFINITE, &back));
    CHECK(back && (back->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));
    end_vi(vi);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    pthread_t thread;
    volatile VIP_UINT32 *handle;
    int changes = 0;
    time_t end;
    /* Reading it ends the process. */
    char *nothing = (char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nothing != (char *)MAP_FAILED);
    open_node(&node, 64);
    vi = make_vi(&node, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    connect_to(&node, vi, 41);
    right = node.handle;
    flickers = fill(&node, 0, nothing, 64);
    CHECK(pthread_create(&thread, NULL, flicker, NULL) == 0);
    handle = &flickers->DS[0].Local.Handle;
    end = time(NULL) + SECONDS;
    while (changes < CHANGES && time(NULL) < end) {
        VIP_DESCRIPTOR *d = NULL;
        VIP_UINT32 before = *handle;
        MUST(VipPostSend(vi, flickers, node.handle));
        changes += *handle != before;
        EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, VIP_INFINITE, &d));
        CHECK(d == flickers && (d->CS.Status & VIP_STATUS_PROTECTION_ERROR));
        d->CS.Length = 64;
    }
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    end_vi(vi);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
