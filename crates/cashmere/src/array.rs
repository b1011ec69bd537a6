//! What lies in shared memory: arrays, data behind a lock, pointers; and on which node pages have their home (section 2.1:
//! shared data are allocated explicitly, each page has one home).

use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ids::NodeId;
use crate::world::Name;

/// Types that may lie in shared memory: any bytes are a value, there is no padding, and nothing is done when a value goes.
///
/// Numbers, arrays of them, [`Ptr`], and every type that derives zerocopy's traits:
///
/// ```
/// use viaduct_cashmere::Ptr;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Body {
///     place: [f64; 3],
///     next: Ptr<Body>,
/// }
/// # fn plain<T: viaduct_cashmere::Plain>() {}
/// # plain::<Body>();
/// ```
///
/// An address of this process is no value for another one, and an atomic in shared memory is one of this node only:
///
/// ```compile_fail
/// # fn plain<T: viaduct_cashmere::Plain>() {}
/// plain::<std::sync::atomic::AtomicU64>();
/// ```
///
/// ```compile_fail
/// # fn plain<T: viaduct_cashmere::Plain>() {}
/// plain::<&'static u64>();
/// ```
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + 'static> Plain for T {}

/// On which node the pages of an array have their home: the node that writes most should be the home, which needs neither
/// twins nor diffs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The first node to touch a page.
    #[default]
    FirstTouch,
    /// This node.
    Node(usize),
    /// One band of pages for each node, in their order.
    Bands,
    /// One page after the other, by nodes in turn.
    Turns,
}

impl Placement {
    /// The home of a page, counted from the first of `pages`; None: the first node to touch it.
    pub(crate) fn home(self, page: usize, pages: usize, nodes: usize) -> Option<NodeId> {
        let node = match self {
            Placement::FirstTouch => return None,
            Placement::Node(node) => node,
            // The node whose band `pages * n / nodes..pages * (n + 1) / nodes` has the page.
            Placement::Bands => ((page + 1) * nodes - 1) / pages,
            Placement::Turns => page % nodes,
        };
        Some(NodeId(node as u8))
    }
}

/// Values of type `T` in shared memory, at the same address in every worker.
#[derive(Debug)]
pub struct Array<T> {
    at: usize,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Array<T> {
        *self
    }
}

impl<T> Copy for Array<T> {}

impl<T> Array<T> {
    pub(crate) fn new(at: usize, len: usize) -> Array<T> {
        Array { at, len, kind: PhantomData }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to one of the values.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn ptr(&self, index: usize) -> Ptr<T> {
        let place = self.place(&(index..index + 1));
        Ptr { address: place.start as u64, kind: PhantomData }
    }

    pub(crate) fn place(&self, range: &Range<usize>) -> Range<usize> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of an array of {}", self.len);
        self.at + range.start * size_of::<T>()..self.at + range.end * size_of::<T>()
    }
}

/// The address of a value in shared memory, the same in every worker of every node: it may lie in shared memory itself.
///
/// [`Epoch::load`](crate::Epoch::load) and [`Epoch::store`](crate::Epoch::store) go to the value.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Ptr<T> {
    address: u64,
    kind: PhantomData<T>,
}

impl<T> std::fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ptr({:#x})", self.address)
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Ptr<T> {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Ptr<T>) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Ptr<T> {
    /// A pointer to nothing: what fresh shared memory holds.
    pub const NULL: Ptr<T> = Ptr { address: 0, kind: PhantomData };

    /// Whether it points to nothing.
    pub fn is_null(&self) -> bool {
        self.address == 0
    }

    /// The bytes of the value, if it lies inside `memory` and begins where values of its type do.
    pub(crate) fn place(&self, memory: &Range<usize>) -> Option<Range<usize>> {
        let start = usize::try_from(self.address).ok()?;
        let end = start.checked_add(size_of::<T>())?;
        let inside = memory.start <= start && end <= memory.end;
        (inside && start.is_multiple_of(align_of::<T>())).then_some(start..end)
    }
}

/// Values of type `T` in shared memory that are reached under their lock only: by [`Epoch::with`](crate::Epoch::with).
///
/// There is no other way to them:
///
/// ```compile_fail
/// # use viaduct_cashmere::{Epoch, Guarded};
/// fn around_the_lock(epoch: &Epoch<'_>, total: Guarded<u64>) -> u64 {
///     epoch.read(total, 0..1)[0]
/// }
/// ```
#[derive(Debug)]
pub struct Guarded<T> {
    pub(crate) values: Array<T>,
    pub(crate) lock: Name,
}

impl<T> Clone for Guarded<T> {
    fn clone(&self) -> Guarded<T> {
        *self
    }
}

impl<T> Copy for Guarded<T> {}

impl<T> Guarded<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_and_turns_give_every_node_its_pages() {
        for (pages, nodes) in [(1, 1), (7, 3), (64, 5), (3, 8), (100, 64)] {
            for node in 0..nodes {
                let band = pages * node / nodes..pages * (node + 1) / nodes;
                for page in band {
                    assert_eq!(Placement::Bands.home(page, pages, nodes), Some(NodeId(node as u8)));
                }
            }
            assert_eq!(
                Placement::Turns.home(pages - 1, pages, nodes),
                Some(NodeId(((pages - 1) % nodes) as u8))
            );
        }
        assert_eq!(Placement::FirstTouch.home(0, 1, 1), None);
    }

    #[test]
    fn pointers_outside_or_askew_lead_nowhere() {
        let memory = 0x1000..0x2000;
        let ptr = |address| Ptr::<u64> { address, kind: PhantomData };
        assert_eq!(ptr(0x1ff8).place(&memory), Some(0x1ff8..0x2000));
        for bad in [0, 0xff8, 0x1ffc, 0x2000, 0x1001, u64::MAX - 7] {
            assert_eq!(ptr(bad).place(&memory), None, "{bad:#x}");
        }
        assert!(Ptr::<u64>::NULL.is_null() && Ptr::<u64>::read_from_bytes(&[0; 8]) == Ok(Ptr::NULL));
    }
}
