//! What sockets share: receive descriptors that none of them has, and how much memory their rings take together. Sockets
//! come and go, and most of them never use what they might.
//!
//! SOVIA, section 4.3 (P descriptors for each connection). The buffers of all sockets are cut from common regions, so that
//! a connection that is idle has a few lines of memory and no region of its own.

use viaduct_via::{Buffer, Descriptor, Error, MemAttributes, Nic, ProtectionTag};

use crate::config::Config;
use crate::protocol::ring::SMALLEST;

/// Memory taken at once.
const CHUNK: usize = 64 << 10;

pub(crate) struct Pool {
    /// By the bytes of their buffers: those of ends with a ring are short, those of others are not.
    free: Vec<(usize, Vec<Descriptor>)>,
    /// Bytes of a ring, of those that are made unasked together, and of all there are.
    ring: usize,
    unasked: usize,
    rings: usize,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Pool {
        Pool { free: Vec::new(), ring: config.ring, unasked: config.ring_memory, rings: 0 }
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

    /// A receive descriptor with a buffer of so many bytes.
    pub(crate) fn take(&mut self, nic: &mut Nic, size: usize) -> Result<Descriptor, Error> {
        let free = self.of(size);
        if free.is_empty() {
            // They have no rights for peers, so they may be used under any tag.
            let memory = nic.alloc(CHUNK.max(size), MemAttributes::local(ProtectionTag::ANY))?;
            free.extend(memory.chunks(size).into_iter().filter(|b| b.len() == size).map(Descriptor::recv));
        }
        Ok(free.pop().expect("just made"))
    }

    /// Gives one back.
    pub(crate) fn give(&mut self, descriptor: Descriptor) {
        let size = descriptor.buffers().first().map_or(0, Buffer::len);
        self.of(size).push(descriptor);
    }

    fn of(&mut self, size: usize) -> &mut Vec<Descriptor> {
        let at = self.free.iter().position(|(other, _)| *other == size).unwrap_or_else(|| {
            self.free.push((size, Vec::new()));
            self.free.len() - 1
        });
        &mut self.free[at].1
    }
}
