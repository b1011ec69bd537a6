//! Handles as C programs hold them: no address, but a number that is looked up, so that an unknown or freed one is
//! refused and never followed.
//!
//! ```text
//!   63                32 31             12 11       3 2    0
//!   generation           index             NIC        kind
//! ```
//!
//! Index and generation are those of the model's tables, which start at random and are not used twice.

use viaduct_via::handle::RawHandle;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles of libvipl are 64 bits in a pointer");

/// A handle of any kind; zero is NULL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Handle(u64);

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    Nic = 1,
    Vi = 2,
    Cq = 3,
    Ptag = 4,
    Conn = 5,
}

const KIND_BITS: u32 = 3;
const NIC_BITS: u32 = 9;
const INDEX_BITS: u32 = 20;
/// NICs that can be open at once.
pub const MOST_NICS: usize = 1 << NIC_BITS;
/// Objects of a kind that a NIC can have.
pub const MOST_OBJECTS: usize = 1 << INDEX_BITS;

impl Handle {
    /// No handle.
    pub const NULL: Handle = Handle(0);

    /// Whether it is no handle.
    pub fn is_null(self) -> bool {
        self == Handle::NULL
    }

    /// The handle of an object of the NIC with this number. None if its index does not fit.
    #[inline]
    pub fn new(kind: Kind, nic: u16, raw: RawHandle) -> Option<Handle> {
        let fits = (raw.index as usize) < MOST_OBJECTS && usize::from(nic) < MOST_NICS;
        let low = raw.index << (NIC_BITS + KIND_BITS) | u32::from(nic) << KIND_BITS | kind as u32;
        fits.then_some(Handle(u64::from(raw.generation) << 32 | u64::from(low)))
    }

    /// NIC and object, if it is a handle of this kind.
    #[inline]
    pub fn open(self, kind: Kind) -> Option<(u16, RawHandle)> {
        let low = self.0 as u32;
        if low & ((1 << KIND_BITS) - 1) != kind as u32 {
            return None;
        }
        let nic = (low >> KIND_BITS) as u16 & ((1 << NIC_BITS) - 1);
        let index = low >> (NIC_BITS + KIND_BITS);
        Some((nic, RawHandle { index, generation: (self.0 >> 32) as u32 }))
    }

    /// A handle from whatever bits; most name nothing.
    pub fn from_bits(bits: u64) -> Handle {
        Handle(bits)
    }

    /// Its bits.
    pub fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_opens_to_what_it_was_made_of() {
        for kind in [Kind::Nic, Kind::Vi, Kind::Cq, Kind::Ptag, Kind::Conn] {
            for (nic, index, generation) in [(0, 0, 0), (511, 0xF_FFFF, u32::MAX), (7, 3, 9)] {
                let raw = RawHandle { index, generation };
                let handle = Handle::new(kind, nic, raw).unwrap();
                assert!(!handle.is_null());
                assert_eq!(handle.open(kind), Some((nic, raw)));
                let other = if kind == Kind::Vi { Kind::Cq } else { Kind::Vi };
                assert_eq!(handle.open(other), None);
            }
        }
        assert_eq!(Handle::NULL.open(Kind::Nic), None);
        assert_eq!(Handle::new(Kind::Vi, 0, RawHandle { index: 1 << 20, generation: 0 }), None);
    }
}
