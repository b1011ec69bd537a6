//! Posting: descriptors enter the ledger and, if they can, leave for the transport at once. No allocation, no lock, no
//! system call.
//!
//! What a descriptor's segments are allowed to be is checked once and remembered by a stamp, which says against which
//! state of which NIC's regions, under which tag and for which queue. The usual post is a comparison of stamps.

use crate::counters::{Counter, CounterSlot};
use crate::cq::CqCore;
use crate::descriptor::{Descriptor, Op, Status, Work};
use crate::error::{BatchError, Error, PostError};
use crate::handle::{Cq, ProtectionTag, Srq, Table, Vi};
use crate::memory::{MemHandle, MemTable};
use crate::nic::Nic;
use crate::raw::{Locator, RawSegment};
use crate::vi::{Handed, Queue, ViCore, ViState};

impl Nic {
    /// Posts to the send queue: sends, RDMA and atomics.
    ///
    /// # Errors
    /// The descriptor comes back with the reason: [`Error::QueueFull`]; [`Error::CqFull`]; [`Error::InvalidParameter`] for a
    /// receive; [`Error::InvalidHandle`]. What is wrong with its memory is the status of its completion.
    #[inline]
    pub fn post_send(&mut self, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
        // A send that was checked before, on a connection with nothing in its way.
        let work = descriptor.work();
        if !self.is_forked()
            && let Some(core) = self.vis.get_mut(vi.0)
            && core.can_send_fast()
            && work.stamp == self.mem.stamp() ^ core.send_mix
            && work.total <= core.attributes.max_transfer_size
            && work.op == Op::Send
            && let Some(cq) = reserve(&mut self.cqs, core.attributes.send_cq)
        {
            self.counters.add(Counter::Sends, 1);
            self.counters.add(Counter::BytesSent, u64::from(work.total));
            let handed = core.submit(descriptor);
            if let Some(cq) = cq {
                match core.send.announce_newest() {
                    Some(true) => cq.push(vi, Queue::Send),
                    Some(false) => {}
                    None => self.announce_sends(vi),
                }
            }
            if !matches!(handed, Handed::Done) {
                self.not_done_at_once(vi, handed);
            }
            return Ok(());
        }
        self.post_send_checked(vi, descriptor)
    }

    #[inline(never)]
    fn post_send_checked(&mut self, vi: Vi, mut descriptor: Descriptor) -> Result<(), PostError> {
        let op = descriptor.work().op;
        let core = match admit_send(self.is_forked(), &mut self.vis, &mut self.cqs, vi, op) {
            Ok(core) => core,
            Err(error) => return Err(PostError { error, descriptor }),
        };
        let work = descriptor.work_mut();
        work.verdict = check_send(work, core, self.attributes.max_segments_per_desc);
        if work.verdict != Status::Success {
            work.stamp = 0;
        } else if work.stamp != self.mem.stamp() ^ core.send_mix {
            work.verdict =
                check_segments(work, Some(core.attributes.ptag), &self.mem, &self.counters, Ends::All);
            work.stamp = if work.verdict == Status::Success { self.mem.stamp() ^ core.send_mix } else { 0 };
        }
        count_send(work, &self.counters);
        if core.state != ViState::Connected {
            core.send.push(descriptor);
            core.send.flush();
            self.announce_done(vi);
            return Ok(());
        }
        let handed = core.submit(descriptor);
        if core.bound {
            self.announce_sends(vi);
        }
        if !matches!(handed, Handed::Done) {
            self.not_done_at_once(vi, handed);
        }
        Ok(())
    }

    /// Notes that a send is left for later calls, or breaks its connection.
    #[inline(never)]
    fn not_done_at_once(&mut self, vi: Vi, handed: Handed) {
        match handed {
            Handed::Done => {}
            Handed::Left => {
                self.unrest.note_send();
                self.list_for_others(vi);
            }
            Handed::Broken(fault) => {
                self.announce_sends(vi);
                self.break_vi(vi, fault);
            }
        }
    }

    /// Posts to the receive queue.
    ///
    /// # Errors
    /// The descriptor comes back with the reason: [`Error::QueueFull`]; [`Error::CqFull`]; [`Error::InvalidParameter`] for
    /// another operation; [`Error::InvalidHandle`].
    #[inline]
    pub fn post_recv(&mut self, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
        // A receive that was checked before, and that only its own queue has to know of, or the transport, too.
        if !self.is_forked()
            && let Some(core) = self.vis.get_mut(vi.0)
            && core.can_post_recv_fast()
            && descriptor.work().stamp == self.mem.stamp() ^ core.recv_mix
            && reserve(&mut self.cqs, core.attributes.recv_cq).is_some()
        {
            let tell = descriptor.work().total >= core.tell_from;
            let index = core.recv.push(descriptor);
            if tell {
                core.tell_receive(index);
            }
            return Ok(());
        }
        self.post_recv_checked(vi, descriptor)
    }

    #[inline(never)]
    fn post_recv_checked(&mut self, vi: Vi, mut descriptor: Descriptor) -> Result<(), PostError> {
        let core = match admit_recv(self.is_forked(), &mut self.vis, &mut self.cqs, vi, descriptor.work()) {
            Ok(core) => core,
            Err(error) => return Err(PostError { error, descriptor }),
        };
        let work = descriptor.work_mut();
        if work.stamp != self.mem.stamp() ^ core.recv_mix {
            work.verdict = if work.segments.len() > self.attributes.max_segments_per_desc {
                Status::FormatError
            } else if work.flaw != Status::Success {
                work.flaw
            } else {
                let ends = self.receive_ends;
                check_segments(work, Some(core.attributes.ptag), &self.mem, &self.counters, ends)
            };
            work.stamp = if work.verdict == Status::Success { self.mem.stamp() ^ core.recv_mix } else { 0 };
        }
        let tell = work.total >= core.tell_from;
        let index = core.recv.push(descriptor);
        if tell {
            core.tell_receive(index);
        }
        if core.state == ViState::Error {
            core.recv.flush();
            self.announce_done(vi);
        }
        Ok(())
    }

    /// Posts to a shared receive queue.
    ///
    /// # Errors
    /// As of [`post_recv`](Self::post_recv); the descriptor comes back with the error.
    pub fn post_srq(&mut self, srq: Srq, mut descriptor: Descriptor) -> Result<(), PostError> {
        if let Err(error) = self.admit_shared(srq, descriptor.work()) {
            return Err(PostError { error, descriptor });
        }
        let core = self.srqs.get_mut(srq.0).expect("just admitted");
        let work = descriptor.work_mut();
        // The VI is not known yet: its tag is compared with this one when the descriptor is drawn.
        let region = |s: &RawSegment| self.mem.get(s.handle);
        let tag = work.segments.iter().find_map(region).map(|r| r.attributes.ptag);
        work.verdict = if work.segments.len() > self.attributes.max_segments_per_desc {
            Status::FormatError
        } else {
            check_segments(work, tag, &self.mem, &self.counters, self.receive_ends)
        };
        work.stamp = 0;
        core.post(descriptor, tag);
        Ok(())
    }

    /// Whether a descriptor may join a shared receive queue.
    fn admit_shared(&self, srq: Srq, work: &Work) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.srqs.get(srq.0).ok_or(Error::InvalidHandle("shared receive queue"))?;
        if core.is_full() {
            return Err(Error::QueueFull { depth: core.depth() });
        }
        check_receive(work)
    }

    /// Posts several receives; what comes after the first refusal stays in the iterator.
    ///
    /// # Errors
    /// As of [`post_recv`](Self::post_recv), with the number of those that were posted before; `?` makes an [`Error`] of it.
    pub fn post_recv_batch(
        &mut self,
        vi: Vi,
        batch: impl IntoIterator<Item = Descriptor>,
    ) -> Result<usize, BatchError> {
        let (mut batch, mut posted) = (batch.into_iter(), 0);
        // As long as they were checked before, and only their own queue has to know of them.
        if !self.is_forked()
            && let Some(core) = self.vis.get_mut(vi.0).filter(|core| core.plain)
        {
            let stamp = self.mem.stamp() ^ core.recv_mix;
            while core.can_post_recv_fast() {
                let Some(descriptor) = batch.next() else { return Ok(posted) };
                if descriptor.work().stamp != stamp || descriptor.work().total >= core.tell_from {
                    self.post_recv(vi, descriptor).map_err(|refused| BatchError { posted, refused })?;
                    posted += 1;
                    break;
                }
                core.recv.push(descriptor);
                posted += 1;
            }
        }
        for descriptor in batch {
            self.post_recv(vi, descriptor).map_err(|refused| BatchError { posted, refused })?;
            posted += 1;
        }
        Ok(posted)
    }

    /// Posts several descriptors; what comes after the first refusal stays in the iterator.
    ///
    /// # Errors
    /// As of [`post_send`](Self::post_send), with the number of those that were posted before; `?` makes an [`Error`] of it.
    pub fn post_send_batch(
        &mut self,
        vi: Vi,
        batch: impl IntoIterator<Item = Descriptor>,
    ) -> Result<usize, BatchError> {
        let mut posted = 0;
        for descriptor in batch {
            self.post_send(vi, descriptor).map_err(|refused| BatchError { posted, refused })?;
            posted += 1;
        }
        Ok(posted)
    }
}

/// Reserves an entry in the completion queue of a descriptor, if it has one, and gives the queue. None if there is no
/// entry left.
#[inline]
fn reserve(cqs: &mut Table<CqCore>, cq: Option<Cq>) -> Option<Option<&mut CqCore>> {
    match cq {
        None => Some(None),
        Some(cq) => cqs.get_mut(cq.0).and_then(|cq| cq.reserve().then_some(Some(cq))),
    }
}

/// The VI whose send queue a descriptor may join; it has an entry in the completion queue, too. `forked` says whether this
/// process is a child of the one that opened the NIC.
// Inside its caller: an error is returned through memory, which costs as much as the checks.
#[inline(always)]
fn admit_send<'a>(
    forked: bool,
    vis: &'a mut Table<ViCore>,
    cqs: &mut Table<CqCore>,
    vi: Vi,
    op: Op,
) -> Result<&'a mut ViCore, Error> {
    if forked {
        return Err(Error::Forked);
    }
    let core = vis.get_mut(vi.0).ok_or_else(|| Error::InvalidHandle("VI"))?;
    if core.send.is_full() {
        return Err(Error::QueueFull { depth: core.send.depth() });
    }
    if op == Op::Receive || op == Op::RemoteRdmaWrite {
        return Err(Error::InvalidParameter("a receive descriptor was posted to the send queue"));
    }
    reserve_entry(cqs, core.attributes.send_cq)?;
    Ok(core)
}

/// The VI whose receive queue a descriptor may join, as [`admit_send`].
#[inline(always)]
fn admit_recv<'a>(
    forked: bool,
    vis: &'a mut Table<ViCore>,
    cqs: &mut Table<CqCore>,
    vi: Vi,
    work: &Work,
) -> Result<&'a mut ViCore, Error> {
    if forked {
        return Err(Error::Forked);
    }
    let core = vis.get_mut(vi.0).ok_or_else(|| Error::InvalidHandle("VI"))?;
    if core.recv.is_full() {
        return Err(Error::QueueFull { depth: core.recv.depth() });
    }
    if core.attributes.srq.is_some() {
        return Err(Error::InvalidParameter("this VI receives from a shared receive queue"));
    }
    check_receive(work)?;
    reserve_entry(cqs, core.attributes.recv_cq)?;
    Ok(core)
}

/// Reserves an entry in the completion queue of a descriptor, if it has one.
#[inline(always)]
fn reserve_entry(cqs: &mut Table<CqCore>, cq: Option<Cq>) -> Result<(), Error> {
    let Some(cq) = cq else { return Ok(()) };
    let cq = cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
    if cq.reserve() { Ok(()) } else { Err(Error::CqFull { capacity: cq.capacity() }) }
}

/// Without a completion the application would never find the message of a receive.
#[inline(always)]
fn check_receive(work: &Work) -> Result<(), Error> {
    if work.op != Op::Receive {
        return Err(Error::InvalidParameter("only receive descriptors go to a receive queue"));
    }
    if work.unsignalled {
        return Err(Error::InvalidParameter("a receive cannot be unsignalled"));
    }
    Ok(())
}

#[inline]
fn check_send(work: &Work, core: &ViCore, max_segments: usize) -> Status {
    if work.segments.len() > max_segments {
        return Status::FormatError;
    }
    if work.flaw != Status::Success {
        return work.flaw;
    }
    if work.total > core.attributes.max_transfer_size {
        return Status::LengthError;
    }
    if !work.op.is_rdma() {
        return Status::Success;
    }
    if work.op.reads_remote() && (work.immediate.is_some() || !core.attributes.reliability.is_reliable()) {
        return Status::FormatError;
    }
    if work.op.is_atomic() && (work.total != 8 || !work.remote.addr.is_multiple_of(8)) {
        return Status::FormatError;
    }
    if work.remote.handle == MemHandle::NONE {
        return Status::FormatError;
    }
    match &core.remote {
        Some(r) if work.op == Op::RdmaWrite && !r.rdma_write => Status::RdmaProtectionError,
        Some(r) if work.op == Op::RdmaRead && !r.rdma_read => Status::RdmaProtectionError,
        Some(r) if work.op.is_atomic() && !(r.rdma_read && r.rdma_write) => Status::RdmaProtectionError,
        _ => Status::Success,
    }
}

/// Which segments have to end inside their region when they are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// All of them.
    All,
    /// None: what lies beyond the region's end is left out of [`Work::total`], so that no provider reaches it, and a
    /// message that would need it fails when it arrives.
    Used,
}

/// Checks that every segment begins inside its region (and ends there, with [`Ends::All`]), and that the region has the
/// VI's tag, if that is known. Sets how many bytes may be moved.
#[inline]
fn check_segments(
    work: &mut Work,
    tag: Option<ProtectionTag>,
    mem: &MemTable,
    counters: &CounterSlot,
    ends: Ends,
) -> Status {
    let single = work.segments.len() == 1;
    work.locator = None;
    work.total = work.declared;
    let (mut before, mut cut) = (0u32, false);
    for segment in &work.segments {
        if segment.handle == MemHandle::NONE {
            counters.add(Counter::ImplicitRegistrations, 1);
            before = before.saturating_add(segment.len);
            continue;
        }
        let Some(region) = mem.get(segment.handle) else { return Status::ProtectionError };
        let addr = segment.addr as u64;
        let tag_fits = tag.is_none_or(|t| t.goes_with(region.attributes.ptag));
        let needed = if ends == Ends::All { segment.len } else { segment.len.min(1) };
        if !region.contains(addr, u64::from(needed)) || !tag_fits {
            return Status::ProtectionError;
        }
        let inside = u64::from(segment.len).min(region.len - (addr - region.base)) as u32;
        if !cut && inside < segment.len {
            (cut, work.total) = (true, before.saturating_add(inside));
        }
        before = before.saturating_add(segment.len);
        if single && let Some(at) = region.locator {
            let offset = at.offset + (addr - region.base);
            work.locator = Some(Locator { slab: at.slab, offset });
        }
    }
    Status::Success
}

#[inline]
fn count_send(work: &Work, counters: &CounterSlot) {
    let (ops, bytes) = match work.op {
        Op::RdmaWrite => (Counter::RdmaWrites, Counter::BytesWritten),
        Op::RdmaRead => (Counter::RdmaReads, Counter::BytesRead),
        Op::CompareSwap | Op::FetchAdd => (Counter::Atomics, Counter::BytesWritten),
        _ => (Counter::Sends, Counter::BytesSent),
    };
    counters.add(ops, 1);
    counters.add(bytes, u64::from(work.total));
}
