/* RDMA: writes that the target sees by their last word, writes with immediate data, reads, and what is refused. */
#include "kit.h"

#define ROOM 200000
#define ROUNDS 30

typedef struct {
    VIP_UINT64 address;
    VIP_MEM_HANDLE handle, closed;
} PLACE;

static volatile VIP_UINT32 *flag_at(NODE *node, size_t length)
{
    return (volatile VIP_UINT32 *)(void *)data(node, length);
}

static void serve(VIP_RELIABILITY_LEVEL level)
{
    NODE node;
    VIP_VI_HANDLE vi;
    VIP_MEM_ATTRIBUTES none;
    VIP_DESCRIPTOR *d;
    PLACE place;
    unsigned round;
    open_node(&node, ROOM + 4096);
    vi = make_vi(&node, level, NULL, NULL);
    /* The same memory once more, without rights: another handle. */
    none.Ptag = node.tag;
    none.EnableRdmaWrite = none.EnableRdmaRead = VIP_FALSE;
    MUST(VipRegisterMem(node.nic, data(&node, 0), ROOM, &none, &place.closed));
    CHECK(place.closed != node.handle);
    for (round = 0; round < 3; round++)
        MUST(VipPostRecv(vi, fill(&node, (int)round, NULL, 0), node.handle));
    accept_at(&node, vi, 9 + level);
    place.address = (VIP_UINT64)(uintptr_t)data(&node, 0);
    place.handle = node.handle;
    memcpy(data(&node, ROOM), &place, sizeof place);
    MUST(VipPostSend(vi, fill(&node, 8, data(&node, ROOM), sizeof place), node.handle));
    sent(vi);
    /* Nothing is called while the writes come: the last word says that all is there. */
    for (round = 1; round <= ROUNDS; round++) {
        size_t length = round * 4000;
        volatile VIP_UINT32 *flag = flag_at(&node, length);
        unsigned looks = 0;
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != round)
            breathe(&looks);
        check_pattern(data(&node, 0), length, round);
        __atomic_store_n(flag, 0, __ATOMIC_RELAXED);
        /* Our answer is a write, too: into the memory of the client, at the same offset of its place. */
        memcpy(data(&node, ROOM), &round, sizeof round);
        MUST(VipPostSend(vi, fill(&node, 8, data(&node, ROOM), sizeof round), node.handle));
        sent(vi);
    }
    d = received(vi);
    CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE));
    CHECK(d->CS.ImmediateData == 77 && d->CS.Length == 5000);
    check_pattern(data(&node, 100), 5000, 5);
    pattern(data(&node, 0), ROOM, 6);
    MUST(VipPostSend(vi, fill(&node, 8, NULL, 0), node.handle));
    sent(vi);
    /* The refused write breaks the connection; receives come back flushed. */
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, VIP_INFINITE, &d));
    CHECK(d && (d->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_DESC_FLUSHED_ERROR);
    end_vi(vi);
    MUST(VipDeregisterMem(node.nic, data(&node, 0), place.closed));
    close_node(&node);
}

static void ask(VIP_RELIABILITY_LEVEL level)
{
    NODE node;
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    VIP_DESCRIPTOR *d = NULL;
    PLACE place;
    unsigned round;
    open_node(&node, ROOM + 4096);
    vi = make_vi(&node, level, NULL, NULL);
    for (round = 0; round < 2; round++)
        MUST(VipPostRecv(vi, fill(&node, (int)round, data(&node, ROOM + 64 * round), 64), node.handle));
    connect_to(&node, vi, 9 + level);
    d = received(vi);
    CHECK(d->CS.Length == sizeof place);
    memcpy(&place, data(&node, ROOM), sizeof place);
    MUST(VipPostRecv(vi, d, node.handle));
    for (round = 1; round <= ROUNDS; round++) {
        size_t length = round * 4000;
        pattern(data(&node, 0), length, round);
        memcpy(data(&node, length), &round, sizeof round);
        d = fill_rdma(&node, 5, VIP_CONTROL_OP_RDMAWRITE, data(&node, 0), length + 4, place.address, place.handle);
        MUST(VipPostSend(vi, d, node.handle));
        CHECK(sent(vi) == d && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
        CHECK(d->CS.Length == length + 4);
        d = received(vi);
        MUST(VipPostRecv(vi, d, node.handle));
    }
    pattern(data(&node, 0), 5000, 5);
    d = fill_rdma(&node, 5, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, data(&node, 0), 5000, place.address + 100,
                  place.handle);
    d->CS.ImmediateData = 77;
    MUST(VipPostSend(vi, d, node.handle));
    sent(vi);
    received(vi);
    memset(data(&node, 0), 0, ROOM);
    d = fill_rdma(&node, 5, VIP_CONTROL_OP_RDMAREAD, data(&node, 0), ROOM, place.address, place.handle);
    MUST(VipPostSend(vi, d, node.handle));
    /* A fence, and a send that must come after the read. */
    CHECK(sent(vi) == d && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
    check_pattern(data(&node, 0), ROOM, 6);
    d = fill_rdma(&node, 5, VIP_CONTROL_OP_RDMAWRITE, data(&node, 0), 8, place.address, place.closed);
    MUST(VipPostSend(vi, d, node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, VIP_INFINITE, &d));
    CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE | VIP_STATUS_RDMA_PROT_ERROR));
    MUST(VipQueryVi(vi, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_ERROR);
    end_vi(vi);
    close_node(&node);
}

static void server(void)
{
    serve(VIP_SERVICE_RELIABLE_DELIVERY);
    serve(VIP_SERVICE_RELIABLE_RECEPTION);
}

static void client(void)
{
    ask(VIP_SERVICE_RELIABLE_DELIVERY);
    ask(VIP_SERVICE_RELIABLE_RECEPTION);
}

int main(void)
{
    return two_processes(server, client);
}
