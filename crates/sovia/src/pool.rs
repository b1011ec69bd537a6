//! Receive descriptors that no socket has: sockets come and go, and most of them never use what they might.
//!
//! SOVIA, section 4.3 (P descriptors for each connection). The buffers of all sockets are cut from common regions, so that
//! a connection that is idle has a few lines of memory and no region of its own.

use viaduct_via::{Descriptor, Error, MemAttributes, Nic, ProtectionTag};

/// Memory taken at once.
const CHUNK: usize = 64 << 10;

pub(crate) struct Pool {
    /// Bytes of each buffer.
    size: usize,
    free: Vec<Descriptor>,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Pool {
        Pool { size, free: Vec::new() }
    }

    /// A receive descriptor with a buffer.
    pub(crate) fn take(&mut self, nic: &mut Nic) -> Result<Descriptor, Error> {
        if self.free.is_empty() {
            // They have no rights for peers, so they may be used under any tag.
            let memory = nic.alloc(CHUNK.max(self.size), MemAttributes::local(ProtectionTag::ANY))?;
            self.free.extend(memory.chunks(self.size).into_iter().map(Descriptor::recv));
        }
        Ok(self.free.pop().expect("just made"))
    }

    /// Gives one back.
    pub(crate) fn give(&mut self, descriptor: Descriptor) {
        self.free.push(descriptor);
    }
}
