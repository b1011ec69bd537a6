//! Counts what passes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptor::Work;
use crate::error::Error;
use crate::hooks::{Hook, Step, Verdict};

/// A hook that counts.
#[derive(Debug, Default)]
pub struct Count {
    submitted: AtomicU64,
    bytes: AtomicU64,
    inline: AtomicU64,
    received: AtomicU64,
    steps: AtomicU64,
}

impl Count {
    /// Descriptors handed to the transport.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Bytes in them.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Inline sends, and others by value, offered.
    pub fn inline(&self) -> u64 {
        self.inline.load(Ordering::Relaxed)
    }

    /// Receives completed.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Steps of set-up taken.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

impl Hook for Count {
    fn submit(&self, work: &Work, _: u32) -> Verdict {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(u64::from(work.total), Ordering::Relaxed);
        Verdict::Pass
    }

    fn submit_inline(&self, _: &[u8]) -> Verdict {
        self.inline.fetch_add(1, Ordering::Relaxed);
        Verdict::Pass
    }

    fn received(&self, descriptors: u32) {
        self.received.fetch_add(u64::from(descriptors), Ordering::Relaxed);
    }

    fn step(&self, _: Step) -> Result<(), Error> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
