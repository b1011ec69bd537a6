//! The names by which C programs know the functions, with their version (`../../versions.rs` says how).

export! {
    "VIPL_1.0":
    VipOpenNic = crate::nic::vip_open_nic;
    VipCloseNic = crate::nic::vip_close_nic;
    VipQueryNic = crate::nic::vip_query_nic;
    VipCreateVi = crate::vi::vip_create_vi;
    VipDestroyVi = crate::vi::vip_destroy_vi;
    VipQueryVi = crate::vi::vip_query_vi;
    VipSetViAttributes = crate::vi::vip_set_vi_attributes;
    VipConnectWait = crate::connect::vip_connect_wait;
    VipConnectAccept = crate::connect::vip_connect_accept;
    VipConnectReject = crate::connect::vip_connect_reject;
    VipConnectRequest = crate::connect::vip_connect_request;
    VipDisconnect = crate::connect::vip_disconnect;
    VipConnectPeerRequest = crate::connect::vip_connect_peer_request;
    VipConnectPeerDone = crate::connect::vip_connect_peer_done;
    VipConnectPeerWait = crate::connect::vip_connect_peer_wait;
    VipCreatePtag = crate::mem::vip_create_ptag;
    VipDestroyPtag = crate::mem::vip_destroy_ptag;
    VipRegisterMem = crate::mem::vip_register_mem;
    VipDeregisterMem = crate::mem::vip_deregister_mem;
    VipQueryMem = crate::mem::vip_query_mem;
    VipSetMemAttributes = crate::mem::vip_set_mem_attributes;
    VipPostSend = crate::transfer::vip_post_send;
    VipPostRecv = crate::transfer::vip_post_recv;
    VipSendDone = crate::transfer::vip_send_done;
    VipRecvDone = crate::transfer::vip_recv_done;
    VipSendWait = crate::transfer::vip_send_wait;
    VipRecvWait = crate::transfer::vip_recv_wait;
    VipSendNotify = crate::notify::vip_send_notify;
    VipRecvNotify = crate::notify::vip_recv_notify;
    VipCreateCQ = crate::cq::vip_create_cq;
    VipDestroyCQ = crate::cq::vip_destroy_cq;
    VipResizeCQ = crate::cq::vip_resize_cq;
    VipCQDone = crate::cq::vip_cq_done;
    VipCQWait = crate::cq::vip_cq_wait;
    VipCQNotify = crate::notify::vip_cq_notify;
    VipErrorCallback = crate::errors::vip_error_callback;
    VipQuerySystemManagementInfo = crate::naming::vip_query_system_management_info;
    VipNSInit = crate::naming::vip_ns_init;
    VipNSShutdown = crate::naming::vip_ns_shutdown;
    VipNSGetHostByName = crate::naming::vip_ns_get_host_by_name;
    VipNSGetHostByAddr = crate::naming::vip_ns_get_host_by_addr;
    VipGetUserData = crate::vi::vip_get_user_data;
    VipSetUserData = crate::vi::vip_set_user_data;
    VipAddTagCQ = crate::clan::vip_add_tag_cq;
    VipRemoveTagCQ = crate::clan::vip_remove_tag_cq;
    VipPostDeferredSends = crate::clan::vip_post_deferred_sends;
}
