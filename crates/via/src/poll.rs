//! Polling: the completions of queues and completion queues. No allocation, no lock, no system call.
//!
//! A receive has a path of its own for what one waits for most: a small message goes from the transport into the
//! descriptor that is next and out to the caller, past the ledger's outcome and the completion queue.

use crate::completion::Completion;
use crate::counters::Counter;
use crate::cq::CqCore;
use crate::descriptor::Descriptor;
use crate::error::Error;
use crate::handle::{Cq, Vi};
use crate::nic::Nic;
use crate::queue::Outcome;
use crate::vi::{FastReceive, Queue, ViCore};

impl Nic {
    /// The next completion of the send queue, if it is there.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`]. How a descriptor ended is its [`status`](Completion::status), which the caller
    /// looks at: [`Completion::ok`], or the poll of a view, which gives an [`Ended`](crate::Ended).
    #[must_use = "what came back has its status, which says whether it was carried out: `Completion::ok` makes an error of a failure"]
    #[inline(always)]
    pub fn poll_send(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        if !self.is_forked()
            && let Some(core) = self.vis.get_mut(vi.0)
            && core.plain
            && let Some(taken) = core.send.pop()
        {
            if is_silent(&taken) {
                core.put_aside(taken.0);
                return self.poll_queue::<false>(vi);
            }
            return Ok(Some(Completion::new(vi, Queue::Send, taken)));
        }
        self.poll_queue::<false>(vi)
    }

    /// The next completion of the receive queue, if it is there.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`]. How a descriptor ended is its [`status`](Completion::status), which the caller
    /// looks at: [`Completion::ok`], or the poll of a view, which gives an [`Ended`](crate::Ended).
    #[must_use = "what came back has its status, which says whether it was carried out: `Completion::ok` makes an error of a failure"]
    #[inline(always)]
    pub fn poll_recv(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        if !self.is_forked()
            && self.signal.is_undisturbed()
            && let Some(core) = self.vis.get_mut(vi.0)
            && core.plain
        {
            match core.poll_recv_fast() {
                FastReceive::Taken(taken) => {
                    self.count_receives(1, u64::from(taken.1.length));
                    return Ok(Some(Completion::new(vi, Queue::Receive, taken)));
                }
                FastReceive::Nothing => return Ok(None),
                FastReceive::No => {}
            }
        }
        self.poll_queue::<true>(vi)
    }

    /// Up to `most` completions of the receive queue. Nothing is allocated if `into` has room for them.
    ///
    /// # Errors
    /// As of [`poll_recv`](Self::poll_recv).
    pub fn poll_recv_batch(
        &mut self,
        vi: Vi,
        into: &mut Vec<Completion>,
        most: usize,
    ) -> Result<usize, Error> {
        let before = into.len();
        if !self.is_forked()
            && self.signal.is_undisturbed()
            && let Some(core) = self.vis.get_mut(vi.0)
            && core.plain
        {
            let (mut bytes, mut nothing) = (0, false);
            while into.len() - before < most && !nothing {
                match core.poll_recv_fast() {
                    FastReceive::Taken(taken) => {
                        bytes += u64::from(taken.1.length);
                        into.push(Completion::new(vi, Queue::Receive, taken));
                    }
                    FastReceive::Nothing => nothing = true,
                    FastReceive::No => break,
                }
            }
            let found = into.len() - before;
            if found > 0 {
                self.count_receives(found, bytes);
            }
            if nothing || found == most {
                return Ok(found);
            }
        }
        while into.len() - before < most
            && let Some(completion) = self.poll_recv(vi)?
        {
            into.push(completion);
        }
        Ok(into.len() - before)
    }

    #[inline]
    fn count_receives(&self, messages: usize, bytes: u64) {
        self.counters.add(Counter::Receives, messages as u64);
        self.counters.add(Counter::BytesReceived, bytes);
    }

    /// The next completion of any queue bound to a completion queue, if there is one.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`]. How a descriptor ended is its [`status`](Completion::status), which the caller
    /// looks at: [`Completion::ok`], or the poll of a view, which gives an [`Ended`](crate::Ended).
    // Always inside its caller: what a call hands back through memory, written in parts and copied as a whole, is waited
    // for until the parts have left the store buffer, and that is as long as half of the rest.
    #[must_use = "what came back has its status, which says whether it was carried out: `Completion::ok` makes an error of a failure"]
    #[inline(always)]
    pub fn poll_cq(&mut self, cq: Cq) -> Result<Option<Completion>, Error> {
        if self.is_forked() {
            return self.poll_cq_fully(cq);
        }
        let Some(core) = self.cqs.get_mut(cq.0) else { return self.poll_cq_fully(cq) };
        if !core.is_empty() {
            return self.poll_cq_listed(cq);
        }
        // First a small message on the VI that is most likely to have one.
        let mut looked = 0;
        if self.signal.is_undisturbed()
            && !core.others_are_due()
            && let Some(vi) = core.likely()
            && let Some(found) = self.vis.get_mut(vi.0)
            && found.receives_into(cq)
        {
            match found.poll_recv_fast() {
                FastReceive::Taken(taken) => {
                    found.idle_polls = 0;
                    core.release_past_list(core.start, vi);
                    self.count_receives(1, u64::from(taken.1.length));
                    return Ok(Some(Completion::new(vi, Queue::Receive, taken)));
                }
                FastReceive::Nothing if core.is_alone() => return Ok(None),
                FastReceive::Nothing => looked = 1,
                FastReceive::No => {}
            }
        }
        self.poll_cq_unlisted(cq, looked)
    }

    /// The completion of the oldest entry.
    #[inline(never)]
    fn poll_cq_listed(&mut self, cq: Cq) -> Result<Option<Completion>, Error> {
        if let Some(core) = self.cqs.get_mut(cq.0)
            && let Some((vi, queue)) = core.pop()
            && let Some(found) = self.vis.get_mut(vi.0)
            && let Some(taken) = take_entry(found, core, queue)
        {
            return Ok(Some(Completion::new(vi, queue, taken)));
        }
        self.poll_cq_fully(cq)
    }

    /// With nothing listed: a small message on one of the hot VIs, of which so many were looked at, or nothing anywhere,
    /// or a full look.
    #[inline(never)]
    fn poll_cq_unlisted(&mut self, cq: Cq, looked: usize) -> Result<Option<Completion>, Error> {
        if self.signal.is_undisturbed()
            && let Some(core) = self.cqs.get_mut(cq.0)
            && !core.asks_the_others()
        {
            let mut at = core.start + looked;
            for _ in looked..core.hot.len() {
                at = if at < core.hot.len() { at } else { 0 };
                let vi = core.hot[at];
                let Some(found) = self.vis.get_mut(vi.0) else { return self.poll_cq_fully(cq) };
                if !found.receives_into(cq) {
                    return self.poll_cq_fully(cq);
                }
                let taken = match found.poll_recv_fast() {
                    FastReceive::Taken(taken) => taken,
                    FastReceive::Nothing => {
                        at += 1;
                        continue;
                    }
                    FastReceive::No => return self.poll_cq_fully(cq),
                };
                found.idle_polls = 0;
                core.release_past_list(at, vi);
                self.count_receives(1, u64::from(taken.1.length));
                return Ok(Some(Completion::new(vi, Queue::Receive, taken)));
            }
            if !core.has_cold() {
                return Ok(None);
            }
            // Now and then the full look, which also lets VIs cool; else the doorbells of the cold ones.
            if !core.is_scrub_due() {
                self.provider.ready(&mut self.ready);
                if self.ready.is_empty() {
                    return Ok(None);
                }
            }
        }
        self.poll_cq_fully(cq)
    }

    #[inline(never)]
    fn poll_cq_fully(&mut self, cq: Cq) -> Result<Option<Completion>, Error> {
        while let Some((vi, queue)) = self.next_entry(cq)? {
            if let Some(completion) = self.take_completion(vi, queue) {
                return Ok(Some(completion));
            }
        }
        Ok(None)
    }

    /// Up to `most` completions at once.
    ///
    /// # Errors
    /// As of [`poll_cq`](Self::poll_cq).
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
    ///
    /// # Errors
    /// As of [`poll_cq`](Self::poll_cq).
    #[doc(hidden)]
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

    /// Drops the copies of messages that were sent, up to the first descriptor of the program's, or one that is not done.
    pub(crate) fn drop_copies(&mut self, vi: Vi) {
        let Some(core) = self.vis.get_mut(vi.0) else { return };
        let mut cq = core.cq_of(Queue::Send).and_then(|cq| self.cqs.get_mut(cq.0));
        while core.send.head_is_sent_copy() && core.send.pop().is_some() {
            if let Some(cq) = &mut cq {
                cq.release();
            }
        }
    }

    /// The queue is known when this is compiled: one fast path for each.
    #[inline(never)]
    fn poll_queue<const RECEIVE: bool>(&mut self, vi: Vi) -> Result<Option<Completion>, Error> {
        let queue = if RECEIVE { Queue::Receive } else { Queue::Send };
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let calm = self.signal.is_undisturbed();
        if !calm {
            self.process_events();
        }
        let Some(core) = self.vis.get_mut(vi.0) else { return Err(Error::InvalidHandle("VI")) };
        let mut taken = 0;
        if !core.queue_mut(queue).head_done() {
            // News may be of an end, which what is watched does not show.
            if calm && core.watch.is_quiet() {
                return Ok(None);
            }
            taken = self.progress_vi(vi);
        }
        let completion = self.take_with_entry(vi, queue);
        if completion.is_none() && taken > 0 {
            self.look_again();
        }
        Ok(completion)
    }

    /// Takes a completion, and its entry in the completion queue with it.
    pub(crate) fn take_with_entry(&mut self, vi: Vi, queue: Queue) -> Option<Completion> {
        let completion = self.take_completion(vi, queue);
        if completion.is_some() {
            self.forget_entry(vi, queue);
        }
        completion
    }

    /// Whether the next completion of a queue is there, after some progress.
    pub(crate) fn queue_ready(&mut self, vi: Vi, queue: Queue) -> Result<bool, Error> {
        self.check_fork()?;
        self.process_events();
        let taken = self.progress_vi(vi);
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        let ready = core.queue_mut(queue).head_done();
        if !ready && taken > 0 {
            self.look_again();
        }
        Ok(ready)
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
    fn forget_entry(&mut self, vi: Vi, queue: Queue) {
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
        self.vis.get(vi.0)?.cq_of(queue)
    }

    /// Takes the oldest completion of a queue.
    #[inline]
    fn take_completion(&mut self, vi: Vi, queue: Queue) -> Option<Completion> {
        let core = self.vis.get_mut(vi.0)?;
        let taken = match core.cq_of(queue).and_then(|cq| self.cqs.get_mut(cq.0)) {
            Some(cq) => take_entry(core, cq, queue),
            None => take(core, queue, || {}),
        };
        Some(Completion::new(vi, queue, taken?))
    }
}

/// Takes the oldest completion of a queue that is bound to this completion queue.
#[inline(always)]
fn take_entry(core: &mut ViCore, cq: &mut CqCore, queue: Queue) -> Option<(Descriptor, Outcome)> {
    // What is drawn from a shared receive queue had no entry reserved when it was posted.
    let reserved = queue == Queue::Send || core.own_receives;
    take(core, queue, || {
        if reserved {
            cq.release();
        }
    })
}

/// Takes the oldest completion of a queue; unsignalled successes are put aside. Each one that leaves is told of.
#[inline(always)]
fn take(core: &mut ViCore, queue: Queue, mut left: impl FnMut()) -> Option<(Descriptor, Outcome)> {
    loop {
        let taken = core.queue_mut(queue).pop()?;
        left();
        if !is_silent(&taken) {
            return Some(taken);
        }
        core.put_aside(taken.0);
    }
}

/// Whether it gives no completion: unsignalled, and carried out without an error.
#[inline]
fn is_silent((descriptor, outcome): &(Descriptor, Outcome)) -> bool {
    descriptor.work().unsignalled && outcome.status.is_success()
}
