//! What sockets share: receive descriptors that none of them has, and how much memory their rings take together. Sockets
//! come and go, and most of them never use what they might.
//!
//! SOVIA, section 4.3 (P descriptors for each connection).

use viaduct_via::ReceivePool;

use crate::config::Config;
use crate::protocol::ring::SMALLEST;

pub(crate) struct Pool {
    /// Ends with a ring have short buffers, others have not.
    pub(crate) receives: ReceivePool,
    /// Bytes of a ring, of those that are made unasked together, and of all there are.
    ring: usize,
    unasked: usize,
    rings: usize,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Pool {
        let receives = ReceivePool::default();
        Pool { receives, ring: config.ring, unasked: config.ring_memory, rings: 0 }
    }

    /// Whether there is memory for a ring that the peer has not asked for.
    pub(crate) fn has_ring_to_spare(&self) -> bool {
        self.rings + self.ring <= self.unasked
    }

    /// How long the next ring is: the more there are, the shorter.
    pub(crate) fn ring_len(&self) -> usize {
        let part = match self.rings {
            few if few < self.unasked => 1,
            some if some < self.unasked.saturating_mul(4) => 4,
            _ => 16,
        };
        (self.ring / part).max(SMALLEST)
    }

    /// A ring was made.
    pub(crate) fn made_ring(&mut self, len: usize) {
        self.rings += len;
    }

    /// A ring is gone.
    pub(crate) fn dropped_ring(&mut self, len: usize) {
        self.rings -= len;
    }
}
