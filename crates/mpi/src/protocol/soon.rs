//! A receive that waits inside its caller's turn: it has no request, and no place among the posted ones. What a blocking
//! receive is as a rule, because its message is there already or comes before the caller has looked a few hundred times.

use std::sync::atomic::AtomicU8;

use super::core::{Core, Early, Port};
use super::receive::done_with;
use super::requests::{Receiving, Request, Senders, Status, Work};
use crate::error::{Error, Result};
use crate::matching::{Envelope, Pattern};
use crate::raw::Span;

/// A receive for the time of one turn.
#[derive(Debug)]
pub struct Soon<'a> {
    pattern: Pattern,
    span: &'a Span,
    state: State,
    status: Status,
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Done,
    /// Its message takes longer, and it has become a request.
    Begun(Request),
}

impl<'a> Soon<'a> {
    /// A receive into a span.
    pub fn new(pattern: Pattern, span: &'a Span) -> Soon<'a> {
        Soon { pattern, span, state: State::Waiting, status: Status::EMPTY, error: None }
    }

    /// Whether it has its message.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether nothing of its message has come.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// How it ended, if it has.
    #[inline]
    pub fn result(self) -> Result<Status> {
        self.error.map_or(Ok(self.status), Err)
    }

    /// Whether it takes a message that no posted receive took: those were there before it.
    #[inline]
    pub(super) fn takes(&self, envelope: &Envelope) -> bool {
        self.state == State::Waiting && self.pattern.takes(envelope)
    }

    /// The request that it has become, if its message is one that takes longer: in pieces, or announced.
    #[inline]
    pub fn request(&self) -> Option<Request> {
        if let State::Begun(request) = self.state { Some(request) } else { None }
    }

    #[inline]
    pub(super) fn fill(&mut self, envelope: &Envelope, bytes: &[AtomicU8]) {
        let want = bytes.len().min(self.span.bytes());
        self.span.unpack(0, &bytes[..want]);
        (self.state, self.status) = (State::Done, Status::of(envelope, want));
        if want < bytes.len() {
            self.error = done_with(envelope, bytes.len(), want).error;
        }
    }
}

impl Core {
    /// Whether a receive waits without a request. Not if its message is among those that came early, of which it gets one that
    /// is there as a whole; and not once a peer is gone.
    #[inline]
    pub fn may_wait_soon(&mut self, port: &mut impl Port, soon: &mut Soon<'_>) -> bool {
        !self.any_lost && (self.early.is_empty() || !self.receive_early(port, soon))
    }

    /// Makes a request of a receive whose message, of this peer, takes longer.
    pub(super) fn begin(&mut self, soon: &mut Soon<'_>, from: usize) -> Request {
        let from = Senders::One(from);
        let receiving = Receiving { span: soon.span.clone(), from, entry: None, matched: None };
        let request = self.requests.insert(Work::Recv(receiving), None);
        soon.state = State::Begun(request);
        request
    }

    /// Whether an early message is for this receive.
    fn receive_early(&mut self, port: &mut impl Port, soon: &mut Soon<'_>) -> bool {
        let Some(entry) = self.early.find(&soon.pattern) else { return false };
        if matches!(self.early.get(entry), Some((_, Early::Whole { .. })))
            && let Some((envelope, Early::Whole { peer, bytes, waits })) = self.early.remove(entry)
        {
            self.early_bytes -= bytes.len();
            soon.fill(&envelope, &bytes);
            self.consumed(port, peer, bytes.len(), waits);
        }
        true
    }
}
