//! The objects of libfabric and their tables of functions (`fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_cm.h`).
//!
//! A table is declared up to the last function that we call; functions before it that we do not call are bare pointers.

use std::ffi::{c_int, c_void};

use super::info::FiInfo;
use super::queue::{CqAttr, EqAttr, FidCq, FidEq};

/// A function that is never called from here.
type Unused = *const c_void;

abi! {
    "struct fi_ops" Ops {
        size: usize,
        close: unsafe extern "C" fn(fid: *mut Fid) -> c_int,
        bind: unsafe extern "C" fn(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int,
        control: unsafe extern "C" fn(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int,
        ops_open: Unused,
        tostr: Unused,
        ops_set: Unused,
    }

    "struct fid" Fid {
        fclass: usize,
        context: *mut c_void,
        ops: *mut Ops,
    }

    "struct fi_ops_fabric" OpsFabric {
        size: usize,
        domain: unsafe extern "C" fn(
            fabric: *mut FidFabric, info: *mut FiInfo, domain: *mut *mut FidDomain, context: *mut c_void,
        ) -> c_int,
        passive_ep: unsafe extern "C" fn(
            fabric: *mut FidFabric, info: *mut FiInfo, pep: *mut *mut FidPep, context: *mut c_void,
        ) -> c_int,
        eq_open: unsafe extern "C" fn(
            fabric: *mut FidFabric, attr: *mut EqAttr, eq: *mut *mut FidEq, context: *mut c_void,
        ) -> c_int,
        wait_open: Unused,
        trywait: unsafe extern "C" fn(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int,
        domain2: Unused,
    }

    "struct fid_fabric" FidFabric {
        fid: Fid,
        ops: *mut OpsFabric,
        api_version: u32,
    }

    "struct fi_ops_domain" OpsDomain {
        size: usize,
        av_open: Unused,
        cq_open: unsafe extern "C" fn(
            domain: *mut FidDomain, attr: *mut CqAttr, cq: *mut *mut FidCq, context: *mut c_void,
        ) -> c_int,
        endpoint: unsafe extern "C" fn(
            domain: *mut FidDomain, info: *mut FiInfo, ep: *mut *mut FidEp, context: *mut c_void,
        ) -> c_int,
        scalable_ep: Unused,
        cntr_open: Unused,
        poll_open: Unused,
        stx_ctx: Unused,
        srx_ctx: Unused,
        query_atomic: Unused,
        query_collective: Unused,
        endpoint2: Unused,
    }

    "struct fi_ops_mr" OpsMr {
        size: usize,
        reg: unsafe extern "C" fn(
            fid: *mut Fid, buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut FidMr, context: *mut c_void,
        ) -> c_int,
        regv: Unused,
        regattr: Unused,
    }

    "struct fid_domain" FidDomain {
        fid: Fid,
        ops: *mut OpsDomain,
        mr: *mut OpsMr,
    }

    "struct fid_mr" FidMr {
        fid: Fid,
        mem_desc: *mut c_void,
        key: u64,
    }

    "struct fi_ops_cm" OpsCm {
        size: usize,
        setname: Unused,
        getname: unsafe extern "C" fn(fid: *mut Fid, addr: *mut c_void, len: *mut usize) -> c_int,
        getpeer: Unused,
        connect: unsafe extern "C" fn(
            ep: *mut FidEp, addr: *const c_void, param: *const c_void, len: usize,
        ) -> c_int,
        listen: unsafe extern "C" fn(pep: *mut FidPep) -> c_int,
        accept: unsafe extern "C" fn(ep: *mut FidEp, param: *const c_void, len: usize) -> c_int,
        reject: unsafe extern "C" fn(
            pep: *mut FidPep, handle: *mut Fid, param: *const c_void, len: usize,
        ) -> c_int,
        shutdown: unsafe extern "C" fn(ep: *mut FidEp, flags: u64) -> c_int,
        join: Unused,
    }

    "struct fi_ops_msg" OpsMsg {
        size: usize,
        recv: unsafe extern "C" fn(
            ep: *mut FidEp, buf: *mut c_void, len: usize, desc: *mut c_void, src: u64, context: *mut c_void,
        ) -> isize,
        recvv: unsafe extern "C" fn(
            ep: *mut FidEp, iov: *const c_void, desc: *mut *mut c_void, count: usize, src: u64,
            context: *mut c_void,
        ) -> isize,
        recvmsg: Unused,
        send: unsafe extern "C" fn(
            ep: *mut FidEp, buf: *const c_void, len: usize, desc: *mut c_void, dest: u64, context: *mut c_void,
        ) -> isize,
        sendv: unsafe extern "C" fn(
            ep: *mut FidEp, iov: *const c_void, desc: *mut *mut c_void, count: usize, dest: u64,
            context: *mut c_void,
        ) -> isize,
        sendmsg: Unused,
        inject: unsafe extern "C" fn(ep: *mut FidEp, buf: *const c_void, len: usize, dest: u64) -> isize,
        senddata: Unused,
        injectdata: Unused,
    }

    "struct fid_ep" FidEp {
        fid: Fid,
        ops: *mut c_void,
        cm: *mut OpsCm,
        msg: *mut OpsMsg,
        rma: *mut c_void,
        tagged: *mut c_void,
        atomic: *mut c_void,
        collective: *mut c_void,
    }

    "struct fid_pep" FidPep {
        fid: Fid,
        ops: *mut c_void,
        cm: *mut OpsCm,
    }
}
