//! Datatypes of MPI: where the bytes of a message lie in a program's memory.
//!
//! A datatype is a value that is never changed: constructors ([`build`]) make new ones out of old ones. It has a layout
//! ([`Layout`]: places of its bytes), bounds (extent), a signature (basic elements) and the recipe it was made by, which
//! `MPI_Type_get_envelope` and `MPI_Type_get_contents` read back. Handles, names and attributes are not here.

pub mod basic;
pub mod build;
pub mod darray;
pub mod external;
mod layout;
pub(crate) mod raw;
mod signature;

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

pub use basic::{Basic, Kind};
pub use layout::{Layout, Run};
pub use signature::Signature;

use basic::{BASICS, PAIRS};

/// How a datatype was made, with the values of MPICH's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names of the standard")]
pub enum Combiner {
    Named = 1,
    Dup = 2,
    Contiguous = 3,
    Vector = 4,
    HvectorInteger = 5,
    Hvector = 6,
    Indexed = 7,
    HindexedInteger = 8,
    Hindexed = 9,
    IndexedBlock = 10,
    StructInteger = 11,
    Struct = 12,
    Subarray = 13,
    Darray = 14,
    F90Real = 15,
    F90Complex = 16,
    F90Integer = 17,
    Resized = 18,
    HindexedBlock = 19,
}

/// The call that made a datatype, with its arguments in the order of the standard.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Which constructor.
    pub combiner: Combiner,
    /// Its integer arguments.
    pub integers: Vec<i32>,
    /// Its addresses and displacements in bytes.
    pub addresses: Vec<i64>,
    /// Its datatypes.
    pub types: Vec<Datatype>,
}

/// A datatype. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Datatype {
    inner: Held,
}

/// Where a datatype is kept. Every message clones its own: a predefined one is not counted for that.
#[derive(Clone, Debug)]
enum Held {
    Always(&'static Inner),
    Counted(Arc<Inner>),
}

impl Deref for Held {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        match self {
            Held::Always(inner) => inner,
            Held::Counted(inner) => inner,
        }
    }
}

#[derive(Debug)]
struct Inner {
    /// The handle and name of a predefined type.
    named: Option<(u32, &'static str)>,
    recipe: Recipe,
    layout: Layout,
    /// Blocks of the layout.
    blocks: usize,
    bounds: Bounds,
    signature: Signature,
}

/// From where to where one copy of a type reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) lower: i64,
    pub(crate) upper: i64,
    /// The bound was set by a marker or by resizing: in types made of this one only such bounds count.
    pub(crate) lower_is_set: bool,
    pub(crate) upper_is_set: bool,
    /// What the extent of a struct is rounded up to.
    pub(crate) alignment: usize,
}

impl Datatype {
    /// Every predefined type, with the pairs.
    pub fn predefined() -> &'static [Datatype] {
        static ALL: LazyLock<Vec<Datatype>> = LazyLock::new(|| {
            let basic = BASICS.iter().copied().map(Datatype::of_basic);
            basic.chain(PAIRS.iter().map(Datatype::of_pair)).map(Datatype::lasting).collect()
        });
        &ALL
    }

    /// This datatype, never given back.
    fn lasting(self) -> Datatype {
        let inner = match self.inner {
            Held::Always(inner) => inner,
            Held::Counted(inner) => &**Box::leak(Box::new(inner)),
        };
        Datatype { inner: Held::Always(inner) }
    }

    /// A basic type.
    pub fn of_basic(basic: Basic) -> Datatype {
        let bounds = Bounds {
            lower: 0,
            upper: basic.size as i64,
            lower_is_set: basic.kind == Kind::LowerBound,
            upper_is_set: basic.kind == Kind::UpperBound,
            alignment: basic.alignment(),
        };
        let named = Some((basic.handle, basic.name));
        Datatype::assemble(named, named_recipe(), Layout::block(0, basic.size), bounds, Signature::of(basic))
    }

    /// `MPI_BYTE`.
    pub fn byte() -> Datatype {
        static BYTE: LazyLock<Datatype> = LazyLock::new(|| {
            let byte = basic::find(0x4c00_010d).expect("the table has bytes, as a test shows");
            Datatype::of_basic(byte).lasting()
        });
        BYTE.clone()
    }

    /// A value and its index, laid out as a C struct.
    fn of_pair(pair: &basic::Pair) -> Datatype {
        let parts = [pair.value, pair.index].map(|handle| {
            Datatype::of_basic(
                basic::find(handle).expect("the table of pairs names basic types, as its test shows"),
            )
        });
        let index = parts[0].size().next_multiple_of(parts[1].bounds().alignment) as i64;
        let made = build::structure(&[1, 1], &[0, index], &parts).expect("two basic types fit");
        let inner = &made.inner;
        Datatype::assemble(
            Some((pair.handle, pair.name)),
            named_recipe(),
            inner.layout.clone(),
            inner.bounds,
            inner.signature.clone(),
        )
    }

    pub(crate) fn assemble(
        named: Option<(u32, &'static str)>,
        recipe: Recipe,
        layout: Layout,
        bounds: Bounds,
        signature: Signature,
    ) -> Datatype {
        let blocks = layout.blocks();
        Datatype {
            inner: Held::Counted(Arc::new(Inner { named, recipe, layout, blocks, bounds, signature })),
        }
    }

    /// The handle that programs have compiled in, for a predefined type.
    pub fn handle(&self) -> Option<u32> {
        self.inner.named.map(|(handle, _)| handle)
    }

    /// The name of a predefined type.
    pub fn name(&self) -> Option<&'static str> {
        self.inner.named.map(|(_, name)| name)
    }

    /// How it was made.
    pub fn recipe(&self) -> &Recipe {
        &self.inner.recipe
    }

    /// Where its bytes lie.
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// How many blocks its bytes lie in.
    pub fn blocks(&self) -> usize {
        self.inner.blocks
    }

    /// What its elements are.
    pub fn signature(&self) -> &Signature {
        &self.inner.signature
    }

    /// How many bytes of data it has.
    pub fn size(&self) -> usize {
        self.inner.layout.size()
    }

    /// From the beginning of one copy to that of the next.
    pub fn extent(&self) -> i64 {
        self.inner.bounds.upper - self.inner.bounds.lower
    }

    /// The lower bound.
    pub fn lower(&self) -> i64 {
        self.inner.bounds.lower
    }

    /// The lowest displacement that holds data, and the length from there to the end of the highest.
    pub fn true_extent(&self) -> (i64, i64) {
        let (low, high) = self.inner.layout.bounds().unwrap_or((0, 0));
        (low, high - low)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.inner.bounds
    }

    /// The displacement of the one block that `count` copies are. None if there are gaps between their bytes.
    pub fn contiguous(&self, count: usize) -> Option<i64> {
        let (disp, len) = self.inner.layout.as_block()?;
        (count <= 1 || len as i64 == self.extent()).then_some(disp)
    }
}

fn named_recipe() -> Recipe {
    Recipe { combiner: Combiner::Named, integers: vec![], addresses: vec![], types: vec![] }
}
