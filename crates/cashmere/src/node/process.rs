//! A process of a node: the memory it shares with its siblings, and how it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use viaduct_os::fault::{Promised, Window};
use viaduct_os::segment::Segment;

use super::board::Board;
use super::diff::Kept;
use super::layout::{Meta, Waits};
use super::net::{Came, Fault, Net, Woken};
use super::region::Region;
use super::remote::Targets;
use super::requests::AGAIN;
use super::start::give_up;
use super::under_way::UnderWay;
use super::wire::{Peer, SLOTS, Says};
use crate::clock::{Clock, Spent};
use crate::ids::{NodeId, PageId, WorkerId};
use crate::statistics::{Counter, Kind, time_place};
use crate::variant::Variant;
use crate::world::{Name, NodeDown, Place, Reply, Request, Shared};

/// How long a process waits before it looks whether its node lives.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// Answers that came and were not asked for yet: as many as can be under way.
const ANSWERS: usize = 64 * SLOTS;

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

impl Memory {
    /// Where it is mapped for the library. All of it is sparse.
    pub(super) fn mappings(&self) -> [&Segment; 4] {
        [self.meta.segment(), &self.region.segment, &self.frames, &self.twins]
    }
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
        slot.unlock_unawaited(local);
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
    /// Which workers poll, where that can be seen.
    pub(super) board: Option<Board>,
    /// The program's view, at a worker.
    pub(crate) window: Option<Window>,
    /// The page that came beside an answer.
    pub(crate) staging: Vec<u8>,
    /// The page that goes beside an answer: a worker may answer another node while its own page is in `staging`.
    pub(super) outgoing: Vec<u8>,
    /// What came beside a request: a diff, or notices.
    pub(super) incoming: Vec<u8>,
    /// Diffs that were sent and may have to be sent again.
    pub(super) diffs: Kept,
    pub(super) answers: Vec<(u64, Reply)>,
    pub(super) tickets: u64,
    pub(super) under_way: UnderWay,
    pub(crate) clock: Clock,
    /// How this process found that a node is gone.
    lost: Option<Fault>,
    /// What says that memory is short.
    pub(super) promises: Vec<Promised>,
}

impl Process {
    pub(crate) fn new(
        shape: Shape,
        me: NodeId,
        worker: Option<WorkerId>,
        memory: Memory,
        net: Net,
        targets: Targets,
        board: Option<Board>,
    ) -> Process {
        Process {
            shape,
            me,
            worker,
            memory,
            net,
            targets,
            board,
            window: None,
            staging: vec![0; shape.page],
            outgoing: vec![0; shape.page],
            incoming: Vec::with_capacity(shape.payload()),
            diffs: Kept::default(),
            answers: Vec::with_capacity(ANSWERS),
            tickets: 0,
            under_way: UnderWay::new(usize::from(shape.nodes), shape.workers as usize, shape.payload()),
            clock: Clock::new(if worker.is_some() { Spent::User } else { Spent::Wait }),
            lost: None,
            promises: Vec::new(),
        }
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.memory.meta
    }

    pub(crate) fn count(&self, counter: Counter, by: u64) {
        self.meta().count(self.own_place(), counter as usize, by);
    }

    fn own_place(&self) -> usize {
        Peer { node: self.me, worker: self.worker }.place()
    }

    /// Adds the time of this process to that of its node.
    pub(crate) fn count_times(&mut self) {
        for (spent, time) in Spent::ALL.into_iter().zip(self.clock.take()) {
            if self.worker.is_some() != (spent == Spent::Server) {
                self.meta().count(self.own_place(), time_place(spent), time.as_nanos() as u64);
            }
        }
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

    /// Something is wrong with the network: a node is gone, or this one is. In a fault nothing is logged: what is kept goes into
    /// the line that ends the process.
    pub(crate) fn broken(&mut self, fault: Fault) -> NodeDown {
        let node = match &fault {
            Fault::Down(node, seen) => {
                tracing::warn!(%seen, "{node} is lost to {}", self.me);
                *node
            }
            Fault::Via(error) => {
                tracing::error!(%error, "the network of {} fails", self.me);
                self.me
            }
        };
        self.lost = Some(fault);
        self.meta().set_down(node);
        self.wake(Waits::Synchronisation);
        self.wake(Waits::Page);
        NodeDown(self.meta().down().unwrap_or(node))
    }

    /// Ends the process, in a fault on a page that cannot be had as a node is gone.
    pub(crate) fn end_without_page(&self, down: NodeDown) -> ! {
        let what = format_args!("{down}: a page of shared memory cannot be had");
        match &self.lost {
            Some(Fault::Down(_, seen)) => give_up(format_args!("{what}: {seen}")),
            Some(Fault::Via(error)) => give_up(format_args!("{what}: {error}")),
            None => give_up(what),
        }
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

    /// A worker takes in one message, or waits a while for one.
    pub(super) fn pump(&mut self, patience: Duration) -> Result<(), NodeDown> {
        self.look(patience, |_| false).map(drop)
    }

    /// Waits a while until `ready` holds, and takes in what comes meanwhile. True: it holds.
    fn look(&mut self, patience: Duration, mut ready: impl FnMut(&Memory) -> bool) -> Result<bool, NodeDown> {
        let patience = if self.under_way.is_abroad() { patience.min(AGAIN) } else { patience };
        let memory = &self.memory;
        match self.net.wait(patience, || ready(memory)) {
            Ok(Woken::Ready) => return Ok(true),
            Ok(Woken::Message(came)) => self.take(came)?,
            Ok(Woken::Landed) => {}
            Ok(Woken::Timeout) => self.check()?,
            Err(fault) => return Err(self.broken(fault)),
        }
        self.send_overdue()?;
        Ok(false)
    }

    /// A worker takes a message in: an answer, or a request of another node that found it polling.
    fn take(&mut self, came: Came) -> Result<(), NodeDown> {
        match came.head.says {
            Says::Reply(reply) => self.answered(came, reply),
            Says::Dropped => self.dropped(&came.head),
            Says::Request(request) => {
                let before = self.clock.switch(Spent::Message);
                let served = self.serve_waiting(came, request);
                self.clock.switch(before);
                served
            }
            Says::Handed(_) | Says::Hello | Says::Bye => Ok(()),
        }
    }

    /// A worker begins to wait: it answers requests of other nodes, which can see that.
    fn open(&mut self, waits: Option<Waits>, spent: Spent) -> Spent {
        if let Some(worker) = self.worker {
            if let Some(waits) = waits {
                self.meta().set_waiting(waits, worker, true);
            }
            if let Some(board) = &self.board {
                board.open(self.me, worker);
            }
        }
        self.clock.switch(spent)
    }

    /// A worker has waited. Requests that came before others could know are answered, and nothing is left in its hands:
    /// it may not look at its queue for long.
    fn close(&mut self, waits: Option<Waits>, before: Spent) -> Result<(), NodeDown> {
        let Some(worker) = self.worker else { return Ok(()) };
        if let Some(waits) = waits {
            self.meta().set_waiting(waits, worker, false);
        }
        if let Some(board) = &self.board {
            board.close(self.me, worker);
        }
        if self.board.is_some() || waits == Some(Waits::Synchronisation) {
            self.clock.switch(Spent::Message);
            while let Some(woken) = self.net.poll().map_err(|fault| self.broken(fault))? {
                if let Woken::Message(came) = woken {
                    self.take(came)?;
                }
            }
        }
        while self.under_way.has_queued() {
            self.pump(PATIENCE)?;
        }
        self.clock.switch(before);
        Ok(())
    }

    /// Waits with the worker's door open to other nodes, until `done` gives something.
    pub(super) fn wait_open<R>(
        &mut self,
        waits: Option<Waits>,
        spent: Spent,
        mut done: impl FnMut(&mut Process) -> Result<Option<R>, NodeDown>,
    ) -> Result<R, NodeDown> {
        let before = self.open(waits, spent);
        let ended = loop {
            match done(self) {
                Ok(Some(result)) => break Ok(result),
                Ok(None) => {}
                Err(down) => break Err(down),
            }
        };
        // After a failure there is nothing left to answer.
        let closed = if ended.is_ok() { self.close(waits, before) } else { Ok(()) };
        closed.and(ended)
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
        if self.worker.is_none() {
            return Ok(());
        }
        let spent = if waits == Waits::Synchronisation { Spent::Wait } else { Spent::Message };
        self.wait_open(Some(waits), spent, |process| Ok(process.look(PATIENCE, &mut ready)?.then_some(())))?;
        self.check()
    }
}

impl Shape {
    /// Bytes that follow the head of the longest message: a diff of single bytes, every second one.
    pub(crate) fn payload(&self) -> usize {
        self.page * 5 / 2
    }
}
