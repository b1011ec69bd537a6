//! What a worker does at a page fault: map, wait, or first ask another node (section 2.1).
//!
//! A worker asks [`Page::fault`] again and again until it may map: each answer but the first is one thing to do, after
//! which the page has changed.

use super::page::{Access, Busy, Page, Permission, Scene, View};
use crate::ids::{NodeId, NodeSet, WorkerId};

/// The next thing to do for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Map the page and go on. `twin`: copy the frame to the twin first. `list`: put the page on the worker's dirty list.
    Map {
        /// Copy the frame to the twin before the worker can write.
        twin: bool,
        /// The release of this worker has to look at the page.
        list: bool,
    },
    /// An operation is under way for the page: ask again when it has ended.
    Wait,
    /// Ask the manager of the page for its home, then call [`Page::claimed`].
    Claim,
    /// Write this node's word of the directory, then call [`Page::published`].
    Publish(Permission),
    /// Fetch the page from `home`, then call [`Page::fetched`].
    Fetch {
        /// Where this node believes the home to be.
        home: NodeId,
        /// The home's place is asked for too: its workers do not seem to write the page.
        migrates: bool,
    },
    /// This node is the home: take the page back from `holder`, then call [`Page::broken`].
    Break {
        /// The node that has the page exclusively.
        holder: NodeId,
    },
}

/// The home's answer to a fetch, with the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fetched {
    /// The asking node has the page alone from now on.
    pub exclusive: bool,
    /// The asking node is the home from now on.
    pub migrated: bool,
    /// The sharing set.
    pub sharers: NodeSet,
    /// Whether the home writes the page.
    pub home_writes: bool,
}

/// How a fetched page gets into the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// As a whole: this node has no changes of its own.
    Copy,
    /// By an incoming diff: only bytes that differ from the twin, into frame and twin.
    Incoming {
        /// The twin is no longer needed afterwards.
        drop_twin: bool,
    },
}

impl Page {
    /// Decides what `worker` does next. `asked` is false at the beginning of a fault and belongs to it.
    pub fn fault(&mut self, scene: &Scene, worker: WorkerId, access: Access, asked: &mut bool) -> Fault {
        if self.is_busy() {
            return Fault::Wait;
        }
        let Some(home) = self.home else {
            self.busy = Busy::Claiming;
            return Fault::Claim;
        };
        if home == scene.me {
            return self.fault_at_home(scene, worker, access);
        }
        if self.exclusive {
            return self.map(worker, access, false, false);
        }
        let usable = self.is_valid(scene.me) || (access == Access::Write && self.mapped.contains(worker));
        let asks = access == Access::Write && !*asked && !self.twin && self.may_gain(scene);
        if !usable || asks {
            if scene.publishes() && self.published == Permission::Absent {
                self.busy = Busy::Publishing;
                return Fault::Publish(Permission::Read);
            }
            *asked |= access == Access::Write;
            self.busy = Busy::Fetching;
            self.asked_at = scene.now;
            let migrates =
                access == Access::Write && scene.variant.migrates() && !self.view(scene).home_writes;
            return Fault::Fetch { home, migrates };
        }
        debug_assert_ne!(self.published, Permission::Absent, "a copy outside the sharing set");
        let twin = access == Access::Write && !self.twin;
        self.map(worker, access, twin, access == Access::Write)
    }

    fn fault_at_home(&mut self, scene: &Scene, worker: WorkerId, access: Access) -> Fault {
        if let Some(holder) = self.holder {
            self.busy = Busy::Breaking;
            return Fault::Break { holder };
        }
        let needs = if access == Access::Write { Permission::Write } else { Permission::Read };
        if self.published < needs {
            if scene.publishes() {
                self.busy = Busy::Publishing;
                return Fault::Publish(needs);
            }
            self.published = needs;
            self.hint.sharers.insert(scene.me);
        }
        let shared = !self.view(scene).sharers.without(scene.me).is_empty();
        self.map(worker, access, false, access == Access::Write && shared)
    }

    fn map(&mut self, worker: WorkerId, access: Access, twin: bool, list: bool) -> Fault {
        self.mapped.insert(worker);
        if access == Access::Write {
            self.writers.insert(worker);
            self.twin |= twin;
        }
        Fault::Map { twin, list }
    }

    /// Whether the home might give this node the page alone, or its place as home.
    fn may_gain(&self, scene: &Scene) -> bool {
        let view = self.view(scene);
        view.sharers.without(scene.me).is_empty() || (scene.variant.migrates() && !view.home_writes)
    }

    /// The manager named the home.
    pub fn claimed(&mut self, home: NodeId) {
        debug_assert_eq!(self.busy, Busy::Claiming);
        self.home = Some(home);
        self.idle();
    }

    /// All replicas of the directory have this node's word.
    pub fn published(&mut self, permission: Permission) {
        debug_assert_eq!(self.busy, Busy::Publishing);
        self.published = permission;
        self.idle();
    }

    /// The home moved on: the fault is asked again and goes there.
    pub fn fetch_moved(&mut self, home: NodeId) {
        debug_assert_eq!(self.busy, Busy::Fetching);
        self.home = Some(home);
        self.idle();
    }

    /// The home answered. Says how the page gets into the frame, which the caller does before it unlocks the entry.
    ///
    /// The copy counts from when the fetch left: a notice that a sibling drained meanwhile makes it stale at once.
    pub fn fetched(&mut self, scene: &Scene, fetched: Fetched) -> Merge {
        debug_assert_eq!(self.busy, Busy::Fetching);
        self.idle();
        self.updated = self.asked_at;
        self.published = self.published.max(Permission::Read);
        self.exclusive = fetched.exclusive;
        self.hint = View { sharers: fetched.sharers.with(scene.me), home_writes: fetched.home_writes };
        if fetched.migrated {
            self.home = Some(scene.me);
            self.holder = None;
        }
        let own = fetched.exclusive || fetched.migrated;
        match self.twin {
            false => Merge::Copy,
            true => {
                self.twin = !own;
                Merge::Incoming { drop_twin: own }
            }
        }
    }
}
