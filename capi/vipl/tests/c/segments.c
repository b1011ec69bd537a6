/* Gather and scatter: the bytes of several pieces arrive in other pieces, at any border. */
#include "kit.h"

#define PIECES 12
#define ROOM 8192

static VIP_DESCRIPTOR *pieces(NODE *node, int number, size_t total, unsigned count, size_t gap)
{
    VIP_DESCRIPTOR *d = fill(node, number, NULL, total);
    VIP_DESCRIPTOR_SEGMENT *segments = d->DS;
    size_t left = total, at = 1;
    unsigned i;
    for (i = 0; i < count; i++) {
        size_t here = i + 1 == count ? left : total / count;
        /* More than two segments follow the descriptor in memory. */
        VIP_DESCRIPTOR_SEGMENT *segment = segments + i;
        segment->Local.Data.Address = data(node, at);
        segment->Local.Handle = node->handle;
        segment->Local.Length = (VIP_UINT32)here;
        at += here + gap;
        left -= here;
    }
    d->Control.SegCount = (VIP_UINT16)count;
    return d;
}

static void fill_pieces(NODE *node, size_t total, unsigned count, size_t gap, unsigned seed, int check)
{
    char whole[ROOM];
    size_t left = total, at = 1, done = 0;
    unsigned i;
    pattern(whole, total, seed);
    for (i = 0; i < count; i++) {
        size_t here = i + 1 == count ? left : total / count;
        if (check)
            CHECK(memcmp(data(node, at), whole + done, here) == 0);
        else
            memcpy(data(node, at), whole + done, here);
        at += here + gap;
        left -= here;
        done += here;
    }
}

static void server(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    unsigned count;
    open_node(&node, 2 * ROOM);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (count = 1; count <= PIECES; count++) {
        VIP_DESCRIPTOR *d, *ready;
        size_t total = 97 * count;
        MUST(VipPostRecv(vi, pieces(&node, 0, total + 5, PIECES + 1 - count, 3), node.handle));
        if (count == 1)
            accept_at(&node, vi, 3);
        ready = fill(&node, 1, NULL, 0);
        MUST(VipPostSend(vi, ready, node.handle));
        CHECK(sent(vi) == ready);
        d = received(vi);
        CHECK(d == descriptor(&node, 0) && d->CS.Length == total);
        /* The pieces of a receive are those of its own length. */
        {
            char whole[ROOM], got[ROOM];
            size_t at = 1, done = 0, longest = total + 5;
            unsigned i, parts = PIECES + 1 - count;
            for (i = 0; i < parts; i++) {
                size_t here = i + 1 == parts ? longest - done : longest / parts;
                memcpy(got + done, data(&node, at), here);
                at += here + 3;
                done += here;
            }
            pattern(whole, total, count);
            CHECK(memcmp(got, whole, total) == 0);
        }
    }
    end_vi(vi);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    VIP_VI_HANDLE vi;
    unsigned count;
    open_node(&node, 2 * ROOM);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipPostRecv(vi, fill(&node, 1, NULL, 0), node.handle));
    connect_to(&node, vi, 3);
    for (count = 1; count <= PIECES; count++) {
        VIP_DESCRIPTOR *d = received(vi);
        MUST(VipPostRecv(vi, d, node.handle));
        fill_pieces(&node, 97 * count, count, 11, count, 0);
        d = pieces(&node, 0, 97 * count, count, 11);
        MUST(VipPostSend(vi, d, node.handle));
        CHECK(sent(vi) == d && d->CS.Length == 97 * count);
        fill_pieces(&node, 97 * count, count, 11, count, 1);
    }
    end_vi(vi);
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
