//! The window: how many packets may be sent, and which acknowledgements are owed (sections 3.2.1 and 3.2.2).

/// What we may send to the peer.
#[derive(Debug)]
pub(super) struct Credits {
    left: u32,
    window: u32,
}

impl Credits {
    pub(super) fn new(window: u32) -> Credits {
        Credits { left: window, window }
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
}

impl Owed {
    pub(super) fn new(window: u32, threshold: u32) -> Owed {
        Owed { window, threshold, held: 0, delayed: 0 }
    }

    /// A packet came. Not more than the window allows.
    pub(super) fn came(&mut self) -> bool {
        if self.held + self.delayed >= self.window {
            return false;
        }
        self.held += 1;
        true
    }

    /// Its descriptor was posted again. Whether an ACK has to go out for it and those before it.
    pub(super) fn posted(&mut self) -> bool {
        debug_assert!(self.held > 0, "posted more than came");
        self.held = self.held.saturating_sub(1);
        self.delayed += 1;
        self.delayed > self.threshold
    }

    /// All that is owed, for the packet that goes out now.
    pub(super) fn take(&mut self) -> u32 {
        std::mem::take(&mut self.delayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_is_due_above_the_threshold_and_carries_all() {
        let mut owed = Owed::new(4, 2);
        for due in [false, false, true] {
            assert!(owed.came());
            assert_eq!(owed.posted(), due);
        }
        assert_eq!(owed.take(), 3);
        assert_eq!(owed.take(), 0);
    }

    #[test]
    fn the_window_is_a_limit_for_both_sides() {
        let mut owed = Owed::new(2, 1);
        assert!(owed.came() && owed.came() && !owed.came());
        assert!(!owed.posted(), "posted, but not told yet");
        assert!(!owed.came());
        owed.take();
        assert!(owed.came());

        let mut credits = Credits::new(2);
        assert!(!credits.give(1), "nothing was sent");
        credits.take();
        assert!(credits.give(1) && !credits.give(1));
    }
}
