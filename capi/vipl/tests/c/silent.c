/* Posted sends leave although their program makes no further call: more of them than any ring holds, of several sizes. Then
 * the same number once more, followed by VipDisconnect at once: they arrive, too. */
#include "kit.h"

#define COUNT 48
#define ROOM 4096

static const unsigned sizes[] = {8, 100, 1000, 4096};
#define SIZES (sizeof sizes / sizeof *sizes)

static const VIP_RELIABILITY_LEVEL levels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                               VIP_SERVICE_RELIABLE_RECEPTION};
static int all_there[2];

static void server(void)
{
    NODE node;
    unsigned size, level, i, way;
    char word = 'x';
    open_node(&node, COUNT * ROOM);
    for (way = 0; way < 2; way++)
        for (level = 0; level < 3; level++)
            for (size = 0; size < SIZES; size++) {
                VIP_VI_HANDLE vi = make_vi(&node, levels[level], NULL, NULL);
                for (i = 0; i < COUNT; i++)
                    MUST(VipPostRecv(vi, fill(&node, (int)i, data(&node, (size_t)i * ROOM), ROOM), node.handle));
                accept_at(&node, vi, 50);
                for (i = 0; i < COUNT; i++) {
                    VIP_DESCRIPTOR *d = received(vi);
                    CHECK(d->CS.Length == sizes[size]);
                    check_pattern(data(&node, (size_t)i * ROOM), sizes[size], i);
                }
                if (way == 0)
                    CHECK(write(all_there[1], &word, 1) == 1);
                end_vi(vi);
            }
    close_node(&node);
}

static void client(void)
{
    NODE node;
    unsigned size, level, i, way;
    char word;
    open_node(&node, COUNT * ROOM);
    for (way = 0; way < 2; way++)
        for (level = 0; level < 3; level++)
            for (size = 0; size < SIZES; size++) {
                VIP_VI_HANDLE vi = make_vi(&node, levels[level], NULL, NULL);
                connect_to(&node, vi, 50);
                for (i = 0; i < COUNT; i++) {
                    pattern(data(&node, (size_t)i * ROOM), sizes[size], i);
                    MUST(VipPostSend(vi, fill(&node, (int)i, data(&node, (size_t)i * ROOM), sizes[size]), node.handle));
                }
                /* Nothing of the library is called until the server has them all; or the end is. */
                if (way == 0)
                    CHECK(read(all_there[0], &word, 1) == 1);
                end_vi(vi);
            }
    close_node(&node);
}

int main(void)
{
    CHECK(pipe(all_there) == 0);
    return two_processes(server, client);
}
