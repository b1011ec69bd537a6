//! One connection: window, combining and state together.
//!
//! Every method is an event and returns what has to be done for it, in order. After [`Connection::lost`] and in the state
//! [`State::Closed`] nothing is ever to be sent again.

use viaduct_via::window::{Credits, Owed};

use super::combine::{Combine, Verdict};
use super::ring::{Incoming, Outgoing, SMALLEST, longest};
use super::state::State;
use crate::config::Config;
use crate::wire::{Greeting, Kind, Packet, RING_LEN};

/// How the bytes of a packet go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// In a message.
    Message,
    /// Into the peer's ring, at this offset.
    Ring(usize),
}

/// What a packet that came brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// A message of so many bytes.
    Message(usize),
    /// So many bytes that were written into our ring.
    Ring(usize),
}

/// A packet that was taken in.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// What has to be done for it.
    pub actions: Actions,
    /// Where in our ring its bytes lie, and the room they take, if they were written there.
    pub at: Option<(usize, usize)>,
}

/// What the engine has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send a packet without bytes.
    Control(Packet),
    /// Send the bytes of the combining buffer, so many.
    Held(Packet, usize, Way),
    /// Post so many receives more, and [say so](Connection::opened).
    Open(u32),
    /// The peer wants a ring: [offer one](Connection::offer).
    Offer,
    /// The connection is over; disconnect.
    End,
}

/// Most that one event asks for: a window to open, a FINACK, what is held, a FIN, the end.
const MOST: usize = 5;

/// What has to be done, in order. There is never more than this for one event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actions {
    list: [Option<Action>; MOST],
    len: usize,
}

impl Actions {
    fn push(&mut self, action: Action) {
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Action>, MOST>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter().flatten()
    }
}

/// How a request to send goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteStep {
    /// Copy all of it into the combining buffer; it is taken. Start the timer if it says so.
    Hold {
        /// Whether the buffer was empty.
        start_timer: bool,
    },
    /// Send what the combining buffer holds, so many bytes, and ask again.
    Flush(Packet, usize, Way),
    /// Send the first so many bytes of the request as a packet of their own.
    Send(Packet, usize, Way),
    /// Send this packet, and ask again.
    Ask(Packet),
    /// The window is shut, or the peer's ring is full.
    Wait,
    /// Our direction is closed, or the peer reads no more.
    Shut,
}

/// How a peer broke the rules. The connection is no good any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation(pub &'static str);

/// The protocol of one connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) state: State,
    pub(super) credits: Credits,
    pub(super) owed: Owed,
    /// Room in our ring that goes with what is owed, and how much of it may be.
    room_owed: usize,
    patience: usize,
    pub(super) combine: Combine,
    copy_max: usize,
    /// Longest packet for the peer, and the longest of them that is a message.
    mtu: usize,
    pub(super) small: usize,
    /// The peer's ring, once it is known.
    pub(super) out: Option<Outgoing>,
    /// Whether the peer was asked for it, or need not be.
    wanted: bool,
    /// Whether the peer may say where it is, which it does once.
    untold: bool,
    pub(super) our_mtu: usize,
    /// Whether we can have a ring, whether it was offered, and asked for; and the ring.
    has_ring: bool,
    offered: bool,
    asked: bool,
    inn: Option<Incoming>,
    /// The first packet, which is always a WAKEUP, has come.
    pub(super) awake: bool,
    /// A FIN goes out as soon as what is held has gone.
    pub(super) fin_wanted: bool,
    /// We read no more, and say so with the FIN.
    reads_no_more: bool,
    /// The peer reads no more.
    pub(super) peer_reads_no_more: bool,
    /// A write was refused for want of room, and no acknowledgement has come since.
    pub(super) blocked: bool,
}

impl Connection {
    /// A connection that was just established, with the packet to begin with. `ours` and `peer` are the two greetings.
    pub fn open(config: &Config, ours: &Greeting, peer: &Greeting) -> (Connection, Packet) {
        let (mtu, small) = (config.mtu.min(peer.mtu as usize), peer.small as usize);
        let mut connection = Connection {
            state: State::Normal,
            credits: Credits::new(peer.window, peer.open()),
            owed: Owed::new(ours.window, ours.open(), ours.threshold),
            room_owed: 0,
            patience: usize::MAX,
            combine: Combine::new(config.combining, config.copy_max, mtu.min(small)),
            copy_max: config.copy_max,
            mtu,
            small,
            out: None,
            // A peer that takes every packet as a message has no ring.
            wanted: small >= mtu,
            untold: peer.has_ring(),
            our_mtu: config.mtu,
            has_ring: ours.has_ring(),
            offered: false,
            asked: false,
            inn: None,
            awake: false,
            fin_wanted: false,
            reads_no_more: false,
            peer_reads_no_more: false,
            blocked: false,
        };
        connection.credits.take();
        (connection, Packet::new(Kind::Wakeup, 0))
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Packets that may be sent now.
    pub fn credits(&self) -> u32 {
        self.credits.left()
    }

    /// Bytes in the combining buffer.
    pub fn held(&self) -> usize {
        self.combine.held()
    }

    /// Whether the application may still write.
    pub fn can_write(&self) -> bool {
        self.state.speaks() && !self.fin_wanted && !self.peer_reads_no_more
    }

    /// Whether a write would not have to wait for the window: there is room, or it fails at once.
    pub fn has_room(&mut self) -> bool {
        let room = !self.can_write() || self.fits(self.combine.held().max(1));
        self.blocked |= !room;
        room
    }

    /// Whether small requests are combined.
    pub fn combining(&self) -> bool {
        self.combine.on
    }

    /// Switches combining on or off (the paper's TCP_NODELAY). What is held goes at once if it is off.
    pub fn set_combining(&mut self, on: bool) -> Actions {
        self.combine.on = on;
        if on { Actions::default() } else { self.flush() }
    }

    /// The shortest way for a small request: it joins those that are held. False if it is not that simple; then nothing
    /// was done.
    #[inline]
    pub fn hold_more(&mut self, len: usize) -> bool {
        self.can_write() && self.combine.hold_more(len)
    }

    /// The application writes `len` bytes. Asked again for the rest.
    pub fn write(&mut self, len: usize) -> WriteStep {
        if !self.can_write() {
            return WriteStep::Shut;
        }
        if self.combine.is_lone(len) && self.fits(len) && !self.would_ask(len) {
            self.combine.went();
            let (packet, way) = self.data(len);
            return WriteStep::Send(packet, len, way);
        }
        match self.combine.ask(len) {
            Verdict::Hold => WriteStep::Hold { start_timer: self.combine.hold(len) },
            // Small pieces go as messages until the ring is there.
            _ if self.would_ask(len) => {
                self.wanted = true;
                WriteStep::Ask(self.control(Kind::Want))
            }
            Verdict::FlushFirst if self.fits(self.combine.held()) => {
                let (packet, len, way) = self.release();
                WriteStep::Flush(packet, len, way)
            }
            Verdict::Alone(len) if self.fits(len) => {
                let (packet, way) = self.data(len);
                WriteStep::Send(packet, len, way)
            }
            _ => {
                self.combine.hurry();
                self.blocked = true;
                WriteStep::Wait
            }
        }
    }

    /// The application reads.
    #[inline]
    pub fn reads(&mut self) {
        self.combine.read();
    }

    /// The application reads or flushes, or the timer expired: what is held goes, at once or as soon as it can.
    pub fn flush(&mut self) -> Actions {
        self.combine.hurry();
        self.pump()
    }

    /// The shortest way for what is held: the packet to send it with, if it can go now and nothing else is due.
    #[inline]
    pub fn release_held(&mut self) -> Option<(Packet, usize, Way)> {
        let held = self.combine.held();
        let goes = held > 0 && self.state.speaks() && !self.fin_wanted && self.fits(held);
        goes.then(|| self.release())
    }

    /// A packet came.
    ///
    /// # Errors
    /// What the peer may not send.
    pub fn packet(&mut self, packet: Packet, came: Came) -> Result<Taken, Violation> {
        let (len, written) = match came {
            Came::Message(len) => (len, false),
            Came::Ring(len) => (len, true),
        };
        if self.state == State::Closed {
            return Err(Violation("a packet after the end"));
        }
        self.blocked = false;
        if self.awake == (packet.kind == Kind::Wakeup) {
            return Err(Violation("WAKEUP is the first packet, and comes once"));
        }
        let sound = match packet.kind {
            Kind::Data => len > 0,
            Kind::Ring => len == RING_LEN,
            _ => len == 0,
        };
        if !sound || written && packet.kind != Kind::Data {
            return Err(Violation("bytes come in DATA packets, and no DATA packet is empty"));
        }
        if !self.credits.give(packet.acks) {
            return Err(Violation("more packets were acknowledged than sent"));
        }
        if let Some(out) = self.out.as_mut() {
            out.acknowledged(packet.acks);
        }
        let (mut at, mut first, mut actions) = (None, None, Actions::default());
        match packet.kind {
            Kind::Data | Kind::Wakeup => {
                if !self.state.hears() {
                    return Err(Violation("DATA after FIN"));
                }
                if len > self.our_mtu || !self.owed.on_packet() {
                    return Err(Violation("more DATA than the window allows"));
                }
                self.awake = true;
                if written {
                    let place = self.inn.as_mut().and_then(|ring| ring.place(len));
                    at = Some(place.ok_or(Violation("written where there is no ring, or too long for it"))?);
                }
                // The window is used: the rest of it is opened.
                if packet.kind == Kind::Data && self.owed.shut() > 0 {
                    actions.push(Action::Open(self.owed.shut()));
                }
            }
            Kind::Want => {
                if !self.has_ring || std::mem::replace(&mut self.asked, true) {
                    return Err(Violation("a ring is wanted where there is none, or twice"));
                }
                // The offer may be on its way.
                first = (!self.offered).then_some(Action::Offer);
            }
            Kind::Ring => {
                if !std::mem::take(&mut self.untold) {
                    return Err(Violation("a ring where there is none, or a second one"));
                }
                self.wanted = true;
            }
            Kind::Ack if packet.acks == 0 => return Err(Violation("an ACK that acknowledges nothing")),
            Kind::Ack => {}
            Kind::Fin => {
                self.state = self.state.fin_came().ok_or(Violation("a second FIN"))?;
                self.peer_reads_no_more |= packet.reads_no_more;
                first = Some(Action::Control(self.control(Kind::FinAck)));
            }
            Kind::FinAck => {
                self.state = self.state.finack_came().ok_or(Violation("a FINACK without a FIN"))?;
            }
        }
        if self.peer_reads_no_more {
            // The peer will not read what is held.
            self.combine.take();
        }
        if let Some(first) = first {
            actions.push(first);
        }
        self.pump_into(&mut actions);
        if self.state == State::Closed {
            actions.push(Action::End);
        }
        Ok(Taken { actions, at })
    }

    /// The RING packet said how long the peer's ring is. None, or one that is too short, is as good as no ring.
    pub fn ring_came(&mut self, len: usize) -> Actions {
        if len >= SMALLEST {
            self.out = Some(Outgoing::new(len, self.credits.window(), self.credits.missing()));
            self.combine.widen(self.copy_max, self.mtu.min(longest(len).max(self.small)));
        }
        self.pump()
    }

    /// Whether a request of `len` bytes would have to ask for the ring. The answer may have come already.
    #[inline]
    pub fn would_ask(&self, len: usize) -> bool {
        !self.wanted && self.combine.held() + len > self.small
    }

    /// A ring of so many bytes is offered to the peer, asked for or not; 0 if there is none to be had.
    pub fn offer(&mut self, len: usize) -> Packet {
        self.offered = true;
        if len >= SMALLEST {
            let ring = Incoming::new(len, self.our_mtu);
            self.patience = ring.patience();
            self.inn = Some(ring);
        }
        self.control(Kind::Ring)
    }

    /// The receives were posted that open the rest of the window.
    pub fn opened(&mut self) -> Actions {
        let mut actions = Actions::default();
        if self.owed.open_all() > 0 && self.state.hears() {
            actions.push(Action::Control(self.control(Kind::Ack)));
        }
        actions
    }

    /// The descriptor of a WAKEUP or DATA packet was posted again, and `room` of the ring is free again: the peer may send
    /// one more. An ACK may be due for it.
    #[inline]
    pub fn posted(&mut self, room: usize) -> Option<Packet> {
        // A peer that has closed its direction waits for no acknowledgements.
        self.room_owed += room;
        let due = self.owed.on_repost() || self.room_owed > self.patience;
        (due && self.state.hears()).then(|| self.control(Kind::Ack))
    }

    /// The application writes no more (half close).
    pub fn shutdown_write(&mut self) -> Actions {
        self.fin_wanted |= self.state.speaks();
        self.flush()
    }

    /// The application closes: neither writes nor reads any more.
    pub fn close(&mut self) -> Actions {
        self.reads_no_more = true;
        self.shutdown_write()
    }

    /// The connection broke. Whether that was an error: bytes may be missing.
    pub fn lost(&mut self) -> bool {
        // A peer that sent FIN and reads no more has closed its write side as well.
        let missing = !self.state.is_spent() && !self.peer_reads_no_more;
        self.state = State::Closed;
        self.combine.take();
        missing
    }

    fn pump(&mut self) -> Actions {
        let mut actions = Actions::default();
        self.pump_into(&mut actions);
        actions
    }

    /// Sends what could not be sent before: what is held, then the FIN.
    fn pump_into(&mut self, actions: &mut Actions) {
        if !self.state.speaks() {
            return;
        }
        if self.combine.is_urgent() && self.fits(self.combine.held()) {
            let (packet, len, way) = self.release();
            actions.push(Action::Held(packet, len, way));
        }
        if self.fin_wanted
            && self.combine.held() == 0
            && let Some(state) = self.state.fin_sent()
        {
            self.state = state;
            let fin = Packet { reads_no_more: self.reads_no_more, ..self.control(Kind::Fin) };
            actions.push(Action::Control(fin));
        }
    }

    /// Whether a packet of `len` bytes may go now.
    fn fits(&self, len: usize) -> bool {
        let room = || self.out.as_ref().is_some_and(|ring| ring.fits(len));
        self.credits.left() > 0 && (len <= self.small || room())
    }

    fn release(&mut self) -> (Packet, usize, Way) {
        let len = self.combine.take();
        let (packet, way) = self.data(len);
        (packet, len, way)
    }

    fn data(&mut self, len: usize) -> (Packet, Way) {
        self.credits.take();
        let way = match self.out.as_mut() {
            Some(ring) if len > self.small => Way::Ring(ring.place(len)),
            Some(ring) => {
                ring.pass();
                Way::Message
            }
            None => Way::Message,
        };
        (self.control(Kind::Data), way)
    }

    /// Whatever goes out takes along what is owed.
    pub(super) fn control(&mut self, kind: Kind) -> Packet {
        self.room_owed = 0;
        Packet::new(kind, self.owed.take())
    }
}
