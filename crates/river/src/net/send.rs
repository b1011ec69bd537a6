//! The sending end of an edge over VIA: one VI, whose credits are the receives that the other end has posted.
//!
//! A message is a head and a payload, gathered from two segments. The payload of a buffer that is registered with the NIC
//! leaves from where it lies, and the buffer goes back to its pool once the send has completed and that was seen: by the
//! next caller of the sink, or by a thread that finds the pool empty. Any other is copied first. A buffer that is longer than the
//! receiver's travels in pieces.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use viaduct_via::{Completion, Descriptor, Error as ViaError, NetAddress, Op, Queue, Vi, ViAttributes};

use super::frame::{HEAD, Head, Kind, words_of};
use super::{CREDITS, Port, failed};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;
use crate::pool::{Home, Mark, MemPool, Reclaim};
use crate::raw::{Registered, Slot};

/// How long the words of a failure wait for a credit. Without one the receiver learns of it by the end of the connection.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// The sending end.
pub struct ViaSink(Arc<Sender>);

/// What pools of buffers that are under way know of it.
struct Sender {
    port: Port,
    vi: Vi,
    node: u32,
    /// Bytes of payload that fit into a message.
    size: usize,
    state: Mutex<Sending>,
    edge: Edge,
}

struct Sending {
    /// Memory for heads.
    heads: Vec<viaduct_via::Buffer>,
    /// Pools of the buffers that are under way, in the order of their sends; `None` for a message without payload.
    under_way: VecDeque<Option<Home>>,
    credits: usize,
    /// Registered memory for what comes from elsewhere; there once it was needed.
    copies: Option<MemPool>,
    /// Pools that know where their buffers are.
    known: Vec<Mark>,
    /// What a thread saw that looked for a buffer only: for the next call.
    failed: Option<Error>,
}

/// What ends a wait.
enum Came {
    Sent(Completion),
    Credit(Completion),
}

impl ViaSink {
    /// Connects to the edge of `node` that waits at `address`, whose buffers have `size` bytes.
    pub fn connect(
        name: &str,
        port: &Port,
        node: u32,
        address: &NetAddress,
        size: usize,
        limit: Duration,
    ) -> Result<ViaSink, Error> {
        ViaSink::connect_with(name, port, node, address, size, &[], limit)
    }

    /// As [`ViaSink::connect`], with a few bytes for the end that accepts.
    pub fn connect_with(
        name: &str,
        port: &Port,
        node: u32,
        address: &NetAddress,
        size: usize,
        greeting: &[u8],
        limit: Duration,
    ) -> Result<ViaSink, Error> {
        let broken = |error: ViaError| failed("connecting to", node, &error);
        let mut heads = port.memory(2 * CREDITS * HEAD).map_err(broken)?.chunks(HEAD);
        heads.truncate(CREDITS + 1);
        let vi = {
            let mut nic = port.nic().try_lock().map_err(broken)?;
            let vi = nic.create_vi(ViAttributes::new(port.tag())).map_err(broken)?;
            // A message with credits brings at least one, and there are never more than all.
            for _ in 0..=CREDITS {
                let posted = nic.post_recv(vi, Descriptor::recv_empty());
                posted.map_err(|error| failed("connecting to", node, &error))?;
            }
            nic.connect_start(vi, None, address, greeting, Some(limit)).map_err(broken)?;
            vi
        };
        let remote = port.nic().connect_finish(vi).map_err(broken)?;
        let credits = remote.private_data.first().map_or(0, |&count| usize::from(count)).min(CREDITS);
        let (under_way, known) = (VecDeque::new(), Vec::new());
        let state = Mutex::new(Sending { heads, under_way, credits, copies: None, known, failed: None });
        let size = size.next_multiple_of(viaduct_os::files::BLOCK);
        let (port, edge) = (port.clone(), Edge::new(name));
        Ok(ViaSink(Arc::new(Sender { port, vi, node, size, state, edge })))
    }
}

impl Sender {
    fn state(&self) -> MutexGuard<'_, Sending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, cause: &dyn std::fmt::Display) -> Error {
        failed("sending to", self.node, cause)
    }

    /// A send has completed: its memory is free again.
    fn sent(&self, state: &mut Sending, done: Completion) -> Result<(), Error> {
        let status = done.status;
        let home = state.under_way.pop_front().flatten();
        let mut memory = done.descriptor.into_buffers().into_iter();
        state.heads.extend(memory.next());
        if let (Some(memory), Some(home)) = (memory.next(), home) {
            home.give_back(Slot::Registered(Registered { memory, port: self.port.clone() }));
        }
        if status.is_success() {
            return Ok(());
        }
        let error = self.broken(&format!("{status:?}"));
        state.failed.get_or_insert_with(|| error.clone());
        Err(error)
    }

    fn credited(&self, state: &mut Sending, done: &Completion) -> Result<(), Error> {
        if !done.status.is_success() {
            let error = self.broken(&format!("the connection ended: {:?}", done.status));
            state.failed.get_or_insert_with(|| error.clone());
            return Err(error);
        }
        state.credits += done.immediate.unwrap_or(0) as usize;
        let mut nic = self.port.nic().try_lock().map_err(|error| self.broken(&error))?;
        nic.post_recv(self.vi, Descriptor::recv_empty()).map_err(|error| self.broken(&error))
    }

    /// Takes what has come back without waiting.
    fn look(&self, state: &mut Sending) -> Result<(), Error> {
        loop {
            let (sent, credit) = {
                let mut nic = self.port.nic().try_lock().map_err(|error| self.broken(&error))?;
                let sent = nic.poll_send(self.vi).map_err(|error| self.broken(&error))?;
                (sent, nic.poll_recv(self.vi).map_err(|error| self.broken(&error))?)
            };
            if sent.is_none() && credit.is_none() {
                return state.failed.clone().map_or(Ok(()), Err);
            }
            if let Some(done) = sent {
                self.sent(state, done)?;
            }
            if let Some(done) = credit {
                self.credited(state, &done)?;
            }
        }
    }

    /// Waits for a credit and a free head, at most for `limit`. Buffers whose sends complete meanwhile go back: a thread that
    /// waits for one of them cannot look while this one does.
    fn wait(&self, state: &mut Sending, limit: Option<Duration>) -> Result<(), Error> {
        while state.credits == 0 || state.heads.is_empty() {
            let came = self.port.nic().wait_until(limit, |nic| {
                let sent = nic.poll_send(self.vi).map(|done| done.map(Came::Sent)).transpose();
                sent.or_else(|| nic.poll_recv(self.vi).map(|done| done.map(Came::Credit)).transpose())
            });
            match came.map_err(|error| self.broken(&error))? {
                Came::Sent(done) => self.sent(state, done)?,
                Came::Credit(done) => self.credited(state, &done)?,
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, state: &mut Sending) -> Result<(), Error> {
        self.look(state)?;
        if state.credits == 0 || state.heads.is_empty() {
            self.edge.stalled_for_credit(|| self.wait(state, None))?;
        }
        Ok(())
    }

    /// Tells a pool to ask here for buffers when it has none.
    #[cold]
    fn enrol(self: &Arc<Self>, state: &mut Sending, pool: &Home) {
        state.known.retain(Mark::is_alive);
        state.known.push(pool.mark());
        let here: Weak<Sender> = Arc::downgrade(self);
        pool.enrol(here);
    }

    /// Sends a frame; the caller has seen to a credit and a head.
    fn send(self: &Arc<Self>, state: &mut Sending, head: Head, payload: Option<Buffer>) -> Result<(), Error> {
        let head = head.to_bytes()?;
        let mut memory = state.heads.pop().ok_or(Error::Stopped)?;
        memory.write(0, &head);
        let mut descriptor = Descriptor::new(Op::Send).segment(memory);
        let mut home = None;
        if let Some(Ok((slot, range, pool))) = payload.map(Buffer::into_registered) {
            descriptor = descriptor.segment_range(slot.memory, range);
            if !state.known.iter().any(|mark| mark.is_of(&pool)) {
                self.enrol(state, &pool);
            }
            home = Some(pool);
        }
        let mut nic = self.port.nic().try_lock().map_err(|error| self.broken(&error))?;
        nic.post_send(self.vi, descriptor).map_err(|error| self.broken(&error))?;
        drop(nic);
        state.under_way.push_back(home);
        state.credits = state.credits.saturating_sub(1);
        Ok(())
    }

    /// Sends a buffer that lies elsewhere, or is too long for one message, as copies.
    fn send_copies(self: &Arc<Self>, state: &mut Sending, buffer: &Buffer) -> Result<(), Error> {
        let whole = Head::of(buffer);
        let mut pieces = buffer.data().chunks(self.size).peekable();
        let mut first = true;
        while first || pieces.peek().is_some() {
            first = false;
            let piece = pieces.next().unwrap_or_default();
            self.wait_for_room(state)?;
            let mut copy = self.copy_room(state)?;
            copy.room_mut()[..piece.len()].copy_from_slice(piece);
            copy.set_window(0, piece.len());
            let kind = if pieces.peek().is_some() { Kind::Piece } else { Kind::Data };
            self.send(state, Head { kind, len: piece.len(), ..whole }, Some(copy))?;
        }
        Ok(())
    }

    /// Registered memory for a copy; waits for a send to complete if all of it is under way.
    fn copy_room(&self, state: &mut Sending) -> Result<Buffer, Error> {
        if state.copies.is_none() {
            state.copies = Some(MemPool::registered(&self.port, CREDITS, self.size, None)?);
        }
        loop {
            if let Some(room) = state.copies.as_ref().and_then(MemPool::try_take) {
                return Ok(room);
            }
            let done = self.port.nic().wait(self.vi, Queue::Send, None);
            self.sent(state, done.map_err(|error| self.broken(&error))?.0)?;
        }
    }

    /// Whether a buffer can leave from where it lies.
    fn fits(&self, buffer: &Buffer) -> bool {
        buffer.len() <= self.size && buffer.is_of(&self.port)
    }
}

impl Sink for ViaSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let (bytes, records) = (buffer.len(), buffer.records());
        let mut state = self.0.state();
        if self.0.fits(&buffer) {
            self.0.wait_for_room(&mut state)?;
            self.0.send(&mut state, Head::of(&buffer), Some(buffer))?;
        } else {
            self.0.send_copies(&mut state, &buffer)?;
        }
        self.0.edge.carried(bytes, records);
        Ok(())
    }

    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        let mut state = self.0.state();
        self.0.look(&mut state)?;
        if state.credits == 0 || state.heads.is_empty() {
            return Ok(Some(buffer));
        }
        drop(state);
        self.put(buffer).map(|()| None)
    }

    fn finish(&self) -> Result<(), Error> {
        let mut state = self.0.state();
        self.0.wait_for_room(&mut state)?;
        self.0.send(&mut state, Head::control(Kind::End, 0), None)?;
        while !state.under_way.is_empty() {
            let done = self.0.port.nic().wait(self.0.vi, Queue::Send, None);
            self.0.sent(&mut state, done.map_err(|error| self.0.broken(&error))?.0)?;
        }
        Ok(())
    }

    fn fail(&self, error: Error) {
        let words = words_of(&error);
        let mut state = self.0.state();
        let told =
            self.0.look(&mut state).and_then(|()| self.0.wait(&mut state, Some(LAST_WORDS))).and_then(|()| {
                let mut room = self.0.copy_room(&mut state)?;
                room.room_mut()[..words.len()].copy_from_slice(&words);
                room.set_window(0, words.len());
                self.0.send(&mut state, Head::control(Kind::Failure, words.len()), Some(room))
            });
        if told.is_err() {
            // If the connection is broken already the receiver knows.
            let _ = self.0.port.nic().disconnect(self.0.vi);
        }
    }

    fn edge(&self) -> &Edge {
        &self.0.edge
    }
}

impl Reclaim for Sender {
    fn reclaim(&self) {
        // A thread that has it takes back what is done itself.
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        while !state.under_way.is_empty() {
            let Ok(mut nic) = self.port.nic().try_lock() else { return };
            let Ok(Some(done)) = nic.poll_send(self.vi) else { return };
            drop(nic);
            // A failure stays for the next call of the sink.
            let _ = self.sent(&mut state, done);
        }
    }
}

impl Drop for Sender {
    /// Memory that is still under way goes back to its pools.
    fn drop(&mut self) {
        let _ = self.port.nic().disconnect(self.vi);
        let mut state = self.state();
        while !state.under_way.is_empty() {
            let Ok(mut nic) = self.port.nic().try_lock() else { return };
            let Ok(Some(done)) = nic.poll_send(self.vi) else { break };
            drop(nic);
            let _ = self.sent(&mut state, done);
        }
        if let Ok(mut nic) = self.port.nic().try_lock() {
            let _ = nic.destroy_vi(self.vi);
        }
    }
}
