//! What a rank knows of another: its connection, what waits to be sent to it, and what was counted.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::flow::Flow;
use super::packet::Packet;
use super::pieces::Incoming;

/// Where the connection with a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// None was needed yet.
    Closed,
    /// Asked for.
    Opening,
    /// Packets can be sent.
    Open,
    /// The peer is gone.
    Lost,
}

/// Something that waits for a credit.
#[derive(Debug)]
pub(super) enum Item {
    /// A packet of the protocol's own.
    Control(Packet),
    /// The first packet of a request.
    First(u32),
}

/// Bytes of a long message on their way to its receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The request here.
    pub(super) request: u32,
    /// The receiver's, if it has asked.
    pub(super) target: u32,
    pub(super) at: usize,
    pub(super) end: usize,
}

/// Messages by protocol, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent whole.
    pub eager: u64,
    /// Announced, and sent when asked for.
    pub rendezvous: u64,
    /// Announced though short, for want of room at the receiver.
    pub no_room: u64,
    /// Read by this process out of registered memory of the sender.
    pub pulled: u64,
    /// Read by this process out of other memory of the sender: by the kernel.
    pub copied: u64,
    /// Received before their receive was posted.
    pub early: u64,
    /// Bytes of messages sent.
    pub bytes: u64,
    /// Packets sent for credits alone.
    pub credits: u64,
    /// Sends that had to wait for credits.
    pub waited: u64,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) state: PeerState,
    pub(super) finished: bool,
    /// Why the connection is over.
    pub(super) cause: Cow<'static, str>,
    pub(super) flow: Flow,
    pub(super) queue: VecDeque<Item>,
    /// The message that is being sent in pieces: everything else comes after it.
    pub(super) pieces: Option<Stream>,
    pub(super) streams: VecDeque<Stream>,
    /// The message that comes in pieces.
    pub(super) incoming: Option<Incoming>,
    pub(super) counts: Counts,
}

impl Peer {
    pub(super) fn new(credits: u16, room: u32) -> Peer {
        Peer {
            state: PeerState::Closed,
            finished: false,
            cause: Cow::Borrowed(""),
            flow: Flow::new(credits, room),
            queue: VecDeque::new(),
            pieces: None,
            incoming: None,
            streams: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Whether a packet can be sent past everything that waits.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        self.state == PeerState::Open
            && self.queue.is_empty()
            && self.pieces.is_none()
            && self.flow.may_send()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.pieces.is_none() && self.streams.is_empty()
    }

    pub(super) fn lose(&mut self, cause: Cow<'static, str>) {
        self.cause = cause;
        self.state = PeerState::Lost;
        self.queue.clear();
        (self.pieces, self.incoming) = (None, None);
        self.streams.clear();
    }
}
