/* The code of every call in every case that is named in the manual, within one process: two VIs of one NIC. */
#include "kit.h"

static NODE node;
static VIP_RETURN asked;
static VIP_VI_HANDLE client;

static void *ask(void *port)
{
    ADDRESS here = address_of(&node, 1), there = address_of(&node, *(int *)port);
    VIP_VI_ATTRIBUTES theirs;
    while ((asked = VipConnectRequest(client, &here.address, &there.address, 60000, &theirs)) == VIP_NO_MATCH)
        usleep(200);
    return NULL;
}

/* A request from `client` that waits for its answer. */
static VIP_CONN_HANDLE request(pthread_t *thread, int *port)
{
    ADDRESS here = address_of(&node, *port), from;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE conn = NULL;
    CHECK(pthread_create(thread, NULL, ask, port) == 0);
    MUST(VipConnectWait(node.nic, &here.address, VIP_INFINITE, &from.address, &theirs, &conn));
    return conn;
}

static void unknown_handles(void)
{
    VIP_VI_HANDLE wrong[4];
    VIP_NIC_HANDLE nic = NULL, closed = NULL;
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN flag;
    VIP_ULONG length = 10;
    ADDRESS address = address_of(&node, 1);
    VIP_VI_ATTRIBUTES attributes = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_MEM_ATTRIBUTES rights;
    VIP_NIC_ATTRIBUTES offer;
    VIP_MEM_HANDLE memory;
    char name[10] = "nobody";
    int i;
    MUST(VipOpenNic(device(), &closed));
    MUST(VipCloseNic(closed));
    wrong[0] = NULL;
    wrong[1] = (VIP_VI_HANDLE)&node;
    wrong[2] = (VIP_VI_HANDLE)~0UL;
    wrong[3] = closed;
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic(NULL, &nic));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic(device(), NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic("/dev/null", &nic));
    for (i = 0; i < 4; i++) {
        void *w = wrong[i];
        EXPECT(VIP_INVALID_PARAMETER, VipCloseNic(w));
        EXPECT(VIP_INVALID_PARAMETER, VipQueryNic(w, &offer));
        EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(w, &attributes, NULL, NULL, wrong));
        EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(w));
        EXPECT(VIP_INVALID_PARAMETER, VipQueryVi(w, NULL, &attributes, &flag, &flag));
        EXPECT(VIP_INVALID_PARAMETER, VipSetViAttributes(w, &attributes));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(w, &address.address, 1, &address.address, &attributes, wrong));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectAccept(w, w));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectReject(w));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(w, &address.address, &address.address, 1, &attributes));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerRequest(w, &address.address, &address.address, 1));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerDone(w, &attributes));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerWait(w, &attributes));
        EXPECT(VIP_INVALID_PARAMETER, VipDisconnect(w));
        EXPECT(VIP_INVALID_PARAMETER, VipCreatePtag(w, wrong));
        EXPECT(VIP_INVALID_PARAMETER, VipDestroyPtag(w, node.tag));
        EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(w, name, 10, NULL, &memory));
        EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(w, node.memory, node.handle));
        EXPECT(VIP_INVALID_PARAMETER, VipQueryMem(w, node.memory, node.handle, &rights));
        EXPECT(VIP_INVALID_PARAMETER, VipPostSend(w, descriptor(&node, 0), node.handle));
        EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(w, descriptor(&node, 0), node.handle));
        EXPECT(VIP_INVALID_PARAMETER, VipSendDone(w, &d));
        EXPECT(VIP_INVALID_PARAMETER, VipRecvDone(w, &d));
        EXPECT(VIP_INVALID_PARAMETER, VipSendWait(w, 1, &d));
        EXPECT(VIP_INVALID_PARAMETER, VipRecvWait(w, 1, &d));
        EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(w, 1, wrong));
        EXPECT(VIP_INVALID_PARAMETER, VipDestroyCQ(w));
        EXPECT(VIP_INVALID_PARAMETER, VipResizeCQ(w, 1));
        EXPECT(VIP_INVALID_PARAMETER, VipCQDone(w, &nic, &flag));
        EXPECT(VIP_INVALID_PARAMETER, VipCQWait(w, 1, &nic, &flag));
        EXPECT(VIP_INVALID_PARAMETER, VipErrorCallback(w, NULL, NULL));
        EXPECT(VIP_INVALID_PARAMETER, VipQuerySystemManagementInfo(w, 1, &offer));
        EXPECT(VIP_INVALID_PARAMETER, VipNSInit(w, NULL));
        EXPECT(VIP_INVALID_PARAMETER, VipNSShutdown(w));
        EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByName(w, name, &address.address, 0));
        EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(w, &address.address, name, &length));
        EXPECT(VIP_INVALID_PARAMETER, VipPostDeferredSends(w, 0, &flag));
        EXPECT(VIP_INVALID_PARAMETER, VipAddTagCQ(w, NULL, 0, 0));
        EXPECT(VIP_INVALID_PARAMETER, VipRemoveTagCQ(w, NULL, 0));
        CHECK(VipGetUserData(w) == NULL);
        VipSetUserData(w, NULL);
        /* A handle is refused in another's place. */
        wrong[0] = NULL;
    }
}

static void objects(void)
{
    VIP_VI_ATTRIBUTES a = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY), b;
    VIP_MEM_ATTRIBUTES rights;
    VIP_VI_STATE state;
    VIP_VI_HANDLE vi = NULL, next = NULL;
    VIP_CQ_HANDLE cq;
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE memory;
    VIP_BOOLEAN send_empty, recv_empty;
    VIP_DESCRIPTOR *d = descriptor(&node, 0);
    EXPECT(VIP_INVALID_PARAMETER, VipQueryNic(node.nic, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(node.nic, NULL, NULL, NULL, &vi));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(node.nic, &a, NULL, NULL, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(node.nic, &a, node.nic, NULL, &vi));
    a.ReliabilityLevel = 3;
    EXPECT(VIP_INVALID_RELIABILITY_LEVEL, VipCreateVi(node.nic, &a, NULL, NULL, &vi));
    a = vi_attributes(&node, VIP_SERVICE_UNRELIABLE);
    a.EnableRdmaRead = VIP_TRUE;
    EXPECT(VIP_INVALID_RDMAREAD, VipCreateVi(node.nic, &a, NULL, NULL, &vi));
    a = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    a.MaxTransferSize = node.attributes.MaxTransferSize + 1;
    EXPECT(VIP_INVALID_MTU, VipCreateVi(node.nic, &a, NULL, NULL, &vi));
    a = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    a.Ptag = node.nic;
    EXPECT(VIP_INVALID_PTAG, VipCreateVi(node.nic, &a, NULL, NULL, &vi));

    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipQueryVi(vi, &state, &b, &send_empty, &recv_empty));
    CHECK(state == VIP_STATE_IDLE && b.Ptag == node.tag && send_empty && recv_empty);
    EXPECT(VIP_INVALID_PARAMETER, VipSendDone(vi, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, NULL, node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvDone(vi, &d));
    CHECK(d == NULL);
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, 1, &d));
    CHECK(d == NULL);
    /* A send that is not connected comes back at once; a receive stays. */
    MUST(VipPostSend(vi, fill(&node, 0, data(&node, 0), 8), node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendDone(vi, &d));
    CHECK(d == descriptor(&node, 0) && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR));
    MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 8), node.handle));
    EXPECT(VIP_NOT_DONE, VipRecvDone(vi, &d));
    EXPECT(VIP_TIMEOUT, VipRecvWait(vi, 2, &d));
    MUST(VipQueryVi(vi, NULL, NULL, &send_empty, &recv_empty));
    CHECK(send_empty && !recv_empty);
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyVi(vi));
    EXPECT(VIP_INVALID_STATE, VipConnectPeerWait(vi, &b));
    end_vi(vi);
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(vi));
    next = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    CHECK(next != vi);
    EXPECT(VIP_INVALID_PARAMETER, VipRecvDone(vi, &d));
    EXPECT(VIP_INVALID_STATE, VipDisconnect(next));
    end_vi(next);

    EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(node.nic, 0, &cq));
    EXPECT(VIP_ERROR_RESOURCE, VipCreateCQ(node.nic, ~0UL, &cq));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(node.nic, 1, NULL));
    MUST(VipCreateCQ(node.nic, 1, &cq));
    EXPECT(VIP_ERROR_NOT_SUPPORTED, VipAddTagCQ(cq, NULL, 0, 0));
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, cq, NULL);
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyCQ(cq));
    EXPECT(VIP_ERROR_RESOURCE, VipSendWait(vi, 1, &d));
    MUST(VipPostDeferredSends(vi, 0, &send_empty));
    end_vi(vi);
    MUST(VipDestroyCQ(cq));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyCQ(cq));

    EXPECT(VIP_INVALID_PARAMETER, VipCreatePtag(node.nic, NULL));
    EXPECT(VIP_INVALID_PTAG, VipDestroyPtag(node.nic, NULL));
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyPtag(node.nic, node.tag));
    MUST(VipCreatePtag(node.nic, &tag));
    rights.Ptag = tag;
    rights.EnableRdmaWrite = VIP_TRUE;
    rights.EnableRdmaRead = VIP_FALSE;
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(node.nic, NULL, 8, &rights, &memory));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(node.nic, node.memory, 0, &rights, &memory));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(node.nic, (VIP_PVOID)64, 64, &rights, &memory));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(node.nic, node.memory, ~0UL, &rights, &memory));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(node.nic, node.memory, 8, &rights, NULL));
    MUST(VipRegisterMem(node.nic, node.memory, 8, &rights, &memory));
    CHECK(memory != 0 && memory != node.handle);
    memset(&rights, 0, sizeof rights);
    MUST(VipQueryMem(node.nic, node.memory, memory, &rights));
    CHECK(rights.Ptag == tag && rights.EnableRdmaWrite && !rights.EnableRdmaRead);
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyPtag(node.nic, tag));
    rights.Ptag = node.tag;
    MUST(VipSetMemAttributes(node.nic, node.memory, memory, &rights));
    EXPECT(VIP_INVALID_PARAMETER, VipSetMemAttributes(node.nic, node.memory, memory, NULL));
    MUST(VipDestroyPtag(node.nic, tag));
    EXPECT(VIP_INVALID_PTAG, VipDestroyPtag(node.nic, tag));
    EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(node.nic, node.memory + 1, memory));
    MUST(VipDeregisterMem(node.nic, node.memory, memory));
    EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(node.nic, node.memory, memory));
    EXPECT(VIP_INVALID_PARAMETER, VipQueryMem(node.nic, node.memory, memory, &rights));
}

static void connecting(void)
{
    VIP_VI_ATTRIBUTES a, theirs;
    VIP_VI_HANDLE server = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    VIP_CONN_HANDLE conn;
    VIP_DESCRIPTOR *d;
    VIP_VI_STATE state;
    ADDRESS here = address_of(&node, 1), there = address_of(&node, 2);
    pthread_t thread;
    int port = 5;
    client = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    EXPECT(VIP_TIMEOUT, VipConnectWait(node.nic, &here.address, 1, &there.address, &theirs, &conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(node.nic, NULL, 1, &there.address, &theirs, &conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(client, &here.address, &there.address, 0, &theirs));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(client, &here.address, NULL, 1, &theirs));
    there = address_of(&node, 77);
    EXPECT(VIP_NO_MATCH, VipConnectRequest(client, &here.address, &there.address, 60000, &theirs));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectAccept(client, server));

    /* A mismatch is told to the server alone, and mended by it. */
    conn = request(&thread, &port);
    a = vi_attributes(&node, VIP_SERVICE_RELIABLE_RECEPTION);
    MUST(VipSetViAttributes(server, &a));
    EXPECT(VIP_INVALID_RELIABILITY_LEVEL, VipConnectAccept(conn, server));
    a = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    a.MaxTransferSize = 4096;
    MUST(VipSetViAttributes(server, &a));
    EXPECT(VIP_INVALID_MTU, VipConnectAccept(conn, server));
    a = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    a.QoS = (VIP_QOS)1;
    MUST(VipSetViAttributes(server, &a));
    EXPECT(VIP_INVALID_QOS, VipConnectAccept(conn, server));
    a.QoS = NULL;
    MUST(VipSetViAttributes(server, &a));
    MUST(VipConnectAccept(conn, server));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectAccept(conn, server));
    pthread_join(thread, NULL);
    EXPECT(VIP_SUCCESS, asked);
    EXPECT(VIP_INVALID_STATE, VipSetViAttributes(server, &a));
    EXPECT(VIP_INVALID_STATE, VipConnectRequest(client, &here.address, &there.address, 1000, &theirs));
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyVi(server));

    /* Both spellings of endless. */
    MUST(VipPostRecv(server, fill(&node, 0, data(&node, 0), 8), node.handle));
    MUST(VipPostSend(client, fill(&node, 1, data(&node, 0), 8), node.handle));
    MUST(VipRecvWait(server, ~0UL, &d));
    MUST(VipSendWait(client, VIP_INFINITE, &d));

    /* Everything posted comes back when the connection ends, and the state says so. */
    MUST(VipPostRecv(server, fill(&node, 0, data(&node, 0), 8), node.handle));
    MUST(VipDisconnect(client));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(server, VIP_INFINITE, &d));
    CHECK(d && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR));
    MUST(VipQueryVi(server, &state, NULL, NULL, NULL));
    CHECK(state == VIP_STATE_ERROR);
    MUST(VipPostRecv(server, fill(&node, 0, data(&node, 0), 8), node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvDone(server, &d));
    MUST(VipDisconnect(server));

    conn = request(&thread, &port);
    MUST(VipConnectReject(conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectReject(conn));
    pthread_join(thread, NULL);
    EXPECT(VIP_REJECT, asked);
    end_vi(server);
    end_vi(client);
}

int main(void)
{
    limit_time();
    open_node(&node, 4096);
    unknown_handles();
    objects();
    connecting();
    close_node(&node);
    return 0;
}
