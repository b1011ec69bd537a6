//! The wait of a server: for clients and for their messages at once.

use std::time::Duration;

use crate::accepting::ConnRequest;
use crate::completion::Ended;
use crate::error::Error;
use crate::handle::{Cq, Listener};
use crate::nic::Nic;

/// Calls in which completions come first, between two in which a request does.
const COMPLETIONS_FIRST: u32 = 15;

/// What a server waits for.
#[derive(Debug)]
#[must_use = "a request is to be answered, and a completion holds its descriptor"]
pub enum Arrival {
    /// A descriptor came back, however it ended: [`Ended::ok`] tells messages from clients that are gone.
    Completion(Ended),
    /// A client asks for a connection.
    Request(ConnRequest),
}

impl Nic {
    /// Waits for a completion or a connection request, whichever comes first: the loop of a server. A client waits for a few
    /// completions at most, also where these never end.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn wait_any(
        &mut self,
        cq: Cq,
        listener: Listener,
        timeout: Option<Duration>,
    ) -> Result<Arrival, Error> {
        self.wait_until(timeout, |nic| nic.poll_any(cq, listener).transpose())?
    }

    /// A completion or a connection request, if one is there: of a call in sixteen the request first, else the completion.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn poll_any(&mut self, cq: Cq, listener: Listener) -> Result<Option<Arrival>, Error> {
        if self.listener_has_its_turn(listener, COMPLETIONS_FIRST)?
            && let Some(request) = self.poll_listener(listener)?
        {
            return Ok(Some(Arrival::Request(request)));
        }
        if let Some(completion) = self.poll_cq(cq)? {
            return Ok(Some(Arrival::Completion(Ended(completion))));
        }
        Ok(self.poll_listener(listener)?.map(Arrival::Request))
    }
}
