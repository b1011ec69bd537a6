//! Asynchronous errors: what goes wrong outside any call or descriptor (VIA's error callback).

use std::collections::VecDeque;
use std::fmt;

use crate::handle::Vi;
use crate::queues::Fault;

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The connection was lost; the VI is in the error state.
    ConnectionLost,
    /// A message met no receive descriptor.
    ReceiveQueueEmpty,
    /// A message was longer than its receive descriptor.
    TooLong,
    /// A message met a receive descriptor whose memory it may not use.
    ReceiveProtection,
    /// A message met a receive descriptor that contradicts itself.
    BadReceive,
    /// A peer's RDMA operation was refused.
    RdmaWriteProtection,
    /// The peer broke the protocol, or the transport failed.
    Transport,
    /// A descriptor was posted that lies where it must not.
    BadDescriptor,
    /// More was posted than a queue holds.
    Overrun,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorCode::ConnectionLost => "connection lost",
            ErrorCode::ReceiveQueueEmpty => "a message met no receive descriptor",
            ErrorCode::TooLong => "a message was longer than its receive descriptor",
            ErrorCode::ReceiveProtection => {
                "a message met a receive descriptor that ends beyond its memory region, or whose region was withdrawn \
                 or has another protection tag"
            }
            ErrorCode::BadReceive => "a message met a receive descriptor that contradicts itself",
            ErrorCode::RdmaWriteProtection => "an RDMA operation of the peer was refused",
            ErrorCode::Transport => "the peer broke the protocol or the transport failed",
            ErrorCode::BadDescriptor => "a descriptor was posted that lies where it must not",
            ErrorCode::Overrun => "more was posted than the queue holds",
        })
    }
}

/// An asynchronous error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorEvent {
    /// Where.
    pub vi: Vi,
    /// What.
    pub code: ErrorCode,
    /// The number of the descriptor that it is about, or 0.
    pub context: u64,
}

impl fmt::Display for ErrorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VI {}: {}", self.vi.raw().index, self.code)
    }
}

/// Handler of asynchronous errors. It runs inside whichever call noticed the error.
pub type ErrorHandler = Box<dyn FnMut(&ErrorEvent) + Send>;

/// Errors kept for [`Nic::take_error`](crate::Nic::take_error) when there is no handler.
const KEPT: usize = 64;

#[derive(Default)]
pub(crate) struct ErrorSink {
    handler: Option<ErrorHandler>,
    kept: VecDeque<ErrorEvent>,
}

impl ErrorSink {
    pub(crate) fn set(&mut self, handler: Option<ErrorHandler>) {
        self.handler = handler;
    }

    pub(crate) fn raise(&mut self, event: ErrorEvent) {
        match self.handler.as_mut() {
            Some(handler) => handler(&event),
            None => {
                // That a peer has died is told by completions, too, and is ordinary life for a server.
                match event.code {
                    ErrorCode::ConnectionLost => tracing::info!(vi = ?event.vi, "{}", event.code),
                    code => tracing::warn!(vi = ?event.vi, "{code}"),
                }
                if self.kept.len() == KEPT {
                    self.kept.pop_front();
                }
                self.kept.push_back(event);
            }
        }
    }

    /// Whether events are kept that the application can fetch.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<ErrorEvent> {
        self.kept.pop_front()
    }
}

/// The error to raise for a fault; a clean disconnect raises none.
pub(crate) fn code_of(fault: Fault) -> Option<ErrorCode> {
    match fault {
        Fault::Disconnected | Fault::Remote(_) => None,
        Fault::Lost => Some(ErrorCode::ConnectionLost),
        Fault::ReceiveQueueEmpty => Some(ErrorCode::ReceiveQueueEmpty),
        Fault::TooLong => Some(ErrorCode::TooLong),
        Fault::ReceiveProtection => Some(ErrorCode::ReceiveProtection),
        Fault::BadReceive => Some(ErrorCode::BadReceive),
        Fault::Protocol => Some(ErrorCode::Transport),
        Fault::RdmaRefused => Some(ErrorCode::RdmaWriteProtection),
    }
}
