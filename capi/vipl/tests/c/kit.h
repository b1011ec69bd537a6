/* What the test programs share: checks, a NIC with memory and descriptors, addresses, and a connection of two processes.
 * Everything here is plain VIPL; nothing knows of Viaduct. Compiles as C and as C++. */
#ifndef VIPL_TEST_KIT_H
#define VIPL_TEST_KIT_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vipl.h>

#define UNUSED __attribute__((unused))

static inline void expect_code(VIP_RETURN got, VIP_RETURN wanted, const char *call, const char *file, int line)
{
    if (got != wanted) {
        fprintf(stderr, "%s:%d: %s gave %d instead of %d\n", file, line, call, (int)got, (int)wanted);
        abort();
    }
}

#define EXPECT(wanted, call) expect_code((call), (wanted), #call, __FILE__, __LINE__)
#define MUST(call) EXPECT(VIP_SUCCESS, call)
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                         \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Between two looks at something: a few at once, then the CPU is left to others. */
static inline void breathe(unsigned *looks)
{
    if (++*looks > 50)
        usleep(50);
}

/* A NIC, a tag, and registered memory of which the first part holds descriptors. */
#define DESCRIPTORS 64
#define SLOT 256 /* bytes for a descriptor: up to 14 segments */

typedef struct {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_NIC_ATTRIBUTES attributes;
    char *memory;
    size_t size;
    VIP_MEM_HANDLE handle;
} NODE;

typedef union {
    VIP_NET_ADDRESS address;
    char room[4 + 6 + 64];
} ADDRESS;

static inline VIP_DESCRIPTOR *descriptor(NODE *node, int number)
{
    CHECK(number < DESCRIPTORS);
    return (VIP_DESCRIPTOR *)(void *)(node->memory + (size_t)number * SLOT);
}

/* Memory for data, after the descriptors. */
static inline char *data(NODE *node, size_t offset)
{
    CHECK(offset <= node->size);
    return node->memory + (size_t)DESCRIPTORS * SLOT + offset;
}

static inline const char *device(void)
{
    const char *name = getenv("TEST_DEVICE");
    return name ? name : "/dev/clanvi0";
}

static inline void open_node(NODE *node, size_t size)
{
    VIP_MEM_ATTRIBUTES attributes;
    void *memory = NULL;
    MUST(VipOpenNic(device(), &node->nic));
    MUST(VipQueryNic(node->nic, &node->attributes));
    MUST(VipCreatePtag(node->nic, &node->tag));
    node->size = size;
    CHECK(posix_memalign(&memory, 4096, (size_t)DESCRIPTORS * SLOT + size + 1) == 0);
    node->memory = (char *)memory;
    memset(node->memory, 0, (size_t)DESCRIPTORS * SLOT + size + 1);
    attributes.Ptag = node->tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    attributes.EnableRdmaRead = VIP_TRUE;
    MUST(VipRegisterMem(node->nic, node->memory, (size_t)DESCRIPTORS * SLOT + size + 1, &attributes, &node->handle));
    CHECK(node->handle != 0);
}

static inline void close_node(NODE *node)
{
    MUST(VipDeregisterMem(node->nic, node->memory, node->handle));
    MUST(VipDestroyPtag(node->nic, node->tag));
    MUST(VipCloseNic(node->nic));
    free(node->memory);
}

static inline VIP_VI_ATTRIBUTES vi_attributes(NODE *node, VIP_RELIABILITY_LEVEL level)
{
    VIP_VI_ATTRIBUTES attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.ReliabilityLevel = level;
    attributes.MaxTransferSize = node->attributes.MaxTransferSize;
    attributes.Ptag = node->tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    attributes.EnableRdmaRead = level != VIP_SERVICE_UNRELIABLE;
    return attributes;
}

static UNUSED VIP_VI_HANDLE make_vi(NODE *node, VIP_RELIABILITY_LEVEL level, VIP_CQ_HANDLE send, VIP_CQ_HANDLE recv)
{
    VIP_VI_ATTRIBUTES attributes = vi_attributes(node, level);
    VIP_VI_HANDLE vi = NULL;
    MUST(VipCreateVi(node->nic, &attributes, send, recv, &vi));
    CHECK(vi != NULL);
    return vi;
}

/* A descriptor with one segment (none if there is no data). */
static inline VIP_DESCRIPTOR *fill(NODE *node, int number, char *bytes, size_t length)
{
    VIP_DESCRIPTOR *d = descriptor(node, number);
    memset(d, 0, sizeof *d);
    d->CS.Length = (VIP_UINT32)length;
    if (bytes) {
        d->CS.SegCount = 1;
        d->DS[0].Local.Data.Address = bytes;
        d->DS[0].Local.Handle = node->handle;
        d->DS[0].Local.Length = (VIP_UINT32)length;
    }
    return d;
}

/* The same for RDMA: segment 0 is the remote place. */
static UNUSED VIP_DESCRIPTOR *fill_rdma(NODE *node, int number, VIP_UINT16 control, char *bytes, size_t length,
                                        VIP_UINT64 remote, VIP_MEM_HANDLE handle)
{
    VIP_DESCRIPTOR *d = fill(node, number, NULL, length);
    d->CS.Control = control;
    d->CS.SegCount = 2;
    d->DS[0].Remote.Data.AddressBits = remote;
    d->DS[0].Remote.Handle = handle;
    d->DS[1].Local.Data.Address = bytes;
    d->DS[1].Local.Handle = node->handle;
    d->DS[1].Local.Length = (VIP_UINT32)length;
    return d;
}

/* The address of `port` at this node. */
static inline ADDRESS address_of(NODE *node, int port)
{
    ADDRESS a;
    memset(&a, 0, sizeof a);
    a.address.HostAddressLen = node->attributes.NicAddressLen;
    a.address.DiscriminatorLen = sizeof port;
    memcpy(a.room + 4, node->attributes.LocalNicAddress, node->attributes.NicAddressLen);
    memcpy(a.room + 4 + a.address.HostAddressLen, &port, sizeof port);
    return a;
}

static inline int port_of(const ADDRESS *a)
{
    int port = -1;
    CHECK(a->address.HostAddressLen == 6 && a->address.DiscriminatorLen == sizeof port);
    memcpy(&port, a->room + 4 + 6, sizeof port);
    return port;
}

static UNUSED void accept_at(NODE *node, VIP_VI_HANDLE vi, int port)
{
    ADDRESS local = address_of(node, port), remote;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE conn = NULL;
    MUST(VipConnectWait(node->nic, &local.address, VIP_INFINITE, &remote.address, &theirs, &conn));
    CHECK(port_of(&remote) == port + 1000);
    MUST(VipConnectAccept(conn, vi));
}

/* Both are on one machine, so the host is ours. */
static UNUSED void connect_to(NODE *node, VIP_VI_HANDLE vi, int port)
{
    ADDRESS local = address_of(node, port + 1000), remote = address_of(node, port);
    VIP_VI_ATTRIBUTES theirs;
    for (;;) {
        VIP_RETURN got = VipConnectRequest(vi, &local.address, &remote.address, 60000, &theirs);
        if (got == VIP_SUCCESS)
            return;
        EXPECT(VIP_NO_MATCH, got);
        usleep(500);
    }
}

static UNUSED VIP_DESCRIPTOR *sent(VIP_VI_HANDLE vi)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN got;
    unsigned looks = 0;
    while ((got = VipSendDone(vi, &d)) == VIP_NOT_DONE)
        breathe(&looks);
    EXPECT(VIP_SUCCESS, got);
    return d;
}

static UNUSED VIP_DESCRIPTOR *received(VIP_VI_HANDLE vi)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN got = VipRecvWait(vi, VIP_INFINITE, &d);
    if (got != VIP_SUCCESS && d)
        fprintf(stderr, "the receive ended with status %#x\n", (unsigned)d->CS.Status);
    EXPECT(VIP_SUCCESS, got);
    return d;
}

/* Disconnects, drains both queues, destroys. */
static UNUSED void end_vi(VIP_VI_HANDLE vi)
{
    VIP_DESCRIPTOR *d = NULL;
    VipDisconnect(vi);
    do {
        VipSendDone(vi, &d);
    } while (d);
    do {
        VipRecvDone(vi, &d);
    } while (d);
    MUST(VipDestroyVi(vi));
}

static UNUSED void pattern(char *at, size_t length, unsigned seed)
{
    size_t i;
    for (i = 0; i < length; i++)
        at[i] = (char)(seed * 31 + i * 7 + (i >> 8));
}

static UNUSED void check_pattern(const char *at, size_t length, unsigned seed)
{
    size_t i;
    for (i = 0; i < length; i++)
        CHECK(at[i] == (char)(seed * 31 + i * 7 + (i >> 8)));
}

/* Ends this process if it hangs. */
static inline void limit_time(void)
{
    const char *seconds = getenv("TEST_SECONDS");
    alarm(seconds ? (unsigned)atoi(seconds) : 120);
}

/* Runs the two sides in two processes. */
static UNUSED int two_processes(void (*server)(void), void (*client)(void))
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    limit_time();
    if (child == 0) {
        client();
        exit(0);
    }
    server();
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

#endif
