//! What a release does with one page of a worker's lists (section 2.1).

use super::page::{Busy, Page, Permission, Scene, Stamp, View};
use crate::ids::{NodeId, WorkerId};

/// What the release has to do for a page. The worker's own mapping is read-only from here on, but for `Wait` and `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// An operation is under way for the page: ask again when it has ended.
    Wait,
    /// Nothing: the page is this node's alone.
    Nothing,
    /// The changes are at the home already: only the sharing set has to be notified.
    Notify,
    /// This node is the home and nothing of it writes any more: write its word of the directory, call
    /// [`Page::published`], then notify.
    Publish(Permission),
    /// Send the difference of frame and twin to the home, then call [`Page::acknowledged`]. Bytes that are sent are
    /// copied to the twin if it is kept.
    Diff {
        /// Where this node believes the home to be.
        home: NodeId,
        /// Other workers of this node still write the page.
        keep_twin: bool,
    },
}

impl Page {
    /// Decides what the release that began at `started` does with the page.
    pub fn flush(&mut self, scene: &Scene, worker: WorkerId, started: Stamp) -> Flush {
        if self.is_busy() {
            return Flush::Wait;
        }
        if self.exclusive {
            return Flush::Nothing;
        }
        self.writers.remove(worker);
        if self.is_home(scene.me) {
            return self.flush_at_home(scene);
        }
        // A diff that a sibling made after this release began has this worker's changes too.
        if !self.twin || self.flushed > started {
            return Flush::Notify;
        }
        let Some(home) = self.home else { return Flush::Nothing };
        self.twin = !self.writers.is_empty();
        self.flushed = scene.now;
        self.busy = Busy::Flushing;
        Flush::Diff { home, keep_twin: self.twin }
    }

    fn flush_at_home(&mut self, scene: &Scene) -> Flush {
        if self.writers.is_empty() && self.published == Permission::Write {
            if scene.publishes() {
                self.busy = Busy::Publishing;
                return Flush::Publish(Permission::Read);
            }
            self.published = Permission::Read;
        }
        Flush::Notify
    }

    /// The home has the diff. `view` is what its acknowledgement said, where it is a message.
    pub fn acknowledged(&mut self, view: Option<View>) {
        debug_assert_eq!(self.busy, Busy::Flushing);
        if let Some(view) = view {
            self.hint = view;
        }
        self.idle();
    }

    /// The diff has to go to another home. The page stays busy.
    pub fn diff_moved(&mut self, home: NodeId) {
        debug_assert_eq!(self.busy, Busy::Flushing);
        self.home = Some(home);
    }
}
