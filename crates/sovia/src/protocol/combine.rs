//! Combining of small requests: how much waits, and when it goes (section 3.2.3).
//!
//! Held bytes go when the timer expires, when the next request does not fit, when it is too long to be copied, and when
//! the application reads or closes. Where the window is shut at that moment they go with the next acknowledgement.
//!
//! A program that asks and reads the answer, one request at a time, has nothing to combine: after a few such turns the first
//! request after a read goes at once, which the next read would have made it do. What follows before that is combined.

/// Reads in a row with one request before each, after which the next one is taken to be alone, too.
const LONE: u8 = 4;

/// What waits in the combining buffer.
#[derive(Debug)]
pub(super) struct Combine {
    pub(super) on: bool,
    copy_max: usize,
    mtu: usize,
    held: usize,
    /// They should be gone already: the window was shut.
    urgent: bool,
    /// Requests since the last read, up to two, and reads in a row that had one before them.
    requests: u8,
    lone: u8,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Into the buffer, all of it.
    Hold,
    /// What is held goes first.
    FlushFirst,
    /// A packet of its own of this many bytes.
    Alone(usize),
}

impl Combine {
    pub(super) fn new(on: bool, copy_max: usize, mtu: usize) -> Combine {
        Combine { on, copy_max: copy_max.min(mtu), mtu, held: 0, urgent: false, requests: 0, lone: 0 }
    }

    /// Longer packets can be sent from now on.
    pub(super) fn widen(&mut self, copy_max: usize, mtu: usize) {
        (self.copy_max, self.mtu) = (copy_max.min(mtu), mtu);
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.urgent && self.held > 0
    }

    pub(super) fn ask(&self, len: usize) -> Verdict {
        let small = self.on && len <= self.copy_max;
        if small && self.held + len <= self.mtu {
            Verdict::Hold
        } else if self.held > 0 {
            Verdict::FlushFirst
        } else {
            Verdict::Alone(len.min(self.mtu))
        }
    }

    /// Whether a request is likely to be the only one before the next read, so that it may as well go now.
    #[inline]
    pub(super) fn is_lone(&self, len: usize) -> bool {
        self.on && self.lone >= LONE && self.requests == 0 && self.held == 0 && len <= self.copy_max
    }

    /// With nothing held: whether a request that is not [too long](Self::longest_alone) goes alone, because it is likely to
    /// be the only one or because nothing is combined. Then it is gone.
    #[inline]
    pub(super) fn passes_alone(&mut self) -> bool {
        debug_assert_eq!(self.held, 0);
        let lone = self.lone >= LONE && self.requests == 0;
        if self.on && lone {
            self.requests = 1;
        }
        !self.on || lone
    }

    /// Longest request that goes so.
    pub(super) fn longest_alone(&self) -> usize {
        if self.on { self.copy_max } else { self.mtu }
    }

    /// A request went without having been held.
    #[inline]
    pub(super) fn went(&mut self) {
        self.requests = 2.min(self.requests + 1);
    }

    /// The application reads.
    #[inline]
    pub(super) fn read(&mut self) {
        match std::mem::take(&mut self.requests) {
            0 => {}
            1 => self.lone = LONE.min(self.lone + 1),
            _ => self.lone = 0,
        }
    }

    /// Puts a request in. Whether it is the first, so that the timer starts.
    pub(super) fn hold(&mut self, len: usize) -> bool {
        self.went();
        let first = self.held == 0;
        self.urgent &= !first;
        self.held += len;
        first
    }

    /// Puts a request in beside others, if it goes in at once. Whether it did.
    #[inline]
    pub(super) fn hold_more(&mut self, len: usize) -> bool {
        let fits = self.on && self.held > 0 && len <= self.copy_max && self.held + len <= self.mtu;
        if fits {
            self.held += len;
            self.requests = 2;
        }
        fits
    }

    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// All of it goes out.
    pub(super) fn take(&mut self) -> usize {
        self.urgent = false;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_at_once_after_turns_of_one_and_no_more_after_one_of_two() {
        let mut combine = Combine::new(true, 2048, 32 << 10);
        for _ in 0..LONE {
            assert!(!combine.is_lone(8));
            assert_eq!(combine.ask(8), Verdict::Hold);
            assert!(combine.hold(8));
            combine.take();
            combine.read();
            combine.read();
        }
        assert!(combine.is_lone(8) && !combine.is_lone(4096));
        combine.went();
        assert!(!combine.is_lone(8), "the second before a read is combined");
        combine.hold(8);
        assert!(combine.hold_more(8));
        combine.take();
        combine.read();
        assert!(!combine.is_lone(8), "and the next turn begins with holding");
        assert!(!Combine::new(false, 2048, 32 << 10).is_lone(8));
    }
}
