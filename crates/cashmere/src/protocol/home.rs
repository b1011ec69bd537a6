//! What a node answers to requests for one page: as its home, or as the node that has it exclusively (sections 2.1, 2.3.2).

use super::fault::Fetched;
use super::page::{Access, Busy, Page, Permission, Scene, View};
use super::rules::{Rule, holds};
use crate::ids::{NodeId, WorkerSet};
use crate::variant::Way;

/// The answer to a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Ask again when the operation under way for the page has ended.
    Park,
    /// The home is elsewhere.
    Moved(NodeId),
    /// Take the page back from `holder` first, call [`Page::broken`], then ask again.
    Break {
        /// The node that has the page exclusively.
        holder: NodeId,
    },
    /// Send the frame. `list`: workers that write the page unseen and have to look at it at their next release.
    Page {
        /// What goes with the page.
        fetched: Fetched,
        /// Workers of this node on whose lists the page goes.
        list: WorkerSet,
    },
}

/// The answer to a diff, or to a node that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Ask again when the operation under way for the page has ended.
    Park,
    /// The home is elsewhere.
    Moved(NodeId),
    /// Done, with the directory's entry.
    Done(View),
}

/// The answer of a node that had a page exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Ask again when the operation under way for the page has ended.
    Park,
    /// This node has not got the page exclusively.
    NotHeld,
    /// Send the frame. `twin`: what is sent becomes the twin, and `list` are the workers that go on writing.
    Frame {
        /// Copy the bytes that are sent to the twin.
        twin: bool,
        /// Workers of this node on whose lists the page goes.
        list: WorkerSet,
    },
}

impl Page {
    /// A node fetches the page.
    pub fn serve_fetch(&mut self, scene: &Scene, from: NodeId, access: Access) -> Served {
        if let Some(elsewhere) = self.elsewhere(scene) {
            return elsewhere.map_or(Served::Park, Served::Moved);
        }
        if let Some(holder) = self.holder {
            self.busy = Busy::Breaking;
            return Served::Break { holder };
        }
        self.hint.sharers.insert(from);
        let view = self.view(scene);
        let others = view.sharers.without(from).without(scene.me);
        let writes = access == Access::Write;
        let used_here = !self.mapped.is_empty() && holds(Rule::AloneWithoutHome);
        let exclusive = writes && others.is_empty() && !used_here;
        let migrated = writes && !exclusive && scene.variant.migrates() && self.writers.is_empty();
        let stays = !self.mapped.is_empty() || scene.publishes();
        let sharers = if stays { view.sharers.with(from) } else { view.sharers.with(from).without(scene.me) };
        let fetched = Fetched { exclusive, migrated, sharers, home_writes: !self.writers.is_empty() };
        if exclusive {
            self.holder = Some(from);
        }
        if migrated {
            self.move_to(scene, from);
        }
        Served::Page { fetched, list: self.writers }
    }

    /// This node is the home no longer. Its frame is a copy like another from here on.
    fn move_to(&mut self, scene: &Scene, home: NodeId) {
        self.home = Some(home);
        self.hint.home_writes = true;
        if self.published == Permission::Write {
            self.published = Permission::Read;
        }
        if self.mapped.is_empty() && !scene.publishes() {
            self.published = Permission::Absent;
        }
        // Without a mapping the frame must not be used again before a fetch.
        if self.published != Permission::Absent { self.updated = scene.now } else { self.noticed = scene.now }
    }

    /// A diff came. The caller applies it before it unlocks the entry and answers.
    pub fn serve_diff(&mut self, scene: &Scene) -> Taken {
        self.taken(scene)
    }

    /// A node has left the sharing set.
    pub fn serve_leave(&mut self, scene: &Scene, from: NodeId) -> Taken {
        let taken = self.taken(scene);
        if let Taken::Done(_) = taken {
            self.hint.sharers.remove(from);
        }
        taken
    }

    fn taken(&self, scene: &Scene) -> Taken {
        match self.elsewhere(scene) {
            Some(elsewhere) => elsewhere.map_or(Taken::Park, Taken::Moved),
            None => {
                Taken::Done(View { sharers: self.view(scene).sharers, home_writes: !self.writers.is_empty() })
            }
        }
    }

    /// None: this node is the home and can answer. Some(None): not yet. Some(node): that node is.
    ///
    /// A node that is about to become the home lets requests wait; one that sends a diff or leaves is not, and must not
    /// let them: the home it waits for may wait for it with another page.
    fn elsewhere(&self, scene: &Scene) -> Option<Option<NodeId>> {
        let at_home = self.is_home(scene.me);
        match self.busy {
            Busy::Idle if at_home => None,
            Busy::Claiming | Busy::Fetching => Some(None),
            Busy::Leaving | Busy::Flushing if !holds(Rule::LeavesAnswering) => Some(None),
            _ if at_home => Some(None),
            _ => Some(self.home),
        }
    }

    /// The home asks for a page that this node has exclusively.
    pub fn serve_break(&mut self, scene: &Scene, home: NodeId) -> Given {
        if self.busy != Busy::Idle {
            return Given::Park;
        }
        if !self.exclusive {
            return Given::NotHeld;
        }
        self.exclusive = false;
        self.updated = scene.now;
        self.hint.sharers = self.hint.sharers.with(scene.me).with(home);
        self.twin = !self.writers.is_empty();
        // A diff by remote write could land before the home stores the frame, which would take it back.
        if scene.variant.data() == Way::Direct {
            self.busy = Busy::Breaking;
        }
        Given::Frame { twin: self.twin, list: self.writers }
    }

    /// The home has stored the frame that this node sent: diffs by remote write may follow.
    pub fn settled(&mut self, scene: &Scene) {
        if self.busy == Busy::Breaking && !self.is_home(scene.me) {
            self.idle();
        }
    }

    /// The page is back at its home, whose frame the caller has filled.
    pub fn broken(&mut self) {
        debug_assert_eq!(self.busy, Busy::Breaking);
        self.holder = None;
        self.idle();
    }
}
