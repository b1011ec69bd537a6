//! Registered memory: the handle table and the list of regions whose owner let go of them.
//!
//! A handle is 32 bits, as in the VIA interface, and is passed to peers as a number. It is an index and a generation
//! that starts at random; no handle is given out twice in the life of a NIC.

#[allow(unsafe_code)]
pub(crate) mod raw;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use viaduct_os::random;

use crate::attributes::MemAttributes;
use crate::error::Error;
use crate::handle::ProtectionTag;
use crate::raw::{Locator, RawMemory};

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const GENERATIONS: u32 = 1 << (32 - INDEX_BITS);

/// Names a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemHandle(u32);

impl MemHandle {
    /// No region: memory used without explicit registration.
    pub const NONE: MemHandle = MemHandle(0);

    /// The number that is sent to peers.
    pub fn number(self) -> u32 {
        self.0
    }

    /// A handle from its number.
    pub fn from_number(n: u32) -> MemHandle {
        MemHandle(n)
    }

    /// Position in the table of the NIC that made it.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 & INDEX_MASK
    }
}

/// What is known of a region. Only the model makes one, of memory that is there: a provider lets peers reach what it says.
#[derive(Clone, Copy, Debug)]
pub struct RegionInfo {
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) attributes: MemAttributes,
    pub(crate) locator: Option<Locator>,
}

impl RegionInfo {
    /// First address in the owner's address space.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes; at least one.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Tag and rights.
    #[inline]
    pub fn attributes(&self) -> &MemAttributes {
        &self.attributes
    }

    /// Where it lies in shareable memory; None for private memory.
    #[inline]
    pub fn locator(&self) -> Option<Locator> {
        self.locator
    }

    /// Whether `addr..addr+len` lies inside.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr >= self.base && len <= self.len && addr - self.base <= self.len - len
    }
}

/// The regions of one NIC.
#[derive(Debug)]
pub(crate) struct MemTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
    /// Changes whenever a region is withdrawn or gets other rights; differs between NICs. What was checked under it
    /// need not be checked again.
    stamp: u64,
}

impl Default for MemTable {
    fn default() -> MemTable {
        MemTable { slots: Vec::new(), free: Vec::new(), len: 0, stamp: next_stamp() }
    }
}

/// Stamps are never used twice, by any NIC of the process.
fn next_stamp() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    uses: u32,
    info: Option<RegionInfo>,
    slices: Arc<Slices>,
}

/// Whether safe code may look at a region as a slice. Its buffers and its NIC agree on it: as soon as a slice was given
/// out, peers get no rights to the region any more, and the other way round.
#[derive(Debug)]
pub(crate) struct Slices(AtomicU8);

impl Slices {
    /// Peers may reach the memory, or other processes share it.
    const REFUSED: u8 = 0;
    /// No peer may reach it.
    const ALLOWED: u8 = 1;
    /// No peer may reach it, and slices were given out.
    const GIVEN: u8 = 2;

    pub(crate) fn new(allowed: bool) -> Arc<Slices> {
        Arc::new(Slices(AtomicU8::new(if allowed { Slices::ALLOWED } else { Slices::REFUSED })))
    }

    /// Returns true if a slice may be made now. From then on [`refuse`](Self::refuse) fails.
    #[inline]
    pub(crate) fn give(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            Slices::GIVEN => true,
            Slices::REFUSED => false,
            _ => self.decide(Slices::GIVEN) == Slices::GIVEN,
        }
    }

    /// Peers are to get rights. Returns false if slices were given out.
    fn refuse(&self) -> bool {
        self.decide(Slices::REFUSED) == Slices::REFUSED
    }

    /// Decides for `wanted` unless it was decided before; gives what holds.
    fn decide(&self, wanted: u8) -> u8 {
        let decided = self.0.compare_exchange(Slices::ALLOWED, wanted, Ordering::AcqRel, Ordering::Acquire);
        decided.map_or_else(|before| before, |_| wanted)
    }
}

impl MemTable {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, info: RegionInfo, slices: Arc<Slices>) -> Result<MemHandle, Error> {
        let index = match self.free.pop() {
            Some(i) => i,
            None if self.slots.len() >= INDEX_MASK as usize => {
                return Err(Error::Limit { what: "memory regions", limit: u64::from(INDEX_MASK) });
            }
            None => {
                // Generation 0 is skipped, so that no handle is ever 0 (programs take 0 for failure).
                let generation = 1 + random::u32() % (GENERATIONS - 1);
                self.slots.push(Slot { generation, uses: 0, info: None, slices: slices.clone() });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        (slot.info, slot.slices) = (Some(info), slices);
        self.len += 1;
        Ok(MemHandle(slot.generation << INDEX_BITS | index))
    }

    #[inline]
    pub(crate) fn get(&self, h: MemHandle) -> Option<&RegionInfo> {
        let slot = self.slots.get(h.index() as usize)?;
        if slot.generation != h.0 >> INDEX_BITS {
            return None;
        }
        slot.info.as_ref()
    }

    /// A region is about to give peers rights. Returns false if safe code may hold slices of it.
    pub(crate) fn refuse_slices(&self, h: MemHandle) -> bool {
        self.get(h).is_none() || self.slots[h.index() as usize].slices.refuse()
    }

    /// What descriptors checked now are stamped with.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// What was checked before has to be checked again.
    pub(crate) fn forget_checks(&mut self) {
        self.stamp = next_stamp();
    }

    pub(crate) fn get_mut(&mut self, h: MemHandle) -> Option<&mut RegionInfo> {
        self.stamp = next_stamp();
        let slot = self.slots.get_mut(h.index() as usize)?;
        if slot.generation != h.0 >> INDEX_BITS {
            return None;
        }
        slot.info.as_mut()
    }

    pub(crate) fn remove(&mut self, h: MemHandle) -> Option<RegionInfo> {
        self.get(h)?;
        let slot = &mut self.slots[h.index() as usize];
        let info = slot.info.take();
        self.stamp = next_stamp();
        slot.uses += 1;
        slot.generation = if slot.generation + 1 == GENERATIONS { 1 } else { slot.generation + 1 };
        // A slot whose generations are used up is never used again.
        if slot.uses < GENERATIONS - 1 {
            self.free.push(h.index());
        }
        self.len -= 1;
        info
    }

    /// Every region there is.
    pub(crate) fn handles(&self) -> Vec<MemHandle> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.info.is_some());
        used.map(|(index, slot)| MemHandle(slot.generation << INDEX_BITS | index as u32)).collect()
    }

    pub(crate) fn uses_tag(&self, tag: ProtectionTag) -> bool {
        self.slots.iter().filter_map(|s| s.info).any(|i| i.attributes.ptag == tag)
    }
}

/// Regions let go by their owner and not yet withdrawn from the provider.
///
/// A buffer may be dropped anywhere, also on another thread; its memory must stay until peers can no longer reach it.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    list: Mutex<Option<Vec<(MemHandle, RawMemory)>>>,
}

impl Retired {
    pub(crate) fn new() -> Arc<Retired> {
        Arc::new(Retired { list: Mutex::new(Some(Vec::new())) })
    }

    pub(crate) fn push(&self, handle: MemHandle, memory: RawMemory) {
        // Poisoning cannot leave the list half-changed; go on with it.
        let mut list = self.list.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(list) = list.as_mut() {
            list.push((handle, memory));
        }
    }

    pub(crate) fn take(&self) -> Vec<(MemHandle, RawMemory)> {
        let mut list = self.list.lock().unwrap_or_else(|e| e.into_inner());
        list.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The NIC is gone: from now on memory is freed at once.
    pub(crate) fn close(&self) -> Vec<(MemHandle, RawMemory)> {
        self.list.lock().unwrap_or_else(|e| e.into_inner()).take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::RawHandle;

    fn info() -> RegionInfo {
        let tag = ProtectionTag::from_raw(RawHandle { index: 0, generation: 7 });
        RegionInfo { base: 4096, len: 100, attributes: MemAttributes::local(tag), locator: None }
    }

    #[test]
    fn handles_are_never_zero_and_never_reused() {
        let mut t = MemTable::default();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..if cfg!(miri) { 50 } else { 3 * GENERATIONS } {
            let h = t.insert(info(), Slices::new(true)).unwrap();
            assert_ne!(h, MemHandle::NONE);
            assert!(seen.insert(h), "handle {h:?} given out twice");
            assert!(t.remove(h).is_some());
            assert!(t.get(h).is_none());
        }
        assert_eq!(t.len(), 0);
    }

    #[test]
    fn a_region_gives_out_slices_or_rights() {
        let mut t = MemTable::default();
        let (looked_at, shared) = (Slices::new(true), Slices::new(true));
        let a = t.insert(info(), looked_at.clone()).unwrap();
        let b = t.insert(info(), shared.clone()).unwrap();
        assert!(looked_at.give() && looked_at.give());
        assert!(!t.refuse_slices(a), "rights for peers while there are slices");
        assert!(t.refuse_slices(b) && t.refuse_slices(b));
        assert!(!shared.give() && !Slices::new(false).give());
    }

    #[test]
    fn bounds_do_not_wrap() {
        let i = info();
        assert!(i.contains(4096, 100) && i.contains(4196, 0) && i.contains(4100, 96));
        for (addr, len) in [(4095, 1), (4096, 101), (4196, 1), (u64::MAX, 2), (4097, u64::MAX)] {
            assert!(!i.contains(addr, len), "{addr} {len}");
        }
    }
}
