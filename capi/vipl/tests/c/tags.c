/* Protection tags: without one, as programs of the wild have it, and strictly. */
#include "kit.h"

int main(void)
{
    int strict = getenv("VIADUCT_VIPL_TAGS") && strcmp(getenv("VIADUCT_VIPL_TAGS"), "strict") == 0;
    VIP_RETURN untagged = strict ? VIP_INVALID_PTAG : VIP_SUCCESS;
    VIP_VI_ATTRIBUTES attributes;
    VIP_PROTECTION_HANDLE other;
    VIP_VI_HANDLE vi = NULL, tagged;
    VIP_MEM_ATTRIBUTES rights;
    VIP_MEM_HANDLE memory = 0, others;
    VIP_DESCRIPTOR *d;
    NODE node;
    limit_time();
    open_node(&node, 4096);
    attributes = vi_attributes(&node, VIP_SERVICE_RELIABLE_DELIVERY);
    attributes.Ptag = NULL;
    EXPECT(untagged, VipCreateVi(node.nic, &attributes, NULL, NULL, &vi));
    EXPECT(untagged, VipRegisterMem(node.nic, data(&node, 0), 64, NULL, &memory));
    if (!strict) {
        /* A VI without a tag uses memory with one, and memory without a tag is for every VI. */
        MUST(VipPostRecv(vi, fill(&node, 0, data(&node, 0), 64), node.handle));
        MUST(VipQueryMem(node.nic, data(&node, 0), memory, &rights));
        CHECK(rights.Ptag == NULL && !rights.EnableRdmaWrite && !rights.EnableRdmaRead);
        end_vi(vi);
    }
    /* Two tags are two in any case: the receive of the wrong one fails, and so does a descriptor that lies there. */
    MUST(VipCreatePtag(node.nic, &other));
    rights.Ptag = other;
    rights.EnableRdmaWrite = rights.EnableRdmaRead = VIP_FALSE;
    MUST(VipRegisterMem(node.nic, node.memory, (size_t)DESCRIPTORS * SLOT + 4096, &rights, &others));
    tagged = make_vi(&node, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(tagged, fill(&node, 0, data(&node, 0), 8), others));
    d = fill(&node, 0, data(&node, 0), 8);
    d->DS[0].Local.Handle = others;
    MUST(VipPostSend(tagged, d, node.handle));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendDone(tagged, &d));
    CHECK(d->CS.Status & VIP_STATUS_DONE);
    end_vi(tagged);
    MUST(VipDeregisterMem(node.nic, node.memory, others));
    if (!strict)
        MUST(VipDeregisterMem(node.nic, data(&node, 0), memory));
    MUST(VipDestroyPtag(node.nic, other));
    close_node(&node);
    return 0;
}
