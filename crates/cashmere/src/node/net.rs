//! Connections of a process: with every other one of the run.
//!
//! A process has no more requests under way to another than half of the receives of a VI, so that no message ever finds
//! none. Workers of one node only wake each other.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use viaduct_via::{
    Buffer, Completion, Cq, Descriptor, Error, Listener, MemAttributes, NetAddress, Nic, Op, ProtectionTag,
    Queue, RemoteAddress, Status, Vi, ViAttributes,
};

use super::wire::{Bounds, HEAD, Head, Peer, SLOTS};
use crate::ids::NodeId;

/// Receives of a VI with a server: for requests, second copies of them, and answers.
pub(crate) const WITH_SERVER: usize = 3 * SLOTS + 3;
/// Receives of a VI between workers: for requests and answers.
pub(crate) const BETWEEN_WORKERS: usize = 2 * SLOTS + 2;
/// Descriptors of remote writes, where they do not go by value; all of them fit into a send queue.
const WRITES: usize = 16;
/// How long setting up a connection may take.
const SET_UP: Duration = Duration::from_secs(30);
/// Send buffers of a process, at least.
const BUFFERS: usize = 32;
/// How long a process that waits for a send buffer sleeps at most.
const NAP: Duration = Duration::from_millis(50);

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) head: Head,
}

/// What ended a wait.
#[derive(Debug)]
pub(crate) enum Woken {
    /// What was waited for is there.
    Ready,
    /// A message came.
    Message(Came),
    /// A remote write has landed, or an answer to an operation on remote memory came.
    Landed,
    /// The time is over.
    Timeout,
}

/// Why a process cannot go on with its network.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection with a node is broken: how that was seen.
    Down(NodeId, Seen),
    Via(Error),
}

/// How a broken connection was seen.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A call was refused.
    Refused(Error),
    /// A descriptor came back so.
    Ended(Op, Status),
    /// What came is no message of that node.
    Nonsense,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Refused(error) => write!(f, "a call was refused: {error}"),
            Seen::Ended(op, status) => write!(f, "{op:?} ended with {status}"),
            Seen::Nonsense => f.write_str("what came is no message of it"),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Via(error)
    }
}

pub(crate) struct Net {
    pub(crate) nic: Nic,
    cq: Cq,
    tag: ProtectionTag,
    /// Bytes of the longest message.
    longest: usize,
    bounds: Bounds,
    /// By rank.
    links: Vec<Option<Vi>>,
    peers: HashMap<Vi, NodeId>,
    free: Vec<Descriptor>,
    /// Send buffers, free and under way.
    buffers: usize,
    /// What came while a send buffer was looked for: it is taken in before anything else.
    early: VecDeque<Completion>,
    /// Receives of all connections: as many can come early.
    receives: usize,
    writes: Vec<Descriptor>,
    /// Remote writes that have not landed.
    writing: usize,
    swap: Option<Descriptor>,
    look: Option<Descriptor>,
    /// The word that the last operation on remote memory brought.
    brought: Option<u64>,
    /// What this process has opened to the others.
    shares: Vec<Buffer>,
    /// What followed the head of the last message.
    inbox: Vec<u8>,
}

impl Net {
    pub(crate) fn new(mut nic: Nic, bounds: Bounds, payload: usize) -> Result<Net, Error> {
        let tag = nic.create_ptag()?;
        let cq = nic.create_cq(nic.attributes().max_cq_entries.min(1 << 16))?;
        let longest = (HEAD + payload).next_multiple_of(64);
        let links = vec![None; usize::from(bounds.nodes) * bounds.group()];
        Ok(Net {
            nic,
            cq,
            tag,
            longest,
            bounds,
            links,
            peers: HashMap::new(),
            free: Vec::with_capacity(256),
            buffers: 0,
            early: VecDeque::new(),
            receives: 0,
            writes: Vec::with_capacity(WRITES),
            writing: 0,
            swap: None,
            look: None,
            brought: None,
            shares: Vec::new(),
            inbox: vec![0; longest],
        })
    }

    /// Opens a segment to the remote writes of others, and gives its place.
    pub(crate) fn open(
        &mut self,
        segment: &std::sync::Arc<viaduct_os::segment::Segment>,
    ) -> Result<RemoteAddress, Error> {
        let attributes = MemAttributes::remote(self.tag);
        let buffer = self.nic.register_segment(segment, 0..segment.len(), attributes)?;
        let place = buffer.remote(0);
        self.shares.push(buffer);
        Ok(place)
    }

    pub(crate) fn listen(&mut self, address: &NetAddress) -> Result<Listener, Error> {
        self.nic.listen(address, 256)
    }

    /// A VI with so many receives: none if it carries no messages.
    fn vi(&mut self, receives: usize) -> Result<Vi, Error> {
        let attributes = ViAttributes {
            send_depth: 4 * WITH_SERVER,
            recv_depth: WITH_SERVER,
            ..ViAttributes::new(self.tag).cq(self.cq)
        };
        let vi = self.nic.create_vi(attributes)?;
        self.receives += receives;
        self.early.reserve(self.receives + WRITES + 2);
        if receives > 0 {
            let region = self.nic.alloc(self.longest * receives, MemAttributes::local(self.tag))?;
            for buffer in region.chunks(self.longest) {
                self.nic.post_recv(vi, Descriptor::recv(buffer)).map_err(|refused| refused.error)?;
            }
        }
        Ok(vi)
    }

    fn adopt(&mut self, rank: usize, vi: Vi) {
        self.links[rank] = Some(vi);
        self.peers.insert(vi, NodeId((rank / self.bounds.group()) as u8));
    }

    /// Asks a process for a connection; the private data say which one asks.
    pub(crate) fn connect(
        &mut self,
        me: usize,
        rank: usize,
        address: &NetAddress,
        receives: usize,
    ) -> Result<Vi, Error> {
        let vi = self.vi(receives)?;
        self.nic.connect_start(vi, None, address, &(me as u32).to_le_bytes(), Some(SET_UP))?;
        self.adopt(rank, vi);
        Ok(vi)
    }

    /// Whether the connection stands.
    pub(crate) fn connected(&mut self, vi: Vi) -> Result<bool, Error> {
        Ok(self.nic.connect_poll(vi)?.is_some())
    }

    /// Accepts one request at a listener, if there is one. `receives` says how many the VI with a rank has. True: a
    /// connection more stands.
    pub(crate) fn accept(
        &mut self,
        listener: Listener,
        receives: impl Fn(usize) -> usize,
    ) -> Result<bool, Error> {
        let Some(request) = self.nic.poll_listener(listener)? else { return Ok(false) };
        let told = <[u8; 4]>::try_from(&request.remote().private_data[..]).map(u32::from_le_bytes);
        let rank = match told {
            Ok(rank) if self.links.get(rank as usize).is_some_and(Option::is_none) => rank as usize,
            _ => {
                self.nic.reject(request)?;
                return Ok(false);
            }
        };
        let vi = self.vi(receives(rank))?;
        self.nic.accept(request, vi)?;
        self.adopt(rank, vi);
        Ok(true)
    }

    /// Makes all send buffers: for the requests that are under way, for their copies, and for answers.
    pub(crate) fn prepare(&mut self) -> Result<(), Error> {
        let count = BUFFERS.max(3 * usize::from(self.bounds.nodes) * SLOTS);
        let region = self.nic.alloc(self.longest * count, MemAttributes::local(self.tag))?;
        self.free.reserve(count);
        self.free.extend(region.chunks(self.longest).into_iter().map(Descriptor::send));
        self.buffers = self.free.len();
        Ok(())
    }

    /// Whether all messages have left.
    pub(crate) fn has_sent(&self) -> bool {
        self.free.len() == self.buffers
    }

    /// Makes descriptors of remote operations, so that a page fault finds some. `claim` is what a swap puts in.
    pub(crate) fn prepare_writes(&mut self, claim: u64) -> Result<(), Error> {
        let local = MemAttributes::local(self.tag);
        let nowhere = RemoteAddress { addr: 0, handle: viaduct_via::MemHandle::NONE };
        let region = self.nic.alloc(self.longest * WRITES, local)?;
        let writes = region.chunks(self.longest).into_iter();
        self.writes.extend(writes.map(|buffer| Descriptor::rdma_write(buffer, nowhere)));
        let (swapped, looked) = self.nic.alloc(16, local)?.split_at(8);
        self.swap = Some(Descriptor::compare_swap(swapped, nowhere, 0, claim));
        self.look = Some(Descriptor::rdma_read(looked, nowhere));
        Ok(())
    }

    /// The rank of a process.
    pub(crate) fn rank(&self, peer: Peer) -> usize {
        usize::from(peer.node.0) * self.bounds.group() + peer.place()
    }

    /// The VI to a process.
    fn link(&self, peer: Peer) -> Option<Vi> {
        self.links[self.rank(peer)]
    }

    /// The VI to the server of a node.
    fn server(&self, node: NodeId) -> Vi {
        self.link(Peer { node, worker: None }).expect("every process is connected with every server")
    }

    /// Wakes a process, which looks again at what it waits for.
    pub(crate) fn nudge(&mut self, peer: Peer) {
        if let Some(vi) = self.link(peer) {
            // A connection that is gone is found by the next call that waits.
            let _ = self.nic.nudge(vi);
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, to: Peer, head: Head, payload: &[u8]) -> Result<(), Fault> {
        // A process that names itself or a sibling as the one to answer speaks nonsense.
        let vi = self.link(to).ok_or(Fault::Down(to.node, Seen::Nonsense))?;
        self.reap()?;
        let mut descriptor = self.free.pop().expect("one came back");
        descriptor.write(0, 0, &Head { len: payload.len() as u32, ..head }.to_bytes());
        descriptor.write(0, HEAD, payload);
        descriptor.set_len(HEAD + payload.len());
        self.post(vi, descriptor)
    }

    /// Waits for the buffer of a message that has left, where no other is free: a page fault makes none. What comes meanwhile
    /// waits in its own buffer, so that no process that waits here keeps the buffers of another.
    fn reap(&mut self) -> Result<(), Fault> {
        while self.free.is_empty() {
            let cq = self.cq;
            let done = match self.nic.wait_for(Some(NAP), |nic| nic.poll_cq(cq).transpose()) {
                Ok(done) => done?,
                Err(Error::Timeout) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_lost = !done.status.is_success();
            match done.queue {
                Queue::Send if !is_lost => drop(self.sent(done.descriptor)),
                _ if is_lost => return self.take(done).map(drop),
                _ => self.early.push_back(done),
            }
        }
        Ok(())
    }

    fn post(&mut self, vi: Vi, descriptor: Descriptor) -> Result<(), Fault> {
        match self.nic.post_send(vi, descriptor) {
            Ok(()) => Ok(()),
            Err(refused) => match self.peers.get(&vi) {
                Some(&node) => Err(Fault::Down(node, Seen::Refused(refused.error))),
                None => Err(Fault::Via(refused.error)),
            },
        }
    }

    /// Whether another remote write can begin.
    pub(crate) fn can_write(&self) -> bool {
        self.writing < WRITES
    }

    /// Whether all remote writes have landed.
    pub(crate) fn has_landed(&self) -> bool {
        self.writing == 0
    }

    /// Writes bytes, at most as many as a message has, into the memory of a node. They are there when
    /// [`has_landed`](Self::has_landed) says so. The caller has asked [`can_write`](Self::can_write).
    pub(crate) fn write(&mut self, node: NodeId, bytes: &[u8], to: RemoteAddress) -> Result<(), Fault> {
        let vi = self.server(node);
        // By value it is there when the call returns.
        match self.nic.write_inline(vi, bytes, to, None) {
            Ok(()) => return Ok(()),
            Err(Error::Busy) => {}
            Err(error) => return Err(Fault::Down(node, Seen::Refused(error))),
        }
        let mut descriptor = self.writes.pop().ok_or(Fault::Via(Error::Busy))?;
        descriptor.write(0, 0, bytes);
        descriptor.set_len(bytes.len());
        descriptor.set_remote(to);
        self.writing += 1;
        self.post(vi, descriptor)
    }

    /// Begins to swap a zero in the memory of a node for this process' claim; [`brought`](Self::brought) then has the old
    /// word.
    pub(crate) fn swap(&mut self, node: NodeId, at: RemoteAddress) -> Result<(), Fault> {
        let mut descriptor = self.swap.take().ok_or(Fault::Via(Error::Busy))?;
        descriptor.set_remote(at);
        self.post(self.server(node), descriptor)
    }

    /// Begins to read a word of the memory of a node; [`brought`](Self::brought) then has it.
    pub(crate) fn look(&mut self, node: NodeId, at: RemoteAddress) -> Result<(), Fault> {
        let mut descriptor = self.look.take().ok_or(Fault::Via(Error::Busy))?;
        descriptor.set_remote(at);
        self.post(self.server(node), descriptor)
    }

    /// What the operation that was begun last has brought.
    pub(crate) fn brought(&mut self) -> Option<u64> {
        self.brought.take()
    }

    /// Waits until `ready` holds, something comes, or `timeout` has passed.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Woken, Fault> {
        loop {
            if let Some(done) = self.early.pop_front() {
                match self.take(done)? {
                    Some(woken) => return Ok(woken),
                    None => continue,
                }
            }
            let cq = self.cq;
            let look = |nic: &mut Nic| {
                if ready() {
                    return Some(Ok(None));
                }
                nic.poll_cq(cq).transpose().map(|done| done.map(Some))
            };
            let done = match self.nic.wait_for(Some(timeout), look) {
                Ok(Ok(None)) => return Ok(Woken::Ready),
                Ok(Ok(Some(done))) => done,
                Err(Error::Timeout) => return Ok(Woken::Timeout),
                Ok(Err(error)) | Err(error) => return Err(error.into()),
            };
            if let Some(woken) = self.take(done)? {
                return Ok(woken);
            }
        }
    }

    /// What has come already; None if there is nothing.
    pub(crate) fn poll(&mut self) -> Result<Option<Woken>, Fault> {
        loop {
            let done = match self.early.pop_front() {
                Some(done) => done,
                None => match self.nic.poll_cq(self.cq)? {
                    Some(done) => done,
                    None => return Ok(None),
                },
            };
            if let Some(woken) = self.take(done)? {
                return Ok(Some(woken));
            }
        }
    }

    /// Takes a completion in; None for a message that has left.
    fn take(&mut self, done: Completion) -> Result<Option<Woken>, Fault> {
        let Completion { vi, queue, op, status, length, descriptor, .. } = done;
        let node = self.peers.get(&vi).copied().unwrap_or(NodeId(0));
        if !status.is_success() {
            return Err(Fault::Down(node, Seen::Ended(op, status)));
        }
        if queue == Queue::Send {
            return Ok(self.sent(descriptor));
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
        // A node that sends what is no message, or in another's name, is as good as gone.
        let head = head.filter(|head| head.from == node).ok_or(Fault::Down(node, Seen::Nonsense))?;
        Ok(Some(Woken::Message(Came { head })))
    }

    fn sent(&mut self, descriptor: Descriptor) -> Option<Woken> {
        match descriptor.work().op {
            Op::RdmaWrite => {
                self.writing -= 1;
                self.writes.push(descriptor);
            }
            Op::CompareSwap | Op::RdmaRead => {
                let mut word = [0; 8];
                descriptor.buffers()[0].read(0, &mut word);
                self.brought = Some(u64::from_ne_bytes(word));
                let slot = match descriptor.work().op {
                    Op::CompareSwap => &mut self.swap,
                    _ => &mut self.look,
                };
                *slot = Some(descriptor);
            }
            _ => {
                self.free.push(descriptor);
                return None;
            }
        }
        Some(Woken::Landed)
    }

    /// What followed the head of the last message.
    pub(crate) fn payload(&self, head: &Head) -> &[u8] {
        &self.inbox[..head.len as usize]
    }
}
