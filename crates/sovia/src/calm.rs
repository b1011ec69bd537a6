//! Fast paths through the library: a short message straight to its reader, and the answer straight out.
//!
//! SOVIA, section 5.2. A socket is *calm* while nothing but messages can be expected of it: nothing came that was not
//! read, nothing is held, neither end closes (`protocol/calm.rs`). A read that finds nothing finds that out; looking the
//! socket up for anything else ends it (`table.rs`), so that the fast paths need not check these conditions again.
//!
//! ```text
//!   read_fast ── calm, and the completion queue has a message for this socket ──▶ into the reader's bytes
//!     ├ read_queued    what came before and was not read (Engine::read); finds out whether the socket is calm
//!     └ read_slowly    takes in completions of all sockets, one by one, until this one has something
//! ```

use viaduct_via::{Completion, Descriptor, Nic, Op};

use crate::engine::Engine;
use crate::protocol::Connection;
use crate::socket::{Outcome, Socket};
use crate::table::SocketId;
use crate::wire::Packet;

/// Looks for a message by a read, whose answer may be on its way, before the machinery of waiting is set up: less than a
/// microsecond.
const LOOKS: usize = 64;

impl Engine {
    /// Fast path of a read: what is there, or what comes within [`LOOKS`] looks. `Wait` if nothing does.
    #[inline]
    pub(crate) fn read_fast(&mut self, id: SocketId, into: &mut [u8]) -> Outcome {
        if self.sockets.get_calm(id).is_none() {
            match self.read_queued(id, into) {
                Outcome::Wait => {}
                outcome => return outcome,
            }
        }
        let Some(socket) = self.sockets.get_calm(id) else {
            return self.read_slowly(id, None, into);
        };
        socket.begin_reading(&mut self.nic);
        for _ in 0..LOOKS {
            let Ok(Some(message)) = self.nic.poll_cq(self.cq) else { continue };
            if !socket.takes_calmly(&message, into) {
                return self.read_slowly(id, Some(message), into);
            }
            self.handled += 1;
            let len = message.length as usize;
            socket.post_later(&mut self.nic, message.descriptor);
            return Outcome::Done(len);
        }
        Outcome::Wait
    }

    /// Reads what came before. If that is nothing, finds out whether the socket is calm from now on.
    #[inline(never)]
    fn read_queued(&mut self, id: SocketId, into: &mut [u8]) -> Outcome {
        let outcome = self.read(id, into, false);
        if outcome == Outcome::Wait
            && let Some(socket) = self.sockets.get_mut(id)
        {
            socket.calm_down();
        }
        outcome
    }

    /// Takes in `came` and what comes next, for whichever socket, and reads as soon as this one has something.
    #[inline(never)]
    fn read_slowly(&mut self, id: SocketId, mut came: Option<Completion>, into: &mut [u8]) -> Outcome {
        for _ in 0..LOOKS {
            let next = || self.nic.poll_cq(self.cq).ok().flatten();
            if let Some(completion) = came.take().or_else(next) {
                self.take_in(completion);
                let outcome = self.read_queued(id, into);
                if outcome != Outcome::Wait {
                    return outcome;
                }
            }
        }
        Outcome::Wait
    }

    /// Fast path of a write: mostly a request that goes by value, at once, or joins others that are held.
    #[inline]
    pub(crate) fn write_fast(&mut self, id: SocketId, bytes: &[u8]) -> Outcome {
        let Some(socket) = self.sockets.get_calm(id) else {
            let held = self.sockets.get_held(id).is_some_and(|socket| socket.hold_more(bytes));
            return if held { Outcome::Done(bytes.len()) } else { self.write(id, bytes) };
        };
        if bytes.is_empty() || bytes.len() > socket.alone {
            return self.write(id, bytes);
        }
        let Some(packet) = socket.conn.as_mut().and_then(Connection::send_calmly) else {
            return self.write(id, bytes);
        };
        if self.nic.send_inline(socket.vi, bytes, Some(packet.encode())).is_err() {
            self.write_after_all(id, packet, bytes);
        } else {
            socket.post_the_rest(&mut self.nic);
        }
        Outcome::Done(bytes.len())
    }

    /// Sends a packet that the protocol has counted already, where sending it at once failed.
    #[cold]
    fn write_after_all(&mut self, id: SocketId, packet: Packet, bytes: &[u8]) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.send(&mut self.nic, packet, bytes);
            socket.post_the_rest(&mut self.nic);
        }
    }
}

impl Socket {
    /// Finds out whether nothing but messages can be expected of it.
    fn calm_down(&mut self) {
        let Some(conn) = self.conn.as_ref() else { return };
        let open = !self.closed && !self.ended;
        self.calm = open && self.out.held == 0 && self.has_nothing() && conn.is_calm();
        self.alone = conn.longest_alone().min(self.out.by_value());
    }

    /// The application reads, and nothing is there.
    #[inline]
    fn begin_reading(&mut self, nic: &mut Nic) {
        if let Some(conn) = self.conn.as_mut() {
            conn.reads();
        }
        self.post_the_rest(nic);
    }

    /// Takes a message if it is one for this socket, came without an error, and its bytes go straight to the reader. False if it
    /// is not that; then nothing was done.
    #[inline(always)]
    fn takes_calmly(&mut self, message: &Completion, into: &mut [u8]) -> bool {
        let Some(into) = into.get_mut(..message.length as usize) else { return false };
        let plain = message.op == Op::Receive && message.status.is_success();
        if !plain || message.descriptor.work().context != self.id.0 {
            return false;
        }
        let (Some(word), Some(conn)) = (message.immediate, self.conn.as_mut()) else { return false };
        if !conn.came_calmly(word, into.len()) {
            return false;
        }
        message.descriptor.buffers()[0].read(0, into);
        true
    }

    /// The receive of a message that was read is posted when its reader has said what it has to say, or reads again,
    /// unless an acknowledgement is due for it.
    #[inline(always)]
    fn post_later(&mut self, nic: &mut Nic, descriptor: Descriptor) {
        if self.unposted.is_none() && self.conn.as_ref().is_some_and(Connection::may_post_later) {
            self.unposted = Some(descriptor);
        } else {
            self.repost(nic, descriptor, Some(0));
        }
    }
}
