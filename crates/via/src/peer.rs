//! What one end of a connection does to the other beside messages: it wakes the peer, and reads its memory.

use std::time::Duration;

use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;
use crate::value::not_connected;

impl Nic {
    /// Wakes the peer of a VI, so that it looks again at whatever it waits for. Carries nothing: no receive is used up, and
    /// neither end gets a completion.
    ///
    /// RDMA and atomics without immediate data wake no process: their target may sleep on. After such an operation has
    /// *completed*, a nudge on its VI lets the target find out what has changed in its memory, in
    /// [`wait_for`](Self::wait_for) or in any other wait of its NIC, on its pollable descriptor too. Where the peer is awake
    /// a nudge costs as much as a look at a word.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::InvalidState`] if it is not connected, [`Error::Forked`].
    pub fn nudge(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        let Some(endpoint) = core.endpoint.as_mut() else { return Err(not_connected("nudge", core.state)) };
        endpoint.nudge();
        Ok(())
    }

    /// Waits until `look` finds something. It is called at once, while this thread spins, and again whenever something wakes
    /// the NIC: a message, a [nudge](Self::nudge), the end of a peer. `look` polls what it needs of the NIC by itself.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Forked`].
    pub fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        look: impl FnMut(&mut Nic) -> Option<T>,
    ) -> Result<T, Error> {
        self.check_fork()?;
        self.wait_until(timeout, look)
    }

    /// Whether [`read_private`](Self::read_private) works on this connection: both ends are processes of one user on one
    /// host, and the kernel let us read the peer's memory when they connected.
    pub fn can_read_private(&self, vi: Vi) -> bool {
        let endpoint = self.vis.get(vi.0).and_then(|core| core.endpoint.as_ref());
        !self.is_forked() && endpoint.is_some_and(|endpoint| endpoint.reads_private())
    }

    /// Copies memory of the peer's process that need not be registered, by the kernel and without the peer's help. The
    /// address and the length are the peer's word, told in a message; the peer keeps the memory until it hears that it was
    /// read.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where [`can_read_private`](Self::can_read_private) says so; [`Error::InvalidParameter`] if the
    /// peer has no such memory, and [`Error::NotReachable`] if it is gone. `into` may have changed then.
    pub fn read_private(&mut self, vi: Vi, address: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        match core.endpoint.as_mut() {
            Some(endpoint) => endpoint.read_private(address, into),
            None => Err(not_connected("read_private", core.state)),
        }
    }
}
