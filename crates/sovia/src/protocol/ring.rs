//! The ring: where packets that are written straight into the receiver's memory lie. Both ends count alike, so that no
//! place is ever told: the sender from what it sends, the receiver from what comes.
//!
//! The second data path; docs/adr/0016. A packet is in one piece and starts on a cache line; one that would reach
//! over the end starts at the beginning, and what is left out counts as its own. Acknowledging a packet gives back its
//! room, so acknowledgements say nothing of bytes.

use std::collections::VecDeque;

/// Packets start on a cache line.
const LINE: usize = 64;

/// Longest packet in a ring of this size: a quarter. While the receiver owes less than a quarter (it tells the sender when
/// it owes more) and has read all, the longest packet fits, with what is left out at the end.
pub fn longest(size: usize) -> usize {
    size / 4
}

/// Smallest ring: of what is below it nothing would fit.
pub const SMALLEST: usize = 4 * LINE;

/// Where the next packet goes: the same on both sides.
#[derive(Debug)]
struct Place {
    size: usize,
    next: usize,
}

impl Place {
    /// Offset of a packet of `len` bytes, and the room it takes with what is left out before it.
    fn peek(&self, len: usize) -> (usize, usize) {
        let room = len.next_multiple_of(LINE);
        if self.next + room > self.size { (0, self.size - self.next + room) } else { (self.next, room) }
    }

    fn take(&mut self, offset: usize, len: usize) {
        self.next = offset + len.next_multiple_of(LINE);
    }
}

/// The sender's side.
#[derive(Debug)]
pub(super) struct Outgoing {
    place: Place,
    free: usize,
    /// Packets that went out and those that were acknowledged, round the clock.
    sent: u32,
    acknowledged: u32,
    /// Those of them that are under way and lie in the ring: which one, and its room.
    spans: VecDeque<(u32, usize)>,
}

impl Outgoing {
    /// A ring was offered, while so many packets of a window of `window` are under way.
    pub(super) fn new(size: usize, window: u32, under_way: u32) -> Outgoing {
        let spans = VecDeque::with_capacity(window as usize);
        Outgoing { place: Place { size, next: 0 }, free: size, sent: under_way, acknowledged: 0, spans }
    }

    /// Whether a packet of `len` bytes has room.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.place.peek(len).1 <= self.free
    }

    /// A packet of `len` bytes, which [fits](Self::fits), goes out: where it lies.
    pub(super) fn place(&mut self, len: usize) -> usize {
        let (offset, room) = self.place.peek(len);
        debug_assert!(room <= self.free, "written over what was not read");
        self.place.take(offset, len);
        self.free -= room;
        self.spans.push_back((self.sent, room));
        self.pass();
        offset
    }

    /// A packet goes out as a message.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// The oldest packets were acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, packets: u32) {
        self.acknowledged = self.acknowledged.wrapping_add(packets);
        if !self.spans.is_empty() {
            self.give_back();
        }
    }

    /// Those of them that lay in the ring make room.
    #[inline(never)]
    fn give_back(&mut self) {
        while let Some((which, room)) = self.spans.front()
            && (self.acknowledged.wrapping_sub(*which) as i32) > 0
        {
            self.free += room;
            self.spans.pop_front();
        }
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(super) struct Incoming {
    place: Place,
    most: usize,
}

impl Incoming {
    /// A ring that is offered, for packets of at most `mtu` bytes.
    pub(super) fn new(size: usize, mtu: usize) -> Incoming {
        Incoming { place: Place { size, next: 0 }, most: mtu.min(longest(size)) }
    }

    /// A packet of `len` bytes came: where it lies, and the room it takes. None if there cannot be one of that length.
    pub(super) fn place(&mut self, len: usize) -> Option<(usize, usize)> {
        if len == 0 || len > self.most {
            return None;
        }
        let (offset, room) = self.place.peek(len);
        self.place.take(offset, len);
        Some((offset, room))
    }

    /// Room that may be owed without telling.
    pub(super) fn patience(&self) -> usize {
        longest(self.place.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_count_alike_and_nothing_is_written_over() {
        let (size, mtu) = (1024, 256);
        let (mut out, mut inn) = (Outgoing::new(size, 100, 0), Incoming::new(size, mtu));
        let mut under_way: VecDeque<(usize, usize)> = VecDeque::new();
        for len in [1, 256, 64, 65, 200, 256, 256, 3, 250, 129].into_iter().cycle().take(400) {
            while !out.fits(len) {
                assert!(under_way.pop_front().is_some(), "the longest packet fits into an empty ring");
                out.acknowledged(1);
            }
            let at = out.place(len);
            let (same, _) = inn.place(len).unwrap();
            assert_eq!(at, same);
            assert!(at + len <= size);
            for (from, to) in &under_way {
                assert!(at + len <= *from || at >= *to, "{at} lies in {from}..{to}");
            }
            under_way.push_back((at, at + len));
        }
    }

    #[test]
    fn impossible_packets_are_refused() {
        let mut inn = Incoming::new(1024, 4096);
        assert!(inn.place(257).is_none() && inn.place(0).is_none() && inn.place(256).is_some());
    }

    #[test]
    fn messages_between_take_no_room() {
        let mut out = Outgoing::new(256, 8, 1);
        out.place(64);
        out.pass();
        out.place(64);
        out.acknowledged(3);
        assert_eq!(out.free, 256 - 64);
        out.acknowledged(1);
        assert_eq!(out.free, 256);
    }
}
