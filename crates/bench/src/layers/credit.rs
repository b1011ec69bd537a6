//! The credits of a stream over a VI, as both of its ends count them.
//!
//! VIA breaks a reliable connection when a message arrives and no receive is posted. So the receiver posts each buffer again
//! once it has read it, and tells the sender what it has read, a quarter of the window at a time.

use viaduct_via::Buffer;

/// What was sent and received since the two ends connected.
pub(crate) struct Credit {
    window: u64,
    sent: u64,
    /// Messages for which the peer has posted a buffer again.
    granted: u64,
    received: u64,
    /// What the peer was last told about `received`.
    told: u64,
}

impl Credit {
    pub(crate) fn new(window: usize) -> Credit {
        Credit { window: window as u64, sent: 0, granted: 0, received: 0, told: 0 }
    }

    /// Whether the peer has a buffer for another message.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.granted < self.window
    }

    /// One more message was sent.
    #[inline(always)]
    pub(crate) fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// Messages sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// One more message was received.
    #[inline(always)]
    pub(crate) fn count_received(&mut self) {
        self.received += 1;
    }

    /// Whether the sender is to be told by now.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.received - self.told >= (self.window / 4).max(1)
    }

    /// What the sender is told: everything that was received.
    #[inline(always)]
    pub(crate) fn letter(&self) -> [u8; 8] {
        self.received.to_le_bytes()
    }

    /// The letter is on its way.
    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        self.told = self.received;
    }

    /// Takes the letter of the receiver.
    #[inline(always)]
    pub(crate) fn take(&mut self, letter: &Buffer) {
        let mut count = [0; 8];
        letter.read(0, &mut count);
        self.granted = u64::from_le_bytes(count);
    }

    /// Whether the sender was told about everything that was received.
    pub(crate) fn all_told(&self) -> bool {
        self.told == self.received
    }

    /// Whether the receiver has told about everything that was sent.
    pub(crate) fn all_granted(&self) -> bool {
        self.granted == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_messages_is_under_way_at_most() {
        let (mut sender, mut receiver) = (Credit::new(8), Credit::new(8));
        let mut sent = 0;
        while sender.has_room() {
            sender.count_sent();
            sent += 1;
        }
        assert_eq!((sent, sender.sent(), sender.all_granted()), (8, 8, false));
        receiver.count_received();
        assert!(!receiver.is_due() && !receiver.all_told());
        receiver.count_received();
        assert!(receiver.is_due(), "a quarter of the window");
        sender.take(&Buffer::from(receiver.letter().to_vec()));
        receiver.tell();
        assert!(sender.has_room() && receiver.all_told() && !receiver.is_due());
        (0..6).for_each(|_| receiver.count_received());
        sender.take(&Buffer::from(receiver.letter().to_vec()));
        assert!(sender.all_granted());
    }
}
