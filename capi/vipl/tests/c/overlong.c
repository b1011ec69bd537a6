/* Receives that end beyond their region, as programs of the time post them: a message that fits is received, one that would
 * go beyond is a protection error and nothing is written. With "strict", nothing is received at all. */
#include "kit.h"

#define REGION 8192
#define OFFERED 65472
#define START 4096

static int strict(void)
{
    const char *mode = getenv("VIADUCT_VIPL_RECEIVES");
    return mode && strcmp(mode, "strict") == 0;
}

static const unsigned lengths[] = {0, 1, 100, 1000, REGION - START, REGION - START + 1, OFFERED};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void quiet(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    CHECK(error->ErrorCode == VIP_ERROR_COMP_PROT || error->ErrorCode == VIP_ERROR_CONN_LOST);
    (void)context;
}

static void server(void)
{
    NODE node;
    char *memory = NULL;
    VIP_MEM_HANDLE handle;
    VIP_MEM_ATTRIBUTES attributes;
    unsigned i, at;
    open_node(&node, 64);
    MUST(VipErrorCallback(node.nic, NULL, quiet));
    CHECK(posix_memalign((void **)&memory, 4096, START + OFFERED) == 0);
    memset(memory, 'e', START + OFFERED);
    memset(&attributes, 0, sizeof attributes);
    attributes.Ptag = node.tag;
    MUST(VipRegisterMem(node.nic, memory, REGION, &attributes, &handle));
    for (i = 0; i < LENGTHS; i++) {
        VIP_VI_HANDLE vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        VIP_DESCRIPTOR *d = fill(&node, 0, memory + START, OFFERED), *back = NULL;
        int fits = lengths[i] <= REGION - START && !strict();
        d->DS[0].Local.Handle = handle;
        MUST(VipPostRecv(vi, d, node.handle));
        accept_at(&node, vi, 40);
        EXPECT(fits ? VIP_SUCCESS : VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, VIP_INFINITE, &back));
        CHECK(back == d && d->CS.Length == (fits ? lengths[i] : 0));
        CHECK(((d->CS.Status & VIP_STATUS_PROTECTION_ERROR) != 0) == !fits);
        if (fits)
            check_pattern(memory + START, lengths[i], i);
        for (at = REGION; at < START + OFFERED; at++)
            CHECK(memory[at] == 'e');
        end_vi(vi);
    }
    MUST(VipDeregisterMem(node.nic, memory, handle));
    free(memory);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    unsigned i;
    open_node(&node, OFFERED);
    MUST(VipErrorCallback(node.nic, NULL, quiet));
    for (i = 0; i < LENGTHS; i++) {
        VIP_VI_HANDLE vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        VIP_DESCRIPTOR *d, *back = NULL;
        pattern(data(&node, 0), lengths[i], i);
        MUST(VipPostRecv(vi, fill(&node, 1, data(&node, 0), 1), node.handle));
        connect_to(&node, vi, 40);
        d = fill(&node, 0, data(&node, 0), lengths[i]);
        MUST(VipPostSend(vi, d, node.handle));
        /* The end of the connection gives back what is posted: until then the server has time. */
        VipRecvWait(vi, VIP_INFINITE, &back);
        CHECK(back == descriptor(&node, 1));
        end_vi(vi);
    }
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
