//! An endpoint on a hub, and the link between two of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use viaduct_via::provider::{Endpoint, Sleeper, Small, Submit};
use viaduct_via::raw::WatchWord;
use viaduct_via::{Error, Op, ProtectionTag, Queues, Reach, Reliability, RemoteAddress, Status, Vi, Work};

use super::Hub;
use super::progress::{gather, rdma};
use crate::parties::READ_PRIVATE;

/// Messages a direction holds before the sender must wait.
const WINDOW: usize = 256;

/// Which end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::A { Side::B } else { Side::A }
    }
}

/// Two directions between two endpoints.
#[derive(Default)]
pub(super) struct Link {
    ends: [Mutex<End>; 2],
}

/// What one end has to look at.
#[derive(Default)]
pub(super) struct End {
    pub(super) inbox: VecDeque<Packet>,
    /// Outcomes of messages sent with reliable reception, in order.
    pub(super) acks: VecDeque<Status>,
    pub(super) armed: bool,
    /// The other end is closed.
    pub(super) closed: bool,
}

/// A message under way.
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<u32>,
    /// Bytes an RDMA write has placed already; this only uses up a receive.
    pub(super) written: Option<u32>,
}

pub(super) struct LoopbackVi {
    pub(super) hub: Hub,
    link: Arc<Link>,
    side: Side,
    pub(super) reliability: Reliability,
    peer: (u64, Vi),
    pub(super) peer_tag: ProtectionTag,
    /// Sends that wait for the receiver's word, by ledger index and length.
    pub(super) unacknowledged: VecDeque<(u32, u32)>,
    dead: bool,
}

impl LoopbackVi {
    pub(super) fn new(
        hub: Hub,
        link: Arc<Link>,
        side: Side,
        reliability: Reliability,
        peer: (u64, Vi),
        peer_tag: ProtectionTag,
    ) -> LoopbackVi {
        LoopbackVi {
            hub,
            link,
            side,
            reliability,
            peer,
            peer_tag,
            unacknowledged: VecDeque::new(),
            dead: false,
        }
    }

    pub(super) fn with_end<R>(&self, ours: bool, f: impl FnOnce(&mut End) -> R) -> R {
        let side = if ours { self.side } else { self.side.other() };
        f(&mut self.link.ends[side as usize].lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Puts a message into the peer's inbox; false if its window is full.
    fn push(&self, packet: Packet) -> bool {
        let armed = self.with_end(false, |end| {
            if end.inbox.len() >= WINDOW {
                return None;
            }
            end.inbox.push_back(packet);
            Some(end.armed)
        });
        let Some(armed) = armed else { return false };
        self.tell_peer(armed);
        true
    }

    pub(super) fn tell_peer(&self, armed: bool) {
        let mut hub = self.hub.lock();
        if let Some(nic) = hub.nics.get_mut(&self.peer.0) {
            if armed && !nic.ready.contains(&self.peer.1) {
                nic.ready.push(self.peer.1);
            }
            nic.bell.ring();
        }
    }

    fn is_closed(&self) -> bool {
        self.dead || self.with_end(true, |end| end.closed)
    }

    pub(super) fn peer_nic(&self) -> u64 {
        self.peer.0
    }
}

// SAFETY: bytes are gathered at `submit` and scattered by `judge_message` in `poll`; nothing is kept in between.
unsafe impl Endpoint for LoopbackVi {
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit {
        if self.is_closed() {
            return Submit::Busy; // poll reports the break and everything is flushed
        }
        if work.op.is_rdma() {
            if work.immediate.is_some() && self.with_end(false, |end| end.inbox.len() >= WINDOW) {
                return Submit::Busy;
            }
            if let Err(status) = rdma(self, work) {
                return Submit::Failed(status);
            }
            let Some(immediate) = work.immediate else { return Submit::Done };
            let packet = Packet { bytes: Vec::new(), immediate: Some(immediate), written: Some(work.total) };
            self.push(packet);
        } else {
            let packet = Packet { bytes: gather(work), immediate: work.immediate, written: None };
            if !self.push(packet) {
                return Submit::Busy;
            }
        }
        if self.reliability == Reliability::ReliableReception {
            self.unacknowledged.push_back((index, work.total));
            return Submit::Pending;
        }
        Submit::Done
    }

    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        self.submit_value(&[bytes], bytes.len() as u32, immediate)
    }

    fn most_by_value(&self) -> u32 {
        u32::MAX
    }

    fn submit_value(&mut self, parts: &[&[u8]], _: u32, immediate: Option<u32>) -> Submit {
        if self.is_closed() {
            return Submit::Busy;
        }
        let pushed = self.push(Packet { bytes: parts.concat(), immediate, written: None });
        if pushed && self.reliability == Reliability::ReliableReception {
            // No descriptor waits for the outcome, but it must be told apart from those of descriptors.
            self.unacknowledged.push_back((u32::MAX, u32::MAX));
        }
        if pushed { Submit::Done } else { Submit::Busy }
    }

    fn write_inline(&mut self, _: &[u8], _: RemoteAddress, _: Option<u32>) -> Submit {
        Submit::Busy
    }

    fn nudge(&mut self) {
        if !self.is_closed() {
            self.tell_peer(false);
        }
    }

    fn reads_private(&self) -> bool {
        false
    }

    fn read_private(&mut self, _: u64, _: &mut [u8]) -> Result<(), Error> {
        Err(Error::NotSupported(READ_PRIVATE))
    }

    fn take_small(&mut self, _: &Work) -> Option<Small> {
        None
    }

    fn watch(&self) -> WatchWord {
        WatchWord::NONE
    }

    fn tell_receives_from(&self) -> u32 {
        u32::MAX
    }

    fn recv_posted(&mut self, _: &Work, _: u32) {}

    fn poll(&mut self, queues: &mut Queues<'_>) {
        self.progress(queues);
    }

    fn set_armed(&mut self, armed: bool) {
        self.with_end(true, |end| end.armed = armed);
    }

    fn close(&mut self) {
        self.dead = true;
        let armed = self.with_end(false, |end| {
            end.closed = true;
            end.armed
        });
        self.with_end(true, |end| end.inbox.clear());
        self.tell_peer(armed);
        if let Some(nic) = self.hub.lock().nics.get(&self.peer.0) {
            nic.signal.post_events();
        }
    }

    fn provider(&self) -> &'static str {
        "loopback"
    }

    fn reach(&self) -> Reach {
        Reach::Messages
    }
}

impl Drop for LoopbackVi {
    fn drop(&mut self) {
        if !self.dead {
            self.close();
        }
    }
}

/// What a completed receive is said to have been.
pub(super) fn receive_op(packet: &Packet) -> Op {
    if packet.written.is_some() { Op::RemoteRdmaWrite } else { Op::Receive }
}
