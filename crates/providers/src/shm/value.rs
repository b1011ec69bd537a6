//! Messages by value: bytes of the caller's that are taken before the call returns. They go the ways of a descriptor's
//! (`send.rs`), but all at once or not at all, since the bytes are the caller's again afterwards.

use viaduct_os::copy::{copy_over, own_target};
use viaduct_os::segment::Segment;
use viaduct_via::provider::Submit;
use viaduct_via::{Counter, Status, Work};

use super::bounce::{BOUNCE, MOST_AT_ONCE};
use super::pair::lock;
use super::parts::gather_piece;
use super::ring::INLINE_BYTES;
use super::vi::ShmVi;

/// The longest message by value that needs no posted receive in reach, on a lane with so many entries in its ring: those that
/// the receiver has used up are told a quarter of the ring at a time.
pub(crate) fn most_bounced(slots: usize) -> u32 {
    ((slots - slots / 4).min(MOST_AT_ONCE) * BOUNCE) as u32
}

/// Bytes to be sent: of a posted descriptor, or of the caller's.
pub(crate) trait Payload {
    fn total(&self) -> u32;
    fn immediate(&self) -> Option<u32>;
    /// How many places they lie in.
    fn places(&self) -> usize;
    /// Copies `len` bytes from `skip` on, which there are, to `to`, which has room for them.
    fn gather(&self, skip: u32, to: *mut u8, len: u32);
}

impl Payload for Work {
    #[inline]
    fn total(&self) -> u32 {
        self.total
    }

    #[inline]
    fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    #[inline]
    fn places(&self) -> usize {
        self.segments().len()
    }

    #[inline]
    fn gather(&self, skip: u32, to: *mut u8, len: u32) {
        gather_piece(self, skip, to, len);
    }
}

/// A message by value.
pub(crate) struct Value<'a> {
    pub(crate) parts: &'a [&'a [u8]],
    /// Bytes of all parts.
    pub(crate) total: u32,
    pub(crate) immediate: Option<u32>,
}

impl Payload for Value<'_> {
    fn total(&self) -> u32 {
        self.total
    }

    fn immediate(&self) -> Option<u32> {
        self.immediate
    }

    fn places(&self) -> usize {
        self.parts.len()
    }

    fn gather(&self, skip: u32, to: *mut u8, len: u32) {
        let (mut skip, mut left, mut to) = (skip as usize, len as usize, to);
        for part in self.parts {
            let here = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            let n = here.len().min(left);
            // SAFETY: the part has n bytes, and the target room for those that are left.
            unsafe { copy_over(to, here.as_ptr(), n) };
            to = to.wrapping_add(n);
            left -= n;
        }
        debug_assert_eq!(left, 0, "fewer bytes than the message is said to have");
    }
}

impl ShmVi {
    /// Sends a message by value, or nothing of it.
    #[inline(never)]
    pub(crate) fn send_value(&mut self, value: &Value<'_>) -> Submit {
        if value.total as usize <= INLINE_BYTES {
            let mut bytes = [0u8; INLINE_BYTES];
            let bytes = &mut bytes[..value.total as usize];
            value.gather(0, bytes.as_mut_ptr(), value.total);
            return self.submit_bytes(bytes, value.immediate);
        }
        if !self.is_free() || !self.room(1) {
            return Submit::Busy;
        }
        match self.push(value) {
            Some(true) => Submit::Done,
            Some(false) => Submit::Busy,
            None => self.bounce(value),
        }
    }

    /// Through bounce buffers, if there are enough of them for all of it.
    fn bounce(&mut self, value: &Value<'_>) -> Submit {
        if value.total > self.most_bounced {
            return Submit::Busy; // as long as there is no receive to write it into
        }
        match self.announce_bounces() {
            Ok(true) => {}
            Ok(false) => {
                self.set_waiting();
                return Submit::Busy;
            }
            Err(_) => {
                tracing::warn!("no memory for bounce buffers");
                return Submit::Failed(Status::TransportError);
            }
        }
        let pieces = (value.total as usize).div_ceil(BOUNCE);
        if !self.room(pieces as u64) {
            return Submit::Busy;
        }
        let (lane, first) = (self.lane(), self.offers + 1);
        let taken = lock(&self.core.bounce).take_all(&self.pair, lane, &self.out, first, pieces);
        let Some(taken) = taken else {
            self.set_waiting();
            return Submit::Busy;
        };
        let mut done = 0;
        for taken in taken.iter().flatten() {
            done += self.offer_piece(value, done, taken);
        }
        self.core.counters.add(Counter::StagedCopies, 1);
        self.set_waiting();
        Submit::Done
    }
}

/// Copies a whole message into a mapped segment; the caller has checked that it fits.
#[inline]
pub(crate) fn push_into(segment: &Segment, offset: usize, payload: &impl Payload) {
    let total = payload.total();
    debug_assert!(offset + total as usize <= segment.len());
    // SAFETY: inside the segment, as the caller has checked.
    let to = unsafe { segment.as_ptr().add(offset) };
    if payload.places() > 1 {
        // One long copy has many lines on their way at once, one of pieces only those of a piece.
        own_target(to, total as usize);
    }
    payload.gather(0, to, total);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_are_gathered_from_any_place_on() {
        let parts: [&[u8]; 5] = [b"", b"abc", b"defgh", b"", b"i"];
        let value = Value { parts: &parts, total: 9, immediate: None };
        for skip in 0..=9u32 {
            for len in 0..=9 - skip {
                let mut to = [0u8; 9];
                value.gather(skip, to.as_mut_ptr(), len);
                let wanted = &b"abcdefghi"[skip as usize..(skip + len) as usize];
                assert_eq!(&to[..len as usize], wanted);
                assert!(to[len as usize..].iter().all(|b| *b == 0));
            }
        }
    }
}
