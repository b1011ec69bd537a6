//! Handles and the table behind them: an index and a generation that starts at random and is never used twice.
//!
//! A handle of a destroyed object, or of another NIC, is refused instead of meaning something else (DESIGN 2.7).

use std::fmt;

use viaduct_os::random;

/// A table of objects named by index and generation.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// An index with its generation, wrapped by the typed handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawHandle {
    /// Position in the NIC's table.
    pub index: u32,
    /// Which of the objects that lived there.
    pub generation: u32,
}

/// Short, as it stands in messages.
impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}", self.index, self.generation)
    }
}

impl<T> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> RawHandle {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return RawHandle { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        let generation = random::u32();
        self.slots.push(Slot { generation, value: Some(value) });
        RawHandle { index, generation }
    }

    #[inline]
    pub(crate) fn get(&self, h: RawHandle) -> Option<&T> {
        let slot = self.slots.get(h.index as usize)?;
        if slot.generation != h.generation {
            return None;
        }
        slot.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, h: RawHandle) -> Option<&mut T> {
        let slot = self.slots.get_mut(h.index as usize)?;
        if slot.generation != h.generation {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, h: RawHandle) -> Option<T> {
        self.get(h)?;
        let slot = &mut self.slots[h.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(h.index);
        self.len -= 1;
        slot.value.take()
    }

    /// Gives what is there another handle, so that the one so far names nothing any more.
    pub(crate) fn renew(&mut self, h: RawHandle) -> Option<RawHandle> {
        self.get(h)?;
        let slot = &mut self.slots[h.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        Some(RawHandle { generation: slot.generation, ..h })
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = RawHandle> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.value.is_some())
            .map(|(i, s)| RawHandle { index: i as u32, generation: s.generation })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.slots.iter().filter_map(|s| s.value.as_ref())
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub struct $name(pub(crate) RawHandle);

        impl $name {
            /// The two words of the handle, for tables kept outside.
            pub fn raw(self) -> RawHandle {
                self.0
            }

            /// A handle from its two words; an unknown one is refused by every call.
            pub fn from_raw(raw: RawHandle) -> $name {
                $name(raw)
            }
        }
    };
}

handle! {
    /// Names a Virtual Interface of a [`Nic`](crate::Nic).
    Vi
}
handle! {
    /// Names a completion queue of a [`Nic`](crate::Nic).
    Cq
}
handle! {
    /// Names a shared receive queue of a [`Nic`](crate::Nic).
    Srq
}
handle! {
    /// Names a protection tag of a [`Nic`](crate::Nic).
    ProtectionTag
}
impl ProtectionTag {
    /// The tag that goes with every other tag of the same NIC: for programs that use none, as old VIA programs do.
    pub const ANY: ProtectionTag = ProtectionTag(RawHandle { index: u32::MAX, generation: u32::MAX });

    /// Whether what has the one tag may be used with what has the other.
    #[inline]
    pub fn goes_with(self, other: ProtectionTag) -> bool {
        self == other || self == ProtectionTag::ANY || other == ProtectionTag::ANY
    }
}

handle! {
    /// Names an address on which a [`Nic`](crate::Nic) listens.
    Listener
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handles_are_refused() {
        let mut t = Table::new();
        let a = t.insert(1);
        assert_eq!(t.get(a), Some(&1));
        assert_eq!(t.remove(a), Some(1));
        let b = t.insert(2);
        assert_eq!(a.index, b.index);
        assert_eq!(t.get(a), None);
        assert_eq!(t.remove(a), None);
        let c = t.renew(b).unwrap();
        assert_eq!((t.get(b), t.get(c)), (None, Some(&2)));
        assert_eq!(t.renew(b), None);
        let b = c;
        assert_eq!(t.get(b), Some(&2));
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn one_tag_goes_with_all() {
        let [a, b] = [1, 2].map(|generation| ProtectionTag(RawHandle { index: 0, generation }));
        assert!(a.goes_with(a) && !a.goes_with(b));
        assert!(a.goes_with(ProtectionTag::ANY) && ProtectionTag::ANY.goes_with(b));
    }

    #[test]
    fn tables_start_at_different_generations() {
        let generations: std::collections::HashSet<u32> =
            (0..8).map(|_| Table::new().insert(()).generation).collect();
        assert!(generations.len() > 1);
    }
}
