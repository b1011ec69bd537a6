//! The window: how many packets may be sent, and which acknowledgements are owed (sections 3.2.1 and 3.2.2).

/// What we may send to the peer.
#[derive(Debug)]
pub(super) struct Credits {
    left: u32,
    window: u32,
}

impl Credits {
    /// A window of which so much is open from the beginning; the rest is opened by acknowledgements of nothing.
    pub(super) fn new(window: u32, open: u32) -> Credits {
        Credits { left: open, window }
    }

    /// All of it.
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Packets under way, as far as is known: those of a window that is not all open yet count as well.
    pub(super) fn missing(&self) -> u32 {
        self.window - self.left
    }

    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// A packet goes out. The caller has seen that there is one left.
    pub(super) fn take(&mut self) {
        debug_assert!(self.left > 0, "sent without a credit");
        self.left -= 1;
    }

    /// The peer acknowledged so many. Not more than were sent.
    pub(super) fn give(&mut self, acks: u32) -> bool {
        if acks > self.window - self.left {
            return false;
        }
        self.left += acks;
        true
    }
}

/// What we owe the peer.
#[derive(Debug)]
pub(super) struct Owed {
    window: u32,
    threshold: u32,
    /// Packets taken in whose descriptors were not posted again yet.
    held: u32,
    /// Those that were: d in the paper.
    delayed: u32,
    /// Part of the window that the peer does not know of yet.
    shut: u32,
    /// Room in the ring that goes with those, and how much of it may be owed.
    room: usize,
    patience: usize,
}

impl Owed {
    pub(super) fn new(window: u32, open: u32, threshold: u32) -> Owed {
        Owed { window, threshold, held: 0, delayed: 0, shut: window - open, room: 0, patience: usize::MAX }
    }

    /// From now on packets come with room in a ring, of which so much may be owed.
    pub(super) fn has_ring(&mut self, patience: usize) {
        self.patience = patience;
    }

    /// Part of the window that was not open from the beginning, if it is still shut. From now on the peer is owed it.
    pub(super) fn open_all(&mut self) -> u32 {
        self.delayed += self.shut;
        std::mem::take(&mut self.shut)
    }

    /// Part of the window that is shut.
    pub(super) fn shut(&self) -> u32 {
        self.shut
    }

    /// Whether the window allows for one more packet.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.held + self.delayed + self.shut < self.window
    }

    /// A packet came. Not more than the window allows.
    #[inline]
    pub(super) fn came(&mut self) -> bool {
        let room = self.has_room();
        if room {
            self.came_in();
        }
        room
    }

    /// A packet came in that the window is known to allow.
    #[inline]
    pub(super) fn came_in(&mut self) {
        debug_assert!(self.has_room(), "more than the window allows");
        self.held += 1;
    }

    /// Whether no ACK is due for the next descriptor, so that it may be posted a little later.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        self.delayed < self.threshold
    }

    /// Its descriptor was posted again, and its room in the ring is free. Whether an ACK has to go out for it and those
    /// before it.
    pub(super) fn posted(&mut self, room: usize) -> bool {
        debug_assert!(self.held > 0, "posted more than came");
        self.held = self.held.saturating_sub(1);
        self.delayed += 1;
        self.room += room;
        self.delayed > self.threshold || self.room > self.patience
    }

    /// All that is owed, for the packet that goes out now.
    pub(super) fn take(&mut self) -> u32 {
        self.room = 0;
        std::mem::take(&mut self.delayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_is_due_above_the_threshold_and_carries_all() {
        let mut owed = Owed::new(4, 4, 2);
        for due in [false, false, true] {
            assert!(owed.came());
            assert_eq!(owed.posted(0), due);
        }
        assert_eq!(owed.take(), 3);
        assert_eq!(owed.take(), 0);
    }

    #[test]
    fn the_window_is_a_limit_for_both_sides() {
        let mut owed = Owed::new(2, 2, 1);
        assert!(owed.came() && owed.came() && !owed.came());
        assert!(!owed.posted(0), "posted, but not told yet");
        assert!(!owed.came());
        owed.take();
        assert!(owed.came());

        let mut credits = Credits::new(2, 2);
        assert!(!credits.give(1), "nothing was sent");
        credits.take();
        assert!(credits.give(1) && !credits.give(1));
    }

    #[test]
    fn a_descriptor_may_wait_while_no_ack_is_due_for_it() {
        let mut owed = Owed::new(4, 4, 2);
        for calm in [true, true, false] {
            assert!(owed.came());
            assert_eq!(owed.is_calm(), calm);
            assert_eq!(owed.posted(0), !calm);
        }
        assert!(!Owed::new(1, 1, 0).is_calm(), "with the smallest window the peer waits for each");
    }

    #[test]
    fn a_window_opens_when_it_is_used() {
        let (mut credits, mut owed) = (Credits::new(5, 2), Owed::new(5, 2, 3));
        credits.take();
        assert!(owed.came() && owed.came() && !owed.came());
        assert_eq!((owed.open_all(), owed.open_all(), owed.take()), (3, 0, 3));
        assert!(credits.give(3) && !credits.give(2) && owed.came());
    }

    #[test]
    fn room_in_the_ring_is_given_back_before_it_runs_short() {
        let mut owed = Owed::new(8, 8, 6);
        owed.has_ring(100);
        assert!(owed.came() && owed.came() && owed.came());
        assert!(!owed.posted(60) && owed.posted(60));
        owed.take();
        assert!(!owed.posted(60));
    }
}
