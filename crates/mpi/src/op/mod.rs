//! Predefined reductions: which operation a basic type allows, and the loops that compute it.
//!
//! `combine(op, kind, into, from)` is `into = from op into`, element by element, which is the order that reductions of
//! the standard need: `from` belongs to the lower ranks. Operations of programs are called by the layer that owns them.

mod arithmetic;
mod extended;
mod located;
mod raw;

use crate::datatype::{Basic, Datatype, Kind};
use crate::error::{Class, Error, Result};

/// A predefined operation, with the handle values of MPICH's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names of the standard")]
pub enum Op {
    Max = 0x58000001,
    Min = 0x58000002,
    Sum = 0x58000003,
    Prod = 0x58000004,
    Land = 0x58000005,
    Band = 0x58000006,
    Lor = 0x58000007,
    Bor = 0x58000008,
    Lxor = 0x58000009,
    Bxor = 0x5800000a,
    Minloc = 0x5800000b,
    Maxloc = 0x5800000c,
    Replace = 0x5800000d,
    NoOp = 0x5800000e,
}

impl Op {
    /// Every predefined operation.
    pub const ALL: [Op; 14] = [
        Op::Max,
        Op::Min,
        Op::Sum,
        Op::Prod,
        Op::Land,
        Op::Band,
        Op::Lor,
        Op::Bor,
        Op::Lxor,
        Op::Bxor,
        Op::Minloc,
        Op::Maxloc,
        Op::Replace,
        Op::NoOp,
    ];

    /// The operation with this handle.
    pub fn of(handle: u32) -> Option<Op> {
        Op::ALL.into_iter().find(|op| *op as u32 == handle)
    }
}

/// Whether the operation is defined for the type.
///
/// # Errors
/// [`Class::Op`]: it is not, or the type is not a predefined one.
pub fn check(op: Op, kind: &Datatype) -> Result<()> {
    if allowed(op, kind) {
        return Ok(());
    }
    let name = kind.name().unwrap_or("a derived datatype");
    Err(Error::new(Class::Op, format!("{op:?} is not defined for {name}")))
}

fn allowed(op: Op, kind: &Datatype) -> bool {
    if matches!(op, Op::Replace | Op::NoOp) {
        return true;
    }
    if matches!(op, Op::Minloc | Op::Maxloc) {
        return located::halves(kind).is_some();
    }
    let basic =
        kind.handle().and(kind.signature().only()).filter(|basic| kind.handle() == Some(basic.handle));
    basic.is_some_and(|basic| allowed_for(op, &basic))
}

fn allowed_for(op: Op, basic: &Basic) -> bool {
    let integer = matches!(basic.kind, Kind::Signed | Kind::Unsigned);
    let real = matches!(basic.kind, Kind::Float | Kind::Extended);
    let complex = matches!(basic.kind, Kind::Complex | Kind::ExtendedComplex);
    match op {
        Op::Max | Op::Min => integer || real,
        Op::Sum | Op::Prod => integer || real || complex,
        Op::Land | Op::Lor | Op::Lxor => integer || matches!(basic.kind, Kind::Bool | Kind::Logical),
        Op::Band | Op::Bor | Op::Bxor => integer || basic.kind == Kind::Byte,
        Op::Minloc | Op::Maxloc | Op::Replace | Op::NoOp => false,
    }
}

/// Computes `into = from op into` for `count` elements in consecutive memory of the type's own extent.
///
/// # Errors
/// As [`check`].
pub fn combine(op: Op, kind: &Datatype, into: &mut [u8], from: &[u8]) -> Result<()> {
    debug_assert_eq!(into.len(), from.len());
    check(op, kind)?;
    match op {
        Op::NoOp => {}
        Op::Replace => into.copy_from_slice(from),
        Op::Minloc | Op::Maxloc => located::combine(op, kind, into, from),
        _ => {
            let basic = kind.signature().only().expect("a checked type has one basic type");
            match basic.kind {
                Kind::Extended | Kind::ExtendedComplex => extended::combine(op, &basic, into, from),
                _ => arithmetic::combine(op, &basic, into, from),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
