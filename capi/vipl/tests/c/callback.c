/* Asynchronous errors: a lost peer is told once, bad descriptors and overruns are told, an orderly end is not. */
#include <signal.h>

#include "kit.h"

static VIP_ERROR_DESCRIPTOR told[16];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_t main_thread;

static void handler(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    CHECK(context == &count);
    CHECK(!pthread_equal(pthread_self(), main_thread));
    pthread_mutex_lock(&lock);
    CHECK(count < 16);
    told[count++] = *error;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
}

static VIP_ERROR_DESCRIPTOR *wait_for(int number)
{
    pthread_mutex_lock(&lock);
    while (count < number)
        pthread_cond_wait(&more, &lock);
    pthread_mutex_unlock(&lock);
    return &told[number - 1];
}

static void server(void)
{
    NODE node;
    VIP_VI_HANDLE vi, loose;
    VIP_DESCRIPTOR *d;
    VIP_ERROR_DESCRIPTOR *error;
    VIP_ULONG i;
    pid_t peer = 0;
    main_thread = pthread_self();
    open_node(&node, 4096);
    MUST(VipErrorCallback(node.nic, &count, handler));
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));

    /* The first client leaves in good order. */
    accept_at(&node, vi, 1);
    received(vi);
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, VIP_INFINITE, &d));
    CHECK(d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    MUST(VipDisconnect(vi));
    usleep(100000);
    CHECK(count == 0);

    /* A descriptor that is not at a border, and one that is not registered. */
    d = (VIP_DESCRIPTOR *)(void *)(node.memory + 32);
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(vi, d, node.handle));
    error = wait_for(1);
    CHECK(error->ErrorCode == VIP_ERROR_POST_DESC && error->ResourceCode == VIP_RESOURCE_DESCRIPTOR);
    CHECK(error->DescriptorPtr == d && error->ViHandle == vi && error->NicHandle == node.nic);
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(vi, descriptor(&node, 0), node.handle + 1));
    CHECK(wait_for(2)->ErrorCode == VIP_ERROR_POST_DESC);
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(vi, (VIP_DESCRIPTOR *)64, node.handle));
    CHECK(wait_for(3)->DescriptorPtr == (VIP_DESCRIPTOR *)64);

    /* One receive more than the queue takes. */
    for (i = 0; i < node.attributes.MaxDescriptorsPerQueue; i++)
        MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
    EXPECT(VIP_ERROR_RESOURCE, VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
    CHECK(wait_for(4)->ErrorCode == VIP_ERROR_VI_OVERRUN);
    MUST(VipDisconnect(vi));
    do {
        VipRecvDone(vi, &d);
    } while (d);

    /* A message that meets no receive, where messages may get lost. */
    loose = make_vi(&node, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    accept_at(&node, loose, 2);
    /* Messages move on while the program looks. */
    for (i = 0; !i;) {
        MUST(VipQueryVi(loose, NULL, NULL, NULL, NULL));
        pthread_mutex_lock(&lock);
        i = count == 5;
        pthread_mutex_unlock(&lock);
        usleep(200);
    }
    error = wait_for(5);
    CHECK(error->ErrorCode == VIP_ERROR_RECVQ_EMPTY && error->ViHandle == loose);

    /* The peer dies: told once, on the library's thread, though no call looks. */
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
    accept_at(&node, vi, 3);
    received(vi);
    memcpy(&peer, data(&node, 0), sizeof peer);
    CHECK(kill(peer, SIGKILL) == 0);
    wait_for(7);
    CHECK(told[5].ErrorCode == VIP_ERROR_CONN_LOST && told[6].ErrorCode == VIP_ERROR_CONN_LOST);
    CHECK(told[5].ViHandle != told[6].ViHandle);
    usleep(50000);
    CHECK(count == 7);
    MUST(VipErrorCallback(node.nic, NULL, NULL));
    end_vi(vi);
    end_vi(loose);
    close_node(&node);
}

static void client(void)
{
    pid_t killed = fork();
    NODE node;
    VIP_VI_HANDLE vi, loose;
    int status = 0;
    CHECK(killed >= 0);
    if (killed > 0) {
        CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        return;
    }
    limit_time();
    killed = getpid();
    open_node(&node, 64);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    connect_to(&node, vi, 1);
    MUST(VipPostSend(vi, fill(&node, 0, data(&node, 0), 8), node.handle));
    sent(vi);
    MUST(VipDisconnect(vi));
    loose = make_vi(&node, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    connect_to(&node, loose, 2);
    MUST(VipPostSend(loose, fill(&node, 0, data(&node, 0), 8), node.handle));
    sent(loose);
    connect_to(&node, vi, 3);
    memcpy(data(&node, 0), &killed, sizeof killed);
    MUST(VipPostSend(vi, fill(&node, 0, data(&node, 0), sizeof killed), node.handle));
    for (;;)
        pause();
}

int main(void)
{
    return two_processes(server, client);
}
