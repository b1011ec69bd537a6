//! Registering memory: made by the provider, handed over by the caller, or a part of a segment that others share; and
//! withdrawing it again.

use std::ops::Range;
use std::sync::Arc;

use viaduct_os::segment::{Access, Segment};

use crate::attributes::MemAttributes;
use crate::buffer::{Buffer, Region};
use crate::counters::Counter;
use crate::error::Error;
use crate::memory::{MemHandle, RegionInfo, Slices};
use crate::nic::{Nic, limit};
use crate::raw::{Locator, RawMemory};

impl Nic {
    /// Makes memory to send from and to receive into, for any VI of the NIC: [`alloc`](Self::alloc) without remote rights.
    /// Its bytes can be looked at as a [slice](Buffer::slice).
    ///
    /// # Errors
    /// As of [`alloc`](Self::alloc).
    pub fn buffer(&mut self, len: usize) -> Result<Buffer, Error> {
        self.alloc(len, MemAttributes::default())
    }

    /// Makes memory that peers of this host reach directly, registered with the given rights.
    ///
    /// # Errors
    /// [`Error::InvalidPtag`]; [`Error::Limit`] for too many regions or bytes; [`Error::Os`] without memory for it.
    pub fn alloc(&mut self, len: usize, attributes: MemAttributes) -> Result<Buffer, Error> {
        self.check_region(len, attributes)?;
        let shared = self.provider.allocate(len, attributes.align)?;
        self.register_memory(shared.memory, attributes, shared.locator, is_local(&attributes))
    }

    /// Registers bytes of a segment of the caller's, wherever that is mapped. Where [`alloc`](Self::alloc) gives memory that
    /// peers reach directly this is such memory too: they write, read and use atomics in the segment itself, with one copy.
    ///
    /// Any number of ranges, NICs and processes may register one memory; what they do to it meets there, as it would in any
    /// shared memory. The NIC keeps the mapping until the region is gone. It reads and writes through this mapping, whose
    /// pages therefore have to stay readable and writable: one whose protection changes is the wrong one to register, and
    /// [`Segment::map_again`] gives another. Unless it was said otherwise, a forked child gets a private copy.
    ///
    /// # Errors
    /// As of [`alloc`](Self::alloc).
    pub fn register_segment(
        &mut self,
        segment: &Arc<Segment>,
        range: Range<usize>,
        attributes: MemAttributes,
    ) -> Result<Buffer, Error> {
        if range.start > range.end || range.end > segment.len() {
            return Err(Error::InvalidParameter("the range lies outside the segment"));
        }
        self.check_region(range.len(), attributes)?;
        if segment.access() != Access::ReadWrite {
            return Err(Error::InvalidParameter(
                "a segment that is mapped for reading only cannot be registered",
            ));
        }
        if segment.fd().is_none() {
            return Err(Error::InvalidParameter(
                "a segment whose descriptor was dropped cannot be registered",
            ));
        }
        segment.keep_in_child()?;
        let shared = self.provider.share(segment, range)?;
        self.register_memory(shared.memory, attributes, shared.locator, false)
    }

    /// Registers memory of the caller's.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a tag that there is not; [`Error::Os`], [`Error::Forked`].
    pub fn register(&mut self, bytes: Vec<u8>, attributes: MemAttributes) -> Result<Buffer, Error> {
        self.check_region(bytes.len(), attributes)?;
        self.register_memory(RawMemory::from_heap(bytes), attributes, None, is_local(&attributes))
    }

    /// Registers memory made by an unsafe constructor of [`RawMemory`].
    ///
    /// # Errors
    /// As of [`register`](Self::register).
    #[doc(hidden)]
    pub fn register_raw(&mut self, memory: RawMemory, attributes: MemAttributes) -> Result<Buffer, Error> {
        self.check_region(memory.len(), attributes)?;
        self.register_memory(memory, attributes, None, false)
    }

    /// Withdraws a region and gives heap memory back. Dropping the last buffer of a region withdraws it too, a
    /// little later.
    ///
    /// This is dear: peers that use the memory at the moment are waited for. Keep regions for many messages, and do not register for
    /// each.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for memory of another NIC, [`Error::Forked`].
    pub fn deregister(&mut self, buffer: Buffer) -> Result<Option<Vec<u8>>, Error> {
        self.check_fork()?;
        // The number alone could be that of another NIC's region.
        if !buffer.belongs_to(&self.retired) {
            return Err(Error::InvalidHandle("memory region"));
        }
        let (handle, memory) = buffer.into_memory().map_err(|_| Error::InUse("the memory region"))?;
        self.withdraw(handle);
        Ok(memory.into_heap().ok())
    }

    /// Where a region lies, with its tag and rights.
    #[inline]
    pub fn region(&self, handle: MemHandle) -> Option<&RegionInfo> {
        self.mem.get(handle)
    }

    /// Tag and rights of a region.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`].
    pub fn query_mem(&self, handle: MemHandle) -> Result<MemAttributes, Error> {
        Ok(self.mem.get(handle).ok_or(Error::InvalidHandle("memory region"))?.attributes)
    }

    /// Changes tag and rights of a region.
    ///
    /// # Errors
    /// [`Error::InUse`] if peers would get rights to a region of which [slices](Buffer::slice) were taken;
    /// [`Error::InvalidHandle`]; [`Error::InvalidPtag`].
    pub fn set_mem_attributes(&mut self, handle: MemHandle, attributes: MemAttributes) -> Result<(), Error> {
        self.check_ptag(attributes.ptag)?;
        check_align(attributes.align)?;
        let info = self.mem.get_mut(handle).ok_or(Error::InvalidHandle("memory region"))?;
        check_place(info.base, attributes.align)?;
        let info = *info;
        if !is_local(&attributes) && !self.mem.refuse_slices(handle) {
            return Err(Error::InUse("memory that was looked at as a slice"));
        }
        let changed = RegionInfo { attributes, ..info };
        self.provider.publish(handle, &changed)?;
        *self.mem.get_mut(handle).expect("found above") = changed;
        Ok(())
    }

    fn check_region(&mut self, len: usize, attributes: MemAttributes) -> Result<(), Error> {
        self.check_ptag(attributes.ptag)?;
        check_align(attributes.align)?;
        self.collect_retired();
        if len == 0 {
            return Err(Error::InvalidParameter("a region has at least one byte"));
        }
        if len as u64 > self.attributes.max_register_block_bytes {
            return Err(Error::Limit {
                what: "bytes in a region",
                limit: self.attributes.max_register_block_bytes,
            });
        }
        limit("memory regions", self.mem.len(), self.attributes.max_register_regions)
    }

    fn register_memory(
        &mut self,
        memory: RawMemory,
        attributes: MemAttributes,
        locator: Option<Locator>,
        own: bool,
    ) -> Result<Buffer, Error> {
        check_place(memory.ptr() as u64, attributes.align)?;
        let info = RegionInfo { base: memory.ptr() as u64, len: memory.len() as u64, attributes, locator };
        let slices = Slices::new(own);
        let handle = self.mem.insert(info, slices.clone())?;
        if let Err(e) = self.provider.publish(handle, &info) {
            self.mem.remove(handle);
            return Err(e);
        }
        self.counters.add(Counter::Regions, 1);
        Ok(Buffer::new(Region::registered(memory, handle, self.retired.clone(), slices)))
    }

    pub(crate) fn withdraw(&mut self, handle: MemHandle) {
        if self.mem.remove(handle).is_some() {
            self.provider.withdraw(handle);
        }
    }

    /// Withdraws the regions whose buffers were dropped, and frees their memory.
    pub(crate) fn collect_retired(&mut self) {
        for (handle, memory) in self.retired.take() {
            self.withdraw(handle);
            drop(memory);
        }
    }
}

/// Whether peers have no rights to it.
fn is_local(attributes: &MemAttributes) -> bool {
    !attributes.rdma_write && !attributes.rdma_read
}

fn check_align(align: usize) -> Result<(), Error> {
    if align == 0 || (align.is_power_of_two() && align <= MemAttributes::MOST_ALIGNED) {
        return Ok(());
    }
    Err(Error::InvalidParameter("an alignment is a power of two, 2 MiB at most"))
}

fn check_place(base: u64, align: usize) -> Result<(), Error> {
    if align == 0 || base.is_multiple_of(align as u64) {
        return Ok(());
    }
    Err(Error::InvalidParameter("the memory is not aligned as its attributes ask"))
}
