//! What a node knows of one page: its home, the mappings of the node's workers, twin, time stamps (section 2.1).
//!
//! At most one operation that talks to other nodes runs for a page of a node at a time ([`Busy`]): a reply to a fetch
//! that left before a diff of the same page would look like a remote change back to the old bytes.

use super::rules::{Rule, holds};
use crate::ids::{NodeId, NodeSet, WorkerId, WorkerSet};
use crate::variant::{Variant, Way};

/// A time of the node's logical clock, which ticks at faults, acquires and releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp(pub u64);

/// What a program does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It loads.
    Read,
    /// It stores.
    Write,
}

/// What the directory says of a node and a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    /// The node is not in the sharing set.
    #[default]
    Absent,
    /// The node has a copy.
    Read,
    /// The node is the home, and one of its workers can write.
    Write,
}

/// The operation of this node that is under way for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Busy {
    /// None.
    #[default]
    Idle,
    /// Asking the page's manager for its home.
    Claiming,
    /// Writing this node's word of the directory to all replicas.
    Publishing,
    /// Fetching the page from its home.
    Fetching,
    /// The home takes the page back from the node that has it exclusively; at that node: it was sent, and the home has not
    /// said that it is stored.
    Breaking,
    /// A diff is on its way to the home.
    Flushing,
    /// The node leaves the sharing set.
    Leaving,
}

/// What the directory says of a page, exactly or as a hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// Nodes that have copies.
    pub sharers: NodeSet,
    /// Whether a worker of the home node can write the page.
    pub home_writes: bool,
}

/// Where and when a decision is made.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The node that decides.
    pub me: NodeId,
    /// The protocol variant of this run.
    pub variant: Variant,
    /// A new tick of the node's clock.
    pub now: Stamp,
    /// This node's replica of the directory, where metadata go by remote write.
    pub replica: Option<View>,
}

impl Scene {
    /// Whether this node tells the others of its mappings by remote write.
    pub(super) fn publishes(&self) -> bool {
        self.variant.metadata() == Way::Direct
    }
}

/// A node's entry for one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// The home: exact if it is this node, else where this node last heard it is.
    pub(super) home: Option<NodeId>,
    pub(super) busy: Busy,
    /// Whether the node keeps a pristine copy, to find its own changes by.
    pub(super) twin: bool,
    /// Whether this node alone has the page: its frame is the master copy, and nothing is tracked.
    pub(super) exclusive: bool,
    /// What the directory says of this node.
    pub(super) published: Permission,
    /// Workers with a mapping, and those of them that can write.
    pub(super) mapped: WorkerSet,
    pub(super) writers: WorkerSet,
    /// When the fetch left that the frame is of; when a notice was last drained; when a diff was last made.
    pub(super) updated: Stamp,
    pub(super) noticed: Stamp,
    pub(super) flushed: Stamp,
    /// When the fetch under way left.
    pub(super) asked_at: Stamp,
    /// At the home: the node that has the page exclusively.
    pub(super) holder: Option<NodeId>,
    /// The sharing set where metadata go by message: exact at the home, a hint elsewhere.
    pub(super) hint: View,
}

impl Page {
    /// A page whose home is given from the start (`--homes-in`).
    pub fn with_home(home: NodeId) -> Page {
        Page { home: Some(home), ..Page::default() }
    }

    /// The home as far as this node knows.
    pub fn home(&self) -> Option<NodeId> {
        self.home
    }

    /// Whether `me` is the home.
    pub fn is_home(&self, me: NodeId) -> bool {
        self.home == Some(me)
    }

    /// The operation under way.
    pub fn busy(&self) -> Busy {
        self.busy
    }

    /// Whether this node alone has the page.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Whether a twin is kept.
    pub fn has_twin(&self) -> bool {
        self.twin
    }

    /// Workers that have a mapping.
    pub fn mapped(&self) -> WorkerSet {
        self.mapped
    }

    /// Workers that can write.
    pub fn writers(&self) -> WorkerSet {
        self.writers
    }

    /// The node that has this page exclusively, as its home knows.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder
    }

    /// When the fetch left that the frame is of.
    #[cfg(test)]
    pub(crate) fn updated(&self) -> Stamp {
        self.updated
    }

    /// Breaks the rule of when that was.
    #[cfg(test)]
    pub(crate) fn set_updated(&mut self, stamp: Stamp) {
        self.updated = stamp;
    }

    /// Whether the frame may be mapped without a fetch.
    pub(super) fn is_valid(&self, me: NodeId) -> bool {
        self.exclusive || (self.is_home(me) && self.holder.is_none()) || self.updated > self.noticed
    }

    /// The directory as this node sees it now.
    pub fn view(&self, scene: &Scene) -> View {
        scene.replica.unwrap_or(self.hint)
    }

    /// Whether a fault, a release or a node that leaves has to wait.
    pub(super) fn is_busy(&self) -> bool {
        self.busy != Busy::Idle && holds(Rule::OneAtATime)
    }

    /// Ends the operation under way. The caller wakes those that wait for the page.
    pub(super) fn idle(&mut self) {
        self.busy = Busy::Idle;
    }

    /// A notice for this page was drained: gives the workers that have to look at it at their next acquire.
    pub fn notice(&mut self, scene: &Scene) -> WorkerSet {
        if self.exclusive || self.is_home(scene.me) {
            return WorkerSet::EMPTY;
        }
        self.noticed = scene.now;
        self.mapped
    }

    /// Takes the mapping of `worker` away if the page was noticed and not fetched since.
    pub fn invalidate(&mut self, scene: &Scene, worker: WorkerId) -> Invalidate {
        if !self.mapped.contains(worker) || self.is_valid(scene.me) {
            return Invalidate::Keep;
        }
        self.mapped.remove(worker);
        self.writers.remove(worker);
        Invalidate::Unmap { leave: self.leave(scene) }
    }

    /// Begins to leave the sharing set if nothing of the page is in use here. Gives the home to say so to; the caller
    /// then tells the directory and calls [`left`](Page::left).
    ///
    /// A node with changes of its own stays: another node must not become exclusive before they are at the home.
    /// Nor does the home leave: it would ask itself, and wait for its own answer.
    pub fn leave(&mut self, scene: &Scene) -> Option<NodeId> {
        if self.is_home(scene.me) {
            return None;
        }
        let twin = self.twin && holds(Rule::TwinStays);
        let in_use = self.is_busy() || twin || !self.mapped.is_empty() || self.is_valid(scene.me);
        if in_use || self.published == Permission::Absent {
            return None;
        }
        self.busy = Busy::Leaving;
        self.home
    }

    /// The directory no longer lists this node, or names another home to say it to.
    pub fn left(&mut self, moved: Option<NodeId>) {
        match moved {
            Some(home) => self.home = Some(home),
            None => self.published = Permission::Absent,
        }
        if moved.is_none() {
            self.idle();
        }
    }
}

/// What becomes of a worker's mapping at an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// It stays: the page has been fetched since the notice, or is this node's own.
    Keep,
    /// It goes. `leave` names the home if the node leaves the sharing set with it.
    Unmap {
        /// The home to tell.
        leave: Option<NodeId>,
    },
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Fault, Fetched, Merge};
    use super::super::flush::Flush;
    use super::super::home::Served;
    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const RELEASES: WorkerId = WorkerId(0);
    const FAULTS: WorkerId = WorkerId(1);

    fn fetched(sharers: NodeSet, migrated: bool) -> Fetched {
        Fetched { exclusive: false, migrated, sharers: sharers.with(OTHER), home_writes: false }
    }

    #[test]
    fn a_home_without_a_mapping_does_not_leave() {
        let mut clock = 0;
        let mut scene = || {
            clock += 1;
            Scene { me: ME, variant: Variant::NoneMg, now: Stamp(clock), replica: None }
        };
        let (mut page, started) = (Page::with_home(NodeId(0)), scene().now);
        let store = |page: &mut Page, scene, worker| page.fault(&scene, worker, Access::Write, &mut true);
        assert!(matches!(store(&mut page, scene(), RELEASES), Fault::Fetch { .. }));
        page.fetched(&scene(), fetched(NodeSet::of(ME), false));
        assert_eq!(store(&mut page, scene(), RELEASES), Fault::Map { twin: true, list: true });
        page.notice(&scene());
        assert_eq!(page.invalidate(&scene(), RELEASES), Invalidate::Unmap { leave: None });
        // A sibling fetches the page, and with it becomes the home; a notice of the page comes in between.
        assert!(matches!(store(&mut page, scene(), FAULTS), Fault::Fetch { .. }));
        page.notice(&scene());
        let merge = page.fetched(&scene(), fetched(NodeSet::of(ME), true));
        assert_eq!(merge, Merge::Incoming { drop_twin: true });
        // Before the sibling maps it another node gets the page alone.
        let served = page.serve_fetch(&scene(), OTHER, Access::Write);
        assert!(
            matches!(served, Served::Page { fetched: Fetched { exclusive: true, .. }, .. }),
            "{served:?}"
        );
        assert_eq!(page.flush(&scene(), RELEASES, started), Flush::Notify);
        assert_eq!(page.leave(&scene()), None, "it would wait for itself");
        assert_eq!(page.busy(), Busy::Idle);
    }
}
