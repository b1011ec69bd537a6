//! Holds descriptors back for a while, so that queues fill and orders of events change.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use viaduct_os::clock;

use crate::descriptor::Work;
use crate::hooks::{Hook, Verdict};

/// A hook that holds every descriptor for a time before it goes on. (The pollable descriptor of a NIC does not tell
/// when that time is over; waiting does.)
#[derive(Debug)]
pub struct Delay {
    delay: Duration,
    /// Since when each is held. A posted descriptor stays where it is, so its address names it.
    held: Mutex<HashMap<usize, u64>>,
}

impl Delay {
    /// Each descriptor waits this long at the head of its queue.
    pub fn new(delay: Duration) -> Delay {
        Delay { delay, held: Mutex::new(HashMap::new()) }
    }
}

impl Hook for Delay {
    fn submit(&self, work: &Work, _: u32) -> Verdict {
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        let (name, now) = (std::ptr::from_ref(work).addr(), clock::now_ns());
        let since = *held.entry(name).or_insert(now);
        if u128::from(now - since) < self.delay.as_nanos() || now == since {
            return Verdict::Hold;
        }
        held.remove(&name);
        Verdict::Pass
    }

    fn holds_for(&self) -> Option<Duration> {
        Some(self.delay)
    }
}
