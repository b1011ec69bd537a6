//! The shortest ways through the library: a short message straight to who waits for it, and the answer straight out.
//!
//! SOVIA, section 5.2. A socket is *calm* while nothing but messages can be expected of it: nothing came that was not
//! read, nothing is held, nobody closes (`protocol/calm.rs`). A read that finds nothing finds that out; whoever gets hold of
//! the socket for anything else ends it (`table.rs`), so that nothing has to be asked twice on these ways.

use viaduct_via::{Completion, Descriptor, Glance, Nic, Op};

use crate::engine::Engine;
use crate::protocol::Connection;
use crate::socket::{Outcome, Socket};
use crate::table::SocketId;
use crate::wire::Packet;

/// Looks for a message by a read, whose answer may be on its way, before the machinery of waiting is set up: less than a
/// microsecond.
const LOOKS: usize = 64;

impl Engine {
    /// A read: what is there, or what comes with the next packets. Nothing in between but what it needs: a message that
    /// is being waited for has its reader's whole attention. Whether nobody else has to hear of it comes along.
    #[inline]
    pub(crate) fn read_next(&mut self, id: SocketId, into: &mut [u8]) -> (Outcome, bool) {
        if self.sockets.get_calm(id).is_none() {
            match self.read_first(id, into) {
                Outcome::Wait => {}
                outcome => return (outcome, false),
            }
        }
        let Some(socket) = self.sockets.get_calm(id) else { return (self.read_on(id, None, into), false) };
        if socket.begin_reading(&mut self.nic) {
            self.note_stuck(id);
            return (self.read_on(id, None, into), false);
        }
        let mut alone = true;
        for _ in 0..LOOKS {
            match self.nic.glance_cq(self.cq) {
                Glance::Message(message) => {
                    if !socket.takes_calmly(&message, into) {
                        return (self.read_on(id, Some(message), into), false);
                    }
                    self.handled += 1;
                    let len = message.length as usize;
                    if socket.post_later(&mut self.nic, message.descriptor) {
                        self.note_stuck(id);
                        alone = false;
                    }
                    return (Outcome::Done(len), alone);
                }
                Glance::Nothing => {}
                Glance::Unsure(closer) => {
                    alone = false;
                    if let Ok(Some(completion)) = self.nic.poll_cq_closely(self.cq, closer) {
                        return (self.read_closely(id, completion, into), false);
                    }
                }
            }
        }
        (Outcome::Wait, false)
    }

    /// The same for what took a closer look to be found: several streams have messages, or it is something else.
    #[inline(never)]
    fn read_closely(&mut self, id: SocketId, completion: Completion, into: &mut [u8]) -> Outcome {
        let message = completion.op == Op::Receive && completion.status.is_success();
        if let Some(socket) = self.sockets.get_calm(id).filter(|_| message)
            && socket.takes_calmly(&completion, into)
        {
            self.handled += 1;
            let len = completion.length as usize;
            if socket.post_later(&mut self.nic, completion.descriptor) {
                self.note_stuck(id);
            }
            return Outcome::Done(len);
        }
        self.read_on(id, Some(completion), into)
    }

    /// What is there already. If that is nothing, only messages may be expected from now on, unless something else goes on.
    #[inline(never)]
    fn read_first(&mut self, id: SocketId, into: &mut [u8]) -> Outcome {
        let outcome = self.read(id, into, false);
        if outcome == Outcome::Wait
            && let Some(socket) = self.sockets.get_mut(id)
        {
            socket.calm_down();
        }
        outcome
    }

    /// What came or comes is not a message that goes straight to its reader.
    #[inline(never)]
    fn read_on(&mut self, id: SocketId, mut came: Option<Completion>, into: &mut [u8]) -> Outcome {
        for _ in 0..LOOKS {
            let next = || self.nic.poll_cq(self.cq).ok().flatten();
            if let Some(completion) = came.take().or_else(next) {
                self.take_in(completion);
                let outcome = self.read_first(id, into);
                if outcome != Outcome::Wait {
                    return outcome;
                }
            }
        }
        Outcome::Wait
    }

    /// A write, which is mostly a request that goes by value, at once, or joins others that are held. Whether the service
    /// thread has to be told of a timer, and whether nobody else has to hear of it, come along.
    #[inline]
    pub(crate) fn write_next(&mut self, id: SocketId, bytes: &[u8]) -> ((Outcome, bool), bool) {
        let written = (Outcome::Done(bytes.len()), false);
        let Some(socket) = self.sockets.get_calm(id) else {
            let held = self.sockets.get_held(id).is_some_and(|socket| socket.hold_more(bytes));
            return if held { (written, true) } else { (self.write(id, bytes), false) };
        };
        if bytes.is_empty() || bytes.len() > socket.alone {
            return (self.write(id, bytes), false);
        }
        let Some(packet) = socket.conn.as_mut().and_then(Connection::send_calmly) else {
            return (self.write(id, bytes), false);
        };
        if self.nic.send_inline(socket.vi, bytes, Some(packet.encode())).is_err() {
            return (self.write_after_all(id, packet, bytes), false);
        }
        let stuck = socket.post_the_rest(&mut self.nic);
        if stuck {
            self.note_stuck(id);
        }
        (written, !stuck)
    }

    /// The same for a packet that was to go at once, and something is in its way.
    #[cold]
    fn write_after_all(&mut self, id: SocketId, packet: Packet, bytes: &[u8]) -> (Outcome, bool) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.send(&mut self.nic, packet, bytes);
            socket.post_the_rest(&mut self.nic);
            if socket.out.stuck {
                self.note_stuck(id);
            }
        }
        (Outcome::Done(bytes.len()), false)
    }
}

impl Socket {
    /// Finds out whether nothing but messages can be expected of it.
    fn calm_down(&mut self) {
        let Some(conn) = self.conn.as_ref() else { return };
        let open = !self.closed && !self.ended && !self.out.stuck;
        self.calm = open && self.out.held == 0 && self.has_nothing() && conn.is_calm();
        self.alone = conn.longest_alone().min(self.out.by_value());
    }

    /// The application reads, and nothing is there. Whether an acknowledgement is stuck.
    #[inline]
    fn begin_reading(&mut self, nic: &mut Nic) -> bool {
        if let Some(conn) = self.conn.as_mut() {
            conn.reads();
        }
        self.post_the_rest(nic)
    }

    /// Takes a message, which came without an error, if it is one for this socket, and its bytes go straight to the reader.
    /// False if it is not that; then nothing was done.
    #[inline(always)]
    fn takes_calmly(&mut self, message: &Completion, into: &mut [u8]) -> bool {
        let Some(into) = into.get_mut(..message.length as usize) else { return false };
        if message.descriptor.work().context != self.id.0 {
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
    /// unless an acknowledgement is due for it. Whether that one is stuck.
    #[inline(always)]
    fn post_later(&mut self, nic: &mut Nic, descriptor: Descriptor) -> bool {
        if self.unposted.is_none() && self.conn.as_ref().is_some_and(Connection::may_post_later) {
            self.unposted = Some(descriptor);
            return false;
        }
        self.repost(nic, descriptor, Some(0));
        self.out.stuck
    }
}
