//! Hooks: providers that wrap a provider, to count, trace, delay or break what passes through.
//!
//! ```
//! use std::sync::Arc;
//! use viaduct_providers::loopback;
//! use viaduct_via::Nic;
//! use viaduct_via::hooks::{Count, Hooked};
//!
//! let count = Arc::new(Count::default());
//! let nic = Nic::open(Hooked::new(loopback::provider(), count.clone()))?;
//! assert_eq!(count.submitted(), 0);
//! # Ok::<(), viaduct_via::Error>(())
//! ```

mod count;
mod delay;
mod fault;
#[allow(unsafe_code)]
mod raw;
mod trace;

use std::time::Duration;

use crate::descriptor::{Status, Work};

pub use count::Count;
pub use delay::Delay;
pub use fault::{Action, Faults, Rule, Step};
pub use raw::Hooked;
pub use trace::{Trace, TraceEvent};

/// What a hook lets happen to a descriptor about to be handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Goes on.
    Pass,
    /// Not now; it is offered again.
    Hold,
    /// Is said to be done, but is not sent: a loss without notice.
    Lose,
    /// Ends with this status.
    Fail(Status),
    /// Is held, and its connection breaks at the next poll.
    Break,
}

/// Something that watches, or meddles with, the traffic of a NIC.
pub trait Hook: Send + Sync {
    /// A descriptor is about to be handed over; `index` is its place in the ledger.
    fn submit(&self, work: &Work, index: u32) -> Verdict {
        let _ = (work, index);
        Verdict::Pass
    }

    /// An inline send is about to be handed over.
    fn submit_inline(&self, bytes: &[u8]) -> Verdict {
        let _ = bytes;
        Verdict::Pass
    }

    /// A send by value, in these parts, is about to be handed over.
    fn submit_value(&self, parts: &[&[u8]]) -> Verdict {
        self.submit_inline(parts.first().copied().unwrap_or_default())
    }

    /// An inline write to the peer's memory is about to be handed over. One that is held goes by a descriptor instead.
    fn write_inline(&self, bytes: &[u8]) -> Verdict {
        self.submit_inline(bytes)
    }

    /// Receives were completed by one poll.
    fn received(&self, descriptors: u32) {
        let _ = descriptors;
    }

    /// A step of connection set-up or memory registration is about to be taken; an error refuses it.
    fn step(&self, step: Step) -> Result<(), crate::Error> {
        let _ = step;
        Ok(())
    }

    /// How long a sleeper may sleep before what was held is offered again; `None` if nothing is ever held for a time.
    fn holds_for(&self) -> Option<Duration> {
        None
    }
}
