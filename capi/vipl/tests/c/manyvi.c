/* Many VIs between two processes: each is another connection, and each is found by its discriminator. */
#include "kit.h"

#define MOST 256

static int count(void)
{
    const char *text = getenv("TEST_VIS");
    int n = text ? atoi(text) : 48;
    CHECK(n > 0 && n <= MOST);
    return n;
}

static VIP_VI_HANDLE vis[MOST];

static void server(void)
{
    NODE node;
    int i, n = count();
    open_node(&node, (size_t)n * 8);
    for (i = 0; i < n; i++) {
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        MUST(VipPostRecv(vis[i], fill(&node, 0, data(&node, (size_t)i * 8), 8), node.handle));
        accept_at(&node, vis[i], 5 * i);
    }
    for (i = n; i-- > 0;) {
        VIP_DESCRIPTOR *d = received(vis[i]);
        int value;
        memcpy(&value, data(&node, (size_t)i * 8), sizeof value);
        CHECK(d->CS.Length == sizeof value && value == i * i);
    }
    for (i = 0; i < n; i++)
        end_vi(vis[i]);
    close_node(&node);
}

static void client(void)
{
    NODE node;
    int i, n = count();
    open_node(&node, 8);
    for (i = 0; i < n; i++) {
        vis[i] = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        connect_to(&node, vis[i], 5 * i);
    }
    for (i = 0; i < n; i++) {
        int value = i * i;
        memcpy(data(&node, 0), &value, sizeof value);
        MUST(VipPostSend(vis[i], fill(&node, 1, data(&node, 0), sizeof value), node.handle));
        sent(vis[i]);
    }
    /* The server ends first. */
    for (i = 0; i < n; i++) {
        VIP_VI_STATE state = VIP_STATE_CONNECTED;
        while (state == VIP_STATE_CONNECTED) {
            MUST(VipQueryVi(vis[i], &state, NULL, NULL, NULL));
            usleep(100);
        }
        end_vi(vis[i]);
    }
    close_node(&node);
}

int main(void)
{
    return two_processes(server, client);
}
