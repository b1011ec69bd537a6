//! What lies in the segment of a connection: a page of words, then the bytes of two rings.
//!
//! Each end has a side, 0 or 1; direction `s` carries what side `s` sends. Words that one end writes and the other reads
//! have cache lines of their own. A peer may write anything anywhere: the reader of a word checks it, and a bad one breaks
//! this connection. Positions count bytes from the start of the ring's life and never wrap.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

use viaduct_os::bare::lock::RecoverableLock;

/// Bytes of one ring, a power of two.
pub const RING: u64 = 128 << 10;
/// Bytes before the rings.
pub const HEADER: usize = 4096;
/// Bytes of a segment.
pub const SEGMENT: usize = HEADER + 2 * RING as usize;

/// Side `s` is ready to receive from its ring.
pub const OPEN: [u32; 2] = [1, 2];
/// One side has given up waiting for the other: this segment is never used.
pub const WITHDRAWN: u32 = 4;

/// Bytes still come by TCP.
pub const BY_TCP: u32 = 0;
/// Bytes come from the ring.
pub const BY_RING: u32 = 1;
/// The ring is over; bytes come by TCP again.
pub const BY_TCP_AGAIN: u32 = 2;

/// Nothing was taken back.
pub const NOT_TAKEN: u32 = 0;
/// The sender takes back what was not read, and sends it by TCP.
pub const TAKING: u32 = 1;
/// All of that is the kernel's.
pub const TAKEN: u32 = 2;

/// What follows stands on a line of its own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct Apart([u8; 0]);

/// What the sender of a direction writes. A receiver that waits looks at the first line again and again; were the sender's
/// lock there, each look would cost the sender that line three times a message instead of once.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Producer {
    /// Bytes put into the ring.
    pub head: AtomicU64,
    /// One more than the bytes that went by TCP before the ring; 0 as long as the ring is not used.
    pub start: AtomicU64,
    /// One more than the position at which the ring is over; 0 as long as it is not.
    pub end: AtomicU64,
    /// 1 once the sender has shut this direction down.
    pub shut: AtomicU32,
    /// The CPU on which the sender last ran.
    pub cpu: AtomicU32,
    /// Nothing.
    pub apart: Apart,
    /// Held while bytes are put in.
    pub lock: RecoverableLock,
    /// Bytes that may be in the ring at a time: what the buffers of both sockets would hold, see [`capacity`].
    pub most: AtomicU32,
    /// Whether bytes are taken back: [`NOT_TAKEN`], [`TAKING`], [`TAKEN`].
    pub taken: AtomicU32,
    /// The position from which on bytes are taken back.
    pub taken_from: AtomicU64,
    /// The bytes that had gone by TCP before those.
    pub taken_after: AtomicU64,
}

/// What the receiver of a direction writes. The sender looks at the first line now and then, when the room that it knows of is used
/// up.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Consumer {
    /// Bytes taken out of the ring.
    pub tail: AtomicU64,
    /// The CPU on which the receiver last ran.
    pub cpu: AtomicU32,
    /// Nothing.
    pub apart: Apart,
    /// Where the next bytes come from: [`BY_TCP`], [`BY_RING`], [`BY_TCP_AGAIN`].
    pub phase: AtomicU32,
    /// Held while bytes are taken out.
    pub lock: RecoverableLock,
}

/// What the receiver wants of the sender, which looks here after each message: a line that seldom changes.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Wishes {
    /// Receivers that sleep until there are bytes.
    pub readers: AtomicU32,
    /// 1 once the receiver asks for its bytes by TCP, those in the ring included.
    pub back: AtomicU32,
}

/// A count on a line of its own.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Count(pub AtomicU32);

/// One direction.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Direction {
    /// The sender's.
    pub producer: Producer,
    /// The receiver's.
    pub consumer: Consumer,
    /// The receiver's, too.
    pub wishes: Wishes,
    /// Senders that sleep until there is room.
    pub writers: Count,
}

/// What concerns one end.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct End {
    /// 1 from when its bell was rung until it was emptied.
    pub rung: AtomicU32,
    /// Whether its socket does not block.
    pub nonblocking: AtomicU32,
    /// The receive buffer of its socket, in bytes.
    pub receive_buffer: AtomicU32,
}

/// The first page of a segment. All zeros is the beginning.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    /// [`OPEN`] and [`WITHDRAWN`].
    pub attached: AtomicU32,
    /// The two ends.
    pub ends: [End; 2],
    /// The two directions, by the side that sends.
    pub directions: [Direction; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER && RING.is_power_of_two());
const _: () = assert!(offset_of!(Producer, lock) == 128 && offset_of!(Consumer, phase) == 128);

/// Bytes that can be taken out; `None` if the positions make no sense.
#[inline]
pub fn readable(head: u64, tail: u64) -> Option<u64> {
    Some(head.wrapping_sub(tail)).filter(|&len| len <= RING)
}

/// Bytes that can be put in, if at most so many may be inside; `None` if the positions make no sense.
#[inline]
pub fn writable(head: u64, tail: u64, most: u64) -> Option<u64> {
    readable(head, tail).map(|len| most.saturating_sub(len))
}

/// How many bytes may be in a ring at a time, from the word that says so; a word that makes no sense is the whole ring.
#[inline]
pub fn capacity(most: u32) -> u64 {
    if (LEAST..=RING as u32).contains(&most) { u64::from(most) } else { RING }
}

/// The word for [`capacity`]: a program that made the buffers of its sockets small finds a small ring.
pub fn most(send_buffer: u32, receive_buffer: u32) -> u32 {
    send_buffer.saturating_add(receive_buffer).clamp(LEAST, RING as u32)
}

/// The smallest capacity.
const LEAST: u32 = 4096;

/// Whether poll calls a ring with so much room writable: as for sockets, a third must be free.
#[inline]
pub fn has_room(room: u64, most: u64) -> bool {
    room >= most / 3
}

/// Where `len` bytes from `position` on lie: one piece, or two around the end of the ring (offset and length).
#[inline]
pub fn pieces(position: u64, len: u64) -> [(usize, usize); 2] {
    let offset = position & (RING - 1);
    let first = len.min(RING - offset);
    [(offset as usize, first as usize), (0, (len - first) as usize)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_that_make_no_sense_are_seen() {
        assert_eq!((readable(5, 5), readable(RING, 0), readable(RING + 1, 0)), (Some(0), Some(RING), None));
        assert_eq!((readable(4, 5), writable(4, 5, RING), writable(RING, 0, RING)), (None, None, Some(0)));
        assert_eq!((writable(5000, 0, LEAST.into()), writable(96, 0, 4096)), (Some(0), Some(4000)));
        assert_eq!(
            (capacity(0), capacity(u32::MAX), capacity(most(1, 2)), capacity(most(9000, 1))),
            (RING, RING, 4096, 9001)
        );
    }

    proptest! {
        #[test]
        fn pieces_lie_in_the_ring_and_make_up_the_whole(position: u64, len in 0..=RING) {
            let [(first, one), (second, two)] = pieces(position, len);
            prop_assert_eq!((one + two) as u64, len);
            prop_assert!(first + one <= RING as usize && second + two <= RING as usize);
            prop_assert!(two == 0 || first + one == RING as usize);
            prop_assert!(two <= first || two == 0, "the pieces overlap");
        }

        /// A ring as two counters and a queue: what goes in comes out, and no more than fits.
        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec((any::<bool>(), 0..2 * RING), 1..64), from: u64) {
            let (mut head, mut tail, mut inside) = (from, from, 0u64);
            for (put, len) in steps {
                if put {
                    let moved = len.min(writable(head, tail, RING).unwrap());
                    head = head.wrapping_add(moved);
                    inside += moved;
                } else {
                    let moved = len.min(readable(head, tail).unwrap());
                    tail = tail.wrapping_add(moved);
                    inside -= moved;
                }
                prop_assert_eq!(readable(head, tail), Some(inside));
            }
        }
    }
}
