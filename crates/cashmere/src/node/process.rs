//! The world of a process of a node: entries that siblings share, frames and twins, and messages to servers.

use std::collections::HashMap;
use std::time::Duration;

use viaduct_os::fault::{Protection, Window};
use viaduct_os::segment::Segment;

use super::layout::Meta;
use super::net::{Came, Fault, LIMIT, Net};
use super::wire::{Head, Says};
use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::barrier::Local;
use crate::protocol::fault::Merge;
use crate::protocol::lock::Lock;
use crate::protocol::page::{Access, Page, Permission, Stamp, View};
use crate::raw;
use crate::serve::Copies;
use crate::statistics::Counter;
use crate::variant::Variant;
use crate::world::{Name, NodeDown, Place, Reply, Request, World};

/// How long a process waits for a message before it looks whether its node lives.
const PATIENCE: Duration = Duration::from_millis(50);

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
    pub(crate) frames: Segment,
    pub(crate) twins: Segment,
}

pub(crate) struct Process {
    pub(crate) shape: Shape,
    pub(crate) me: NodeId,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) memory: Memory,
    pub(crate) net: Net,
    /// The program's view, at a worker.
    pub(crate) window: Option<Window>,
    /// The page that came beside an answer or goes beside one.
    pub(crate) staging: Vec<u8>,
    /// The diff that came beside a request.
    pub(crate) incoming: Vec<u8>,
    /// Diffs that were sent and may have to be sent again, by page.
    diffs: HashMap<PageId, Vec<u8>>,
    answers: Vec<(u64, Reply)>,
    tickets: u64,
    under_way: Vec<usize>,
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
}

impl Process {
    pub(crate) fn new(
        shape: Shape,
        me: NodeId,
        worker: Option<WorkerId>,
        memory: Memory,
        net: Net,
    ) -> Process {
        Process {
            shape,
            me,
            worker,
            memory,
            net,
            window: None,
            staging: vec![0; shape.page],
            incoming: Vec::new(),
            diffs: HashMap::new(),
            answers: Vec::with_capacity(ANSWERS),
            tickets: 0,
            under_way: vec![0; usize::from(shape.nodes)],
        }
    }

    fn meta(&self) -> &Meta {
        &self.memory.meta
    }

    pub(crate) fn count(&self, counter: Counter, by: u64) {
        self.meta().count(counter as usize, by);
    }

    fn range(&self, page: PageId) -> std::ops::Range<usize> {
        let at = page.0 as usize * self.shape.page;
        at..at + self.shape.page
    }

    /// The node that is gone, where there is one: the first that any process of this node noticed.
    fn check(&self) -> Result<(), NodeDown> {
        self.meta().down().map_or(Ok(()), |node| Err(NodeDown(node)))
    }

    /// Something is wrong with the network: a node is gone, or this one is.
    pub(crate) fn broken(&self, fault: &Fault) -> NodeDown {
        let node = match fault {
            Fault::Down(node) => *node,
            Fault::Via(error) => {
                tracing::error!(%error, "the network of {} fails", self.me);
                self.me
            }
        };
        self.meta().set_down(node);
        NodeDown(self.meta().down().unwrap_or(node))
    }

    /// Sends what is answered without anything in the answer that matters.
    fn tell(&mut self, to: NodeId, says: Says) -> Result<(), NodeDown> {
        let before = self.tickets;
        self.tickets |= FORGOTTEN;
        let sent = self.post(to, says, &[]);
        self.tickets = before;
        sent.map(drop)
    }

    pub(crate) fn post(&mut self, to: NodeId, says: Says, payload: &[u8]) -> Result<Ticket, NodeDown> {
        while self.under_way[usize::from(to.0)] >= LIMIT {
            self.pump()?;
        }
        self.tickets += 1;
        let head = Head { ticket: self.tickets, from: self.me, worker: self.worker, says, len: 0 };
        let vi = self.net.link(to);
        self.net.send(vi, head, payload).map_err(|fault| self.broken(&fault))?;
        self.under_way[usize::from(to.0)] += 1;
        Ok(Ticket { number: self.tickets })
    }

    /// A worker takes in one message, or waits a while for one.
    fn pump(&mut self) -> Result<(), NodeDown> {
        match self.net.next(PATIENCE) {
            Ok(Some(came)) => self.answered(came),
            Ok(None) => self.check(),
            Err(fault) => Err(self.broken(&fault)),
        }
    }

    /// An answer came.
    pub(crate) fn answered(&mut self, came: Came) -> Result<(), NodeDown> {
        let Says::Reply(reply) = came.head.says else { return Ok(()) };
        let under_way = &mut self.under_way[usize::from(came.head.from.0)];
        *under_way = under_way.saturating_sub(1);
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
        Ok(())
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
            self.pump()?;
        }
    }
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// A variant that goes by remote writes cannot have been chosen: there are none yet between processes.
const NOT_YET: &str = "variants by remote write run in the simulator only";

impl World for Process {
    type Ticket = Result<Ticket, NodeDown>;

    fn me(&self) -> NodeId {
        self.me
    }

    fn nodes(&self) -> u8 {
        self.shape.nodes
    }

    fn workers(&self) -> u32 {
        self.shape.workers
    }

    fn variant(&self) -> Variant {
        self.shape.variant
    }

    fn tick(&mut self) -> Stamp {
        Stamp(self.meta().tick())
    }

    fn lock(&mut self, page: PageId) -> Page {
        self.meta().entry(page).lock(&|| self.meta().alive())
    }

    fn unlock(&mut self, page: PageId, entry: Page) -> u64 {
        let version = self.meta().entry(page).unlock(entry);
        if self.worker.is_some() && self.meta().parked() {
            // A network that fails is found by the next call that waits.
            let _ = self.tell(self.me, Says::Retry);
        }
        version
    }

    async fn changed(&mut self, page: PageId, seen: u64) -> Result<(), NodeDown> {
        while !self.meta().entry(page).wait(seen) {
            self.check()?;
        }
        Ok(())
    }

    fn replica(&self, _: PageId) -> Option<View> {
        None
    }

    fn protect(&mut self, page: PageId, access: Option<Access>) {
        let protection = match access {
            None => Protection::Closed,
            Some(Access::Read) => Protection::Read,
            Some(Access::Write) => Protection::Write,
        };
        let window = self.window.as_ref().expect("a worker has a window");
        if let Err(error) = window.protect(self.range(page), protection) {
            // Going on would lose stores: there is no mapping left, or no memory.
            super::start::give_up(&format!("{page} cannot be protected: {error}"));
        }
    }

    fn make_twin(&mut self, page: PageId) {
        raw::copy_between(&self.memory.frames, &self.memory.twins, self.range(page));
        self.count(Counter::Twins, 1);
    }

    fn merge(&mut self, page: PageId, merge: Merge) {
        let range = self.range(page);
        match merge {
            Merge::Copy => raw::copy_in(&self.memory.frames, range, &self.staging),
            Merge::Incoming { .. } => {
                raw::merge(&self.memory.frames, &self.memory.twins, range, &self.staging);
                self.count(Counter::IncomingDiffs, 1);
            }
        }
    }

    fn diff(&mut self, page: PageId, keep_twin: bool) -> bool {
        let mut encoded = self.diffs.remove(&page).unwrap_or_default();
        encoded.clear();
        raw::differences(
            &self.memory.frames,
            &self.memory.twins,
            self.range(page),
            keep_twin,
            &mut |at, bytes| {
                encoded.extend((at as u16).to_le_bytes());
                encoded.extend((bytes.len() as u16).to_le_bytes());
                encoded.extend(bytes);
            },
        );
        let changed = !encoded.is_empty();
        self.count(Counter::Diffs, u64::from(changed));
        self.count(Counter::DiffBytes, encoded.len() as u64);
        self.diffs.insert(page, encoded);
        changed
    }

    fn list(&mut self, page: PageId, workers: WorkerSet) {
        workers.iter().for_each(|worker| self.meta().list(worker).push(page));
    }

    fn take_list(&mut self, worker: WorkerId) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.meta().list(worker).take(|page| pages.push(page));
        pages
    }

    fn drain(&mut self, stamp: &mut dyn FnMut(PageId, &mut Page) -> WorkerSet) {
        let meta = self.meta();
        meta.bins().take(|page| {
            let slot = meta.entry(page);
            let mut entry = slot.lock(&|| meta.alive());
            let workers = stamp(page, &mut entry);
            slot.unlock(entry);
            workers.iter().for_each(|worker| meta.noticed(worker).push(page));
        });
    }

    fn take_noticed(&mut self, worker: WorkerId) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.meta().noticed(worker).take(|page| pages.push(page));
        pages
    }

    fn send(&mut self, to: NodeId, request: Request) -> Self::Ticket {
        match request {
            Request::Fetch(_, Access::Read) => self.count(Counter::ReadFetches, 1),
            Request::Fetch(_, Access::Write) => self.count(Counter::WriteFetches, 1),
            Request::Diff(page) => {
                let diff = self.diffs.remove(&page).unwrap_or_default();
                let ticket = self.post(to, Says::Request(request), &diff);
                self.diffs.insert(page, diff);
                return ticket;
            }
            _ => {}
        }
        self.post(to, Says::Request(request), &[])
    }

    fn send_notices(&mut self, to: NodeId, pages: &[PageId]) -> Self::Ticket {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.0.to_le_bytes()).collect();
        self.count(Counter::Notices, pages.len() as u64);
        // As much as fits into a message at a time.
        let most = self.shape.page / 4 * 4;
        let mut chunks = bytes.chunks(most).peekable();
        while let Some(chunk) = chunks.next() {
            let ticket = self.post(to, Says::Request(Request::Notices), chunk)?;
            if chunks.peek().is_none() {
                return Ok(ticket);
            }
            self.wait_answer(ticket)?;
        }
        self.post(to, Says::Request(Request::Notices), &[])
    }

    async fn answer(&mut self, ticket: Self::Ticket) -> Result<Reply, NodeDown> {
        self.wait_answer(ticket?)
    }

    async fn publish(&mut self, _: PageId, _: Permission) -> Result<(), NodeDown> {
        unreachable!("{NOT_YET}")
    }

    async fn claim(&mut self, _: PageId) -> Result<NodeId, NodeDown> {
        unreachable!("{NOT_YET}")
    }

    async fn write_diff(&mut self, _: PageId, _: NodeId) -> Result<(), NodeDown> {
        unreachable!("{NOT_YET}")
    }

    async fn write_notices(&mut self, _: NodeSet, _: &[PageId]) -> Result<(), NodeDown> {
        unreachable!("{NOT_YET}")
    }

    fn with_lock<R>(&mut self, name: Name, act: impl FnOnce(&mut Lock) -> R) -> R {
        let meta = self.meta();
        let slot = meta.lock(name);
        let mut lock = slot.lock(&|| meta.alive());
        let before = lock;
        let result = act(&mut lock);
        let changed = lock != before;
        slot.unlock(lock);
        if changed {
            meta.bump();
        }
        result
    }

    fn with_barrier<R>(&mut self, name: Name, act: impl FnOnce(&mut Local) -> R) -> R {
        let meta = self.meta();
        let slot = meta.barrier(name);
        let mut local = slot.lock(&|| meta.alive());
        let before = local;
        let result = act(&mut local);
        let changed = local != before;
        slot.unlock(local);
        if changed {
            meta.bump();
        }
        result
    }

    fn version(&self) -> u64 {
        self.meta().synchronised()
    }

    async fn synchronised(&mut self, seen: u64) -> Result<(), NodeDown> {
        while !self.meta().wait_synchronised(seen) {
            self.check()?;
        }
        self.check()
    }

    fn word(&self, place: Place) -> u64 {
        match place {
            Place::Flag(name) => self.meta().flag(name).load(std::sync::atomic::Ordering::Acquire),
            Place::Lock(..) | Place::Arrived(..) | Place::Sense(_) => unreachable!("{NOT_YET}"),
        }
    }

    async fn write_word(&mut self, _: Place, _: u64) -> Result<(), NodeDown> {
        unreachable!("{NOT_YET}")
    }

    async fn back_off(&mut self, _: u32) -> Result<(), NodeDown> {
        unreachable!("{NOT_YET}")
    }

    fn test_and_set(&mut self, _: Name) -> bool {
        unreachable!("{NOT_YET}")
    }

    fn clear(&mut self, _: Name) {
        unreachable!("{NOT_YET}")
    }
}

impl Copies for Process {
    fn copy_out(&mut self, page: PageId) {
        let range = self.range(page);
        raw::copy_out(&self.memory.frames, range, &mut self.staging);
    }

    fn twin_of_copy(&mut self, page: PageId) {
        let range = self.range(page);
        raw::copy_in(&self.memory.twins, range, &self.staging);
    }

    fn apply(&mut self, page: PageId) {
        let range = self.range(page);
        let mut rest = self.incoming.as_slice();
        // A run that reaches beyond its page is dropped with what follows: the sender is at fault.
        while let [a, b, c, d, tail @ ..] = rest {
            let (at, len) =
                (usize::from(u16::from_le_bytes([*a, *b])), usize::from(u16::from_le_bytes([*c, *d])));
            let Some((bytes, next)) = tail.split_at_checked(len).filter(|_| at + len <= self.shape.page)
            else {
                break;
            };
            raw::copy_in(&self.memory.frames, range.start + at..range.start + at + len, bytes);
            rest = next;
        }
    }
}
