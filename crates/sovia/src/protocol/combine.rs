//! Combining of small requests: how much waits, and when it goes (section 3.2.3).
//!
//! Held bytes go when the timer expires, when the next request does not fit, when it is too long to be copied, and when
//! the application reads or closes. Where the window is shut at that moment they go with the next acknowledgement.

/// What waits in the combining buffer.
#[derive(Debug)]
pub(super) struct Combine {
    pub(super) on: bool,
    copy_max: usize,
    mtu: usize,
    held: usize,
    /// They should be gone already: the window was shut.
    urgent: bool,
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
        Combine { on, copy_max: copy_max.min(mtu), mtu, held: 0, urgent: false }
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

    /// Puts a request in. Whether it is the first, so that the timer starts.
    pub(super) fn hold(&mut self, len: usize) -> bool {
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
