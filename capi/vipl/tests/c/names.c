/* Names: hosts that are made up play several nodes on one machine, and each has its own ports. */
#include "kit.h"

static NODE node;

static ADDRESS port_at(const char *host, int port)
{
    ADDRESS a;
    memset(&a, 0, sizeof a);
    MUST(VipNSGetHostByName(node.nic, (VIP_CHAR *)host, &a.address, 0));
    CHECK(a.address.HostAddressLen == 6 && a.address.DiscriminatorLen == 0);
    a.address.DiscriminatorLen = sizeof port;
    memcpy(a.room + 4 + 6, &port, sizeof port);
    return a;
}

/* Two processes wait at the same port of two nodes. */
static void be(const char *own)
{
    ADDRESS here, remote;
    VIP_CONN_HANDLE conn;
    VIP_VI_ATTRIBUTES theirs;
    VIP_VI_HANDLE vi;
    setenv("VIADUCT_VIPL_NODE", own, 1);
    open_node(&node, 64);
    MUST(VipNSInit(node.nic, NULL));
    here = port_at(own, 5);
    CHECK(memcmp(here.room + 4, node.attributes.LocalNicAddress, 6) == 0);
    vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    MUST(VipConnectWait(node.nic, &here.address, VIP_INFINITE, &remote.address, &theirs, &conn));
    MUST(VipConnectAccept(conn, vi));
    strcpy(data(&node, 0), own);
    MUST(VipPostSend(vi, fill(&node, 0, data(&node, 0), 16), node.handle));
    sent(vi);
    MUST(VipPostRecv(vi, fill(&node, 1, NULL, 0), node.handle));
    received(vi);
    end_vi(vi);
    MUST(VipNSShutdown(node.nic));
    close_node(&node);
}

static void server(void)
{
    pid_t other = fork();
    int status;
    CHECK(other >= 0);
    if (other == 0) {
        limit_time();
        be("red");
        exit(0);
    }
    be("blue");
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void client(void)
{
    static const char *const hosts[] = {"red", "blue"};
    ADDRESS here, there;
    VIP_VI_ATTRIBUTES theirs;
    VIP_AUTODISCOVERY_LIST list;
    char name[80];
    VIP_ULONG length;
    int i;
    open_node(&node, 64);
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(node.nic, (VIP_CHAR *)"red", &there.address, 0));
    MUST(VipNSInit(node.nic, NULL));
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(node.nic, (VIP_CHAR *)"no-such-host.invalid", &there.address, 0));
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(node.nic, (VIP_CHAR *)"red", &there.address, 1));
    MUST(VipNSGetHostByName(node.nic, (VIP_CHAR *)"localhost", &there.address, 0));
    for (i = 0; i < 2; i++) {
        VIP_VI_HANDLE vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        VIP_RETURN got;
        here = address_of(&node, 1);
        there = port_at(hosts[i], 5);
        length = sizeof name;
        MUST(VipNSGetHostByAddr(node.nic, &there.address, name, &length));
        CHECK(strcmp(name, hosts[i]) == 0 && length == strlen(name) + 1);
        length = 2;
        EXPECT(VIP_ERROR_RESOURCE, VipNSGetHostByAddr(node.nic, &there.address, name, &length));
        MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 16), node.handle));
        while ((got = VipConnectRequest(vi, &here.address, &there.address, 60000, &theirs)) == VIP_NO_MATCH)
            usleep(500);
        EXPECT(VIP_SUCCESS, got);
        received(vi);
        CHECK(strcmp(data(&node, 0), hosts[i]) == 0);
        MUST(VipPostSend(vi, fill(&node, 1, NULL, 0), node.handle));
        sent(vi);
        end_vi(vi);
    }
    /* far is another machine; with shared memory alone it is not reached. */
    if (strstr(node.attributes.Name, "shm")) {
        VIP_VI_HANDLE vi = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        there = port_at("far", 5);
        EXPECT(VIP_NOT_REACHABLE, VipConnectRequest(vi, &here.address, &there.address, 1000, &theirs));
        end_vi(vi);
    }
    MUST(VipQuerySystemManagementInfo(node.nic, VIP_SMI_AUTODISCOVERY, &list));
    CHECK(list.NumAdAddrs == 4 && list.ADAddrArray[3]->HostAddressLen == 6);
    EXPECT(VIP_ERROR_NOT_SUPPORTED, VipQuerySystemManagementInfo(node.nic, 2, &list));
    MUST(VipNSShutdown(node.nic));
    close_node(&node);
}

int main(void)
{
    setenv("VIADUCT_VIPL_NODES", "red,blue,far=203.0.113.7", 1);
    return two_processes(server, client);
}
