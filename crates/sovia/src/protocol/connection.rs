//! One connection: window, combining and state together.
//!
//! Every method is an event and returns what has to be done for it, in order. After [`Connection::lost`] and in the state
//! [`State::Closed`] nothing is ever to be sent again.

use super::combine::{Combine, Verdict};
use super::state::State;
use super::window::{Credits, Owed};
use crate::config::Config;
use crate::wire::{Greeting, Kind, Packet};

/// What the engine has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send a packet without bytes.
    Control(Packet),
    /// Send the bytes of the combining buffer, so many.
    Held(Packet, usize),
    /// The connection is over; disconnect.
    End,
}

/// What has to be done, in order. There is never more than this for one event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actions {
    list: [Option<Action>; 4],
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
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Action>, 4>>;

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
    Flush(Packet, usize),
    /// Send the first so many bytes of the request as a packet of their own.
    Send(Packet, usize),
    /// The window is shut.
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
    state: State,
    credits: Credits,
    owed: Owed,
    combine: Combine,
    our_mtu: usize,
    /// The first packet, which is always a WAKEUP, has come.
    awake: bool,
    /// A FIN goes out as soon as what is held has gone.
    fin_wanted: bool,
    /// We read no more, and say so with the FIN.
    deaf: bool,
    /// The peer reads no more.
    peer_deaf: bool,
}

impl Connection {
    /// A connection that was just established, with the packet to begin with.
    pub fn open(config: &Config, peer: &Greeting) -> (Connection, Packet) {
        let mtu = config.mtu.min(peer.mtu as usize);
        let mut connection = Connection {
            state: State::Normal,
            credits: Credits::new(peer.window),
            owed: Owed::new(config.window, config.threshold),
            combine: Combine::new(config.combining, config.copy_max, mtu),
            our_mtu: config.mtu,
            awake: false,
            fin_wanted: false,
            deaf: false,
            peer_deaf: false,
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
        self.state.speaks() && !self.fin_wanted && !self.peer_deaf
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

    /// The application writes `len` bytes. Asked again for the rest.
    pub fn write(&mut self, len: usize) -> WriteStep {
        if !self.can_write() {
            return WriteStep::Shut;
        }
        match self.combine.ask(len) {
            Verdict::Hold => WriteStep::Hold { start_timer: self.combine.hold(len) },
            _ if self.credits.left() == 0 => {
                self.combine.hurry();
                WriteStep::Wait
            }
            Verdict::FlushFirst => {
                let (packet, len) = self.release();
                WriteStep::Flush(packet, len)
            }
            Verdict::Alone(len) => WriteStep::Send(self.data(), len),
        }
    }

    /// The application reads, the timer expired, or somebody asked: what is held goes, at once or as soon as it can.
    pub fn flush(&mut self) -> Actions {
        self.combine.hurry();
        self.pump()
    }

    /// A packet came. `len` is what it brought.
    pub fn packet(&mut self, packet: Packet, len: usize) -> Result<Actions, Violation> {
        if self.state == State::Closed {
            return Err(Violation("a packet after the end"));
        }
        if self.awake == (packet.kind == Kind::Wakeup) {
            return Err(Violation("WAKEUP is the first packet, and comes once"));
        }
        if (len > 0) != (packet.kind == Kind::Data) {
            return Err(Violation("bytes come in DATA packets, and no DATA packet is empty"));
        }
        if !self.credits.give(packet.acks) {
            return Err(Violation("more packets were acknowledged than sent"));
        }
        let mut finack = false;
        match packet.kind {
            Kind::Data | Kind::Wakeup => {
                if !self.state.hears() {
                    return Err(Violation("DATA after FIN"));
                }
                if len > self.our_mtu || !self.owed.came() {
                    return Err(Violation("more DATA than the window allows"));
                }
                self.awake = true;
            }
            Kind::Ack if packet.acks == 0 => return Err(Violation("an ACK that acknowledges nothing")),
            Kind::Ack => {}
            Kind::Fin => {
                self.state = self.state.fin_came().ok_or(Violation("a second FIN"))?;
                self.peer_deaf |= packet.deaf;
                finack = true;
            }
            Kind::FinAck => {
                self.state = self.state.finack_came().ok_or(Violation("a FINACK without a FIN"))?;
            }
        }
        if self.peer_deaf {
            // Nobody will read what is held.
            self.combine.take();
        }
        let mut actions = Actions::default();
        if finack {
            actions.push(Action::Control(self.control(Kind::FinAck)));
        }
        self.pump_into(&mut actions);
        if self.state == State::Closed {
            actions.push(Action::End);
        }
        Ok(actions)
    }

    /// The descriptor of a WAKEUP or DATA packet was posted again: the peer may send one more.
    pub fn posted(&mut self) -> Actions {
        let mut actions = Actions::default();
        // When the peer has closed its direction nobody waits for acknowledgements.
        if self.owed.posted() && self.state.hears() {
            actions.push(Action::Control(self.control(Kind::Ack)));
        }
        actions
    }

    /// The application writes no more (half close).
    pub fn shutdown_write(&mut self) -> Actions {
        self.fin_wanted |= self.state.speaks();
        self.flush()
    }

    /// The application closes: neither writes nor reads any more.
    pub fn close(&mut self) -> Actions {
        self.deaf = true;
        self.shutdown_write()
    }

    /// The connection broke. Whether that was an error: bytes may be missing.
    pub fn lost(&mut self) -> bool {
        // Who has said that it reads no more has said all it had to say, too.
        let missing = !self.state.is_spent() && !self.peer_deaf;
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
        if self.combine.is_urgent() && self.credits.left() > 0 {
            let (packet, len) = self.release();
            actions.push(Action::Held(packet, len));
        }
        if self.fin_wanted
            && self.combine.held() == 0
            && let Some(state) = self.state.fin_sent()
        {
            self.state = state;
            let fin = Packet { deaf: self.deaf, ..self.control(Kind::Fin) };
            actions.push(Action::Control(fin));
        }
    }

    fn release(&mut self) -> (Packet, usize) {
        let packet = self.data();
        (packet, self.combine.take())
    }

    fn data(&mut self) -> Packet {
        self.credits.take();
        self.control(Kind::Data)
    }

    /// Whatever goes out takes along what is owed.
    fn control(&mut self, kind: Kind) -> Packet {
        Packet::new(kind, self.owed.take())
    }
}
