//! Flow control: no end sends a frame for which the other end has no buffer. Pure.
//!
//! Each end says at set-up how many frames of two classes it has room for. *Data* frames (messages) keep their buffer
//! until the owner of the VI takes them. *Service* frames (RDMA, acknowledgements) are dealt with when they arrive,
//! whether the owner looks or not. Apart from these a few frames are free: credits, signs of life, the end. Their number
//! is bounded, and there are buffers set aside for them ([`SPARE`]):
//!
//! - a frame of credits gives back at least half a window, and a window can only be used again when that frame was read:
//!   two of each class at most are under way;
//! - signs of life come once in an interval, and the connection is given up after a few of them;
//! - one close, one answer to a close, and the greeting before everything else.

use viaduct_via::Error;

/// Buffers for frames that cost nothing.
pub(crate) const SPARE: usize = 12;

/// What a frame costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Data,
    Service,
    Free,
}

/// Frames of the two classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    pub(crate) data: u16,
    pub(crate) service: u16,
}

impl Window {
    fn of(&mut self, class: Class) -> Option<&mut u16> {
        match class {
            Class::Data => Some(&mut self.data),
            Class::Service => Some(&mut self.service),
            Class::Free => None,
        }
    }
}

/// The credits of one connection, as one end sees them.
#[derive(Debug)]
pub(crate) struct Flow {
    /// What we have room for.
    ours: Window,
    /// What the peer has room for.
    theirs: Window,
    /// What we may send now.
    may: Window,
    /// What the peer may still send us.
    peer_may: Window,
    /// What was freed here and not told yet.
    owed: Window,
}

impl Flow {
    pub(crate) fn new(ours: Window, theirs: Window) -> Flow {
        Flow { ours, theirs, may: theirs, peer_may: ours, owed: Window::default() }
    }

    /// Whether a frame of this class may go now.
    pub(crate) fn may_send(&self, class: Class) -> bool {
        match class {
            Class::Data => self.may.data > 0,
            Class::Service => self.may.service > 0,
            Class::Free => true,
        }
    }

    /// A frame goes, with these credits in its header.
    pub(crate) fn sent(&mut self, class: Class) -> Window {
        if let Some(may) = self.may.of(class) {
            *may -= 1;
        }
        self.peer_may.data += self.owed.data;
        self.peer_may.service += self.owed.service;
        std::mem::take(&mut self.owed)
    }

    /// The frame did not go after all.
    pub(crate) fn unsent(&mut self, class: Class, credits: Window) {
        if let Some(may) = self.may.of(class) {
            *may += 1;
        }
        self.peer_may.data -= credits.data;
        self.peer_may.service -= credits.service;
        self.owed.data += credits.data;
        self.owed.service += credits.service;
    }

    /// A frame came, with these credits. An error if the peer had none left for it, or gives back more than it got.
    pub(crate) fn received(&mut self, class: Class, credits: Window) -> Result<(), Error> {
        if let Some(left) = self.peer_may.of(class) {
            *left = left.checked_sub(1).ok_or(Error::Protocol("more frames than there is room for"))?;
        }
        let add = |may: u16, more: u16, most: u16| {
            may.checked_add(more).filter(|n| *n <= most).ok_or(Error::Protocol("too many credits"))
        };
        self.may = Window {
            data: add(self.may.data, credits.data, self.theirs.data)?,
            service: add(self.may.service, credits.service, self.theirs.service)?,
        };
        Ok(())
    }

    /// The buffer of a frame is free again.
    pub(crate) fn freed(&mut self, class: Class) {
        if let Some(owed) = self.owed.of(class) {
            *owed += 1;
        }
    }

    /// Whether so much is owed that it is worth a frame of its own.
    pub(crate) fn owes_much(&self) -> bool {
        let half = |owed: u16, window: u16| owed > 0 && owed >= window.div_ceil(2);
        half(self.owed.data, self.ours.data) || half(self.owed.service, self.ours.service)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;

    const WINDOW: Window = Window { data: 4, service: 3 };

    #[test]
    fn a_window_is_used_up_and_comes_back() {
        let mut flow = Flow::new(WINDOW, WINDOW);
        for _ in 0..4 {
            assert!(flow.may_send(Class::Data));
            flow.sent(Class::Data);
        }
        assert!(!flow.may_send(Class::Data) && flow.may_send(Class::Service) && flow.may_send(Class::Free));
        flow.received(Class::Free, Window { data: 2, service: 0 }).unwrap();
        assert!(flow.may_send(Class::Data));
        assert!(flow.received(Class::Free, Window { data: 3, service: 0 }).is_err(), "more than there were");
    }

    #[test]
    fn a_peer_without_credit_is_caught() {
        let mut flow = Flow::new(WINDOW, WINDOW);
        for _ in 0..3 {
            flow.received(Class::Service, Window::default()).unwrap();
            flow.freed(Class::Service);
        }
        assert!(flow.received(Class::Service, Window::default()).is_err(), "freed, but not told yet");
    }

    #[test]
    fn a_frame_that_did_not_go_costs_nothing() {
        let mut flow = Flow::new(WINDOW, WINDOW);
        flow.received(Class::Data, Window::default()).unwrap();
        flow.freed(Class::Data);
        let credits = flow.sent(Class::Service);
        assert_eq!(credits, Window { data: 1, service: 0 });
        flow.unsent(Class::Service, credits);
        assert_eq!(flow.sent(Class::Service), credits);
    }

    proptest! {
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// Two ends that play by the rules never break them, never stop for good, and never have more frames without
        /// cost under way than there are buffers for, whatever the order in which things happen.
        #[test]
        fn two_ends_get_along(steps in proptest::collection::vec((0u8..5, any::<bool>()), 1..400)) {
            let mut ends = [Flow::new(WINDOW, WINDOW), Flow::new(WINDOW, WINDOW)];
            // Under way to each end, and held there by the owner.
            let mut wire: [VecDeque<(Class, Window)>; 2] = Default::default();
            let mut held = [0, 0];
            for (what, side) in steps {
                let (me, other) = (usize::from(side), usize::from(!side));
                match what {
                    0 | 1 => {
                        let class = if what == 0 { Class::Data } else { Class::Service };
                        if ends[me].may_send(class) {
                            let credits = ends[me].sent(class);
                            wire[other].push_back((class, credits));
                        }
                    }
                    2 if held[me] > 0 => {
                        held[me] -= 1;
                        ends[me].freed(Class::Data);
                    }
                    _ => if let Some((class, credits)) = wire[me].pop_front() {
                        prop_assert!(ends[me].received(class, credits).is_ok());
                        match class {
                            Class::Data => held[me] += 1,
                            other => ends[me].freed(other),
                        }
                    }
                }
                if ends[me].owes_much() {
                    let credits = ends[me].sent(Class::Free);
                    wire[other].push_back((Class::Free, credits));
                }
                let free = wire[other].iter().filter(|(class, _)| *class == Class::Free).count();
                prop_assert!(free <= 4, "{} frames of credits under way", free);
            }
            // When everything has arrived and was taken, both may send again.
            while wire.iter().any(|w| !w.is_empty()) || held.iter().any(|h| *h > 0) {
                for me in 0..2 {
                    while let Some((class, credits)) = wire[me].pop_front() {
                        prop_assert!(ends[me].received(class, credits).is_ok());
                        ends[me].freed(class);
                    }
                    (0..std::mem::take(&mut held[me])).for_each(|_| ends[me].freed(Class::Data));
                    if ends[me].owes_much() {
                        let credits = ends[me].sent(Class::Free);
                        wire[1 - me].push_back((Class::Free, credits));
                    }
                }
            }
            for end in &ends {
                prop_assert!(end.may_send(Class::Data) && end.may_send(Class::Service));
            }
        }
    }
}
