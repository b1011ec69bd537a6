//! The names by which C programs know the functions, with their version (`../../versions.rs` says how).

export! {
    "SOVIA_1.0":
    sov_socket = crate::sockets::sov_socket;
    sov_bind = crate::sockets::sov_bind;
    sov_listen = crate::sockets::sov_listen;
    sov_accept = crate::sockets::sov_accept;
    sov_connect = crate::sockets::sov_connect;
    sov_shutdown = crate::sockets::sov_shutdown;
    sov_close = crate::sockets::sov_close;
    sov_getsockname = crate::sockets::sov_getsockname;
    sov_getpeername = crate::sockets::sov_getpeername;
    sov_send = crate::transfer::sov_send;
    sov_recv = crate::transfer::sov_recv;
    sov_write = crate::transfer::sov_write;
    sov_read = crate::transfer::sov_read;
    sov_writev = crate::transfer::sov_writev;
    sov_readv = crate::transfer::sov_readv;
    sov_setsockopt = crate::options::sov_setsockopt;
    sov_getsockopt = crate::options::sov_getsockopt;
    sov_fcntl = crate::options::sov_fcntl;
    sov_poll = crate::poll::sov_poll;
    sov_select = crate::poll::sov_select;
}
