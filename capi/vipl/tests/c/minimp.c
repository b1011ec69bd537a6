/* A small message-passing library in the manner of its time, and a program on it.
 *
 * Each process opens the NIC twice. The main thread drives the first handle: one VI to the data server of each process.
 * The data server, a thread, drives the second: it sleeps on a completion queue and carries out what others ask for.
 *
 *   put        the request carries the bytes; the server copies them, and answers by a flag
 *   get        the server writes the bytes and, in the same descriptor, a flag word behind them, straight into the memory
 *              of the rank that asked, which spins on the flag and calls nothing
 *   add        the server adds to a counter and writes the old value and the flag
 *
 * VIs have no tag, memory has one; everybody connects with everybody, trying again on VIP_NO_MATCH. */
#include "kit.h"

#define MOST 8
#define BUFFER 16384
#define SHARED 81920
#define BASE 40000 /* ports */

enum { PUT, GET, ADD, END };

typedef struct {
    int op, from;
    VIP_UINT32 offset, length;
    VIP_UINT64 reply; /* where the answer goes; its flag word follows the bytes */
    VIP_MEM_HANDLE handle;
    VIP_UINT32 sequence;
    long value;
} REQUEST;

static int rank, size;
static char *shared; /* this process' part of the common memory */

/* The client's half: driven by the main thread. */
static NODE client;
static VIP_VI_HANDLE to[MOST];
static VIP_UINT32 sequence;

/* The data server's half: driven by its thread. */
static NODE server;
static VIP_VI_HANDLE from[MOST];
static VIP_CQ_HANDLE queue;
static pthread_t thread;

static VIP_VI_HANDLE bare_vi(NODE *node, VIP_CQ_HANDLE recv)
{
    VIP_VI_ATTRIBUTES attributes = vi_attributes(node, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_VI_HANDLE vi = NULL;
    attributes.Ptag = NULL;
    attributes.MaxTransferSize = 65536;
    MUST(VipCreateVi(node->nic, &attributes, NULL, recv, &vi));
    return vi;
}

/* Writes `length` bytes and the flag behind them into the memory of the rank that asked. */
static void answer(VIP_VI_HANDLE vi, const REQUEST *r, const void *bytes, VIP_UINT32 length)
{
    char *out = data(&server, 2 * MOST * BUFFER);
    VIP_DESCRIPTOR *d;
    memcpy(out, bytes, length);
    memcpy(out + length, &r->sequence, sizeof r->sequence);
    d = fill_rdma(&server, 40, VIP_CONTROL_OP_RDMAWRITE, out, length + 4, r->reply, r->handle);
    MUST(VipPostSend(vi, d, server.handle));
    CHECK(sent(vi) == d);
}

static void *data_server(void *unused)
{
    int left = size;
    (void)unused;
    while (left > 0) {
        VIP_VI_HANDLE vi;
        VIP_BOOLEAN recv;
        VIP_DESCRIPTOR *d = NULL;
        REQUEST r;
        char *bytes;
        long old;
        MUST(VipCQWait(queue, VIP_INFINITE, &vi, &recv));
        CHECK(recv);
        if (VipRecvDone(vi, &d) == VIP_DESCRIPTOR_ERROR) {
            /* A rank that said its end has left. */
            CHECK(d && (d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));
            continue;
        }
        CHECK(d && d->CS.Length >= sizeof r);
        bytes = (char *)d->DS[0].Local.Data.Address;
        memcpy(&r, bytes, sizeof r);
        switch (r.op) {
        case PUT:
            CHECK(r.offset + r.length <= SHARED && d->CS.Length == sizeof r + r.length);
            memcpy(shared + r.offset, bytes + sizeof r, r.length);
            MUST(VipPostRecv(vi, d, server.handle));
            answer(vi, &r, "", 0);
            break;
        case GET:
            MUST(VipPostRecv(vi, d, server.handle));
            answer(vi, &r, shared + r.offset, r.length);
            break;
        case ADD:
            memcpy(&old, shared + r.offset, sizeof old);
            r.value += old;
            memcpy(shared + r.offset, &r.value, sizeof old);
            MUST(VipPostRecv(vi, d, server.handle));
            answer(vi, &r, &old, sizeof old);
            break;
        default:
            CHECK(r.op == END);
            MUST(VipPostRecv(vi, d, server.handle));
            answer(vi, &r, "", 0);
            left--;
        }
    }
    return NULL;
}

/* Sends a request and spins until the flag behind the answer has come. */
static char *ask(int whom, int op, VIP_UINT32 offset, const void *bytes, VIP_UINT32 length, long value, VIP_UINT32 back)
{
    char *out = data(&client, 0), *in = data(&client, BUFFER + 64);
    volatile VIP_UINT32 *flag = (volatile VIP_UINT32 *)(void *)(in + back);
    VIP_DESCRIPTOR *d;
    unsigned looks = 0;
    REQUEST r;
    memset(&r, 0, sizeof r);
    r.op = op;
    r.from = rank;
    r.offset = offset;
    r.length = op == GET ? back : length;
    r.value = value;
    r.sequence = ++sequence;
    r.reply = (VIP_UINT64)(uintptr_t)in;
    r.handle = client.handle;
    memcpy(out, &r, sizeof r);
    if (bytes)
        memcpy(out + sizeof r, bytes, length);
    *flag = 0;
    d = fill(&client, 0, out, sizeof r + (bytes ? length : 0));
    MUST(VipPostSend(to[whom], d, client.handle));
    CHECK(sent(to[whom]) == d);
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != sequence)
        breathe(&looks);
    return in;
}

static void put(int whom, VIP_UINT32 offset, const void *bytes, VIP_UINT32 length)
{
    ask(whom, PUT, offset, bytes, length, 0, 0);
}

static char *get(int whom, VIP_UINT32 offset, VIP_UINT32 length)
{
    return ask(whom, GET, offset, NULL, 0, 0, length);
}

static long add(int whom, VIP_UINT32 offset, long value)
{
    long old;
    memcpy(&old, ask(whom, ADD, offset, NULL, 0, value, sizeof old), sizeof old);
    return old;
}

/* Everybody adds one at rank 0 and looks until all have. */
static void barrier(void)
{
    static long round;
    round++;
    add(0, 0, 1);
    while (add(0, 0, 0) < round * size)
        usleep(100);
}

static void start(void)
{
    int i, waits;
    open_node(&client, 2 * BUFFER + 128);
    open_node(&server, (2 * MOST + 1) * BUFFER);
    CHECK(client.nic != server.nic);
    shared = (char *)calloc(1, SHARED);
    MUST(VipCreateCQ(server.nic, 1024, &queue));
    for (i = 0; i < size; i++) {
        from[i] = bare_vi(&server, queue);
        to[i] = bare_vi(&client, NULL);
        for (waits = 0; waits < 2; waits++) {
            char *room = data(&server, (size_t)(2 * i + waits) * BUFFER);
            MUST(VipPostRecv(from[i], fill(&server, 2 * i + waits, room, BUFFER), server.handle));
        }
    }
    /* Rank i accepts the clients in turn; each client goes round the servers. A client that comes too early tries again. */
    CHECK(pthread_create(&thread, NULL, data_server, NULL) == 0);
}

static void *accept_all(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < size; i++) {
        ADDRESS here = address_of(&server, BASE + rank * MOST + i), remote;
        VIP_VI_ATTRIBUTES theirs;
        VIP_CONN_HANDLE conn;
        MUST(VipConnectWait(server.nic, &here.address, VIP_INFINITE, &remote.address, &theirs, &conn));
        MUST(VipConnectAccept(conn, from[i]));
    }
    return NULL;
}

static void connect_all(void)
{
    pthread_t accepting;
    int i;
    CHECK(pthread_create(&accepting, NULL, accept_all, NULL) == 0);
    for (i = 0; i < size; i++) {
        ADDRESS here = address_of(&client, 30000 + rank), there = address_of(&client, BASE + i * MOST + rank);
        VIP_VI_ATTRIBUTES theirs;
        VIP_RETURN got;
        while ((got = VipConnectRequest(to[i], &here.address, &there.address, 60000, &theirs)) == VIP_NO_MATCH)
            usleep(500);
        EXPECT(VIP_SUCCESS, got);
    }
    pthread_join(accepting, NULL);
}

static void program(void)
{
    static char block[8192];
    int i, round, rounds = getenv("TEST_ROUNDS") ? atoi(getenv("TEST_ROUNDS")) : 5;
    for (round = 0; round < rounds; round++) {
        VIP_UINT32 length = 8 + (VIP_UINT32)(round * 677) % 8000;
        VIP_UINT32 place = 64 + (VIP_UINT32)rank * 8192;
        for (i = 0; i < size; i++) {
            pattern(block, length, (unsigned)(round * 64 + rank * 8 + i));
            put((rank + i) % size, place, block, length);
        }
        barrier();
        for (i = 0; i < size; i++) {
            /* What our neighbour put everywhere, by way of another rank. */
            int writer = (rank + 1) % size, whom = (writer + i) % size;
            VIP_UINT32 theirs = 64 + (VIP_UINT32)writer * 8192;
            check_pattern(get(whom, theirs, length), length, (unsigned)(round * 64 + writer * 8 + i));
        }
        barrier();
        for (i = 0; i < size; i++)
            add(i, 8, rank + 1);
    }
    barrier();
    for (i = 0; i < size; i++)
        CHECK(add(i, 8, 0) == (long)rounds * size * (size + 1) / 2);
    barrier();
}

static void run(void)
{
    int i;
    limit_time();
    start();
    connect_all();
    program();
    for (i = 0; i < size; i++)
        ask(i, END, 0, NULL, 0, 0, 0);
    /* Our server serves until everybody has said its end. Then, as programs did it: no drain, no destroy. */
    CHECK(pthread_join(thread, NULL) == 0);
    MUST(VipCloseNic(client.nic));
}

int main(int argc, char **argv)
{
    pid_t children[MOST];
    int i, status;
    size = argc > 1 ? atoi(argv[1]) : 4;
    CHECK(size >= 1 && size <= MOST);
    for (i = 0; i < size; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            rank = i;
            run();
            _exit(0);
        }
    }
    for (i = 0; i < size; i++) {
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
