//! Credits: how many packets may be sent before the peer has posted receives for more. Pure: no clock, no NIC.
//!
//! A message that meets no receive breaks a reliable connection, so a sender counts the receives of its peer ([`Credits`])
//! and a receiver gives back those that it has posted again ([`Owed`]): on packets that go the other way anyhow, or on a
//! packet of their own when many are owed. [`Window`] has both for a protocol whose credit packets use up receives as all
//! others do:
//!
//! - the last credit is kept for a credit packet, so that two ends that fill each other's receives do not wait for each other;
//! - a credit packet goes out for two credits at least, so that the two ends do not answer credit packets for ever.

/// What may be sent to the peer.
#[derive(Clone, Debug)]
pub struct Credits {
    left: u32,
    window: u32,
}

impl Credits {
    /// A window of which so much is open from the beginning; the rest is given later.
    pub fn new(window: u32, open: u32) -> Credits {
        Credits { left: open.min(window), window }
    }

    /// All of it.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Packets that may go.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Packets under way, as far as is known: those of a window that is not all open yet count as well.
    pub fn missing(&self) -> u32 {
        self.window - self.left
    }

    /// A packet goes out. The caller has seen that there is one left.
    #[inline]
    pub fn take(&mut self) {
        debug_assert!(self.left > 0, "sent without a credit");
        self.left -= 1;
    }

    /// The peer gave so many back. False, and nothing is given, if they are more than were sent.
    #[inline]
    pub fn give(&mut self, back: u32) -> bool {
        if back > self.window - self.left {
            return false;
        }
        self.left += back;
        true
    }
}

/// What is owed to the peer: receives that were posted again.
#[derive(Clone, Debug)]
pub struct Owed {
    window: u32,
    threshold: u32,
    /// Packets taken in whose receives were not posted again yet.
    held: u32,
    /// Those that were, and the peer does not know it.
    delayed: u32,
    /// Part of the window that the peer does not know of yet.
    shut: u32,
}

impl Owed {
    /// A window of which so much is open from the beginning. A packet of its own is due above `threshold`.
    pub fn new(window: u32, open: u32, threshold: u32) -> Owed {
        Owed { window, threshold, held: 0, delayed: 0, shut: window - open }
    }

    /// Opens what was not open from the beginning, if it is still shut: so much is owed from now on.
    pub fn open_all(&mut self) -> u32 {
        self.delayed += self.shut;
        std::mem::take(&mut self.shut)
    }

    /// Part of the window that is shut.
    pub fn shut(&self) -> u32 {
        self.shut
    }

    /// Whether the window allows for one more packet.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.held + self.delayed + self.shut < self.window
    }

    /// A packet came. False, and it does not count, if it is more than the window allows.
    #[inline]
    pub fn on_packet(&mut self) -> bool {
        let room = self.has_room();
        if room {
            self.on_allowed_packet();
        }
        room
    }

    /// A packet came in that the window is known to allow.
    #[inline]
    pub fn on_allowed_packet(&mut self) {
        debug_assert!(self.has_room(), "more than the window allows");
        self.held += 1;
    }

    /// Whether no packet of its own is due for the next receive, so that it may be posted a little later.
    #[inline]
    pub fn is_below(&self) -> bool {
        self.delayed < self.threshold
    }

    /// The receive of a packet was posted again. True if a packet of its own has to go out for it and those before it.
    #[inline]
    pub fn on_repost(&mut self) -> bool {
        debug_assert!(self.held > 0, "posted more than came");
        self.held = self.held.saturating_sub(1);
        self.delayed += 1;
        self.delayed > self.threshold
    }

    /// All that is owed, for the packet that goes out now.
    #[inline]
    pub fn take(&mut self) -> u32 {
        std::mem::take(&mut self.delayed)
    }
}

/// Both directions of a connection as one end sees them, where every packet uses up one receive of the peer.
#[derive(Clone, Debug)]
pub struct Window {
    credits: Credits,
    owed: Owed,
}

impl Window {
    /// The fewest receives that each end has: one is reserved, and two are owed before a credit packet goes out.
    pub const LEAST: u32 = 3;

    /// The peer has posted `theirs` receives for this end, which has posted `ours` for it. Each is at least
    /// [`LEAST`](Self::LEAST).
    pub fn new(theirs: u32, ours: u32) -> Window {
        assert!(
            theirs >= Window::LEAST && ours >= Window::LEAST,
            "windows of {theirs} and {ours} are too small"
        );
        // A credit packet is due for so many and one more: two at least, and all but the reserve at most.
        let threshold = (ours / 2).clamp(1, ours - 2);
        Window { credits: Credits::new(theirs, theirs), owed: Owed::new(ours, ours, threshold) }
    }

    /// Ordinary packets that may go now.
    #[inline]
    pub fn left(&self) -> u32 {
        self.credits.left().saturating_sub(1)
    }

    /// Takes the credit of an ordinary packet. False if only the reserve is left: the packet waits until the peer grants.
    #[inline]
    pub fn take(&mut self) -> bool {
        let may = self.credits.left() > 1;
        if may {
            self.credits.take();
        }
        may
    }

    /// Takes the credit of a credit packet, the reserve if need be. False if that is out already: what is owed goes
    /// with the next packet, for which the peer's own credit packet is on its way.
    pub fn take_reserved(&mut self) -> bool {
        let may = self.credits.left() > 0;
        if may {
            self.credits.take();
        }
        may
    }

    /// A packet came, of whatever kind. False if the peer had no credit for it: it breaks the protocol.
    #[inline]
    pub fn on_packet(&mut self) -> bool {
        self.owed.on_packet()
    }

    /// The receive of a packet that came was posted again. True if a credit packet is due.
    #[inline]
    pub fn on_repost(&mut self) -> bool {
        self.owed.on_repost()
    }

    /// Whether a credit packet is due: asked again after a grant, where one could not go out before.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.owed.delayed > self.owed.threshold
    }

    /// Takes all that is owed, to travel on the packet that goes out now.
    #[inline]
    pub fn owed(&mut self) -> u32 {
        self.owed.take()
    }

    /// The peer granted so many. False if they are more than were sent: it breaks the protocol.
    #[inline]
    pub fn on_grant(&mut self, credits: u32) -> bool {
        self.credits.give(credits)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_of_its_own_is_due_above_the_threshold_and_carries_all() {
        let mut owed = Owed::new(4, 4, 2);
        for due in [false, false, true] {
            assert!(owed.on_packet());
            assert_eq!(owed.on_repost(), due);
        }
        assert_eq!((owed.take(), owed.take()), (3, 0));
    }

    #[test]
    fn the_window_is_a_limit_for_both_sides() {
        let mut owed = Owed::new(2, 2, 1);
        assert!(owed.on_packet() && owed.on_packet() && !owed.on_packet());
        assert!(!owed.on_repost(), "posted, but the peer does not know it");
        assert!(!owed.on_packet());
        owed.take();
        assert!(owed.on_packet());

        let mut credits = Credits::new(2, 2);
        assert!(!credits.give(1), "nothing was sent");
        credits.take();
        assert!(credits.give(1) && !credits.give(1));
    }

    #[test]
    fn a_receive_may_wait_while_no_packet_is_due_for_it() {
        let mut owed = Owed::new(4, 4, 2);
        for below in [true, true, false] {
            assert!(owed.on_packet());
            assert_eq!(owed.is_below(), below);
            assert_eq!(owed.on_repost(), !below);
        }
        assert!(!Owed::new(1, 1, 0).is_below(), "with the smallest window the peer waits for each");
    }

    #[test]
    fn a_window_opens_when_it_is_used() {
        let (mut credits, mut owed) = (Credits::new(5, 2), Owed::new(5, 2, 3));
        credits.take();
        assert!(owed.on_packet() && owed.on_packet() && !owed.on_packet());
        assert_eq!((owed.open_all(), owed.open_all(), owed.take()), (3, 0, 3));
        assert!(credits.give(3) && !credits.give(2) && owed.on_packet());
    }

    #[test]
    fn ordinary_packets_leave_the_reserve() {
        let mut window = Window::new(3, 3);
        assert_eq!(window.left(), 2);
        assert!(window.take() && window.take() && !window.take());
        assert!(window.take_reserved() && !window.take_reserved());
        assert!(!window.on_grant(4) && window.on_grant(3));
    }

    /// One end of a simulated pair: packets it wants to send, packets that came and hold their receive.
    struct End {
        window: Window,
        wants: u32,
        held: u32,
        got: u32,
    }

    /// A packet: whether it is an ordinary one, and the credits on it.
    type Packet = (bool, u32);

    impl End {
        /// Sends what may go.
        fn send(&mut self, wire: &mut VecDeque<Packet>) {
            while self.wants > 0 && self.window.take() {
                self.wants -= 1;
                wire.push_back((true, self.window.owed()));
            }
            if self.window.is_due() && self.window.take_reserved() {
                wire.push_back((false, self.window.owed()));
            }
        }

        fn receive(&mut self, (ordinary, credits): Packet) {
            assert!(self.window.on_packet(), "a packet without a receive");
            assert!(self.window.on_grant(credits), "more credits than packets");
            self.got += u32::from(ordinary);
            self.held += 1;
        }

        /// Posts a receive again.
        fn repost(&mut self) {
            if self.held > 0 {
                self.held -= 1;
                self.window.on_repost();
            }
        }
    }

    proptest! {
        // Under Miri there is no folder to keep failures in, and a few cases take as long as all without it.
        #![proptest_config(match cfg!(miri) {
            true => ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() },
            false => ProptestConfig::default(),
        })]
        #[test]
        fn two_ends_that_flood_each_other_never_stand_still(
            windows in (3u32..9, 3u32..9),
            wants in (0u32..60, 0u32..60),
            steps in proptest::collection::vec(0u8..6, 0..400),
        ) {
            let end = |theirs, ours, wants| End { window: Window::new(theirs, ours), wants, held: 0, got: 0 };
            let mut ends = [end(windows.0, windows.1, wants.0), end(windows.1, windows.0, wants.1)];
            let mut wires = [VecDeque::new(), VecDeque::new()];
            let mut step = |what: u8| {
                let at = usize::from(what & 1);
                match what >> 1 {
                    0 => ends[at].send(&mut wires[at]),
                    1 => {
                        if let Some(packet) = wires[1 - at].pop_front() {
                            ends[at].receive(packet);
                        }
                    }
                    _ => ends[at].repost(),
                }
                (ends[0].got, ends[1].got, wires[0].len() + wires[1].len())
            };
            steps.into_iter().for_each(|what| {
                step(what);
            });
            // From any state, fair steps bring everything across, and then it is quiet.
            for _ in 0..2000 {
                (0..6).for_each(|what| {
                    step(what);
                });
            }
            let (first, second, under_way) = step(0);
            prop_assert_eq!((first, second), (wants.1, wants.0));
            prop_assert_eq!(under_way, 0, "credit packets are answered without end");
        }
    }
}
