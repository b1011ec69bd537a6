//! A process of a node: the memory it shares with its siblings, its messages, and how it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use viaduct_os::fault::Window;
use viaduct_os::segment::Segment;

use super::layout::{Meta, Waits};
use super::net::{Came, Fault, LIMIT, Net, Peer, Woken};
use super::region::Region;
use super::remote::Targets;
use super::wire::{Head, Says};
use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::page::Page;
use crate::statistics::{Counter, Kind};
use crate::variant::Variant;
use crate::world::{Name, NodeDown, Place, Reply, Request, Shared};

/// How long a process waits before it looks whether its node lives.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// Answers that came and were not asked for yet: as many as can be under way.
const ANSWERS: usize = 64 * LIMIT;

/// The bit of tickets whose answers are dropped.
const FORGOTTEN: u64 = 1 << 63;

/// What all processes of a run know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: u8,
    pub(crate) workers: u32,
    pub(crate) pages: u32,
    pub(crate) page: usize,
    pub(crate) variant: Variant,
}

/// Memory that the processes of a node share.
pub(crate) struct Memory {
    pub(crate) meta: Meta,
    pub(crate) region: Region,
    pub(crate) frames: Arc<Segment>,
    pub(crate) twins: Segment,
}

impl Shared for Memory {
    fn version(&self) -> u64 {
        self.meta.synchronised()
    }

    fn word(&self, place: Place) -> u64 {
        self.region.word(self.region.map.place(place)).load(Ordering::Acquire)
    }

    fn is_over(&self, name: Name, episode: u64) -> bool {
        let slot = self.meta.barrier(name);
        let local = slot.lock(&|| self.meta.alive());
        slot.unlock(local);
        local.is_over(episode)
    }

    fn test_and_set(&self, name: Name) -> bool {
        let word = self.meta.test_and_set(name);
        word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

pub(crate) struct Process {
    pub(crate) shape: Shape,
    pub(crate) me: NodeId,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) memory: Memory,
    pub(crate) net: Net,
    /// Where remote writes go.
    pub(super) targets: Targets,
    /// The program's view, at a worker.
    pub(crate) window: Option<Window>,
    /// The page that came beside an answer or goes beside one.
    pub(crate) staging: Vec<u8>,
    /// The diff that came beside a request.
    pub(crate) incoming: Vec<u8>,
    /// Diffs that were sent and may have to be sent again, by page.
    pub(super) diffs: HashMap<PageId, Vec<u8>>,
    answers: Vec<(u64, Reply)>,
    tickets: u64,
    under_way: Vec<usize>,
    /// Requests that wait until fewer are under way, by node.
    outbox: Vec<VecDeque<(Head, Vec<u8>)>>,
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Process {
    pub(crate) fn new(
        shape: Shape,
        me: NodeId,
        worker: Option<WorkerId>,
        memory: Memory,
        net: Net,
        targets: Targets,
    ) -> Process {
        Process {
            shape,
            me,
            worker,
            memory,
            net,
            targets,
            window: None,
            staging: vec![0; shape.page],
            incoming: Vec::new(),
            diffs: HashMap::new(),
            answers: Vec::with_capacity(ANSWERS),
            tickets: 0,
            under_way: vec![0; usize::from(shape.nodes)],
            outbox: vec![VecDeque::new(); usize::from(shape.nodes)],
        }
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.memory.meta
    }

    pub(crate) fn count(&self, counter: Counter, by: u64) {
        self.meta().count(counter as usize, by);
    }

    /// Gives a page that no worker has touched yet its home, unless it has one.
    pub(crate) fn place(&mut self, page: PageId, home: NodeId) {
        let slot = self.meta().entry(page);
        let entry = slot.lock(&|| self.meta().alive());
        slot.unlock(if entry.home().is_none() { Page::with_home(home) } else { entry });
    }

    /// Counts a message to another node.
    pub(super) fn count_message(&self, to: NodeId, request: Request, bytes: usize) {
        if to != self.me {
            let kind = Kind::of(request);
            self.count(kind.messages(), 1);
            self.count(kind.bytes(), bytes as u64);
            self.count(Counter::DiffMessages, u64::from(matches!(request, Request::Diff(_))));
        }
    }

    pub(super) fn range(&self, page: PageId) -> std::ops::Range<usize> {
        let at = page.0 as usize * self.shape.page;
        at..at + self.shape.page
    }

    /// The node that is gone, where there is one: the first that any process of this node noticed.
    pub(super) fn check(&self) -> Result<(), NodeDown> {
        self.meta().down().map_or(Ok(()), |node| Err(NodeDown(node)))
    }

    /// Something is wrong with the network: a node is gone, or this one is.
    pub(crate) fn broken(&mut self, fault: &Fault) -> NodeDown {
        let node = match fault {
            Fault::Down(node, seen) => {
                tracing::warn!(%seen, "{node} is lost to {}", self.me);
                *node
            }
            Fault::Via(error) => {
                tracing::error!(%error, "the network of {} fails", self.me);
                self.me
            }
        };
        self.meta().set_down(node);
        self.wake(Waits::Synchronisation);
        self.wake(Waits::Page);
        NodeDown(self.meta().down().unwrap_or(node))
    }

    /// Wakes the siblings that wait.
    pub(super) fn wake(&mut self, waits: Waits) {
        for worker in self.meta().waiters(waits).iter().filter(|worker| Some(*worker) != self.worker) {
            self.net.nudge(Peer { node: self.me, worker: Some(worker) });
        }
    }

    /// A lock, barrier or flag of this node has changed.
    pub(super) fn bump(&mut self) {
        self.meta().bump();
        self.wake(Waits::Synchronisation);
    }

    /// Sends what is answered without anything in the answer that matters.
    pub(super) fn tell(&mut self, to: NodeId, request: Request) -> Result<(), NodeDown> {
        let before = self.tickets;
        self.tickets |= FORGOTTEN;
        let sent = self.post(to, Says::Request(request), &[]);
        self.tickets = before;
        sent.map(drop)
    }

    pub(crate) fn post(&mut self, to: NodeId, says: Says, payload: &[u8]) -> Result<Ticket, NodeDown> {
        self.tickets += 1;
        let ticket = self.tickets;
        let head = Head { ticket, from: self.me, worker: self.worker, says, len: 0 };
        let index = usize::from(to.0);
        if self.under_way[index] < LIMIT && self.outbox[index].is_empty() {
            self.launch(to, head, payload)?;
        } else {
            self.outbox[index].push_back((head, payload.to_vec()));
        }
        Ok(Ticket { number: ticket })
    }

    fn launch(&mut self, to: NodeId, head: Head, payload: &[u8]) -> Result<(), NodeDown> {
        if let Says::Request(request) = head.says {
            self.count_message(to, request, payload.len());
        }
        let vi = self.net.server(to);
        self.under_way[usize::from(to.0)] += 1;
        self.net.send(vi, head, payload).map_err(|fault| self.broken(&fault))
    }

    /// An answer came.
    pub(crate) fn answered(&mut self, came: Came) -> Result<(), NodeDown> {
        let Says::Reply(reply) = came.head.says else { return Ok(()) };
        let from = came.head.from;
        let index = usize::from(from.0);
        self.under_way[index] = self.under_way[index].saturating_sub(1);
        if matches!(reply, Reply::Page(_) | Reply::Frame) {
            let payload = self.net.payload(&came.head);
            let len = payload.len().min(self.staging.len());
            self.staging[..len].copy_from_slice(&payload[..len]);
        }
        if let Reply::Page(fetched) = reply {
            self.count(Counter::Migrations, u64::from(fetched.migrated));
            self.count(Counter::Exclusive, u64::from(fetched.exclusive));
        }
        if came.head.ticket & FORGOTTEN == 0 {
            self.answers.push((came.head.ticket, reply));
        }
        match self.outbox[index].pop_front() {
            Some((head, payload)) => self.launch(from, head, &payload),
            None => Ok(()),
        }
    }

    /// An answer that this process gives itself.
    pub(super) fn answer_here(&mut self, reply: Reply) -> Ticket {
        self.tickets += 1;
        self.answers.push((self.tickets, reply));
        Ticket { number: self.tickets }
    }

    pub(crate) fn take_answer(&mut self, ticket: u64) -> Option<Reply> {
        let index = self.answers.iter().position(|(number, _)| *number == ticket)?;
        Some(self.answers.swap_remove(index).1)
    }

    pub(crate) fn wait_answer(&mut self, ticket: Ticket) -> Result<Reply, NodeDown> {
        loop {
            if let Some(reply) = self.take_answer(ticket.number) {
                return Ok(reply);
            }
            self.pump(PATIENCE)?;
        }
    }

    /// A worker takes in one message, or waits a while for one.
    pub(super) fn pump(&mut self, patience: Duration) -> Result<(), NodeDown> {
        self.look(patience, |_| false).map(drop)
    }

    /// Waits a while until `ready` holds, and takes in what comes meanwhile. True: it holds.
    fn look(&mut self, patience: Duration, mut ready: impl FnMut(&Memory) -> bool) -> Result<bool, NodeDown> {
        let memory = &self.memory;
        match self.net.wait(patience, || ready(memory)) {
            Ok(Woken::Ready) => return Ok(true),
            Ok(Woken::Message(came)) => self.answered(came)?,
            Ok(Woken::Landed) => {}
            Ok(Woken::Timeout) => self.check()?,
            Err(fault) => return Err(self.broken(&fault)),
        }
        Ok(false)
    }

    /// Waits until `ready` holds, which a sibling or a remote write brings about.
    pub(super) fn wait_until(
        &mut self,
        waits: Waits,
        mut ready: impl FnMut(&Memory) -> bool,
    ) -> Result<(), NodeDown> {
        if ready(&self.memory) {
            return self.check();
        }
        let Some(worker) = self.worker else { return Ok(()) };
        self.meta().set_waiting(waits, worker, true);
        let ended = loop {
            match self.look(PATIENCE, &mut ready) {
                Ok(false) => {}
                Ok(true) => break self.check(),
                Err(down) => break Err(down),
            }
        };
        self.meta().set_waiting(waits, worker, false);
        ended
    }
}
