//! Connections of a process: to the server of every node, and at a server from every process.
//!
//! Each request is answered on the VI it came by, and a process has no more requests under way to a node than the server
//! keeps receives posted, so that no message ever finds none.

use std::collections::HashMap;
use std::time::Duration;

use viaduct_via::{
    Completion, Cq, Descriptor, Listener, MemAttributes, NetAddress, Nic, ProtectionTag, Queue, Vi,
    ViAttributes,
};

use super::wire::{Bounds, HEAD, Head};
use crate::ids::NodeId;

/// Receives of a VI.
const RECEIVES: usize = 16;
/// Requests that a process has under way to one node.
pub(crate) const LIMIT: usize = RECEIVES - 2;
/// How long setting up a connection may take.
const SET_UP: Duration = Duration::from_secs(30);
/// Send buffers made at a time.
const BATCH: usize = 8;

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) vi: Vi,
    pub(crate) head: Head,
}

/// Why a process cannot go on with its network.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection with a node is broken.
    Down(NodeId),
    Via(viaduct_via::Error),
}

impl From<viaduct_via::Error> for Fault {
    fn from(error: viaduct_via::Error) -> Fault {
        Fault::Via(error)
    }
}

pub(crate) struct Net {
    nic: Nic,
    cq: Cq,
    tag: ProtectionTag,
    /// Bytes of the longest message.
    longest: usize,
    bounds: Bounds,
    links: Vec<Option<Vi>>,
    peers: HashMap<Vi, NodeId>,
    free: Vec<Descriptor>,
    /// What followed the head of the last message.
    inbox: Vec<u8>,
}

impl Net {
    pub(crate) fn new(mut nic: Nic, bounds: Bounds, payload: usize) -> Result<Net, viaduct_via::Error> {
        let tag = nic.create_ptag()?;
        let cq = nic.create_cq(nic.attributes().max_cq_entries.min(1 << 16))?;
        let longest = (HEAD + payload).next_multiple_of(64);
        let links = vec![None; usize::from(bounds.nodes)];
        let (free, inbox) = (Vec::with_capacity(256), vec![0; longest]);
        Ok(Net { nic, cq, tag, longest, bounds, links, peers: HashMap::new(), free, inbox })
    }

    pub(crate) fn listen(&mut self, address: &NetAddress) -> Result<Listener, viaduct_via::Error> {
        self.nic.listen(address, 256)
    }

    fn vi(&mut self) -> Result<Vi, viaduct_via::Error> {
        let attributes = ViAttributes {
            send_depth: 2 * RECEIVES,
            recv_depth: RECEIVES,
            ..ViAttributes::new(self.tag).cq(self.cq)
        };
        let vi = self.nic.create_vi(attributes)?;
        let region = self.nic.alloc(self.longest * RECEIVES, MemAttributes::local(self.tag))?;
        for buffer in region.chunks(self.longest) {
            self.nic.post_recv(vi, Descriptor::recv(buffer)).map_err(|refused| refused.error)?;
        }
        Ok(vi)
    }

    /// Asks for a connection with the server of a node; the private data say which node asks.
    pub(crate) fn connect(
        &mut self,
        me: NodeId,
        node: NodeId,
        address: &NetAddress,
    ) -> Result<Vi, viaduct_via::Error> {
        let vi = self.vi()?;
        self.nic.connect_start(vi, None, address, &[me.0], Some(SET_UP))?;
        self.links[usize::from(node.0)] = Some(vi);
        self.peers.insert(vi, node);
        Ok(vi)
    }

    /// Whether the connection stands.
    pub(crate) fn connected(&mut self, vi: Vi) -> Result<bool, viaduct_via::Error> {
        Ok(self.nic.connect_poll(vi)?.is_some())
    }

    /// Accepts one request at a listener, if there is one.
    pub(crate) fn accept(&mut self, listener: Listener) -> Result<bool, viaduct_via::Error> {
        let Some(request) = self.nic.poll_listener(listener)? else { return Ok(false) };
        let from = match request.remote().private_data[..] {
            [node] if node < self.bounds.nodes => NodeId(node),
            _ => {
                self.nic.reject(request)?;
                return Ok(false);
            }
        };
        let vi = self.vi()?;
        self.nic.accept(request, vi).map_err(|(error, _)| error)?;
        self.peers.insert(vi, from);
        Ok(true)
    }

    /// Makes send buffers, so that a page fault finds some.
    pub(crate) fn prepare(&mut self) -> Result<(), viaduct_via::Error> {
        let region = self.nic.alloc(self.longest * BATCH, MemAttributes::local(self.tag))?;
        self.free.extend(region.chunks(self.longest).into_iter().map(Descriptor::send));
        Ok(())
    }

    pub(crate) fn link(&self, node: NodeId) -> Vi {
        self.links[usize::from(node.0)].expect("every process is connected with every server")
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, vi: Vi, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if self.free.is_empty() {
            self.prepare()?;
        }
        let mut descriptor = self.free.pop().expect("just made");
        descriptor.write(0, 0, &Head { len: payload.len() as u32, ..head }.to_bytes());
        descriptor.write(0, HEAD, payload);
        descriptor.set_len(HEAD + payload.len());
        match self.nic.post_send(vi, descriptor) {
            Ok(()) => Ok(()),
            Err(refused) => match self.peers.get(&vi) {
                Some(&node) => Err(Fault::Down(node)),
                None => Err(Fault::Via(refused.error)),
            },
        }
    }

    /// The next message, if one is there or comes within `timeout`.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Option<Came>, Fault> {
        loop {
            let done = match self.nic.poll_cq(self.cq)? {
                Some(done) => done,
                None if timeout.is_zero() => return Ok(None),
                None => match self.nic.wait_cq(self.cq, Some(timeout)) {
                    Ok(done) => done,
                    Err(viaduct_via::Error::Timeout) => return Ok(None),
                    Err(error) => return Err(error.into()),
                },
            };
            if let Some(came) = self.take(done)? {
                return Ok(Some(came));
            }
        }
    }

    fn take(&mut self, done: Completion) -> Result<Option<Came>, Fault> {
        let Completion { vi, queue, status, length, descriptor, .. } = done;
        let node = self.peers.get(&vi).copied().unwrap_or(NodeId(0));
        if !status.is_success() {
            return Err(Fault::Down(node));
        }
        if queue == Queue::Send {
            self.free.push(descriptor);
            return Ok(None);
        }
        let mut bytes = [0; HEAD];
        let length = (length as usize).min(self.longest);
        let buffer = &descriptor.buffers()[0];
        buffer.read(0, &mut bytes);
        let head = Head::parse(&bytes, self.bounds).filter(|head| head.len as usize + HEAD == length);
        if let Some(head) = head {
            buffer.read(HEAD, &mut self.inbox[..head.len as usize]);
        }
        self.nic.post_recv(vi, descriptor).map_err(|refused| Fault::Via(refused.error))?;
        // A node that sends what is no message is as good as gone.
        let head = head.ok_or(Fault::Down(node))?;
        Ok(Some(Came { vi, head }))
    }

    /// What followed the head of the last message.
    pub(crate) fn payload(&self, head: &Head) -> &[u8] {
        &self.inbox[..head.len as usize]
    }
}
