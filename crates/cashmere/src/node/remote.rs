//! Remote writes in Memory Channel's place (section 2.2): into the region and the frames of other nodes.
//!
//! A write is an RDMA write on the VI with a node's server, whose processor takes no part. A broadcast is a write to each
//! node and a store here, the loopback. Memory Channel orders all writes of all nodes; here the writer waits until a write
//! has landed everywhere, which is enough for each use: diffs before notices before the word that ends a release.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use viaduct_os::point::point;
use viaduct_os::random;
use viaduct_via::RemoteAddress;

use super::layout::{Outgoing, Waits};
use super::process::{PATIENCE, Process};
use super::region::Bin;
use super::wire::Peer;
use crate::clock::Spent;
use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::page::{Page, Permission, Stamp};
use crate::statistics::{Counter, Kind};
use crate::sync::MASTER;
use crate::world::{NodeDown, Place};

/// Where each node's region and frames are; empty in variants that write nothing remotely.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    pub(crate) regions: Vec<RemoteAddress>,
    pub(crate) frames: Vec<RemoteAddress>,
}

/// What a remote write goes into.
#[derive(Clone, Copy)]
enum Into {
    Region,
    Frames,
}

/// Notices in one remote write.
const NOTICES: usize = 64;

/// The first pause of a node that finds a lock taken; it doubles with each failure.
const PAUSE: Duration = Duration::from_micros(2);
/// How often it doubles.
const DOUBLINGS: u32 = 7;

impl Process {
    fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.me;
        (0..self.shape.nodes).map(NodeId).filter(move |node| *node != me)
    }

    /// Begins a remote write.
    fn write(
        &mut self,
        node: NodeId,
        into: Into,
        at: usize,
        bytes: &[u8],
        kind: Kind,
    ) -> Result<(), NodeDown> {
        let before = self.clock.switch(Spent::Message);
        while !self.net.can_write() {
            self.pump(PATIENCE)?;
        }
        let bases = match into {
            Into::Region => &self.targets.regions,
            Into::Frames => &self.targets.frames,
        };
        let to = bases[usize::from(node.0)].offset(at as u64);
        self.net.write(node, bytes, to).map_err(|fault| self.broken(fault))?;
        point("dsm.wrote");
        self.count(kind.writes(), 1);
        self.count(kind.bytes(), bytes.len() as u64);
        self.clock.switch(before);
        Ok(())
    }

    /// Begins to write bytes into the frame of a page at a node.
    pub(crate) fn write_frame(&mut self, page: PageId, node: NodeId, bytes: &[u8]) -> Result<(), NodeDown> {
        let range = self.range(page);
        self.write(node, Into::Frames, range.start, &bytes[..bytes.len().min(range.len())], Kind::Data)
    }

    /// Waits until all remote writes have landed.
    pub(crate) fn landed(&mut self) -> Result<(), NodeDown> {
        if self.net.has_landed() {
            return Ok(());
        }
        let before = self.clock.switch(Spent::Message);
        while !self.net.has_landed() {
            self.pump(PATIENCE)?;
        }
        self.clock.switch(before);
        Ok(())
    }

    fn brought(&mut self) -> Result<u64, NodeDown> {
        let before = self.clock.switch(Spent::Message);
        let word = loop {
            if let Some(word) = self.net.brought() {
                break word;
            }
            self.pump(PATIENCE)?;
        };
        self.clock.switch(before);
        Ok(word)
    }

    /// Writes this node's byte of the directory to all replicas.
    pub(super) fn broadcast_permission(
        &mut self,
        page: PageId,
        permission: Permission,
    ) -> Result<(), NodeDown> {
        let at = self.memory.region.map.directory(page, self.me);
        for node in self.others() {
            self.write(node, Into::Region, at, &[permission as u8], Kind::Metadata)?;
        }
        self.landed()?;
        self.memory.region.set_permission(page, self.me, permission);
        Ok(())
    }

    /// Claims a page at its manager.
    pub(super) fn claim_remotely(&mut self, page: PageId) -> Result<NodeId, NodeDown> {
        let manager = page.manager(self.shape.nodes);
        let region = &self.memory.region;
        let home = if manager == self.me {
            region.claim(page, self.me)
        } else {
            let at = self.targets.regions[usize::from(manager.0)].offset(region.map.claim(page) as u64);
            self.net.swap(manager, at).map_err(|fault| self.broken(fault))?;
            self.count(Counter::MetaWrites, 1);
            self.count(Counter::MetaBytes, 8);
            match self.brought()? {
                0 => Some(self.me),
                word => self.memory.region.named(word),
            }
        };
        // A manager whose memory names no node is as good as gone.
        home.ok_or(NodeDown(manager))
    }

    /// Writes the runs of a diff into the frame at the home.
    pub(super) fn write_runs(&mut self, page: PageId, home: NodeId) -> Result<(), NodeDown> {
        let diff = self.diffs.take(page);
        let start = self.range(page).start;
        let mut rest = diff.as_slice();
        while let Some((at, bytes, next)) = super::diff::run(rest) {
            self.write(home, Into::Frames, start + at, bytes, Kind::Data)?;
            rest = next;
        }
        self.diffs.keep(page, diff);
        self.landed()
    }

    /// Writes notices into this node's bin at each node of a set.
    pub(super) fn write_bins(&mut self, to: NodeSet, pages: &[PageId]) -> Result<(), NodeDown> {
        self.count(Counter::Notices, pages.len() as u64 * u64::from(to.len()));
        for node in to.iter() {
            let mut bin = self.meta().outgoing(node).lock(&|| self.meta().alive());
            point("dsm.bins");
            let written = self.write_bin(node, pages, &mut bin);
            self.meta().outgoing(node).unlock_unawaited(bin);
            written?;
        }
        Ok(())
    }

    /// Under the lock of the bin.
    fn write_bin(&mut self, node: NodeId, pages: &[PageId], bin: &mut Outgoing) -> Result<(), NodeDown> {
        let (me, map) = (self.me, self.memory.region.map);
        let left = |bin: &Outgoing| map.room() - (bin.tail - bin.taken).min(map.room());
        if left(bin) < pages.len() as u64 {
            let at = self.targets.regions[usize::from(node.0)].offset(map.bin_word(me, Bin::Taken) as u64);
            self.net.look(node, at).map_err(|fault| self.broken(fault))?;
            // A number beyond what was written cannot be right.
            bin.taken = self.brought()?.min(bin.tail).max(bin.taken);
        }
        if left(bin) < pages.len() as u64 {
            // The other node has not looked for long: it takes every page to be changed.
            bin.spilled += 1;
            self.count(Counter::Spills, 1);
            let at = map.bin_word(me, Bin::Spilled);
            self.write(node, Into::Region, at, &bin.spilled.to_ne_bytes(), Kind::Metadata)?;
            return self.landed();
        }
        let mut rest = pages;
        while !rest.is_empty() {
            let (at, room) = map.notice(me, bin.tail);
            let mut bytes = [0; 4 * NOTICES];
            let (now, later) = rest.split_at(rest.len().min(room).min(NOTICES));
            for (place, page) in bytes.chunks_exact_mut(4).zip(now) {
                place.copy_from_slice(&page.0.to_ne_bytes());
            }
            self.write(node, Into::Region, at, &bytes[..4 * now.len()], Kind::Metadata)?;
            bin.tail += now.len() as u64;
            rest = later;
        }
        self.landed()?;
        let at = map.bin_word(me, Bin::Tail);
        self.write(node, Into::Region, at, &bin.tail.to_ne_bytes(), Kind::Metadata)?;
        self.landed()
    }

    /// Takes what other nodes wrote into their bins here. Costs a look at each node's words if that is nothing.
    pub(super) fn drain_bins(&mut self, stamp: &mut dyn FnMut(Stamp, &mut Page) -> WorkerSet) {
        for node in self.others() {
            let region = &self.memory.region;
            let word = |bin| region.word(region.map.bin_word(node, bin));
            let (tail, spilled) = (word(Bin::Tail), word(Bin::Spilled));
            let taken = word(Bin::Taken);
            // Most bins never were full: the word is not looked at then.
            let is_seen = |spills| spills == 0 || spills == word(Bin::Seen).load(Ordering::Acquire);
            let slot = self.meta().incoming(node);
            // A sibling that drains says what it took after the stamps are there.
            if tail.load(Ordering::Acquire) == taken.load(Ordering::Acquire)
                && is_seen(spilled.load(Ordering::Acquire))
            {
                continue;
            }
            let mut bin = slot.lock(&|| self.meta().alive());
            let (end, spills) = (tail.load(Ordering::Acquire), spilled.load(Ordering::Acquire));
            let all = spills != bin.spilled || end.wrapping_sub(bin.head) > region.map.room();
            bin.spilled = spills;
            if all {
                (0..self.shape.pages).for_each(|page| self.stamp(PageId(page), stamp));
            } else {
                let fresh = (bin.head..end).filter_map(|number| region.notice(node, number));
                fresh.for_each(|page| self.stamp(page, stamp));
            }
            bin.head = end;
            taken.store(end, Ordering::Release);
            word(Bin::Seen).store(spills, Ordering::Release);
            slot.unlock_unawaited(bin);
        }
    }

    /// Stamps the entry of a noticed page, and puts it before the workers that have to look at it. The clock ticks here, not
    /// when the acquire began: a sibling may have fetched the page since then, before the notice came.
    pub(super) fn stamp(&self, page: PageId, stamp: &mut dyn FnMut(Stamp, &mut Page) -> WorkerSet) {
        let meta = self.meta();
        let slot = meta.entry(page);
        let mut entry = slot.lock(&|| meta.alive());
        let workers = stamp(Stamp(meta.tick()), &mut entry);
        slot.unlock(entry);
        workers.iter().for_each(|worker| meta.noticed(worker).push(page));
    }

    /// Writes a word to all replicas and wakes the workers that may wait for it.
    pub(super) fn broadcast_word(&mut self, place: Place, value: u64) -> Result<(), NodeDown> {
        let at = self.memory.region.map.place(place);
        // The master alone looks at arrivals.
        let looks = |node: &NodeId| *node == MASTER || !matches!(place, Place::Arrived(..));
        for node in self.others().filter(looks) {
            self.write(node, Into::Region, at, &value.to_ne_bytes(), Kind::Synchronisation)?;
        }
        self.landed()?;
        if looks(&self.me) {
            self.memory.region.word(at).store(value, Ordering::SeqCst);
        }
        point("dsm.word");
        // A lock that is taken is tried again after a pause, without being woken.
        if matches!(place, Place::Lock(..)) {
            return Ok(());
        }
        for node in self.others().filter(looks) {
            for worker in (0..self.shape.workers).map(|worker| WorkerId(worker as u8)) {
                self.net.nudge(Peer { node, worker: Some(worker) });
            }
        }
        if looks(&self.me) {
            self.wake(Waits::Synchronisation);
        }
        Ok(())
    }

    /// Waits a random short time; longer with each failure.
    pub(super) fn pause(&mut self, failures: u32) -> Result<(), NodeDown> {
        let most = PAUSE * (1 << failures.min(DOUBLINGS));
        let pause = Duration::from_nanos(random::u64() % most.as_nanos() as u64 + 1);
        let end = Instant::now() + pause;
        self.wait_open(None, Spent::Wait, |process| {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return process.check().map(Some);
            }
            process.pump(left).map(|()| None)
        })
    }
}
