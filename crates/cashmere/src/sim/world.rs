//! What the protocol asks of a process of the simulated cluster.

use std::future::poll_fn;
use std::task::Poll;

use super::cluster::{Bytes, Effect, PAGE};
use super::handle::{Handle, at};
use super::mutation::Mutation;
use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::barrier::Local;
use crate::protocol::fault::{Fetched, Merge};
use crate::protocol::lock::Lock;
use crate::protocol::page::{Access, Page, Permission, Stamp, View};
use crate::variant::{Variant, Way};
use crate::world::{Name, NodeDown, Place, Reply, Request, World};

impl World for Handle {
    type Ticket = u64;
    type Node = Handle;

    fn me(&self) -> NodeId {
        self.process.0
    }

    fn nodes(&self) -> u8 {
        self.cluster.borrow().nodes.len() as u8
    }

    fn workers(&self) -> u32 {
        self.cluster.borrow().workers as u32
    }

    fn variant(&self) -> Variant {
        self.cluster.borrow().variant
    }

    fn tick(&mut self) -> Stamp {
        self.at_node(|node| {
            node.clock += 1;
            Stamp(node.clock)
        })
    }

    fn lock(&mut self, page: PageId) -> Page {
        self.at_node(|node| node.pages[at(page)])
    }

    fn unlock(&mut self, page: PageId, mut entry: Page) -> u64 {
        let late = self.mutation() == Mutation::LateStamps;
        self.at_node(|node| {
            if late && node.pages[at(page)].updated() != entry.updated() {
                entry.set_updated(Stamp(node.clock));
            }
            node.versions[at(page)] += u64::from(node.pages[at(page)] != entry);
            node.pages[at(page)] = entry;
            node.versions[at(page)]
        })
    }

    async fn changed(&mut self, page: PageId, seen: u64) -> Result<(), NodeDown> {
        let me = usize::from(self.me().0);
        self.found(|cluster| (cluster.nodes[me].versions[at(page)] != seen).then_some(())).await;
        Ok(())
    }

    fn replica(&self, page: PageId, home: Option<NodeId>) -> Option<View> {
        if self.variant().metadata() == Way::Message {
            return None;
        }
        Some(self.at_node(|node| {
            let words = &node.directory[at(page)];
            let mut sharers = NodeSet::EMPTY;
            for (number, _) in words.iter().enumerate().filter(|(_, word)| **word != Permission::Absent) {
                sharers.insert(NodeId(number as u8));
            }
            View {
                sharers,
                home_writes: home.is_some_and(|home| words[usize::from(home.0)] == Permission::Write),
            }
        }))
    }

    fn protect(&mut self, page: PageId, access: Option<Access>) {
        let worker = usize::from(self.process.1.expect("a worker").0);
        let skip = self.mutation() == Mutation::KeepWriting && access == Some(Access::Read);
        self.at_node(|node| {
            let mapping = &mut node.mappings[worker][at(page)];
            if !(skip && *mapping == Some(Access::Write)) {
                *mapping = access;
            }
        });
    }

    fn make_twin(&mut self, page: PageId) {
        self.at_node(|node| node.twins[at(page)] = node.frames[at(page)]);
    }

    fn merge(&mut self, page: PageId, merge: Merge) {
        let staging = self.staging.take().expect("a page beside the answer");
        let whole = merge == Merge::Copy || self.mutation() == Mutation::CopyOverChanges;
        self.at_node(|node| {
            for (byte, &value) in staging.iter().enumerate() {
                if whole || value != node.twins[at(page)][byte] {
                    node.frames[at(page)][byte] = value;
                    node.twins[at(page)][byte] = value;
                }
            }
        });
    }

    fn diff(&mut self, page: PageId, keep_twin: bool) -> bool {
        let mutation = self.mutation();
        let found: Bytes = self.at_node(|node| {
            let (frame, twin) = (&node.frames[at(page)], &node.twins[at(page)]);
            let unit = if mutation == Mutation::WordDiffs { 4 } else { 1 };
            let differs =
                |byte: usize| (byte / unit * unit..(byte / unit + 1) * unit).any(|b| frame[b] != twin[b]);
            (0..PAGE).filter(|&byte| differs(byte)).map(|byte| (byte, frame[byte])).collect()
        });
        if keep_twin && mutation != Mutation::OldTwin {
            self.at_node(|node| found.iter().for_each(|&(byte, value)| node.twins[at(page)][byte] = value));
        }
        let changed = !found.is_empty();
        self.diffs.insert(page, found);
        changed
    }

    async fn between(&mut self) {
        let fine = self.cluster.borrow().fine;
        if fine {
            self.pause().await;
        }
    }

    fn coalesce(&mut self) {
        self.cluster.borrow_mut().counts.coalesced += 1;
    }

    fn list(&mut self, page: PageId, workers: WorkerSet) {
        if self.mutation() == Mutation::ForgetUnlisted && self.process.1.is_none() {
            return;
        }
        self.at_node(|node| {
            for worker in workers.iter() {
                let list = &mut node.lists[usize::from(worker.0)];
                if !list.contains(&page) {
                    list.push(page);
                }
            }
        });
    }

    fn take_list(&mut self, worker: WorkerId) -> Vec<PageId> {
        self.at_node(|node| std::mem::take(&mut node.lists[usize::from(worker.0)]))
    }

    async fn drain(&mut self, stamp: &mut dyn FnMut(Stamp, &mut Page) -> WorkerSet) {
        let unstamped = self.mutation() == Mutation::NoStamps;
        let early = (self.mutation() == Mutation::EarlyStamps).then(|| self.tick());
        self.pause().await;
        self.at_node(|node| {
            for page in std::mem::take(&mut node.bins) {
                node.clock += 1;
                let now = early.unwrap_or(Stamp(node.clock));
                let mut entry = node.pages[at(page)];
                for worker in stamp(now, &mut entry).iter() {
                    node.noticed[usize::from(worker.0)].push(page);
                }
                if !unstamped {
                    node.pages[at(page)] = entry;
                }
            }
        });
    }

    fn take_noticed(&mut self, worker: WorkerId) -> Vec<PageId> {
        self.at_node(|node| std::mem::take(&mut node.noticed[usize::from(worker.0)]))
    }

    fn send(&mut self, to: NodeId, request: Request) -> u64 {
        let diff = match request {
            Request::Diff(page) => self.diffs[&page].clone(),
            _ => Vec::new(),
        };
        let ticket = self.request(to, request, diff, Vec::new());
        if matches!(request, Request::Diff(_)) && self.mutation() == Mutation::EarlyNotices {
            let all = (0..self.nodes()).map(NodeId).fold(NodeSet::EMPTY, NodeSet::with);
            let done = Reply::Done(View { sharers: all, home_writes: false });
            self.cluster.borrow_mut().replies.insert(ticket, (done, None));
        }
        ticket
    }

    fn send_notices(&mut self, to: NodeId, pages: &[PageId]) -> u64 {
        let pages = if self.mutation() == Mutation::NoNotices { &[] } else { pages };
        self.request(to, Request::Notices, Vec::new(), pages.to_vec())
    }

    async fn answer(&mut self, ticket: u64) -> Result<Reply, NodeDown> {
        let (reply, frame) = self.found(|cluster| cluster.replies.remove(&ticket)).await;
        self.staging = frame;
        self.progressed((reply, frame));
        Ok(match (self.mutation(), reply) {
            (Mutation::OwnHomes, Reply::Home(_)) => Reply::Home(self.me()),
            (Mutation::SharedExclusive, Reply::Page(fetched)) => {
                Reply::Page(Fetched { exclusive: true, ..fetched })
            }
            (Mutation::StolenHome, Reply::Page(fetched)) => {
                Reply::Page(Fetched { migrated: true, ..fetched })
            }
            _ => reply,
        })
    }

    async fn publish(&mut self, page: PageId, permission: Permission) -> Result<(), NodeDown> {
        let node = usize::from(self.me().0);
        let replicas = 0..usize::from(self.nodes());
        let effects =
            replicas.map(|replica| Effect::Directory { replica, page: at(page), node, permission }).collect();
        let op = self.cluster.borrow_mut().write(self.process, effects);
        if self.mutation() != Mutation::UnawaitedPublish {
            self.landed(op).await;
        }
        Ok(())
    }

    async fn claim(&mut self, page: PageId) -> Result<NodeId, NodeDown> {
        let claim = Effect::Claim { page: at(page), node: self.me() };
        let op = self.cluster.borrow_mut().write(self.process, vec![claim]);
        self.landed(op).await;
        if self.mutation() == Mutation::OwnHomes {
            return Ok(self.me());
        }
        let home = self.cluster.borrow().claimed[&op];
        self.progressed(home);
        Ok(home)
    }

    async fn write_diff(&mut self, page: PageId, home: NodeId) -> Result<(), NodeDown> {
        let byte = |&(byte, value): &(usize, u8)| Effect::Byte {
            node: usize::from(home.0),
            page: at(page),
            at: byte,
            value,
        };
        let effects = self.diffs[&page].iter().map(byte).collect();
        let op = self.cluster.borrow_mut().write(self.process, effects);
        self.cluster.borrow_mut().counts.diffs += 1;
        if self.mutation() != Mutation::UnawaitedDiffs {
            self.landed(op).await;
        }
        Ok(())
    }

    async fn write_notices(&mut self, to: NodeSet, pages: &[PageId]) -> Result<(), NodeDown> {
        let pages = if self.mutation() == Mutation::NoNotices { &[] } else { pages };
        let notices = |node: NodeId| Effect::Notices { node: usize::from(node.0), pages: pages.to_vec() };
        let effects = to.iter().map(notices).collect();
        let op = self.cluster.borrow_mut().write(self.process, effects);
        self.landed(op).await;
        Ok(())
    }

    fn with_lock<R>(&mut self, name: Name, act: impl FnOnce(&mut Lock) -> R) -> R {
        let forged = self.mutation() == Mutation::LockWithoutToken;
        self.at_node(|node| {
            let lock = node.locks.entry(name).or_default();
            if forged {
                lock.forge();
            }
            let before = *lock;
            let result = act(lock);
            node.synchronised += u64::from(before != *lock);
            result
        })
    }

    fn with_barrier<R>(&mut self, name: Name, act: impl FnOnce(&mut Local) -> R) -> R {
        self.at_node(|node| {
            let local = node.barriers.entry(name).or_default();
            let before = *local;
            let result = act(local);
            node.synchronised += u64::from(before != *local);
            result
        })
    }

    fn node(&self) -> &Handle {
        self
    }

    async fn until(&mut self, mut ready: impl FnMut(&Handle) -> bool) -> Result<(), NodeDown> {
        poll_fn(|_| if ready(self) { Poll::Ready(()) } else { Poll::Pending }).await;
        self.progressed(());
        Ok(())
    }

    async fn write_word(&mut self, place: Place, value: u64) -> Result<(), NodeDown> {
        let replicas = 0..usize::from(self.nodes());
        let effects = replicas.map(|replica| Effect::Word { replica, place, value }).collect();
        let op = self.cluster.borrow_mut().write(self.process, effects);
        self.landed(op).await;
        Ok(())
    }

    async fn back_off(&mut self, failures: u32) -> Result<(), NodeDown> {
        let mut polls = {
            let mut cluster = self.cluster.borrow_mut();
            if cluster.explored { 0 } else { cluster.random.below(4 << failures.min(4)) }
        };
        self.found(|_| {
            polls = polls.saturating_sub(1);
            (polls == 0).then_some(())
        })
        .await;
        Ok(())
    }

    fn clear(&mut self, name: Name) {
        self.at_node(|node| {
            node.test_and_set.remove(&name);
            node.synchronised += 1;
        });
    }
}
