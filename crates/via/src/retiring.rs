//! Ends: a VI that its program is through with, and a NIC that is left at once.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;
use crate::vi::ViState;

impl Nic {
    /// Ends the connection of a VI, if it has one, and destroys the VI: for a client that is gone, or that the program is
    /// through with. Whatever is still posted, or done and not yet taken, is dropped with its buffers; no completion of the
    /// VI comes any more.
    ///
    /// Sends that are under way are waited for first, as [`disconnect`](Self::disconnect) does.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] if there is no such VI (any more); [`Error::Forked`].
    pub fn retire(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle || core.recv.not_done() > 0 {
            self.disconnect(vi)?;
        }
        while self.poll_send(vi)?.is_some() {}
        while self.poll_recv(vi)?.is_some() {}
        self.destroy_vi(vi)
    }

    /// Ends the NIC at once: sends that are under way are not waited for, and are lost. Dropping a NIC waits for them, as
    /// long as [`set_drain`](Self::set_drain) says.
    pub fn abandon(mut self) {
        self.set_drain(Duration::ZERO);
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
