//! Completion queues and event queues of libfabric (`fi_eq.h`, `fi_domain.h`).

use std::ffi::{c_char, c_int, c_void};

use super::info::FiInfo;
use super::object::Fid;

/// A function that is never called from here.
type Unused = *const c_void;

abi! {
    "struct fi_eq_attr" EqAttr {
        size: usize,
        flags: u64,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_set: *mut c_void,
    }

    "struct fi_cq_attr" CqAttr {
        size: usize,
        flags: u64,
        format: u32,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_cond: u32,
        wait_set: *mut c_void,
    }

    "struct fi_wait_pollfd" WaitPollFd {
        change_index: u64,
        nfds: usize,
        fd: *mut c_void,
    }

    #[derive(Clone, Copy)]
    "struct fi_cq_msg_entry" CqMsgEntry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
    }

    "struct fi_cq_err_entry" CqErrEntry {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    "struct fi_eq_cm_entry" EqCmEntry {
        fid: *mut Fid,
        info: *mut FiInfo,
    }

    "struct fi_eq_err_entry" EqErrEntry {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }

    "struct fi_ops_cq" OpsCq {
        size: usize,
        read: unsafe extern "C" fn(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize,
        readfrom: Unused,
        readerr: unsafe extern "C" fn(cq: *mut FidCq, buf: *mut CqErrEntry, flags: u64) -> isize,
        sread: Unused,
        sreadfrom: Unused,
        signal: Unused,
        strerror: Unused,
    }

    "struct fid_cq" FidCq {
        fid: Fid,
        ops: *mut OpsCq,
    }

    "struct fi_ops_eq" OpsEq {
        size: usize,
        read: unsafe extern "C" fn(
            eq: *mut FidEq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64,
        ) -> isize,
        readerr: unsafe extern "C" fn(eq: *mut FidEq, buf: *mut EqErrEntry, flags: u64) -> isize,
        write: Unused,
        sread: Unused,
        strerror: unsafe extern "C" fn(
            eq: *mut FidEq, errno: c_int, data: *const c_void, buf: *mut c_char, len: usize,
        ) -> *const c_char,
    }

    "struct fid_eq" FidEq {
        fid: Fid,
        ops: *mut OpsEq,
    }
}
