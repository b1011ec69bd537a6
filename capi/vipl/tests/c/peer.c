/* Peer connections: both ask, neither waits. All requests first, then the outcomes, by polling and by waiting. */
#include "kit.h"

#define VIS 8

static void side(int me)
{
    NODE node;
    VIP_VI_HANDLE vis[VIS], lonely;
    VIP_VI_ATTRIBUTES theirs;
    ADDRESS here, there;
    int i;
    open_node(&node, 64);
    for (i = 0; i < VIS; i++) {
        VIP_VI_STATE state;
        here = address_of(&node, 100 * me + i);
        there = address_of(&node, 100 * (1 - me) + i);
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        EXPECT(VIP_INVALID_STATE, VipConnectPeerDone(vis[i], &theirs));
        MUST(VipPostRecv(vis[i], fill(&node, i, data(&node, (size_t)i), 1), node.handle));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerRequest(vis[i], &here.address, &there.address, 0));
        MUST(VipConnectPeerRequest(vis[i], &here.address, &there.address, 60000));
        MUST(VipQueryVi(vis[i], &state, NULL, NULL, NULL));
        CHECK(state == VIP_STATE_CONNECT_PENDING || state == VIP_STATE_CONNECTED);
    }
    for (i = 0; i < VIS; i++) {
        VIP_RETURN got;
        if (i & 1) {
            MUST(VipConnectPeerWait(vis[i], &theirs));
        } else {
            while ((got = VipConnectPeerDone(vis[i], &theirs)) == VIP_NOT_DONE)
                usleep(100);
            EXPECT(VIP_SUCCESS, got);
        }
        CHECK(theirs.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
        CHECK(theirs.MaxTransferSize == node.attributes.MaxTransferSize);
    }
    for (i = 0; i < VIS; i++) {
        *data(&node, 32 + (size_t)i) = (char)(i + 10 * me);
        MUST(VipPostSend(vis[i], fill(&node, VIS + i, data(&node, 32 + (size_t)i), 1), node.handle));
        sent(vis[i]);
    }
    for (i = 0; i < VIS; i++) {
        received(vis[i]);
        CHECK(*data(&node, (size_t)i) == (char)(i + 10 * (1 - me)));
    }
    /* No peer asks for this one. */
    here = address_of(&node, 7000 + me);
    there = address_of(&node, 8000 + me);
    lonely = make_vi(&node, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    MUST(VipConnectPeerRequest(lonely, &here.address, &there.address, 20));
    EXPECT(VIP_TIMEOUT, VipConnectPeerWait(lonely, &theirs));
    end_vi(lonely);
    for (i = 0; i < VIS; i++)
        end_vi(vis[i]);
    close_node(&node);
}

static void one(void)
{
    side(0);
}

static void other(void)
{
    side(1);
}

int main(void)
{
    return two_processes(one, other);
}
