//! The receiving end of an edge over VIA: buffers of its pool are posted, and each is a credit of the sender.
//!
//! A message lands in two segments, a head and a buffer of the pool, which is then handed on as it is. Each pull posts as many
//! buffers as the pool has free, up to a few, and tells the sender how many; a receiver that finds none waits for one, so
//! that its sender stops.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use viaduct_via::{ConnRequest, Descriptor, Error as ViaError, Op, Queue, Vi, ViAttributes};

use super::frame::{HEAD, Head, Kind};
use super::{CREDITS, Port, failed};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;
use crate::pool::{Home, MemPool};
use crate::raw::{Registered, Slot};

/// The receiving end.
pub struct ViaSource {
    port: Port,
    vi: Vi,
    node: u32,
    pool: MemPool,
    state: Mutex<Receiving>,
    edge: Edge,
}

struct Receiving {
    heads: Vec<viaduct_via::Buffer>,
    /// Pools of the posted buffers, in their order.
    posted: VecDeque<Home>,
    /// Pieces of a long buffer whose last piece has not come.
    pieces: Vec<u8>,
    dry: bool,
}

impl ViaSource {
    /// Accepts the edge of `node` that asks by `request`; messages go into buffers of `pool`, which is registered with
    /// `port` and of the sender's size.
    pub fn accept(
        name: &str,
        port: &Port,
        node: u32,
        request: ConnRequest,
        pool: MemPool,
    ) -> Result<ViaSource, Error> {
        let broken = |error: ViaError| failed("accepting", node, &error);
        if !pool.is_of(port) {
            return Err(failed("accepting", node, &"the pool is not registered with the NIC of the edge"));
        }
        let heads = port.memory(CREDITS * HEAD).map_err(broken)?.chunks(HEAD);
        let vi = port.nic().try_lock().map_err(broken)?.create_vi(ViAttributes::new(port.tag()));
        let vi = vi.map_err(broken)?;
        let state = Receiving { heads, posted: VecDeque::new(), pieces: Vec::new(), dry: false };
        let (port, edge) = (port.clone(), Edge::new(name));
        let source = ViaSource { port, vi, node, pool, state: Mutex::new(state), edge };
        let mut state = source.state.lock().unwrap_or_else(PoisonError::into_inner);
        let credits = source.post(&mut state, true)? as u8;
        let mut nic = source.port.nic().try_lock().map_err(broken)?;
        nic.accept_with(request, vi, &[credits]).map_err(|refused| broken(refused.error))?;
        drop((nic, state));
        Ok(source)
    }

    fn broken(&self, cause: &dyn std::fmt::Display) -> Error {
        failed("receiving from", self.node, cause)
    }

    /// Posts free buffers; if none is posted then and `wait` says so, waits for one. Returns how many were posted.
    fn post(&self, state: &mut Receiving, wait: bool) -> Result<usize, Error> {
        let mut count = 0;
        while let Some(head) = state.heads.pop() {
            let buffer = match self.pool.try_take() {
                Some(buffer) => buffer,
                None if wait && state.posted.is_empty() => self.edge.stalled_for_credit(|| self.pool.take()),
                None => {
                    state.heads.push(head);
                    break;
                }
            };
            let Ok((slot, _, home)) = buffer.into_registered() else { return Err(Error::Stopped) };
            let descriptor = Descriptor::new(Op::Receive).segment(head).segment(slot.memory);
            let mut nic = self.port.nic().try_lock().map_err(|error| self.broken(&error))?;
            let posted = nic.post_recv(self.vi, descriptor);
            drop(nic);
            if let Err(refused) = posted {
                let broken = self.broken(&refused);
                drop(self.back(state, refused.descriptor, home));
                return Err(broken);
            }
            state.posted.push_back(home);
            count += 1;
        }
        Ok(count)
    }

    /// Posts what is free and tells the sender of it.
    fn grant(&self, state: &mut Receiving, wait: bool) -> Result<(), Error> {
        let credits = self.post(state, wait)?;
        if credits > 0 {
            let mut nic = self.port.nic().try_lock().map_err(|error| self.broken(&error))?;
            // A sender that has finished may be gone, and needs no credit.
            let _ = nic.send_inline(self.vi, &[], Some(credits as u32));
        }
        Ok(())
    }

    /// Waits for a message: its head, and a buffer with its payload.
    fn message(&self, state: &mut Receiving) -> Result<(Head, Buffer), Error> {
        self.grant(state, true)?;
        let wait = || self.port.nic().wait(self.vi, Queue::Receive, None);
        let done = self.edge.stalled_for_data(wait).map_err(|error| self.broken(&error))?.0;
        let (status, got) = (done.status, done.length as usize);
        let buffer = self.taken(state, done.descriptor);
        if !status.is_success() {
            return Err(self.broken(&format!("the connection ended before the flow did: {status:?}")));
        }
        // The sender can go on while this message is used. One that has finished may be gone; the next wait will tell.
        let _ = self.grant(state, false);
        let (head, buffer) = buffer.ok_or_else(|| self.broken(&"a receive without its memory"))?;
        let payload = got.checked_sub(HEAD).ok_or_else(|| self.broken(&"a message without a head"))?;
        let head = Head::from_bytes(&head, payload).map_err(|error| error.at_node(self.node))?;
        Ok((head, buffer))
    }

    /// The memory of a receive that came back: the bytes of the head, and the buffer.
    fn taken(&self, state: &mut Receiving, descriptor: Descriptor) -> Option<([u8; HEAD], Buffer)> {
        let home = state.posted.pop_front()?;
        self.back(state, descriptor, home)
    }

    fn back(
        &self,
        state: &mut Receiving,
        descriptor: Descriptor,
        home: Home,
    ) -> Option<([u8; HEAD], Buffer)> {
        let mut memory = descriptor.into_buffers().into_iter();
        let (head, payload) = (memory.next()?, memory.next()?);
        let mut bytes = [0; HEAD];
        head.read(0, &mut bytes);
        state.heads.push(head);
        let slot = Slot::Registered(Registered { memory: payload, port: self.port.clone() });
        Some((bytes, Buffer::pooled(slot, home)))
    }

    fn frame(&self, state: &mut Receiving) -> Result<Option<Buffer>, Error> {
        loop {
            let (head, mut buffer) = self.message(state)?;
            match head.kind {
                Kind::End => return Ok(None),
                Kind::Failure => {
                    let cause = String::from_utf8_lossy(&buffer.room()[..head.len]).into_owned();
                    return Err(Error::Node { node: self.node, cause });
                }
                Kind::Piece => state.pieces.extend_from_slice(&buffer.room()[..head.len]),
                Kind::Data if state.pieces.is_empty() => {
                    head.mark(&mut buffer);
                    return Ok(Some(buffer));
                }
                Kind::Data => {
                    let mut pieces = std::mem::take(&mut state.pieces);
                    pieces.extend_from_slice(&buffer.room()[..head.len]);
                    let mut whole = Buffer::of_bytes(pieces);
                    let len = whole.capacity();
                    Head { len, ..head }.mark(&mut whole);
                    return Ok(Some(whole));
                }
            }
        }
    }
}

impl Source for ViaSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.dry {
            return Ok(None);
        }
        let buffer = self.frame(&mut state);
        match &buffer {
            Ok(Some(buffer)) => self.edge.carried(buffer.len(), buffer.records()),
            _ => state.dry = true,
        }
        buffer
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

impl Drop for ViaSource {
    /// Posted buffers go back to their pools.
    fn drop(&mut self) {
        let _ = self.port.nic().disconnect(self.vi);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.posted.is_empty() {
            let Ok(mut nic) = self.port.nic().try_lock() else { return };
            let Ok(Some(done)) = nic.poll_recv(self.vi) else { break };
            drop(nic);
            drop(self.taken(&mut state, done.descriptor));
        }
        if let Ok(mut nic) = self.port.nic().try_lock() {
            let _ = nic.destroy_vi(self.vi);
        }
    }
}
