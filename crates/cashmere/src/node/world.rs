//! What the protocol asks of its surroundings, by a process of a node.

use std::sync::atomic::Ordering;

use viaduct_os::error::OsError;
use viaduct_os::fault::{EngineKind, Protection};
use viaduct_os::point::point;

use super::diff;
use super::layout::Waits;
use super::process::{Memory, Process};
use super::requests::Ticket;
use super::wire::{Peer, Says};
use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::barrier::Local;
use crate::protocol::fault::Merge;
use crate::protocol::lock::Lock;
use crate::protocol::page::{Access, Page, Permission, Stamp, View};
use crate::raw;
use crate::serve::Copies;
use crate::statistics::Counter;
use crate::variant::{Variant, Way};
use crate::world::{Name, NodeDown, Place, Reply, Request, World};

impl World for Process {
    type Ticket = Result<Ticket, NodeDown>;
    type Node = Memory;

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
        let entry = self.meta().entry(page).lock(&|| self.meta().alive());
        point("dsm.locked");
        entry
    }

    fn unlock(&mut self, page: PageId, entry: Page) -> u64 {
        let unlocked = self.meta().entry(page).unlock(entry);
        if unlocked.awaited {
            self.wake(Waits::Page);
        }
        if unlocked.changed && self.worker.is_some() && self.meta().parked() {
            self.meta().ask_retry();
            self.net.nudge(Peer { node: self.me, worker: None });
        }
        unlocked.version
    }

    async fn changed(&mut self, page: PageId, seen: u64) -> Result<(), NodeDown> {
        self.meta().entry(page).await_change();
        let waited = self.wait_until(Waits::Page, |memory| memory.meta.entry(page).version() != seen);
        self.meta().entry(page).awaited();
        waited
    }

    fn replica(&self, page: PageId, home: Option<NodeId>) -> Option<View> {
        let direct = self.shape.variant.metadata() == Way::Direct;
        direct.then(|| self.memory.region.view(page, home))
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
            let hint = match (window.engine(), &error) {
                (EngineKind::Mprotect, OsError::NoMemory { .. }) => {
                    "; `--engine uffd-sync` does without a mapping for each run of pages"
                }
                _ => "",
            };
            super::start::give_up(format_args!("{page} cannot be protected: {error}{hint}"));
        }
    }

    fn make_twin(&mut self, page: PageId) {
        raw::copy_between(&self.memory.frames, &self.memory.twins, self.range(page));
        self.count(Counter::Twins, 1);
    }

    fn merge(&mut self, page: PageId, merge: Merge) {
        let range = self.range(page);
        point("dsm.merges");
        match merge {
            Merge::Copy => raw::copy_in(&self.memory.frames, range, &self.staging),
            Merge::Incoming { .. } => {
                raw::merge(&self.memory.frames, &self.memory.twins, range, &self.staging);
                self.count(Counter::IncomingDiffs, 1);
            }
        }
    }

    fn diff(&mut self, page: PageId, keep_twin: bool) -> bool {
        point("dsm.differs");
        let mut encoded = self.diffs.take(page);
        encoded.clear();
        raw::differences(
            &self.memory.frames,
            &self.memory.twins,
            self.range(page),
            keep_twin,
            &mut |at, bytes| diff::push(&mut encoded, at, bytes),
        );
        let changed = !encoded.is_empty();
        self.count(Counter::Diffs, u64::from(changed));
        self.count(Counter::DiffBytes, encoded.len() as u64);
        self.diffs.keep(page, encoded);
        changed
    }

    fn settle_diff(&mut self, page: PageId) {
        self.diffs.settle(page);
    }

    fn list(&mut self, page: PageId, workers: WorkerSet) {
        workers.iter().for_each(|worker| self.meta().list(worker).push(page));
    }

    fn take_list(&mut self, worker: WorkerId) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.meta().list(worker).take(|page| pages.push(page));
        pages
    }

    async fn drain(&mut self, stamp: &mut dyn FnMut(Stamp, &mut Page) -> WorkerSet) {
        match self.shape.variant.metadata() {
            Way::Direct => self.drain_bins(stamp),
            Way::Message => self.meta().bins().take(|page| self.stamp(page, stamp)),
        }
    }

    fn take_noticed(&mut self, worker: WorkerId) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.meta().noticed(worker).take(|page| pages.push(page));
        pages
    }

    fn attempt_migration(&mut self) {
        self.count(Counter::MigrationAttempts, 1);
    }

    fn coalesce(&mut self) {
        self.count(Counter::Coalesced, 1);
    }

    fn send(&mut self, to: NodeId, request: Request) -> Self::Ticket {
        match request {
            Request::Fetch(_, Access::Read) => self.count(Counter::ReadFetches, 1),
            Request::Fetch(_, Access::Write) => self.count(Counter::WriteFetches, 1),
            Request::Diff(page) => {
                let diff = self.diffs.take(page);
                let ticket = self.post(to, Says::Request(request), &diff);
                self.diffs.keep(page, diff);
                return ticket;
            }
            _ if to == self.me => return self.ask_here(request),
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

    async fn publish(&mut self, page: PageId, permission: Permission) -> Result<(), NodeDown> {
        self.broadcast_permission(page, permission)
    }

    async fn claim(&mut self, page: PageId) -> Result<NodeId, NodeDown> {
        self.claim_remotely(page)
    }

    async fn write_diff(&mut self, page: PageId, home: NodeId) -> Result<(), NodeDown> {
        self.write_runs(page, home)
    }

    async fn write_notices(&mut self, to: NodeSet, pages: &[PageId]) -> Result<(), NodeDown> {
        self.write_bins(to, pages)
    }

    fn with_lock<R>(&mut self, name: Name, act: impl FnOnce(&mut Lock) -> R) -> R {
        let meta = self.meta();
        let slot = meta.lock(name);
        let mut lock = slot.lock(&|| meta.alive());
        let before = lock;
        let result = act(&mut lock);
        let changed = lock != before;
        slot.unlock_unawaited(lock);
        if changed {
            self.bump();
        }
        result
    }

    fn with_barrier<R>(&mut self, name: Name, act: impl FnOnce(&mut Local) -> R) -> R {
        let meta = self.meta();
        let slot = meta.barrier(name);
        let mut local = slot.lock(&|| meta.alive());
        let before = local;
        let result = act(&mut local);
        let opened = local.opened_since(&before);
        slot.unlock_unawaited(local);
        // A sibling that arrived before is not woken by every other that arrives, and a node of one worker has none.
        if opened && self.shape.workers > 1 {
            self.bump();
        }
        result
    }

    fn node(&self) -> &Memory {
        &self.memory
    }

    async fn until(&mut self, ready: impl FnMut(&Memory) -> bool) -> Result<(), NodeDown> {
        self.wait_until(Waits::Synchronisation, ready)
    }

    async fn write_word(&mut self, place: Place, value: u64) -> Result<(), NodeDown> {
        self.broadcast_word(place, value)
    }

    async fn back_off(&mut self, failures: u32) -> Result<(), NodeDown> {
        self.pause(failures)
    }

    fn clear(&mut self, name: Name) {
        self.meta().test_and_set(name).store(0, Ordering::Release);
        self.bump();
    }
}

impl Copies for Process {
    fn copy_out(&mut self, page: PageId) {
        let range = self.range(page);
        raw::copy_out(&self.memory.frames, range, &mut self.outgoing);
    }

    fn twin_of_copy(&mut self, page: PageId) {
        let range = self.range(page);
        raw::copy_in(&self.memory.twins, range, &self.outgoing);
    }

    fn apply(&mut self, page: PageId) {
        let range = self.range(page);
        let mut rest = self.incoming.as_slice();
        // A run that reaches beyond its page is dropped with what follows: the sender is at fault.
        while let Some((at, bytes, next)) = diff::run(rest).filter(|run| run.0 + run.1.len() <= range.len()) {
            let place = range.start + at;
            raw::copy_in(&self.memory.frames, place..place + bytes.len(), bytes);
            rest = next;
        }
    }
}
