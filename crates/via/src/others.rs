//! What a call that waits moves besides the VI it is for.
//!
//! VIA's hardware works on all VIs at once. Here a VI moves inside calls of its owner, and a call that is about to sleep looks at every
//! VI that nothing else looks at: a send that could not leave at once, or a message that its sender keeps until it is
//! fetched. Ranks that each wait for a different neighbour would wait for each other without an end otherwise (record 32).
//! VIs with a completion queue are that queue's, unless they have sends under way.

use crate::handle::Vi;
use crate::nic::Nic;
use crate::vi::{ViCore, ViState};

/// Looks of a wait without sleep between two looks at the other VIs.
pub(crate) const LOOKS: u32 = 256;

/// What a step of [`Nic::move_others`] brought about.
#[derive(Default)]
pub(crate) struct Moved {
    /// A send was done, or a message taken.
    pub(crate) something: bool,
    /// Sends are under way.
    pub(crate) left: bool,
}

impl Nic {
    /// Notes a VI that calls for other VIs look at, too.
    pub(crate) fn list_for_others(&mut self, vi: Vi) {
        if let Some(core) = self.vis.get_mut(vi.0)
            && !core.listed
            && core.wants_looks()
        {
            core.listed = true;
            self.others.push(vi);
        }
    }

    /// Moves all VIs that no completion queue moves. Nothing is allocated.
    pub(crate) fn move_others(&mut self) -> Moved {
        let mut moved = Moved::default();
        let mut others = std::mem::take(&mut self.others);
        others.retain(|&vi| {
            let Some(core) = self.vis.get_mut(vi.0) else { return false };
            core.listed = core.wants_looks();
            if core.listed && core.has_work() {
                let before = core.send.not_done();
                let taken = self.progress_vi(vi);
                if taken > 0 {
                    self.look_again();
                }
                let after = self.vis.get(vi.0).map_or(0, |core| core.send.not_done());
                moved.something |= taken > 0 || after != before;
            }
            moved.left |= self.is_sending(vi);
            self.vis.get(vi.0).is_some_and(|core| core.listed)
        });
        others.append(&mut self.others);
        self.others = others;
        moved
    }
}

impl ViCore {
    /// Whether calls that wait for something else have to look at it, too.
    fn wants_looks(&self) -> bool {
        self.state == ViState::Connected && (self.plain || self.sends_outstanding())
    }

    /// Whether a look may move something. A message without a receive is left where it is: that it came too early is for the
    /// program's own look to find.
    fn has_work(&mut self) -> bool {
        self.sends_outstanding() || self.recv.waiting() > 0 && !self.watch.is_quiet()
    }
}
