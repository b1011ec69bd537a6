//! RDMA and atomics on the peer's memory: through a mapping, through the kernel, or by the peer's control thread.
//!
//! The initiator checks handle, tag, rights and bounds in the peer's directory; the peer's CPU has no part in it unless
//! its memory is private and the kernel does not let us reach it.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use viaduct_os::copy::{copy, copy_over, copy_release_tail};
use viaduct_os::point::point;
use viaduct_os::process;
use viaduct_via::provider::Submit;
use viaduct_via::{Counter, Error, Op, Queues, Reliability, RemoteAddress, Status, Work, raw};

use super::directory::Found;
use super::map::Why;
use super::pair::{Directed, Reply, lock};
use super::parts::{each_part, gather_piece};
use super::vi::ShmVi;
use super::wire::{Note, PIECE, note};
use crate::parties::{READ_PRIVATE, tags_go_together};

/// An operation that the peer's control thread carries out for us.
pub(crate) struct RemoteOp {
    number: u64,
    index: u32,
    total: u32,
    immediate: Option<u32>,
}

/// What an operation is aimed at.
#[derive(Clone, Copy)]
struct Aim {
    op: Op,
    remote: RemoteAddress,
    total: u32,
}

impl Aim {
    fn of(work: &Work) -> Aim {
        Aim { op: work.op, remote: work.remote, total: work.total }
    }
}

/// Operations in a note.
pub(crate) fn op_number(op: Op) -> u64 {
    match op {
        Op::RdmaWrite => 1,
        Op::RdmaRead => 2,
        Op::CompareSwap => 3,
        _ => 4,
    }
}

impl ShmVi {
    pub(crate) fn submit_rdma(&mut self, work: &mut Work, index: u32) -> Submit {
        if work.immediate.is_some() && !self.room(1) {
            return Submit::Busy;
        }
        if self.pair.foreign {
            // Another user's directory is not ours to see: the target alone says what is allowed.
            return self.by_peer(work, index);
        }
        let aim = Aim::of(work);
        let found = match self.allowed(aim) {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.set_waiting();
                return Submit::Busy;
            }
            Err(status) => return Submit::Failed(status),
        };
        let done = match found.place {
            Some(place) if self.pair.direct => {
                self.mapped(aim, &found, place, |remote| transfer(work, remote))
            }
            _ if self.pair.vm && !work.op.is_atomic() => self.by_kernel(work),
            _ => return self.by_peer(work, index),
        };
        match done {
            Submit::Done => {}
            other => return other,
        }
        match work.immediate {
            Some(immediate) => {
                point("rdma.before-announce");
                self.put_written(work.total, immediate);
                self.await_written(index, work.total)
            }
            None => Submit::Done,
        }
    }

    /// Writes bytes that lie anywhere through a mapping of the peer's memory, if there is one.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8], to: RemoteAddress, immediate: Option<u32>) -> Submit {
        if !self.is_free() || self.reliability == Reliability::ReliableReception || !self.pair.direct {
            return Submit::Busy;
        }
        if immediate.is_some() && !self.room(1) {
            return Submit::Busy;
        }
        let aim = Aim { op: Op::RdmaWrite, remote: to, total: bytes.len() as u32 };
        let found = match self.allowed(aim) {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.set_waiting();
                return Submit::Busy;
            }
            Err(status) => return Submit::Failed(status),
        };
        let Some(place) = found.place else { return Submit::Busy };
        let done = self.mapped(aim, &found, place, |remote| {
            // SAFETY: the mapped range was checked to hold as many bytes as there are.
            unsafe { copy_release_tail(remote, bytes.as_ptr(), bytes.len()) }
        });
        if done == Submit::Done
            && let Some(immediate) = immediate
        {
            point("rdma.before-announce");
            self.put_written(aim.total, immediate);
        }
        done
    }

    /// The region, if the operation is allowed; None while the directory is on its way.
    #[inline(always)]
    fn allowed(&self, aim: Aim) -> Result<Option<Found>, Status> {
        let found = match self.pair.find(aim.remote.handle) {
            Directed::Found(found) => found,
            Directed::Asked => return Ok(None),
            Directed::Unknown => return Err(Status::RdmaProtectionError),
            Directed::Failed => return Err(Status::TransportError),
        };
        let rights = match aim.op {
            Op::RdmaWrite => found.write,
            Op::RdmaRead => found.read,
            _ => found.read && found.write,
        };
        let tags = tags_go_together(found.tag, self.peer_tag);
        if !rights || !tags || !found.contains(aim.remote.addr, u64::from(aim.total)) {
            return Err(Status::RdmaProtectionError);
        }
        Ok(Some(found))
    }

    /// Works on the peer's memory through a mapping of it.
    fn mapped(
        &mut self,
        aim: Aim,
        found: &Found,
        place: (u32, u64),
        transfer: impl FnOnce(*mut u8),
    ) -> Submit {
        let segment = match self.target_segment(place.0) {
            Ok(Some(segment)) => segment,
            Ok(None) => {
                self.set_waiting();
                return Submit::Busy;
            }
            Err(Why::Gone) => return Submit::Failed(Status::RdmaProtectionError),
            Err(Why::Failed) => return Submit::Failed(Status::TransportError),
        };
        let offset = place.1.checked_add(aim.remote.addr - found.base);
        let end = offset.and_then(|o| o.checked_add(u64::from(aim.total)));
        let (Some(offset), Some(end)) = (offset, end) else { return Submit::Failed(Status::TransportError) };
        // The address is aligned; whether its place is, only the peer's directory says.
        let misaligned = aim.op.is_atomic() && !offset.is_multiple_of(8);
        if end > segment.len() as u64 || misaligned {
            return Submit::Failed(Status::TransportError);
        }
        // Withdrawing a region waits for copies under way; one that begins now sees that it is gone.
        if !self.enter_copy() || self.allowed(aim).ok().flatten() != Some(*found) {
            self.leave_copy();
            return Submit::Busy;
        }
        // SAFETY: offset + total lies inside the mapped segment, checked above.
        let remote = unsafe { segment.as_ptr().add(offset as usize) };
        point("rdma.mapped-entered");
        transfer(remote);
        point("rdma.mapped-copied");
        self.leave_copy();
        point("rdma.mapped-left");
        Submit::Done
    }

    /// Lets the kernel copy between the two address spaces.
    fn by_kernel(&mut self, work: &Work) -> Submit {
        if !self.enter_copy() || !matches!(self.allowed(Aim::of(work)), Ok(Some(_))) {
            self.leave_copy();
            return Submit::Busy;
        }
        // The kernel goes by number, and numbers of dead processes are given to others.
        if !process::pid_alive(self.pair.pidfd.as_fd()) {
            self.leave_copy();
            return Submit::Busy;
        }
        point("rdma.kernel-entered");
        let (mut ok, total) = (true, work.total as usize);
        each_part(work, 0, work.total, |addr, done, n| {
            let remote = work.remote.addr + done as u64;
            // SAFETY: the local part lies inside a posted segment; the kernel checks the remote side.
            let moved = unsafe {
                match work.op {
                    // A target that spins on the last word sees all before it.
                    Op::RdmaWrite if done + n == total => {
                        process::vm_write_tail(self.pair.pid, addr, remote, n)
                    }
                    Op::RdmaWrite => process::vm_write(self.pair.pid, addr, remote, n),
                    _ => process::vm_read(self.pair.pid, addr, remote, n),
                }
            };
            ok &= moved.is_ok_and(|moved| moved == n);
        });
        point("rdma.kernel-copied");
        self.leave_copy();
        self.core.counters.add(Counter::KernelCopies, 1);
        if ok { Submit::Done } else { Submit::Failed(Status::TransportError) }
    }

    /// Lets the kernel copy memory that the peer has not registered. It has said where that is, and keeps it meanwhile.
    pub(crate) fn read_unregistered(&mut self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        if !self.pair.vm {
            return Err(Error::NotSupported(READ_PRIVATE));
        }
        let gone = || Error::NotReachable(format!("process {} is gone", self.pair.pid));
        if self.is_over() {
            return Err(gone());
        }
        point("private.before");
        // SAFETY: the local side is a slice that nothing else uses; the kernel checks the remote side.
        let moved = unsafe { process::vm_read(self.pair.pid, into.as_mut_ptr(), address, into.len()) };
        point("private.copied");
        // The kernel goes by number, and numbers of dead processes are given to others: one that lives now had it all along.
        if !process::pid_alive(self.pair.pidfd.as_fd()) {
            return Err(gone());
        }
        match moved {
            Ok(moved) if moved == into.len() => {
                self.core.counters.add(Counter::KernelCopies, 1);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(Error::NotSupported(READ_PRIVATE)),
            _ => Err(Error::InvalidParameter("the peer has no memory there that can be read")),
        }
    }

    /// Asks the peer's control thread.
    fn by_peer(&mut self, work: &Work, index: u32) -> Submit {
        point("rdma.helper-before");
        let number = viaduct_os::random::u64();
        let room = if work.op.reads_remote() { work.total as usize } else { 0 };
        lock(&self.pair.replies).insert(number, Reply { room, ..Reply::default() });
        let mut ask = Note::new(note::RDMA);
        ask.a = self.lane().slab;
        ask.b = u64::from(self.lane().offset) | op_number(work.op) << 32 | u64::from(self.lane().ours) << 40;
        ask.c = number;
        ask.e = u64::from(work.remote.handle.number()) << 32;
        [ask.f, ask.g] = work.operands;
        if work.op == Op::RdmaWrite {
            let mut piece = vec![0u8; PIECE];
            let mut done = 0;
            loop {
                let len = (work.total - done).min(PIECE as u32);
                gather_piece(work, done, piece.as_mut_ptr(), len);
                ask.d = work.remote.addr + u64::from(done);
                ask.e = u64::from(work.remote.handle.number()) << 32 | u64::from(len);
                ask.f = u64::from(done + len == work.total);
                ask.g = u64::from(work.total - done);
                self.pair.send(&ask, &piece[..len as usize]);
                point("rdma.helper-piece");
                done += len;
                if done == work.total {
                    break;
                }
            }
        } else {
            ask.d = work.remote.addr;
            ask.e |= u64::from(work.total);
            self.pair.send(&ask, &[]);
        }
        self.core.counters.add(Counter::HelperCopies, 1);
        point("rdma.helper-asked");
        self.core.wake.signal();
        self.remote_ops.push_back(RemoteOp { number, index, total: work.total, immediate: work.immediate });
        self.set_waiting();
        Submit::Pending
    }

    /// The connection is closed: these are waited for no more.
    pub(crate) fn forget_remote_ops(&mut self) {
        let mut replies = lock(&self.pair.replies);
        for op in self.remote_ops.drain(..) {
            replies.remove(&op.number);
        }
    }

    /// Looks for outcomes of what the peer carries out for us.
    pub(crate) fn hear_of_remote_ops(&mut self, queues: &mut Queues<'_>) {
        while let Some(op) = self.remote_ops.front() {
            let reply = {
                let mut replies = lock(&self.pair.replies);
                if !replies.get(&op.number).is_some_and(|r| r.complete) {
                    return;
                }
                replies.remove(&op.number)
            };
            let (Some(reply), Some(op)) = (reply, self.remote_ops.pop_front()) else { return };
            point("rdma.helper-answered");
            let mut status = Status::from_number(reply.status).unwrap_or(Status::TransportError);
            if let Some(work) = queues.pending_send(op.index)
                && work.op.reads_remote()
                && status.is_success()
            {
                if reply.payload.len() == work.total as usize {
                    each_part(work, 0, work.total, |addr, done, n| {
                        // SAFETY: the part lies inside a segment that is still posted; the payload holds total bytes.
                        unsafe { copy(addr, reply.payload.as_ptr().add(done), n) };
                    });
                } else {
                    status = Status::TransportError;
                }
            }
            if status.is_success()
                && let Some(immediate) = op.immediate
            {
                // Room was there when the operation began, and nothing else was sent since.
                self.put_written(op.total, immediate);
                if self.await_written(op.index, op.total) == Submit::Pending {
                    continue;
                }
            }
            let length = if status.is_success() { op.total } else { 0 };
            queues.complete_send(op.index, status, length);
            if !status.is_success() && self.reliability.is_reliable() {
                queues.broken(viaduct_via::Fault::Remote(status));
            }
        }
    }
}

/// Moves the bytes of an operation between a descriptor and mapped memory that was checked to hold them.
fn transfer(work: &Work, remote: *mut u8) {
    if work.op.is_atomic() {
        // SAFETY: eight bytes inside the mapping, aligned, as the caller has checked.
        let old = unsafe {
            match work.op {
                Op::FetchAdd => raw::fetch_add(remote, work.operands[0]),
                _ => raw::compare_swap(remote, work.operands[0], work.operands[1]),
            }
        };
        let bytes = old.to_ne_bytes();
        each_part(work, 0, 8, |addr, done, n| {
            // SAFETY: the part lies inside a posted segment; done + n is at most 8.
            unsafe { copy(addr, bytes.as_ptr().add(done), n) };
        });
        return;
    }
    let total = work.total as usize;
    each_part(work, 0, work.total, |addr, done, n| {
        // SAFETY: the local part lies inside a posted segment; done + n is within the checked remote range.
        unsafe {
            let at = remote.add(done);
            match work.op {
                Op::RdmaRead => copy(addr, at, n),
                // The last word is stored by itself, with release: a target that spins on it sees all before it.
                _ if done + n == total => copy_release_tail(at, addr, n),
                _ => copy_over(at, addr, n),
            }
        }
    });
}
