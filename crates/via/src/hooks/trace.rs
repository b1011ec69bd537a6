//! Tells a listener of everything that passes.

use std::fmt;

use viaduct_os::clock;

use crate::descriptor::{Op, Work};
use crate::error::Error;
use crate::hooks::{Hook, Step, Verdict};

/// Something that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEvent {
    /// A descriptor was offered to the transport.
    Submit {
        /// What it asks for.
        op: Op,
        /// Bytes.
        length: u32,
        /// Segments.
        segments: usize,
        /// Place in the ledger.
        index: u32,
    },
    /// An inline send, or one by value, was offered.
    Inline {
        /// Bytes.
        length: usize,
    },
    /// Receives were completed.
    Received {
        /// How many.
        descriptors: u32,
    },
    /// A step of set-up was taken.
    Step(Step),
}

/// A hook that reports events with the time they happened, in clock nanoseconds.
pub struct Trace<F>(F);

impl<F> fmt::Debug for Trace<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

impl<F: Fn(u64, TraceEvent) + Send + Sync> Trace<F> {
    /// Reports to `listener`.
    pub fn new(listener: F) -> Trace<F> {
        Trace(listener)
    }

    fn tell(&self, event: TraceEvent) {
        (self.0)(clock::now_ns(), event);
    }
}

impl<F: Fn(u64, TraceEvent) + Send + Sync> Hook for Trace<F> {
    fn submit(&self, work: &Work, index: u32) -> Verdict {
        let (op, length, segments) = (work.op, work.total, work.segments.len());
        self.tell(TraceEvent::Submit { op, length, segments, index });
        Verdict::Pass
    }

    fn submit_inline(&self, bytes: &[u8]) -> Verdict {
        self.tell(TraceEvent::Inline { length: bytes.len() });
        Verdict::Pass
    }

    fn submit_value(&self, parts: &[&[u8]]) -> Verdict {
        self.tell(TraceEvent::Inline { length: parts.iter().map(|part| part.len()).sum() });
        Verdict::Pass
    }

    fn received(&self, descriptors: u32) {
        self.tell(TraceEvent::Received { descriptors });
    }

    fn step(&self, step: Step) -> Result<(), Error> {
        self.tell(TraceEvent::Step(step));
        Ok(())
    }
}
