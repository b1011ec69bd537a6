//! One socket (`svSock` of figure 6): its VI, the circular queue of what came, and its buffers. Drives the core of the
//! protocol with one NIC; what it calls "wait" is for the caller to wait for.
//!
//! SOVIA, sections 3.1.3 and 4.3. What fits into a ring entry is sent by value, anything else from buffers registered
//! beforehand.

use std::collections::VecDeque;
use std::io::ErrorKind;

use viaduct_via::{
    Completion, Descriptor, Error as ViaError, MemAttributes, NetAddress, Nic, ProtectionTag, Vi,
};

use crate::config::Config;
use crate::protocol::{Action, Actions, Connection, WriteStep};
use crate::table::SocketId;
use crate::wire::{Greeting, Kind, Packet};

/// Most send buffers of one socket; they are made when first needed.
const SEND_BUFFERS: usize = 8;

/// Sends that may be in the queue at once: the buffers, and packets without bytes.
pub(crate) fn send_depth(config: &Config) -> usize {
    SEND_BUFFERS + config.window as usize + 8
}

/// A packet that was not read yet.
struct Incoming {
    descriptor: Descriptor,
    len: usize,
    at: usize,
}

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// So many bytes.
    Done(usize),
    /// Nothing now.
    Wait,
    /// Never again.
    Failed(ErrorKind),
}

pub(crate) struct Socket {
    id: SocketId,
    pub(crate) vi: Vi,
    tag: ProtectionTag,
    mtu: usize,
    inline: usize,
    /// There once the peer has greeted.
    pub(crate) conn: Option<Connection>,
    /// What came before that.
    pub(crate) early: Vec<Completion>,
    recvq: VecDeque<Incoming>,
    /// What is held, while it fits into a ring entry.
    small: Vec<u8>,
    /// What is held otherwise.
    staged: Option<Descriptor>,
    held: usize,
    free: Vec<Descriptor>,
    made: usize,
    controls: Vec<Descriptor>,
    pub(crate) peer: NetAddress,
    /// When what is held goes, on the clock of `os`.
    pub(crate) timer_at: Option<u64>,
    /// When a closed connection is cut off.
    pub(crate) cut_at: Option<u64>,
    pub(crate) error: Option<ErrorKind>,
    eof: bool,
    read_shut: bool,
    /// By the application.
    pub(crate) closed: bool,
    /// The protocol is through, or the connection broke.
    pub(crate) ended: bool,
}

impl Socket {
    pub(crate) fn new(
        id: SocketId,
        vi: Vi,
        tag: ProtectionTag,
        config: &Config,
        nic: &Nic,
        peer: NetAddress,
    ) -> Socket {
        Socket {
            id,
            vi,
            tag,
            mtu: config.mtu,
            inline: nic.attributes().max_inline.min(config.mtu),
            conn: None,
            early: Vec::new(),
            recvq: VecDeque::new(),
            small: Vec::new(),
            staged: None,
            held: 0,
            free: Vec::new(),
            made: 0,
            controls: Vec::new(),
            peer,
            timer_at: None,
            cut_at: None,
            error: None,
            eof: false,
            read_shut: false,
            closed: false,
            ended: false,
        }
    }

    /// Makes and posts so many receives.
    pub(crate) fn post_receives(&mut self, nic: &mut Nic, count: usize) -> Result<(), ViaError> {
        if count == 0 {
            return Ok(());
        }
        let memory = nic.alloc(count * self.mtu, MemAttributes::local(self.tag))?;
        for buffer in memory.chunks(self.mtu) {
            nic.post_recv(self.vi, Descriptor::recv(buffer).context(self.id.0))?;
        }
        Ok(())
    }

    /// The peer has greeted: the protocol begins.
    pub(crate) fn open(&mut self, nic: &mut Nic, config: &Config, peer: &Greeting) {
        let (conn, first) = Connection::open(config, peer);
        self.small.reserve(self.inline);
        self.recvq.reserve(config.descriptors(peer) + 1);
        self.conn = Some(conn);
        self.send_control(nic, first);
    }

    /// A receive is done.
    pub(crate) fn received(&mut self, nic: &mut Nic, completion: Completion) {
        let Some(conn) = self.conn.as_mut() else {
            return self.early.push(completion);
        };
        if self.ended {
            return;
        }
        let len = completion.length as usize;
        let packet = completion.immediate.and_then(Packet::decode);
        let Some(packet) = packet.filter(|_| completion.status.is_success()) else {
            // Flushed, or sent by somebody who does not speak the protocol.
            return self.broke();
        };
        let Ok(actions) = conn.packet(packet, len) else {
            return self.broke();
        };
        match packet.kind {
            Kind::Data if !self.closed && !self.read_shut => {
                self.recvq.push_back(Incoming { descriptor: completion.descriptor, len, at: 0 });
            }
            Kind::Data | Kind::Wakeup => self.repost(nic, completion.descriptor, true),
            kind => {
                self.eof |= kind == Kind::Fin;
                self.repost(nic, completion.descriptor, false);
            }
        }
        self.act(nic, actions);
    }

    /// A send is done: its buffer is free again.
    pub(crate) fn sent(&mut self, completion: Completion) {
        if !completion.status.is_success() {
            return self.broke();
        }
        if !completion.descriptor.buffers().is_empty() {
            self.free.push(completion.descriptor);
        }
    }

    /// The connection is gone or no good. What came before can still be read.
    pub(crate) fn broke(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        if self.conn.as_mut().is_none_or(|c| c.lost()) {
            self.error = Some(ErrorKind::ConnectionReset);
        }
        self.drop_held();
    }

    /// Takes as much of `bytes` as goes without waiting. Whether the timer was started comes along.
    pub(crate) fn write(&mut self, nic: &mut Nic, bytes: &[u8]) -> (Outcome, bool) {
        let (mut done, mut timer) = (0, false);
        while done < bytes.len() {
            let rest = &bytes[done..];
            let Some(conn) = self.conn.as_mut().filter(|_| !self.ended) else {
                let kind = self.error.unwrap_or(ErrorKind::BrokenPipe);
                return (if done > 0 { Outcome::Done(done) } else { Outcome::Failed(kind) }, timer);
            };
            // A packet that is not sent by value needs a buffer, whatever the window says.
            let needs_buffer = rest.len() > self.inline || self.held + rest.len() > self.inline;
            if needs_buffer && conn.can_write() && !self.ensure_buffer(nic) {
                break;
            }
            let Some(conn) = self.conn.as_mut() else { break };
            match conn.write(rest.len()) {
                WriteStep::Hold { start_timer } => {
                    self.hold(rest);
                    timer |= start_timer;
                    done = bytes.len();
                }
                WriteStep::Flush(packet, len) => self.send_held(nic, packet, len),
                WriteStep::Send(packet, len) => {
                    self.send(nic, packet, &rest[..len]);
                    done += len;
                }
                WriteStep::Wait => break,
                WriteStep::Shut => {
                    let kind = self.error.unwrap_or(ErrorKind::BrokenPipe);
                    return (if done > 0 { Outcome::Done(done) } else { Outcome::Failed(kind) }, timer);
                }
            }
        }
        (if done > 0 || bytes.is_empty() { Outcome::Done(done) } else { Outcome::Wait }, timer)
    }

    /// Copies out what came, up to the length of `into`; `peek` leaves it there.
    pub(crate) fn read(&mut self, nic: &mut Nic, into: &mut [u8], peek: bool) -> Outcome {
        self.flush(nic);
        let mut done = 0;
        if peek {
            for packet in &self.recvq {
                let n = (packet.len - packet.at).min(into.len() - done);
                packet.descriptor.buffers()[0].read(packet.at, &mut into[done..done + n]);
                done += n;
            }
        } else {
            while done < into.len()
                && let Some(packet) = self.recvq.front_mut()
            {
                let n = (packet.len - packet.at).min(into.len() - done);
                packet.descriptor.buffers()[0].read(packet.at, &mut into[done..done + n]);
                packet.at += n;
                done += n;
                if packet.at == packet.len
                    && let Some(packet) = self.recvq.pop_front()
                {
                    self.repost(nic, packet.descriptor, true);
                }
            }
        }
        match self.error {
            _ if done > 0 || into.is_empty() => Outcome::Done(done),
            _ if self.eof || self.read_shut => Outcome::Done(0),
            Some(kind) => Outcome::Failed(kind),
            None if self.ended => Outcome::Done(0),
            None => Outcome::Wait,
        }
    }

    /// What is held goes. Whether nothing is left: the window may be shut.
    pub(crate) fn flush(&mut self, nic: &mut Nic) -> bool {
        if self.held > 0
            && let Some(conn) = self.conn.as_mut()
        {
            let actions = conn.flush();
            self.act(nic, actions);
        }
        self.held == 0
    }

    pub(crate) fn set_combining(&mut self, nic: &mut Nic, on: bool) {
        if let Some(conn) = self.conn.as_mut().filter(|_| !self.ended) {
            let actions = conn.set_combining(on);
            self.act(nic, actions);
        }
    }

    pub(crate) fn shutdown_write(&mut self, nic: &mut Nic) {
        if let Some(conn) = self.conn.as_mut().filter(|_| !self.ended) {
            let actions = conn.shutdown_write();
            self.act(nic, actions);
        }
    }

    /// What came and what will come is dropped.
    pub(crate) fn shutdown_read(&mut self, nic: &mut Nic) {
        self.read_shut = true;
        while let Some(packet) = self.recvq.pop_front() {
            self.repost(nic, packet.descriptor, true);
        }
    }

    pub(crate) fn close(&mut self, nic: &mut Nic) {
        self.closed = true;
        self.shutdown_read(nic);
        if let Some(conn) = self.conn.as_mut().filter(|_| !self.ended) {
            let actions = conn.close();
            self.act(nic, actions);
        }
    }

    fn act(&mut self, nic: &mut Nic, actions: Actions) {
        for action in actions {
            match action {
                Action::Control(packet) => self.send_control(nic, packet),
                Action::Held(packet, len) => self.send_held(nic, packet, len),
                Action::End => self.ended = true,
            }
        }
    }

    /// Posts a receive again. If it brought a packet that counts, the peer may send one more.
    fn repost(&mut self, nic: &mut Nic, descriptor: Descriptor, counted: bool) {
        if self.ended || nic.post_recv(self.vi, descriptor).is_err() {
            return;
        }
        if counted && let Some(conn) = self.conn.as_mut() {
            let actions = conn.posted();
            self.act(nic, actions);
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        let after = self.held + bytes.len();
        if after <= self.inline {
            self.small.extend_from_slice(bytes);
        } else {
            // Small bytes move over when they no longer fit.
            let mut staged =
                self.staged.take().or_else(|| self.free.pop()).expect("the caller has made sure of one");
            if !self.small.is_empty() {
                staged.write(0, 0, &self.small);
                self.small.clear();
            }
            staged.write(0, self.held, bytes);
            self.staged = Some(staged);
        }
        self.held = after;
    }

    fn drop_held(&mut self) {
        (self.held, self.timer_at) = (0, None);
        self.small.clear();
        self.staged = None;
    }

    fn send_held(&mut self, nic: &mut Nic, packet: Packet, len: usize) {
        debug_assert_eq!(len, self.held);
        (self.held, self.timer_at) = (0, None);
        match self.staged.take() {
            Some(staged) => self.post(nic, packet, staged, len),
            None => {
                let small = std::mem::take(&mut self.small);
                self.send(nic, packet, &small);
                self.small = small;
                self.small.clear();
            }
        }
    }

    /// Sends bytes: by value if they are few and nothing is in the way, else from a buffer.
    fn send(&mut self, nic: &mut Nic, packet: Packet, bytes: &[u8]) {
        if bytes.len() <= self.inline {
            match nic.send_inline(self.vi, bytes, Some(packet.encode())) {
                Ok(()) => return,
                Err(ViaError::Busy) => {}
                Err(_) => return self.broke(),
            }
        }
        self.reap(nic);
        // Bytes by value may find the way shut and all buffers used: one more is made for them.
        let Some(mut descriptor) = self.free.pop().or_else(|| self.make_buffer(nic)) else {
            return self.broke();
        };
        descriptor.write(0, 0, bytes);
        self.post(nic, packet, descriptor, bytes.len());
    }

    fn send_control(&mut self, nic: &mut Nic, packet: Packet) {
        let word = Some(packet.encode());
        match nic.send_inline(self.vi, &[], word) {
            Ok(()) => return,
            Err(ViaError::Busy) => {}
            Err(_) => return self.broke(),
        }
        self.reap(nic);
        let new = || Descriptor::send_empty().unsignalled().context(self.id.0);
        let mut descriptor = self.controls.pop().unwrap_or_else(new);
        descriptor.set_immediate(word);
        if nic.post_send(self.vi, descriptor).is_err() {
            self.broke();
        }
    }

    fn post(&mut self, nic: &mut Nic, packet: Packet, mut descriptor: Descriptor, len: usize) {
        descriptor.set_len(len);
        descriptor.set_immediate(Some(packet.encode()));
        if nic.post_send(self.vi, descriptor).is_err() {
            self.broke();
        }
    }

    /// Whether there is a buffer to send from.
    fn ensure_buffer(&mut self, nic: &mut Nic) -> bool {
        if self.staged.is_some() && !self.free.is_empty() {
            return true;
        }
        if self.free.is_empty() {
            self.reap(nic);
        }
        // What is staged may have to go before what comes.
        if self.free.is_empty()
            && self.made < SEND_BUFFERS
            && let Some(buffer) = self.make_buffer(nic)
        {
            self.free.push(buffer);
        }
        !self.free.is_empty()
    }

    fn make_buffer(&mut self, nic: &mut Nic) -> Option<Descriptor> {
        let buffer = nic.alloc(self.mtu, MemAttributes::local(self.tag)).ok()?;
        self.made += 1;
        Some(Descriptor::send(buffer).context(self.id.0))
    }

    /// Fetches sends that are done.
    fn reap(&mut self, nic: &mut Nic) {
        while let Ok(Some(completion)) = nic.poll_send(self.vi) {
            self.sent(completion);
        }
        while let Some(descriptor) = nic.reclaim(self.vi) {
            self.controls.push(descriptor);
        }
    }
}
