/* The first program of every VIA kit: a message goes back and forth, in all sizes and levels, polling and blocking. */
#include "kit.h"

#define ROUNDS 10
static const size_t sizes[] = {0, 1, 8, 104, 105, 4096, 65472, 300001};
static const VIP_RELIABILITY_LEVEL levels[] = {1, 2, 4};
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ROOM (1 << 19)

static VIP_DESCRIPTOR *take(VIP_VI_HANDLE vi, int blocking)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN got;
    unsigned looks = 0;
    if (blocking)
        return received(vi);
    while ((got = VipRecvDone(vi, &d)) == VIP_NOT_DONE)
        breathe(&looks);
    EXPECT(VIP_SUCCESS, got);
    return d;
}

/* Receives are posted two ahead: the peer may be quicker. */
static void play(int serving, VIP_RELIABILITY_LEVEL level)
{
    NODE node;
    VIP_VI_HANDLE vi;
    size_t s;
    int i, turn = 0;
    open_node(&node, 3 * ROOM);
    vi = make_vi(&node, level, NULL, NULL);
    for (i = 0; i < 2; i++)
        MUST(VipPostRecv(vi, fill(&node, i, data(&node, (size_t)i * ROOM), ROOM), node.handle));
    if (serving)
        accept_at(&node, vi, 7 + level);
    else
        connect_to(&node, vi, 7 + level);
    for (s = 0; s < COUNT(sizes); s++) {
        for (i = 0; i < ROUNDS; i++, turn++) {
            VIP_DESCRIPTOR *d, *out = NULL;
            char *to = data(&node, 2 * ROOM);
            int sending = 2;
            for (; sending; sending--) {
                if ((sending == 2) == !serving) {
                    pattern(to, sizes[s], (unsigned)turn);
                    out = fill(&node, 2, to, sizes[s]);
                    out->CS.Control = VIP_CONTROL_IMMEDIATE;
                    out->CS.ImmediateData = (VIP_UINT32)-turn;
                    MUST(VipPostSend(vi, out, node.handle));
                    CHECK(sent(vi) == out);
                    CHECK(out->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_SEND));
                    CHECK(out->CS.ImmediateData == (VIP_UINT32)-turn && out->CS.Length == sizes[s]);
                } else {
                    d = take(vi, i & 1);
                    CHECK(d == descriptor(&node, turn & 1));
                    CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE));
                    CHECK(d->CS.Length == sizes[s] && d->CS.ImmediateData == (VIP_UINT32)-turn);
                    check_pattern(data(&node, (size_t)(turn & 1) * ROOM), sizes[s], (unsigned)turn);
                    MUST(VipPostRecv(vi, d, node.handle));
                }
            }
        }
    }
    /* The server has the last word, so the client ends the connection. */
    if (serving) {
        VIP_VI_STATE state;
        do {
            MUST(VipQueryVi(vi, &state, NULL, NULL, NULL));
            usleep(200);
        } while (state == VIP_STATE_CONNECTED);
        CHECK(state == VIP_STATE_ERROR);
    }
    end_vi(vi);
    close_node(&node);
}

static void server(void)
{
    size_t l;
    for (l = 0; l < COUNT(levels); l++)
        play(1, levels[l]);
}

static void client(void)
{
    size_t l;
    for (l = 0; l < COUNT(levels); l++)
        play(0, levels[l]);
}

int main(void)
{
    return two_processes(server, client);
}
