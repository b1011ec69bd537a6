//! Ends: a VI that its program is through with, and a NIC that is left at once.
//!
//! A VI that is retired while it sends stays in the table under a new handle until its sends are out, so that a server with one thread
//! is not held up by a client that reads nothing (record 30).

use std::fmt;
use std::time::Duration;

use viaduct_os::clock;

use crate::error::Error;
use crate::handle::{ProtectionTag, Vi};
use crate::nic::Nic;
use crate::vi::{Queue, ViState};

/// A VI that was retired while it was sending. Its handle is a new one, so that no call of the program can name it.
pub(crate) struct Leaving {
    vi: Vi,
    /// When it goes in any case, in clock nanoseconds.
    pub(crate) until: u64,
}

impl Nic {
    /// Ends the connection of a VI, if it has one, and destroys the VI: for a client that is gone, or that the program is
    /// through with. Whatever is still posted, or done and not yet taken, is dropped with its buffers; no completion of the
    /// VI comes any more, and its handle is no longer valid.
    ///
    /// The call does not wait. Sends that are under way go on in later calls of the NIC, as long as [`set_drain`](Self::set_drain)
    /// says; then the connection ends, and what was not out is lost with a warning in the log. [`disconnect`](Self::disconnect) and
    /// `destroy_vi` wait for them instead and tell what became of each. (A VI that draws from a shared receive queue is waited for:
    /// what arrives for it meanwhile would use up receives of others.)
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] if there is no such VI (any more); [`Error::Forked`].
    pub fn retire(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.attributes.srq.is_some() {
            self.drain(&[vi]);
        } else if !self.has_sent(vi) && !self.drain_limit().is_zero() {
            self.let_go(vi);
            return Ok(());
        }
        self.end(vi)
    }

    /// Takes a VI from the program and its completion queues, and leaves it to later calls.
    fn let_go(&mut self, vi: Vi) {
        let core = self.vis.get_mut(vi.0).expect("looked up by the caller");
        core.leaving = true;
        for (cq, entries) in core.leave_cqs().into_iter().flatten() {
            let Some(cq) = self.cqs.get_mut(cq.0) else { continue };
            cq.leave(vi);
            (0..entries).for_each(|_| cq.release());
        }
        if let Some(endpoint) = core.endpoint.as_mut() {
            // Every call looks at it.
            endpoint.set_armed(false);
        }
        let vi = Vi(self.vis.renew(vi.0).expect("found above"));
        let until = clock::now_ns().saturating_add(self.drain_limit().as_nanos() as u64);
        self.leaving.push(Leaving { vi, until });
        self.signal.set_leaving(true);
    }

    /// Moves retired VIs on, and destroys those that are through or have had their time.
    #[cold]
    pub(crate) fn move_leaving(&mut self) {
        let now = clock::now_ns();
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|&Leaving { vi, until }| {
            if self.is_sending(vi) && self.progress_vi(vi) > 0 {
                self.look_again();
            }
            let goes_on = self.is_sending(vi) && now < until;
            if !goes_on {
                let late = self.vis.get(vi.0).filter(|_| self.is_sending(vi));
                tell_lost("a VI was retired", 1, late.map_or(0, |core| core.send.not_done()));
                let _ = self.end(vi);
            }
            goes_on
        });
        self.signal.set_leaving(!leaving.is_empty());
        self.leaving = leaving;
    }

    /// Waits until the retired VIs with this tag have gone.
    pub(crate) fn finish_leaving(&mut self, tag: ProtectionTag) {
        let has_it = |vi: &Vi| self.vis.get(vi.0).is_some_and(|core| core.attributes.ptag == tag);
        let vis: Vec<Vi> = self.leaving.iter().map(|leaving| leaving.vi).filter(has_it).collect();
        if vis.is_empty() {
            return;
        }
        self.drain(&vis);
        self.leaving
            .iter_mut()
            .filter(|leaving| vis.contains(&leaving.vi))
            .for_each(|leaving| leaving.until = 0);
        self.move_leaving();
    }

    /// Ends the connection of a VI and destroys it with what is in its queues.
    fn end(&mut self, vi: Vi) -> Result<(), Error> {
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle || core.recv.not_done() > 0 {
            self.disconnect_now(vi)?;
        }
        for queue in [Queue::Send, Queue::Receive] {
            while self.take_with_entry(vi, queue).is_some() {}
        }
        self.destroy_vi(vi)
    }

    /// Ends the NIC at once: sends that are under way are not waited for, and are lost without a word. Dropping a NIC waits for them, as
    /// long as [`set_drain`](Self::set_drain) says.
    pub fn abandon(mut self) {
        self.set_drain(Duration::ZERO);
    }
}

/// Says that sends were discarded, if some were: no call is left that could.
pub(crate) fn tell_lost(why: &str, vis: u32, sends: u32) {
    if sends > 0 {
        tracing::warn!(sends, vis, "{why} before all its sends were out, and they are lost");
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic")
            .field("provider", &self.attributes().name)
            .field("vis", &self.vis.len())
            .field("cqs", &self.cqs.len())
            .field("regions", &self.mem.len())
            .finish_non_exhaustive()
    }
}
