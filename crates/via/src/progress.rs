//! Progress: moving VIs on, announcing what is done to completion queues, and the end of connections.

use crate::counters::Counter;
use crate::event::{ErrorEvent, code_of};
use crate::handle::Vi;
use crate::nic::Nic;
use crate::queues::Fault;
use crate::vi::{Progress, Queue, ViState};

impl Nic {
    /// Moves one VI on. How many messages were taken; if some were, there may be more to see.
    #[inline]
    pub(crate) fn progress_vi(&mut self, vi: Vi) -> u32 {
        let Some(core) = self.vis.get_mut(vi.0) else { return 0 };
        let progress = core.progress(&mut self.srqs);
        if progress.received > 0 {
            self.counters.add(Counter::Receives, u64::from(progress.received));
            self.counters.add(Counter::BytesReceived, progress.received_bytes);
        }
        if core.bound || progress.is_unusual() {
            self.after_progress(vi, progress);
        }
        progress.received + progress.dropped
    }

    /// A poll took messages and found nothing of what was asked for. A thread that is about to sleep polls again: an
    /// endpoint that took something need not have looked further, and the peer will not ring again for what is behind it.
    #[cold]
    pub(crate) fn look_again(&self) {
        if self.signal.is_announced() {
            self.sleeper.ring();
        }
    }

    /// Announces what progress brought about, and deals with what went wrong.
    pub(crate) fn after_progress(&mut self, vi: Vi, progress: Progress) {
        let Progress { fault, dropped, .. } = progress;
        self.announce_done(vi);
        let leaving = self.vis.get(vi.0).is_some_and(|core| core.leaving);
        if dropped > 0 {
            self.counters.add(Counter::Dropped, u64::from(dropped));
        }
        if dropped > 0 && !leaving {
            let code = crate::event::ErrorCode::ReceiveQueueEmpty;
            (0..dropped).for_each(|_| self.errors.raise(ErrorEvent { vi, code, context: 0 }));
        }
        if let Some(fault) = fault {
            self.break_vi(vi, fault);
        }
    }

    /// Announces what is done in order to the completion queues.
    #[inline]
    pub(crate) fn announce_done(&mut self, vi: Vi) {
        self.announce_sends(vi);
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        if let Some(cq) = core.attributes.recv_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            while let Some(wanted) = core.recv.announce_next() {
                if wanted {
                    cq.push(vi, Queue::Receive);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn announce_sends(&mut self, vi: Vi) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        if let Some(cq) = core.attributes.send_cq {
            let cq = self.cqs.get_mut(cq.0).expect("a bound completion queue cannot be destroyed");
            while let Some(wanted) = core.send.announce_next() {
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
        let core = self.vis.get(vi.0);
        let (peer, leaving) = core.map(|core| (core.peer_name(), core.leaving)).unwrap_or_default();
        tracing::debug!(vi = vi.0.index, peer, ?fault, "connection broken");
        self.end_connection(vi, ViState::Error);
        // The program knows nothing of a VI that it has retired.
        if let Some(code) = code_of(fault).filter(|_| !leaving) {
            self.errors.raise(ErrorEvent { vi, code, context: 0 });
        }
    }

    /// Closes the endpoint, flushes and announces.
    pub(crate) fn end_connection(&mut self, vi: Vi, state: ViState) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        let unfinished = u64::from(core.send.not_done() + core.recv.not_done());
        core.unbind(state);
        self.counters.add(Counter::Flushed, unfinished);
        self.announce_done(vi);
    }
}
