//! Flow control between two ranks: credits for posted receives, and room for messages that come before their receive.
//!
//! A packet needs a receive that the other end has posted. The last credit is kept for packets that bring at least two
//! credits back, so that two ranks that have used up all credits can always tell each other of new ones. Room is counted in
//! bytes of eager messages; the receiver gives it back when a receive has taken them.

/// What one message costs of the receiver's room beside its bytes: as much as it takes there until a receive takes it. All ranks have
/// the same, so it is a number of the protocol; `core.rs` holds it against the size of an entry.
pub(super) const ENVELOPE: u32 = 320;

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Flow {
    capacity: u16,
    left: u16,
    owed: u16,
    room: u32,
    spent: u32,
    freed: u32,
}

/// What a packet takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Receives posted again.
    pub credits: u16,
    /// Bytes of room.
    pub freed: u32,
}

/// The other end gave back more than it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess;

impl Flow {
    /// A connection on which each end has posted `capacity` receives, at least 4, and has this much room.
    pub fn new(capacity: u16, room: u32) -> Flow {
        debug_assert!(capacity >= 4, "{capacity} receives");
        Flow { capacity, left: capacity, owed: 0, room, spent: 0, freed: 0 }
    }

    /// Whether an ordinary packet can be sent.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.left > 1
    }

    /// Whether so many packets can be sent one after the other.
    #[inline]
    pub fn may_send_many(&self, packets: usize) -> bool {
        usize::from(self.left) > packets
    }

    /// Whether the other end is waiting for what it gets back, and a packet can be sent for that alone.
    #[inline]
    pub fn should_tell(&self) -> bool {
        let due = self.owed >= self.capacity / 2 || self.freed > self.room / 4;
        due && (self.left > 1 || self.left == 1 && self.owed >= 2)
    }

    /// Whether the receiver has room for an eager message of this length.
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        len < self.room as usize && self.spent + cost(len) <= self.room
    }

    /// An eager message goes out.
    #[inline]
    pub fn spend(&mut self, len: usize) {
        self.spent += cost(len);
    }

    /// A packet goes out and takes this along.
    ///
    /// # Panics
    /// Without a credit.
    #[inline]
    pub fn sent(&mut self) -> Returned {
        assert!(self.left > 0, "a packet without a credit");
        self.left -= 1;
        Returned { credits: std::mem::take(&mut self.owed), freed: std::mem::take(&mut self.freed) }
    }

    /// A packet came and brought this.
    #[inline]
    pub fn got(&mut self, returned: Returned) -> Result<(), Excess> {
        let left = u32::from(self.left) + u32::from(returned.credits);
        if left > u32::from(self.capacity) || returned.freed > self.spent {
            return Err(Excess);
        }
        self.left = left as u16;
        self.spent -= returned.freed;
        Ok(())
    }

    /// The receive of a packet was posted again.
    #[inline]
    pub fn posted(&mut self) {
        self.owed += 1;
    }

    /// Whether the other end was told of every receive that was posted again.
    #[inline]
    pub fn owes_nothing(&self) -> bool {
        self.owed == 0
    }

    /// A receive has taken an eager message of this length.
    #[inline]
    pub fn consumed(&mut self, len: usize) {
        self.freed += cost(len);
    }
}

/// The room that an eager message of this length takes.
#[inline]
pub(super) fn cost(len: usize) -> u32 {
    len as u32 + ENVELOPE
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credits_that_were_not_owed_are_refused() {
        let mut flow = Flow::new(4, 2000);
        assert_eq!(flow.got(Returned { credits: 1, freed: 0 }), Err(Excess));
        assert_eq!(flow.got(Returned { credits: 0, freed: 1 }), Err(Excess));
        flow.spend(100);
        flow.sent();
        assert_eq!(flow.got(Returned { credits: 1, freed: cost(100) }), Ok(()));
        assert_eq!(flow.got(Returned { credits: u16::MAX, freed: 0 }), Err(Excess));
    }

    #[test]
    fn room_is_used_up_and_given_back() {
        let mut flow = Flow::new(4, 2000);
        let most = 2000 - cost(0) as usize;
        assert!(flow.has_room(most) && !flow.has_room(most + 1) && !flow.has_room(usize::MAX));
        flow.spend(most - 36);
        assert!(!flow.has_room(0));
        flow.sent();
        flow.got(Returned { credits: 1, freed: cost(most - 36) }).unwrap();
        assert!(flow.has_room(most));
    }

    proptest! {
        /// Two ends that each have packets to send are through in the end, whatever is delivered when, and no end has
        /// more under way than the other has posted.
        #[test]
        fn two_ends_never_wait_for_each_other(
            capacity in 4u16..20,
            work in [0usize..200, 0..200],
            order in prop::collection::vec(any::<u8>(), 50..400),
        ) {
            let mut ends = [Flow::new(capacity, 1 << 20), Flow::new(capacity, 1 << 20)];
            let mut left = work;
            let mut wire: [VecDeque<Returned>; 2] = Default::default();
            let mut steps = order.iter().cycle();
            let mut idle = 0;
            while left != [0, 0] || wire.iter().any(|queue| !queue.is_empty()) {
                let step = steps.next().unwrap();
                let me = usize::from(step & 1);
                let mut moved = false;
                if step & 2 == 0 {
                    if let Some(returned) = wire[1 - me].pop_front() {
                        ends[me].got(returned).unwrap();
                        ends[me].posted();
                        moved = true;
                    }
                } else if left[me] > 0 && ends[me].may_send() {
                    wire[me].push_back(ends[me].sent());
                    left[me] -= 1;
                    moved = true;
                } else if ends[me].should_tell() {
                    wire[me].push_back(ends[me].sent());
                    moved = true;
                }
                prop_assert!(wire[me].len() <= usize::from(capacity));
                idle = if moved { 0 } else { idle + 1 };
                prop_assert!(idle < 4 * order.len(), "both wait with {left:?} to send: {ends:?}");
            }
        }
    }
}
