//! The datatypes that exist from the beginning: handle values of MPICH's interface, names, sizes and kinds.
//!
//! The handle of most of them carries the size in its second byte from the right, as programs expect.

/// What arithmetic a basic type allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Signed integer.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// Floating point of 4 or 8 bytes.
    Float,
    /// x87 extended precision in 16 bytes.
    Extended,
    /// Floating point of 2 or 16 bytes, in software: moved, never computed with.
    Quad,
    /// Two floating-point numbers of half the size.
    Complex,
    /// Two x87 numbers.
    ExtendedComplex,
    /// Truth value of C or C++.
    Bool,
    /// Truth value of Fortran.
    Logical,
    /// Characters: moved, never computed with.
    Character,
    /// Bits.
    Byte,
    /// Bytes of packed data.
    Packed,
    /// A marker of the lower bound in `MPI_Type_struct`; has no bytes.
    LowerBound,
    /// A marker of the upper bound in `MPI_Type_struct`; has no bytes.
    UpperBound,
}

/// A basic type. Small and copied about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Basic {
    /// The handle that programs have compiled in.
    pub handle: u32,
    /// What `MPI_Type_get_name` says.
    pub name: &'static str,
    /// In bytes.
    pub size: usize,
    /// Which reductions it allows.
    pub kind: Kind,
}

impl Basic {
    /// The bytes of one number in it: a complex one has two.
    pub fn number(&self) -> usize {
        match self.kind {
            Kind::Complex | Kind::ExtendedComplex => self.size / 2,
            Kind::Quad if self.size == 32 => 16,
            _ => self.size,
        }
    }

    /// How its address is aligned inside a C struct.
    pub fn alignment(&self) -> usize {
        match self.kind {
            Kind::Complex => self.size / 2,
            Kind::ExtendedComplex => 16,
            Kind::LowerBound | Kind::UpperBound => 1,
            _ => self.size,
        }
    }
}

const fn basic(handle: u32, name: &'static str, kind: Kind) -> Basic {
    Basic { handle, name, size: (handle >> 8 & 0xff) as usize, kind }
}

/// Every basic type.
pub const BASICS: &[Basic] = &[
    basic(0x4c000101, "MPI_CHAR", Kind::Character),
    basic(0x4c000118, "MPI_SIGNED_CHAR", Kind::Signed),
    basic(0x4c000102, "MPI_UNSIGNED_CHAR", Kind::Unsigned),
    basic(0x4c00010d, "MPI_BYTE", Kind::Byte),
    basic(0x4c00040e, "MPI_WCHAR", Kind::Character),
    basic(0x4c000203, "MPI_SHORT", Kind::Signed),
    basic(0x4c000204, "MPI_UNSIGNED_SHORT", Kind::Unsigned),
    basic(0x4c000405, "MPI_INT", Kind::Signed),
    basic(0x4c000406, "MPI_UNSIGNED", Kind::Unsigned),
    basic(0x4c000807, "MPI_LONG", Kind::Signed),
    basic(0x4c000808, "MPI_UNSIGNED_LONG", Kind::Unsigned),
    basic(0x4c00040a, "MPI_FLOAT", Kind::Float),
    basic(0x4c00080b, "MPI_DOUBLE", Kind::Float),
    basic(0x4c00100c, "MPI_LONG_DOUBLE", Kind::Extended),
    basic(0x4c000809, "MPI_LONG_LONG_INT", Kind::Signed),
    basic(0x4c000819, "MPI_UNSIGNED_LONG_LONG", Kind::Unsigned),
    basic(0x4c00010f, "MPI_PACKED", Kind::Packed),
    basic(0x4c000010, "MPI_LB", Kind::LowerBound),
    basic(0x4c000011, "MPI_UB", Kind::UpperBound),
    basic(0x4c00081e, "MPI_COMPLEX", Kind::Complex),
    basic(0x4c001022, "MPI_DOUBLE_COMPLEX", Kind::Complex),
    basic(0x4c00041d, "MPI_LOGICAL", Kind::Logical),
    basic(0x4c00041c, "MPI_REAL", Kind::Float),
    basic(0x4c00081f, "MPI_DOUBLE_PRECISION", Kind::Float),
    basic(0x4c00041b, "MPI_INTEGER", Kind::Signed),
    basic(0x4c00011a, "MPI_CHARACTER", Kind::Character),
    basic(0x4c000427, "MPI_REAL4", Kind::Float),
    basic(0x4c000829, "MPI_REAL8", Kind::Float),
    basic(0x4c00102b, "MPI_REAL16", Kind::Quad),
    basic(0x4c000828, "MPI_COMPLEX8", Kind::Complex),
    basic(0x4c00102a, "MPI_COMPLEX16", Kind::Complex),
    basic(0x4c00202c, "MPI_COMPLEX32", Kind::Quad),
    basic(0x4c00012d, "MPI_INTEGER1", Kind::Signed),
    basic(0x4c00022f, "MPI_INTEGER2", Kind::Signed),
    basic(0x4c000430, "MPI_INTEGER4", Kind::Signed),
    basic(0x4c000831, "MPI_INTEGER8", Kind::Signed),
    basic(0x4c000137, "MPI_INT8_T", Kind::Signed),
    basic(0x4c000238, "MPI_INT16_T", Kind::Signed),
    basic(0x4c000439, "MPI_INT32_T", Kind::Signed),
    basic(0x4c00083a, "MPI_INT64_T", Kind::Signed),
    basic(0x4c00013b, "MPI_UINT8_T", Kind::Unsigned),
    basic(0x4c00023c, "MPI_UINT16_T", Kind::Unsigned),
    basic(0x4c00043d, "MPI_UINT32_T", Kind::Unsigned),
    basic(0x4c00083e, "MPI_UINT64_T", Kind::Unsigned),
    basic(0x4c00013f, "MPI_C_BOOL", Kind::Bool),
    basic(0x4c000840, "MPI_C_FLOAT_COMPLEX", Kind::Complex),
    basic(0x4c001041, "MPI_C_DOUBLE_COMPLEX", Kind::Complex),
    basic(0x4c002042, "MPI_C_LONG_DOUBLE_COMPLEX", Kind::ExtendedComplex),
    basic(0x4c000843, "MPI_AINT", Kind::Signed),
    basic(0x4c000844, "MPI_OFFSET", Kind::Signed),
    basic(0x4c000845, "MPI_COUNT", Kind::Signed),
    basic(0x4c000246, "MPIX_C_FLOAT16", Kind::Quad),
    basic(0x4c000133, "MPI_CXX_BOOL", Kind::Bool),
    basic(0x4c000834, "MPI_CXX_FLOAT_COMPLEX", Kind::Complex),
    basic(0x4c001035, "MPI_CXX_DOUBLE_COMPLEX", Kind::Complex),
    basic(0x4c002036, "MPI_CXX_LONG_DOUBLE_COMPLEX", Kind::ExtendedComplex),
];

/// A value with an index, for MINLOC and MAXLOC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The handle that programs have compiled in.
    pub handle: u32,
    /// What `MPI_Type_get_name` says.
    pub name: &'static str,
    /// Handle of the value's basic type.
    pub value: u32,
    /// Handle of the index's basic type.
    pub index: u32,
}

const fn pair(handle: u32, name: &'static str, value: u32, index: u32) -> Pair {
    Pair { handle, name, value, index }
}

/// Every pair of a value and an index.
pub const PAIRS: &[Pair] = &[
    pair(0x8c000000, "MPI_FLOAT_INT", 0x4c00040a, 0x4c000405),
    pair(0x8c000001, "MPI_DOUBLE_INT", 0x4c00080b, 0x4c000405),
    pair(0x8c000002, "MPI_LONG_INT", 0x4c000807, 0x4c000405),
    pair(0x8c000003, "MPI_SHORT_INT", 0x4c000203, 0x4c000405),
    pair(0x8c000004, "MPI_LONG_DOUBLE_INT", 0x4c00100c, 0x4c000405),
    pair(0x4c000816, "MPI_2INT", 0x4c000405, 0x4c000405),
    pair(0x4c000820, "MPI_2INTEGER", 0x4c00041b, 0x4c00041b),
    pair(0x4c000821, "MPI_2REAL", 0x4c00041c, 0x4c00041c),
    pair(0x4c001023, "MPI_2DOUBLE_PRECISION", 0x4c00081f, 0x4c00081f),
];

/// The basic type with this handle.
pub fn find(handle: u32) -> Option<Basic> {
    BASICS.iter().copied().find(|basic| basic.handle == handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn handles_and_names_are_unique() {
        let handles = BASICS.iter().map(|basic| basic.handle).chain(PAIRS.iter().map(|pair| pair.handle));
        let names = BASICS.iter().map(|basic| basic.name).chain(PAIRS.iter().map(|pair| pair.name));
        let count = BASICS.len() + PAIRS.len();
        assert_eq!(handles.collect::<HashSet<_>>().len(), count);
        assert_eq!(names.collect::<HashSet<_>>().len(), count);
    }

    #[test]
    fn the_handle_carries_the_size() {
        for (name, size) in [("MPI_INT", 4), ("MPI_LONG_DOUBLE", 16), ("MPI_COMPLEX32", 32), ("MPI_LB", 0)] {
            let basic = BASICS.iter().find(|basic| basic.name == name).unwrap();
            assert_eq!(basic.size, size, "{name}");
        }
    }

    #[test]
    fn pairs_are_made_of_basic_types() {
        assert!(PAIRS.iter().all(|pair| find(pair.value).is_some() && find(pair.index).is_some()));
    }
}
