//! One socket (`svSock` of figure 6): its VI, the circular queue of what came, and its buffers. Drives the core of the
//! protocol with one NIC; what it calls "wait" is for the caller to wait for. How packets go out is in `outbound.rs`.
//!
//! SOVIA, sections 3.1.3 and 4.3.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::task::Waker;

use viaduct_via::{
    Buffer, Completion, Descriptor, MemAttributes, MemHandle, NetAddress, Nic, Op, ProtectionTag,
    RemoteAddress, Vi,
};

use crate::config::Config;
use crate::outbound::Outbound;
use crate::pool::Pool;
use crate::protocol::{Action, Actions, Came, Connection, WriteStep};
use crate::table::SocketId;
use crate::wire::{Greeting, Kind, Packet, RING_LEN, RingAt};

/// A packet that was not read yet.
struct Unread {
    descriptor: Descriptor,
    /// Where in the ring its bytes are, if they are there, and the room that they take.
    ring: Option<(usize, usize)>,
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

/// What a write brought about.
pub(crate) struct Written {
    pub(crate) outcome: Outcome,
    /// Something is held now that was not before: the timer for it has to start.
    pub(crate) starts_timer: bool,
}

/// What is waited for at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

pub(crate) struct Socket {
    pub(crate) id: SocketId,
    pub(crate) vi: Vi,
    pub(crate) tag: ProtectionTag,
    /// What the peer is told: how packets come to this end.
    pub(crate) ours: Greeting,
    /// Packets come as messages although our greeting promised a ring.
    pub(crate) no_ring: bool,
    /// There once the peer has greeted.
    pub(crate) conn: Option<Connection>,
    /// What came before that.
    pub(crate) early: Vec<Completion>,
    recvq: VecDeque<Unread>,
    /// A receive that was read and is posted when its reader has said what it has to say, or reads again.
    pub(crate) unposted: Option<Descriptor>,
    /// Nothing but messages can be expected, and a short request goes at once: `calm.rs`. Looking the socket up in any other
    /// way clears it (`Table::get_mut`).
    pub(crate) calm: bool,
    /// Longest request that goes at once.
    pub(crate) alone: usize,
    /// Where peers write what is not small, once one has asked for it.
    ring: Option<Buffer>,
    pub(crate) out: Outbound,
    pub(crate) peer: NetAddress,
    /// The tick of the timer at which something was first held.
    pub(crate) held_at: Option<u64>,
    /// Whether the engine's list of sockets that hold something has it.
    pub(crate) listed: bool,
    /// When a closed connection is cut off, on the clock of `os`.
    pub(crate) cut_at: Option<u64>,
    pub(crate) error: Option<ErrorKind>,
    /// Tasks, and threads that leave packets to the handler, that wait to read and to write.
    pub(crate) waiting: [Vec<Waker>; 2],
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
        ours: Greeting,
        config: &Config,
        nic: &Nic,
        peer: NetAddress,
    ) -> Socket {
        Socket {
            id,
            vi,
            tag,
            ours,
            no_ring: false,
            conn: None,
            early: Vec::new(),
            recvq: VecDeque::new(),
            unposted: None,
            calm: false,
            alone: 0,
            ring: None,
            out: Outbound::new(config, nic),
            peer,
            held_at: None,
            listed: false,
            cut_at: None,
            error: None,
            waiting: [const { Vec::new() }; 2],
            eof: false,
            read_shut: false,
            closed: false,
            ended: false,
        }
    }

    /// Posts so many receives.
    pub(crate) fn post_receives(
        &self,
        nic: &mut Nic,
        pool: &mut Pool,
        count: usize,
    ) -> Result<(), viaduct_via::Error> {
        for _ in 0..count {
            let descriptor = pool.receives.take(nic, self.ours.longest_message())?.context(self.id.0);
            nic.post_recv(self.vi, descriptor)?;
        }
        Ok(())
    }

    /// The peer has greeted: the protocol begins.
    pub(crate) fn open(&mut self, nic: &mut Nic, config: &Config, peer: &Greeting) {
        let (conn, first) = Connection::open(config, &self.ours, peer);
        self.out.set_longest_message(peer.small as usize);
        self.conn = Some(conn);
        self.send_control(nic, first);
    }

    /// A receive is done.
    pub(crate) fn received(&mut self, nic: &mut Nic, pool: &mut Pool, completion: Completion) {
        let Some(conn) = self.conn.as_mut() else {
            return self.early.push(completion);
        };
        if self.ended {
            return;
        }
        let len = completion.length as usize;
        let packet = completion.immediate.and_then(Packet::decode);
        let Some(packet) = packet.filter(|_| completion.status.is_success()) else {
            // Flushed, or sent by a peer that does not speak the protocol.
            return self.broke();
        };
        let written = completion.op == Op::RemoteRdmaWrite;
        let Ok(taken) = conn.packet(packet, if written { Came::Ring(len) } else { Came::Message(len) })
        else {
            return self.broke();
        };
        let room = taken.at.map_or(0, |at| at.1);
        match packet.kind {
            Kind::Data if !self.closed && !self.read_shut => {
                let descriptor = completion.descriptor;
                self.recvq.push_back(Unread { descriptor, ring: taken.at, len, at: 0 });
            }
            Kind::Data | Kind::Wakeup => self.repost(nic, completion.descriptor, Some(room)),
            kind => {
                if kind == Kind::Ring {
                    self.ring_came(nic, pool, &completion.descriptor);
                }
                self.eof |= kind == Kind::Fin;
                self.repost(nic, completion.descriptor, None);
            }
        }
        self.act(nic, pool, taken.actions);
    }

    /// Whether nothing came that was not read, not even an end.
    pub(crate) fn has_nothing(&self) -> bool {
        self.recvq.is_empty() && !self.read_shut && !self.eof && self.error.is_none()
    }

    /// Posts what was left for later, now that an answer is on its way.
    #[inline]
    pub(crate) fn post_the_rest(&mut self, nic: &mut Nic) {
        if let Some(descriptor) = self.unposted.take() {
            self.repost(nic, descriptor, Some(0));
        }
    }

    /// The peer says where its ring is.
    fn ring_came(&mut self, nic: &mut Nic, pool: &mut Pool, descriptor: &Descriptor) {
        let mut bytes = [0; RING_LEN];
        descriptor.buffers()[0].read(0, &mut bytes);
        let at = RingAt::decode(&bytes);
        self.out.ring = RemoteAddress { addr: at.addr, handle: MemHandle::from_number(at.handle) };
        if let Some(conn) = self.conn.as_mut() {
            let actions = conn.ring_came(at.len as usize);
            self.act(nic, pool, actions);
        }
    }

    /// Opens the window and offers the ring before anybody asks.
    pub(crate) fn welcome(&mut self, nic: &mut Nic, pool: &mut Pool, more: usize) {
        self.open_window(nic, pool, more);
        self.offer(nic, pool);
    }

    /// The peer wants a ring.
    fn offer(&mut self, nic: &mut Nic, pool: &mut Pool) {
        let rights = MemAttributes { rdma_write: true, ..MemAttributes::local(self.tag) };
        // Without one the peer goes on with messages.
        if !self.no_ring {
            self.ring = nic.alloc(pool.ring_len(), rights).ok();
        }
        pool.made_ring(self.ring.as_ref().map_or(0, Buffer::len));
        let Some(conn) = self.conn.as_mut() else { return };
        let at = self.ring.as_ref().map_or(RingAt { addr: 0, handle: 0, len: 0 }, |ring| {
            let RemoteAddress { addr, handle } = ring.remote(0);
            RingAt { addr, handle: handle.number(), len: ring.len() as u32 }
        });
        let packet = conn.offer(at.len as usize);
        self.send(nic, packet, &at.encode());
    }

    /// A send is done: its buffer is free again.
    pub(crate) fn sent(&mut self, completion: Completion) {
        self.out.came_back(completion.descriptor);
        if !completion.status.is_success() {
            self.broke();
        }
    }

    /// The connection is gone or no good. What came before can still be read.
    pub(crate) fn broke(&mut self) {
        if self.ended {
            return;
        }
        (self.ended, self.calm) = (true, false);
        if self.conn.as_mut().is_none_or(|c| c.lost()) {
            self.error = Some(ErrorKind::ConnectionReset);
        }
        self.held_at = None;
        self.out.drop_held();
    }

    /// Takes as much of `bytes` as goes without waiting.
    #[inline]
    pub(crate) fn write(&mut self, nic: &mut Nic, bytes: &[u8]) -> Written {
        let (mut done, mut starts_timer) = (0, false);
        while done < bytes.len() {
            let rest = &bytes[done..];
            let can_write = !self.ended && self.conn.as_ref().is_some_and(Connection::can_write);
            // A packet that is not sent by value needs a buffer, whatever the window says.
            if can_write && self.out.needs_buffer(rest.len()) && !self.ensure_buffer(nic) {
                break;
            }
            let Some(conn) = self.conn.as_mut().filter(|_| can_write) else {
                return Written { outcome: self.end_of_writing(done), starts_timer };
            };
            match conn.write(rest.len()) {
                WriteStep::Hold { start_timer } => {
                    self.out.hold(rest);
                    starts_timer |= start_timer;
                    done = bytes.len();
                }
                WriteStep::Flush(packet, len, way) => self.send_held(nic, packet, len, way),
                WriteStep::Send(packet, len, way) => {
                    self.send_data(nic, packet, &rest[..len], way);
                    done += len;
                }
                WriteStep::Ask(packet) => self.send_control(nic, packet),
                WriteStep::Wait => break,
                WriteStep::Shut => return Written { outcome: self.end_of_writing(done), starts_timer },
            }
        }
        let outcome = if done > 0 || bytes.is_empty() { Outcome::Done(done) } else { Outcome::Wait };
        Written { outcome, starts_timer }
    }

    /// A small request beside others that are held. Returns false if it cannot join them, and has to go the usual way.
    #[inline]
    pub(crate) fn hold_more(&mut self, bytes: &[u8]) -> bool {
        let simple = !self.ended && self.out.has_space(bytes.len());
        let held = simple && self.conn.as_mut().is_some_and(|conn| conn.hold_more(bytes.len()));
        if held {
            self.out.hold(bytes);
        }
        held
    }

    #[cold]
    fn end_of_writing(&self, done: usize) -> Outcome {
        let kind = self.error.unwrap_or(ErrorKind::BrokenPipe);
        if done > 0 { Outcome::Done(done) } else { Outcome::Failed(kind) }
    }

    /// Copies out what came, up to the length of `into`; `peek` leaves it there.
    #[inline]
    pub(crate) fn read(&mut self, nic: &mut Nic, pool: &mut Pool, into: &mut [u8], peek: bool) -> Outcome {
        self.flush(nic, pool);
        if let Some(conn) = self.conn.as_mut() {
            conn.reads();
        }
        let mut done = 0;
        if peek {
            for packet in &self.recvq {
                let n = (packet.len - packet.at).min(into.len() - done);
                copy_out(packet, self.ring.as_ref(), &mut into[done..done + n]);
                done += n;
            }
        } else {
            while done < into.len()
                && let Some(packet) = self.recvq.front_mut()
            {
                let n = (packet.len - packet.at).min(into.len() - done);
                copy_out(packet, self.ring.as_ref(), &mut into[done..done + n]);
                packet.at += n;
                done += n;
                if packet.at == packet.len
                    && let Some(packet) = self.recvq.pop_front()
                {
                    self.repost(nic, packet.descriptor, Some(packet.ring.map_or(0, |at| at.1)));
                }
            }
        }
        match self.error {
            _ if done > 0 || into.is_empty() => Outcome::Done(done),
            _ if self.eof || self.read_shut => Outcome::Done(0),
            Some(kind) => Outcome::Failed(kind),
            None if self.ended => Outcome::Done(0),
            None => {
                self.post_the_rest(nic);
                Outcome::Wait
            }
        }
    }

    /// What is held goes. Whether nothing is left: the window may be shut.
    #[inline]
    pub(crate) fn flush(&mut self, nic: &mut Nic, pool: &mut Pool) -> bool {
        if self.out.held == 0 {
            return true;
        }
        let Some(conn) = self.conn.as_mut() else { return false };
        if let Some((packet, len, way)) = conn.release_held() {
            self.send_held(nic, packet, len, way);
            return true;
        }
        let actions = conn.flush();
        self.act(nic, pool, actions);
        self.out.held == 0
    }

    pub(crate) fn set_combining(&mut self, nic: &mut Nic, pool: &mut Pool, on: bool) {
        self.tell(nic, pool, |conn| conn.set_combining(on));
    }

    pub(crate) fn shutdown_write(&mut self, nic: &mut Nic, pool: &mut Pool) {
        self.tell(nic, pool, Connection::shutdown_write);
    }

    /// The descriptors of what was not read, when all is over.
    pub(crate) fn give_back(self: Box<Self>, pool: &mut Pool) {
        pool.dropped_ring(self.ring.as_ref().map_or(0, Buffer::len));
        let early = self.early.into_iter().map(|c| c.descriptor);
        let unread = self.recvq.into_iter().map(|packet| packet.descriptor);
        unread.chain(early).chain(self.unposted).for_each(|d| pool.receives.give(d));
    }

    /// What came and what will come is dropped.
    pub(crate) fn shutdown_read(&mut self, nic: &mut Nic) {
        self.read_shut = true;
        while let Some(packet) = self.recvq.pop_front() {
            self.repost(nic, packet.descriptor, Some(packet.ring.map_or(0, |at| at.1)));
        }
    }

    pub(crate) fn close(&mut self, nic: &mut Nic, pool: &mut Pool) {
        self.closed = true;
        self.shutdown_read(nic);
        self.tell(nic, pool, Connection::close);
    }

    fn tell(&mut self, nic: &mut Nic, pool: &mut Pool, event: impl FnOnce(&mut Connection) -> Actions) {
        if let Some(conn) = self.conn.as_mut().filter(|_| !self.ended) {
            let actions = event(conn);
            self.act(nic, pool, actions);
        }
    }

    fn act(&mut self, nic: &mut Nic, pool: &mut Pool, actions: Actions) {
        if actions.is_empty() {
            return;
        }
        for action in actions {
            match action {
                Action::Control(packet) => self.send_control(nic, packet),
                Action::Held(packet, len, way) => self.send_held(nic, packet, len, way),
                Action::Open(more) => self.open_window(nic, pool, more as usize),
                Action::Offer => self.offer(nic, pool),
                Action::End => self.ended = true,
            }
        }
    }

    /// The window is used for the first time: the rest of it is opened.
    #[cold]
    fn open_window(&mut self, nic: &mut Nic, pool: &mut Pool, more: usize) {
        self.recvq.reserve(more);
        if self.post_receives(nic, pool, more).is_err() {
            return self.broke();
        }
        if let Some(conn) = self.conn.as_mut() {
            let actions = conn.opened();
            self.act(nic, pool, actions);
        }
    }

    /// Posts a receive again. If it brought a packet that counts, the peer may send one more.
    pub(crate) fn repost(&mut self, nic: &mut Nic, descriptor: Descriptor, counted: Option<usize>) {
        if self.ended || nic.post_recv(self.vi, descriptor).is_err() {
            return;
        }
        if let (Some(room), Some(conn)) = (counted, self.conn.as_mut())
            && let Some(ack) = conn.posted(room)
        {
            self.send_control(nic, ack);
        }
    }
}

/// Copies bytes of a packet from where its reader stands.
#[inline]
fn copy_out(packet: &Unread, ring: Option<&Buffer>, into: &mut [u8]) {
    match (packet.ring, ring) {
        (Some((offset, _)), Some(ring)) => ring.read(offset + packet.at, into),
        _ => packet.descriptor.buffers()[0].read(packet.at, into),
    }
}
