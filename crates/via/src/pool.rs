//! Receive descriptors that no VI has at the moment. Connections come and go, and most of them never use all that they might.
//!
//! Their buffers are cut from common regions, so that a connection that is idle has a few lines of memory and no region of
//! its own.

use crate::attributes::MemAttributes;
use crate::buffer::Buffer;
use crate::descriptor::Descriptor;
use crate::error::Error;
use crate::handle::ProtectionTag;
use crate::nic::Nic;

/// Memory taken at once.
const CHUNK: usize = 64 << 10;

/// Receive descriptors of one NIC, by the bytes of their buffers.
#[derive(Debug, Default)]
pub struct ReceivePool {
    free: Vec<(usize, Vec<Descriptor>)>,
}

impl ReceivePool {
    /// A receive descriptor with one buffer of so many bytes. The buffer gives peers no rights, so it goes with any
    /// protection tag.
    ///
    /// # Errors
    /// As of [`Nic::alloc`].
    pub fn take(&mut self, nic: &mut Nic, size: usize) -> Result<Descriptor, Error> {
        let free = self.of(size);
        if free.is_empty() {
            let memory = nic.alloc(CHUNK.max(size), MemAttributes::local(ProtectionTag::ANY))?;
            free.extend(memory.chunks(size).into_iter().filter(|b| b.len() == size).map(Descriptor::recv));
        }
        Ok(free.pop().expect("just made"))
    }

    /// Gives one back.
    pub fn give(&mut self, descriptor: Descriptor) {
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
