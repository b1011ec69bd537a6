//! An edge over VIA: one VI, whose posted receives are the credits.
//!
//! The receiver posts its receives before the connection is made and says how many; each message uses one up. Once a message
//! was taken over into a buffer of the pool, its receive is posted again and the sender gets the credit back, as a message
//! without payload the other way. A receiver that finds no free buffer therefore stops its sender after the posted ones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use viaduct_via::{
    Completion, ConnRequest, Descriptor, MemAttributes, NetAddress, Op, Queue, SharedNic, Vi, ViAttributes,
};

use super::frame::{HEAD, Head, Kind, words_of};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::{Sink, Source};
use crate::pool::MemPool;

/// Receives that the receiver keeps posted, and sends that the sender keeps under way.
const CREDITS: usize = 4;

/// The sending end.
pub struct ViaSink {
    nic: SharedNic,
    vi: Vi,
    node: u32,
    size: usize,
    state: Mutex<Sending>,
    edge: Edge,
}

struct Sending {
    free: Vec<viaduct_via::Buffer>,
    under_way: usize,
    credits: usize,
}

impl ViaSink {
    /// Connects to the edge of `node` that waits at `address`, for buffers of at most `size` bytes.
    pub fn connect(
        name: &str,
        nic: SharedNic,
        node: u32,
        address: &NetAddress,
        size: usize,
        limit: Duration,
    ) -> Result<ViaSink, Error> {
        let failed = |error: viaduct_via::Error| net("connecting to", node, &error);
        let (vi, free) = {
            let mut held = nic.try_lock().map_err(failed)?;
            let tag = held.create_ptag().map_err(failed)?;
            let vi = held.create_vi(ViAttributes::new(tag)).map_err(failed)?;
            let alloc = |_| held.alloc(size + HEAD, MemAttributes::local(tag)).map_err(failed);
            let free = (0..CREDITS).map(alloc).collect::<Result<Vec<_>, Error>>()?;
            // Each credit that is given back is a message; there are never more than all credits.
            for _ in 0..=CREDITS {
                let posted = held.post_recv(vi, Descriptor::recv_empty());
                posted.map_err(|error| net("connecting to", node, &error))?;
            }
            held.connect_start(vi, None, address, &[], Some(limit)).map_err(failed)?;
            (vi, free)
        };
        nic.connect_finish(vi).map_err(failed)?;
        let state = Sending { free, under_way: 0, credits: CREDITS };
        Ok(ViaSink { nic, vi, node, size, state: Mutex::new(state), edge: Edge::new(name) })
    }

    fn state(&self) -> MutexGuard<'_, Sending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, cause: &dyn std::fmt::Display) -> Error {
        net("sending to", self.node, cause)
    }

    fn sent(&self, state: &mut Sending, done: Completion) -> Result<(), Error> {
        state.under_way -= 1;
        if !done.status.is_success() {
            return Err(self.broken(&format!("{:?}", done.status)));
        }
        state.free.extend(done.descriptor.into_buffers());
        Ok(())
    }

    fn credited(&self, state: &mut Sending, done: &Completion) -> Result<(), Error> {
        if !done.status.is_success() {
            return Err(self.broken(&format!("the connection ended: {:?}", done.status)));
        }
        state.credits += 1;
        let again = self
            .nic
            .try_lock()
            .map_err(|error| self.broken(&error))?
            .post_recv(self.vi, Descriptor::recv_empty());
        again.map_err(|error| self.broken(&error))
    }

    /// Takes what has come back without waiting.
    fn look(&self, state: &mut Sending) -> Result<(), Error> {
        loop {
            let (sent, credit) = {
                let mut nic = self.nic.try_lock().map_err(|error| self.broken(&error))?;
                let sent = nic.poll_send(self.vi).map_err(|error| self.broken(&error))?;
                (sent, nic.poll_recv(self.vi).map_err(|error| self.broken(&error))?)
            };
            if sent.is_none() && credit.is_none() {
                return Ok(());
            }
            if let Some(done) = sent {
                self.sent(state, done)?;
            }
            if let Some(done) = credit {
                self.credited(state, &done)?;
            }
        }
    }

    /// Waits for a credit and a free piece of memory.
    fn wait(&self, state: &mut Sending) -> Result<(), Error> {
        while state.credits == 0 {
            let done = self.nic.wait(self.vi, Queue::Receive, None).map_err(|error| self.broken(&error))?;
            self.credited(state, &done)?;
        }
        while state.free.is_empty() {
            let done = self.nic.wait(self.vi, Queue::Send, None).map_err(|error| self.broken(&error))?;
            self.sent(state, done)?;
        }
        Ok(())
    }

    /// Sends a frame; the caller has seen to a credit and memory.
    fn send(&self, state: &mut Sending, head: Head, payload: &[u8]) -> Result<(), Error> {
        let mut memory = state.free.pop().ok_or(Error::Stopped)?;
        memory.write(0, &head.to_bytes());
        memory.write(HEAD, payload);
        let descriptor = Descriptor::new(Op::Send).segment_range(memory, 0..HEAD + payload.len());
        let posted = self.nic.try_lock().map_err(|error| self.broken(&error))?.post_send(self.vi, descriptor);
        posted.map_err(|error| self.broken(&error))?;
        state.under_way += 1;
        state.credits = state.credits.saturating_sub(1);
        Ok(())
    }

    fn send_waiting(&self, head: Head, payload: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        self.look(&mut state)?;
        if state.credits == 0 || state.free.is_empty() {
            self.edge.stalled_for_credit(|| self.wait(&mut state))?;
        }
        self.send(&mut state, head, payload)
    }
}

impl Sink for ViaSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        if buffer.len() > self.size {
            return Err(self.broken(&format!("a buffer of {} bytes where {} fit", buffer.len(), self.size)));
        }
        self.send_waiting(Head::of(&buffer), buffer.data())?;
        self.edge.carried(buffer.len(), buffer.records());
        Ok(())
    }

    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        let mut state = self.state();
        self.look(&mut state)?;
        if state.credits == 0 || state.free.is_empty() {
            return Ok(Some(buffer));
        }
        self.send(&mut state, Head::of(&buffer), buffer.data())?;
        self.edge.carried(buffer.len(), buffer.records());
        Ok(None)
    }

    fn finish(&self) -> Result<(), Error> {
        self.send_waiting(Head::control(Kind::End, 0), &[])?;
        let mut state = self.state();
        while state.under_way > 0 {
            let done = self.nic.wait(self.vi, Queue::Send, None).map_err(|error| self.broken(&error))?;
            self.sent(&mut state, done)?;
        }
        Ok(())
    }

    fn fail(&self, error: Error) {
        let words = words_of(&error);
        let mut state = self.state();
        // The receiver keeps one receive more than there are credits for this. If the connection is broken it knows of that.
        let seen = self.look(&mut state);
        if seen.is_ok() && !state.free.is_empty() {
            let _ = self.send(&mut state, Head::control(Kind::Failure, words.len()), &words);
        }
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// The receiving end.
pub struct ViaSource {
    nic: SharedNic,
    vi: Vi,
    node: u32,
    pool: MemPool,
    dry: Mutex<bool>,
    edge: Edge,
}

impl ViaSource {
    /// Accepts the edge of `node` that asks by `request`; messages go into buffers of `pool`, which is of the sender's size.
    pub fn accept(
        name: &str,
        nic: SharedNic,
        node: u32,
        request: ConnRequest,
        pool: MemPool,
    ) -> Result<ViaSource, Error> {
        let failed = |error: viaduct_via::Error| net("accepting", node, &error);
        let vi = {
            let mut held = nic.try_lock().map_err(failed)?;
            let tag = held.create_ptag().map_err(failed)?;
            let vi = held.create_vi(ViAttributes::new(tag)).map_err(failed)?;
            // One more than there are credits, for the words of a failure.
            for _ in 0..=CREDITS {
                let memory =
                    held.alloc(pool.buffer_size() + HEAD, MemAttributes::local(tag)).map_err(failed)?;
                let posted = held.post_recv(vi, Descriptor::recv(memory));
                posted.map_err(|error| net("accepting", node, &error))?;
            }
            held.accept(request, vi).map_err(|(error, _)| failed(error))?;
            vi
        };
        Ok(ViaSource { nic, vi, node, pool, dry: Mutex::new(false), edge: Edge::new(name) })
    }

    fn broken(&self, cause: &dyn std::fmt::Display) -> Error {
        net("receiving from", self.node, cause)
    }

    fn frame(&self) -> Result<Option<Buffer>, Error> {
        let wait = || self.nic.wait(self.vi, Queue::Receive, None);
        let done = self.edge.stalled_for_data(wait).map_err(|error| self.broken(&error))?;
        if !done.status.is_success() {
            return Err(self.broken(&format!("the connection ended before the flow did: {:?}", done.status)));
        }
        let got = done.length as usize;
        let memory = done.descriptor.into_buffer();
        if got < HEAD {
            return Err(self.broken(&"a message without a head"));
        }
        let mut head = [0; HEAD];
        memory.read(0, &mut head);
        let head = Head::from_bytes(&head, got - HEAD).map_err(|error| error.at_node(self.node))?;
        match head.kind {
            Kind::End => Ok(None),
            Kind::Failure => {
                let mut words = vec![0; head.len];
                memory.read(HEAD, &mut words);
                Err(Error::Node { node: self.node, cause: String::from_utf8_lossy(&words).into_owned() })
            }
            Kind::Data => {
                let mut buffer = self.edge.stalled_for_credit(|| self.pool.take());
                memory.read(HEAD, &mut buffer.room_mut()[..head.len]);
                head.mark(&mut buffer);
                let mut nic = self.nic.try_lock().map_err(|error| self.broken(&error))?;
                nic.post_recv(self.vi, Descriptor::recv(memory)).map_err(|error| self.broken(&error))?;
                // A sender that has finished may be gone, and needs no credit.
                let _ = nic.send_inline(self.vi, &[], Some(1));
                Ok(Some(buffer))
            }
        }
    }
}

impl Source for ViaSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut dry = self.dry.lock().unwrap_or_else(PoisonError::into_inner);
        if *dry {
            return Ok(None);
        }
        let buffer = self.frame();
        match &buffer {
            Ok(Some(buffer)) => self.edge.carried(buffer.len(), buffer.records()),
            _ => *dry = true,
        }
        buffer
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

fn net(what: &'static str, node: u32, cause: &dyn std::fmt::Display) -> Error {
    Error::Net { what, node, cause: cause.to_string() }
}
