//! Doorbells: one bit per VI by which peers say that an armed (cold) VI has something.
//!
//! Two levels, so that looking for any costs one load. VIs beyond the number of bits share them.

use super::sync::{AtomicU64, Ordering};

/// Number of bits.
pub(crate) const BITS: u32 = 4096;
const WORDS: usize = BITS as usize / 64;

/// The bits of one NIC, in its shared segment.
#[repr(C, align(64))]
pub(crate) struct Doorbells {
    summary: AtomicU64,
    /// Atomics too: a peer may write the whole line.
    _pad: [AtomicU64; 7],
    words: [AtomicU64; WORDS],
}

impl Doorbells {
    #[cfg(test)]
    pub(crate) fn fresh() -> Doorbells {
        Doorbells {
            summary: AtomicU64::new(0),
            _pad: std::array::from_fn(|_| AtomicU64::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Sets the bit of a VI. The message was published before.
    pub(crate) fn ring(&self, vi: u32) {
        let bit = vi % BITS;
        // Release: the owner that takes the bit sees the message. The word comes before its summary for the same reason.
        self.words[(bit / 64) as usize].fetch_or(1 << (bit % 64), Ordering::AcqRel);
        self.summary.fetch_or(1 << (bit / 64), Ordering::AcqRel);
    }

    /// Takes all bits, calling `f` with each.
    #[inline]
    pub(crate) fn take(&self, f: impl FnMut(u32)) {
        if self.summary.load(Ordering::Relaxed) != 0 {
            self.take_some(f);
        }
    }

    #[cold]
    fn take_some(&self, mut f: impl FnMut(u32)) {
        let mut summary = self.summary.swap(0, Ordering::AcqRel);
        while summary != 0 {
            let word = summary.trailing_zeros();
            summary &= summary - 1;
            let mut bits = self.words[word as usize].swap(0, Ordering::AcqRel);
            while bits != 0 {
                f(word * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_taken_once() {
        let bells = Doorbells::fresh();
        for vi in [0, 63, 64, 4095, 4096 + 5, 0] {
            bells.ring(vi);
        }
        let mut taken = Vec::new();
        bells.take(|b| taken.push(b));
        assert_eq!(taken, [0, 5, 63, 64, 4095]);
        bells.take(|_| panic!("taken before"));
    }
}
