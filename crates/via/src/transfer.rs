//! The data path: posting descriptors and polling for their completions. No allocation, no lock, no system call.

use crate::counters::Counter;
use crate::descriptor::{Descriptor, Op, Status, Work};
use crate::error::{Error, PostError};
use crate::event::{ErrorEvent, code_of};
use crate::handle::{Cq, Srq, Vi};
use crate::memory::{MemHandle, MemTable};
use crate::nic::Nic;
use crate::provider::Submit;
use crate::queue::Outcome;
use crate::queues::Fault;
use crate::vi::{Progress, Queue, ViCore, ViState};

/// A receive that nobody is told of could never be used.
const SILENT_RECEIVE: &str = "a receive cannot be unsignalled";

/// A descriptor that came back, with everything there is to know about it.
#[derive(Debug)]
#[must_use = "the completion holds the descriptor and its buffers"]
pub struct Completion {
    /// The VI it was posted to.
    pub vi: Vi,
    /// Which of its queues.
    pub queue: Queue,
    /// What was done; for a receive whether a send or an RDMA write used it up.
    pub op: Op,
    /// How it ended.
    pub status: Status,
    /// Bytes moved.
    pub length: u32,
    /// Immediate data that arrived.
    pub immediate: Option<u32>,
    /// The descriptor, to be posted again or taken apart.
    pub descriptor: Descriptor,
}

impl Completion {
    #[inline]
    fn new(vi: Vi, queue: Queue, (descriptor, outcome): (Descriptor, Outcome)) -> Completion {
        let Outcome { op, status, length, immediate } = outcome;
        Completion { vi, queue, op, status, length, immediate, descriptor }
    }

    /// The bytes received or read, copied out of the descriptor's first buffer.
    pub fn data(&self) -> Vec<u8> {
        // A peer's RDMA write may be longer than the buffer of the receive that tells of it.
        let first = self.descriptor.buffers().first();
        first.map(|b| b.to_vec(b.len().min(self.length as usize))).unwrap_or_default()
    }
}

impl Nic {
    /// Posts to the send queue: sends, RDMA and atomics.
    #[inline]
    pub fn post_send(&mut self, vi: Vi, mut descriptor: Descriptor) -> Result<(), PostError> {
        if self.is_forked() {
            return Err(PostError { error: Error::Forked, descriptor });
        }
        let Some(core) = self.vis.get_mut(vi.0) else {
            return Err(PostError { error: Error::InvalidHandle("VI"), descriptor });
        };
        if core.send.is_full() {
            return Err(PostError { error: Error::QueueFull { depth: core.send.depth() }, descriptor });
        }
        let work = descriptor.work_mut();
        if work.op == Op::Receive || work.op == Op::RemoteRdmaWrite {
            let error = Error::InvalidParameter("a receive descriptor was posted to the send queue");
            return Err(PostError { error, descriptor });
        }
        if let Some(cq) = core.attributes.send_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            if !cq.reserve() {
                return Err(PostError { error: Error::CqFull { capacity: cq.capacity() }, descriptor });
            }
        }
        work.verdict = check_send(work, core, self.attributes.max_segments_per_desc);
        if work.verdict == Status::Success && work.stamp != self.mem.stamp() ^ core.tag_mix {
            work.verdict = check_segments(work, Some(core.attributes.ptag), &self.mem, &self.counters);
            work.stamp = if work.verdict == Status::Success { self.mem.stamp() ^ core.tag_mix } else { 0 };
        }
        count_send(work, &self.counters);
        if core.state != ViState::Connected {
            core.send.push(descriptor);
            core.send.flush();
            self.settle(vi);
            return Ok(());
        }
        let fault = core.submit(descriptor);
        if core.bound {
            self.settle_send(vi);
        }
        if let Some(fault) = fault {
            self.settle_send(vi);
            self.break_vi(vi, fault);
        }
        Ok(())
    }

    /// Posts to the receive queue.
    #[inline]
    pub fn post_recv(&mut self, vi: Vi, mut descriptor: Descriptor) -> Result<(), PostError> {
        if self.is_forked() {
            return Err(PostError { error: Error::Forked, descriptor });
        }
        let Some(core) = self.vis.get_mut(vi.0) else {
            return Err(PostError { error: Error::InvalidHandle("VI"), descriptor });
        };
        if core.recv.is_full() {
            return Err(PostError { error: Error::QueueFull { depth: core.recv.depth() }, descriptor });
        }
        if core.attributes.srq.is_some() {
            let error = Error::InvalidParameter("this VI receives from a shared receive queue");
            return Err(PostError { error, descriptor });
        }
        let work = descriptor.work_mut();
        if work.op != Op::Receive {
            let error = Error::InvalidParameter("only receive descriptors go to the receive queue");
            return Err(PostError { error, descriptor });
        }
        if work.unsignalled {
            return Err(PostError { error: Error::InvalidParameter(SILENT_RECEIVE), descriptor });
        }
        if let Some(cq) = core.attributes.recv_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            if !cq.reserve() {
                return Err(PostError { error: Error::CqFull { capacity: cq.capacity() }, descriptor });
            }
        }
        if work.stamp != self.mem.stamp() ^ core.tag_mix || work.verdict != Status::Success {
            work.verdict = if work.segments.len() > self.attributes.max_segments_per_desc {
                Status::FormatError
            } else {
                check_segments(work, Some(core.attributes.ptag), &self.mem, &self.counters)
            };
            work.stamp = if work.verdict == Status::Success { self.mem.stamp() ^ core.tag_mix } else { 0 };
        }
        let tell = work.total >= core.tell_from;
        let index = core.recv.push(descriptor);
        if tell {
            core.tell_receive(index);
        }
        if core.state == ViState::Error {
            core.recv.flush();
            self.settle(vi);
        }
        Ok(())
    }

    /// Posts to a shared receive queue.
    pub fn post_srq(&mut self, srq: Srq, mut descriptor: Descriptor) -> Result<(), PostError> {
        if self.is_forked() {
            return Err(PostError { error: Error::Forked, descriptor });
        }
        let Some(core) = self.srqs.get_mut(srq.0) else {
            return Err(PostError { error: Error::InvalidHandle("shared receive queue"), descriptor });
        };
        if core.is_full() {
            return Err(PostError { error: Error::QueueFull { depth: core.depth() }, descriptor });
        }
        let work = descriptor.work_mut();
        if work.op != Op::Receive {
            let error = Error::InvalidParameter("only receive descriptors go to a shared receive queue");
            return Err(PostError { error, descriptor });
        }
        if work.unsignalled {
            return Err(PostError { error: Error::InvalidParameter(SILENT_RECEIVE), descriptor });
        }
        // The VI is not known yet: its tag is compared with this one when the descriptor is drawn.
        let region = |s: &crate::raw::RawSegment| self.mem.get(s.handle);
        let tag = work.segments.iter().find_map(region).map(|r| r.attributes.ptag);
        work.verdict = if work.segments.len() > self.attributes.max_segments_per_desc {
            Status::FormatError
        } else {
            check_segments(work, tag, &self.mem, &self.counters)
        };
        work.stamp = 0;
        core.post(descriptor, tag);
        Ok(())
    }

    /// Sends a few bytes by value: no buffer, no descriptor, no completion.
    #[inline]
    pub fn send_inline(&mut self, vi: Vi, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let limit = self.attributes.max_inline;
        let Some(core) = self.vis.get_mut(vi.0) else { return Err(Error::InvalidHandle("VI")) };
        if bytes.len() > limit || bytes.len() > core.attributes.max_transfer_size as usize {
            return Err(Error::Limit { what: "bytes sent inline", limit: limit as u64 });
        }
        let Some(endpoint) = core.endpoint.as_mut() else {
            return Err(Error::InvalidState { call: "send_inline", wanted: "connected", found: core.state });
        };
        if core.send.waiting() > 0 {
            return Err(Error::Busy);
        }
        match endpoint.submit_inline(bytes, immediate) {
            Submit::Done | Submit::Pending => {
                self.counters.add(Counter::InlineSends, 1);
                self.counters.add(Counter::BytesSent, bytes.len() as u64);
                Ok(())
            }
            Submit::Busy => Err(Error::Busy),
            Submit::Failed(_) => {
                self.break_vi(vi, Fault::Lost);
                Err(Error::InvalidState { call: "send_inline", wanted: "connected", found: ViState::Error })
            }
        }
    }

    /// Posts several descriptors; on the first refusal the rest is given back.
    pub fn post_send_batch(
        &mut self,
        vi: Vi,
        batch: impl IntoIterator<Item = Descriptor>,
    ) -> Result<usize, (usize, PostError)> {
        let mut posted = 0;
        for descriptor in batch {
            self.post_send(vi, descriptor).map_err(|e| (posted, e))?;
            posted += 1;
        }
        Ok(posted)
    }

    /// The next completion of the send queue, if it is there.
    #[inline]
    pub fn poll_send(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        self.poll_queue::<false>(vi)
    }

    /// The next completion of the receive queue, if it is there.
    #[inline]
    pub fn poll_recv(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        self.poll_queue::<true>(vi)
    }

    /// The next completion of any queue bound to a completion queue, if there is one.
    #[inline]
    pub fn poll_cq(&mut self, cq: Cq) -> Result<Option<Completion>, Error> {
        loop {
            let Some((vi, queue)) = self.next_entry(cq)? else { return Ok(None) };
            if let Some(completion) = self.take_completion(vi, queue) {
                return Ok(Some(completion));
            }
        }
    }

    /// Up to `most` completions at once.
    pub fn poll_cq_batch(&mut self, cq: Cq, into: &mut Vec<Completion>, most: usize) -> Result<usize, Error> {
        let before = into.len();
        while into.len() - before < most {
            match self.poll_cq(cq)? {
                Some(completion) => into.push(completion),
                None => break,
            }
        }
        Ok(into.len() - before)
    }

    /// The next entry of a completion queue as VIA has it: which VI and which queue. The completion is then taken
    /// with [`poll_send`](Self::poll_send) or [`poll_recv`](Self::poll_recv), which succeed at once.
    #[inline]
    pub fn poll_cq_entry(&mut self, cq: Cq) -> Result<Option<(Vi, Queue)>, Error> {
        let entry = self.next_entry(cq)?;
        if let Some((vi, queue)) = entry
            && let Some(core) = self.vis.get_mut(vi.0)
        {
            core.owed[queue as usize] += 1;
        }
        Ok(entry)
    }

    #[inline]
    fn next_entry(&mut self, cq: Cq) -> Result<Option<(Vi, Queue)>, Error> {
        self.check_fork()?;
        let core = self.cqs.get_mut(cq.0).ok_or(Error::InvalidHandle("completion queue"))?;
        if let Some(entry) = core.pop() {
            return Ok(Some(entry));
        }
        self.progress_cq(cq);
        Ok(self.cqs.get_mut(cq.0).and_then(|c| c.pop()))
    }

    /// An unsignalled descriptor that is done, to be used again.
    pub fn reclaim(&mut self, vi: Vi) -> Option<Descriptor> {
        self.vis.get_mut(vi.0)?.reclaimed.pop()
    }

    /// The queue is known when this is compiled: one straight path for each.
    #[inline]
    fn poll_queue<const RECEIVE: bool>(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        let queue = if RECEIVE { Queue::Receive } else { Queue::Send };
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if self.signal.has_events() {
            self.process_events();
        }
        let Some(core) = self.vis.get_mut(vi.0) else { return Err(Error::InvalidHandle("VI")) };
        if !core.queue_mut(queue).head_done() {
            if core.watch.is_quiet() && !self.signal.is_announced() {
                return Ok(None);
            }
            if RECEIVE && let Some(taken) = core.take_small() {
                self.counters.add(Counter::Receives, 1);
                return Ok(Some(Completion::new(vi, queue, taken)));
            }
            let progress = core.progress(&mut self.srqs);
            if progress.received > 0 {
                self.counters.add(Counter::Receives, u64::from(progress.received));
            }
            if core.bound || progress.is_unusual() {
                self.after_progress(vi, progress);
                return Ok(self.take_settled(vi, queue));
            }
        } else if core.bound {
            return Ok(self.take_settled(vi, queue));
        }
        match core.queue_mut(queue).pop() {
            None => Ok(None),
            Some(taken) if !RECEIVE && is_silent(&taken) => {
                core.reclaimed.push(taken.0);
                Ok(self.take_settled(vi, queue))
            }
            Some(taken) => Ok(Some(Completion::new(vi, queue, taken))),
        }
    }

    /// Takes a completion, and its entry in the completion queue with it.
    fn take_settled(&mut self, vi: Vi, queue: Queue) -> Option<Completion> {
        let completion = self.take_completion(vi, queue);
        if completion.is_some() {
            self.settle_entry(vi, queue);
        }
        completion
    }

    /// Whether the next completion of a queue is there, after some progress.
    pub(crate) fn queue_ready(&mut self, vi: Vi, queue: Queue) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        self.progress_vi(vi);
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        Ok(core.queue_mut(queue).head_done())
    }

    /// Whether a completion queue has an entry, after some progress.
    pub(crate) fn cq_ready(&mut self, cq: Cq) -> Result<bool, Error> {
        self.check_fork()?;
        if self.cqs.get(cq.0).ok_or(Error::InvalidHandle("completion queue"))?.is_empty() {
            self.progress_cq(cq);
        }
        Ok(self.cqs.get(cq.0).is_some_and(|c| !c.is_empty()))
    }

    /// A completion of a bound queue was taken directly: its entry was fetched before, or goes with it.
    #[inline]
    fn settle_entry(&mut self, vi: Vi, queue: Queue) {
        let Some(cq) = self.bound_cq(vi, queue) else { return };
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        let owed = &mut core.owed[queue as usize];
        if *owed > 0 {
            *owed -= 1;
        } else if let Some(cq) = self.cqs.get_mut(cq.0) {
            cq.forget(vi, queue);
        }
    }

    fn bound_cq(&self, vi: Vi, queue: Queue) -> Option<Cq> {
        let core = self.vis.get(vi.0)?;
        match queue {
            Queue::Send => core.attributes.send_cq,
            Queue::Receive => core.attributes.recv_cq,
        }
    }

    /// Takes the oldest completion of a queue; unsignalled successes are put aside.
    #[inline]
    fn take_completion(&mut self, vi: Vi, queue: Queue) -> Option<Completion> {
        let core = self.vis.get_mut(vi.0)?;
        let cq = match queue {
            Queue::Send => core.attributes.send_cq,
            Queue::Receive => core.attributes.recv_cq,
        };
        loop {
            let taken = core.queue_mut(queue).pop()?;
            if let Some(cq) = cq
                && let Some(cq) = self.cqs.get_mut(cq.0)
                && (core.attributes.srq.is_none() || queue == Queue::Send)
            {
                cq.release();
            }
            if is_silent(&taken) {
                core.reclaimed.push(taken.0);
                continue;
            }
            return Some(Completion::new(vi, queue, taken));
        }
    }

    /// Moves one VI on.
    #[inline]
    pub(crate) fn progress_vi(&mut self, vi: Vi) -> u32 {
        let Some(core) = self.vis.get_mut(vi.0) else { return 0 };
        let progress = core.progress(&mut self.srqs);
        if progress.received > 0 {
            self.counters.add(Counter::Receives, u64::from(progress.received));
        }
        if core.bound || progress.is_unusual() {
            self.after_progress(vi, progress);
        }
        progress.received
    }

    /// Announces what progress brought about, and deals with what went wrong.
    fn after_progress(&mut self, vi: Vi, progress: Progress) {
        let Progress { fault, dropped, .. } = progress;
        self.settle(vi);
        if dropped > 0 {
            self.counters.add(Counter::Dropped, u64::from(dropped));
            let code = crate::event::ErrorCode::ReceiveQueueEmpty;
            (0..dropped).for_each(|_| self.errors.raise(ErrorEvent { vi, code }));
        }
        if let Some(fault) = fault {
            self.break_vi(vi, fault);
        }
    }

    /// Announces what is done in order to the completion queues.
    #[inline]
    pub(crate) fn settle(&mut self, vi: Vi) {
        self.settle_send(vi);
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        if let Some(cq) = core.attributes.recv_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            while let Some(wanted) = core.recv.settle() {
                if wanted {
                    cq.push(vi, Queue::Receive);
                }
            }
        }
    }

    #[inline]
    fn settle_send(&mut self, vi: Vi) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        if let Some(cq) = core.attributes.send_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            while let Some(wanted) = core.send.settle() {
                if wanted {
                    cq.push(vi, Queue::Send);
                }
            }
            if !core.hot && core.sends_outstanding() {
                // In both its completion queues: a hot VI is not announced, so neither may wait to be told.
                self.heat(vi);
            }
        }
    }

    /// A connection broke: flush, error state, callback.
    #[cold]
    pub(crate) fn break_vi(&mut self, vi: Vi, fault: Fault) {
        self.counters.add(Counter::Breaks, 1);
        self.end_connection(vi, ViState::Error);
        if let Some(code) = code_of(fault) {
            self.errors.raise(ErrorEvent { vi, code });
        }
    }

    /// Closes the endpoint, flushes and announces.
    pub(crate) fn end_connection(&mut self, vi: Vi, state: ViState) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        let unfinished = u64::from(core.send.not_done() + core.recv.not_done());
        core.unbind(state);
        self.counters.add(Counter::Flushed, unfinished);
        self.settle(vi);
    }
}

#[inline]
fn check_send(work: &Work, core: &ViCore, max_segments: usize) -> Status {
    if work.segments.len() > max_segments {
        return Status::FormatError;
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

/// Every segment inside its region, and the region under the VI's tag, if that is known.
#[inline]
fn check_segments(
    work: &mut Work,
    tag: Option<crate::handle::ProtectionTag>,
    mem: &MemTable,
    counters: &crate::counters::CounterSlot,
) -> Status {
    let single = work.segments.len() == 1;
    work.locator = None;
    for segment in &work.segments {
        if segment.handle == MemHandle::NONE {
            counters.add(Counter::ImplicitRegistrations, 1);
            continue;
        }
        let Some(region) = mem.get(segment.handle) else { return Status::ProtectionError };
        let addr = segment.addr as u64;
        if !region.contains(addr, u64::from(segment.len)) || tag.is_some_and(|t| t != region.attributes.ptag)
        {
            return Status::ProtectionError;
        }
        if single && let Some(at) = region.locator {
            let offset = at.offset + (addr - region.base);
            work.locator = Some(crate::raw::Locator { slab: at.slab, offset });
        }
    }
    Status::Success
}

/// Whether nobody is to be told of it.
#[inline]
fn is_silent((descriptor, outcome): &(Descriptor, Outcome)) -> bool {
    descriptor.work().unsignalled && outcome.status.is_success()
}

#[inline]
fn count_send(work: &Work, counters: &crate::counters::CounterSlot) {
    let (ops, bytes) = match work.op {
        Op::RdmaWrite => (Counter::RdmaWrites, Counter::BytesWritten),
        Op::RdmaRead => (Counter::RdmaReads, Counter::BytesRead),
        Op::CompareSwap | Op::FetchAdd => (Counter::Atomics, Counter::BytesWritten),
        _ => (Counter::Sends, Counter::BytesSent),
    };
    counters.add(ops, 1);
    counters.add(bytes, u64::from(work.total));
}
