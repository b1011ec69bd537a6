//! The builder of a connection request.

use std::time::Duration;

use crate::address::NetAddress;
use crate::attributes::RemoteAttributes;
use crate::error::Error;
use crate::handle::Vi;
use crate::nic::Nic;

/// A connection request that is being put together; [`wait`](Self::wait) or [`start`](Self::start) sends it.
#[derive(Debug)]
#[must_use = "a request is sent by wait or start"]
pub struct Connect<'a> {
    nic: &'a mut Nic,
    vi: Vi,
    remote: &'a NetAddress,
    local: Option<&'a NetAddress>,
    private_data: &'a [u8],
    timeout: Option<Duration>,
}

impl Nic {
    /// Asks for a connection of an idle VI with the listener at an address.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn f(nic: &mut viaduct_via::Nic, vi: viaduct_via::Vi) -> Result<(), viaduct_via::Error> {
    /// nic.connect(vi, &"kv".parse()?).timeout(Duration::from_secs(3)).private_data(b"version 2").wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect<'a>(&'a mut self, vi: Vi, remote: &'a NetAddress) -> Connect<'a> {
        Connect { nic: self, vi, remote, local: None, private_data: &[], timeout: None }
    }
}

impl<'a> Connect<'a> {
    /// Gives up after this time. Without it the request stands until it is answered, or the listener's process is gone.
    pub fn timeout(mut self, timeout: Duration) -> Connect<'a> {
        self.timeout = Some(timeout);
        self
    }

    /// Sends bytes along, which the listener finds in [`ConnRequest::remote`](crate::ConnRequest::remote).
    pub fn private_data(mut self, bytes: &'a [u8]) -> Connect<'a> {
        self.private_data = bytes;
        self
    }

    /// Names the address that the listener sees as the client's.
    pub fn named(mut self, local: &'a NetAddress) -> Connect<'a> {
        self.local = Some(local);
        self
    }

    /// Sends the request and waits for the answer: what the remote VI is, with the private data of the answer.
    ///
    /// # Errors
    /// [`Error::NoMatch`] if no listener is there, at once; [`Error::NoRoom`] if as many clients wait there as its backlog
    /// allows, at once, so that the caller may try again; [`Error::Rejected`]; [`Error::Timeout`]; [`Error::NotReachable`]; one of the mismatches; [`Error::InvalidState`] if the VI is not idle.
    pub fn wait(self) -> Result<RemoteAttributes, Error> {
        let (nic, vi) = self.send()?;
        nic.connect_finish(vi)
    }

    /// Sends the request. [`Nic::connect_poll`] tells the outcome, [`Nic::connect_finish`] waits for it, and
    /// [`SharedNic::connected`](crate::SharedNic::connected) is a future of it.
    ///
    /// # Errors
    /// [`Error::InvalidState`] if the VI is not idle; [`Error::NotReachable`]; [`Error::Limit`] for too much private data.
    pub fn start(self) -> Result<(), Error> {
        self.send().map(|_| ())
    }

    fn send(self) -> Result<(&'a mut Nic, Vi), Error> {
        self.nic.connect_start(self.vi, self.local, self.remote, self.private_data, self.timeout)?;
        Ok((self.nic, self.vi))
    }
}
