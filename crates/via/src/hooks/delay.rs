//! Holds descriptors back for a while, so that queues fill and orders of events change.

use std::sync::Mutex;
use std::time::Duration;

use viaduct_os::clock;

use crate::descriptor::Work;
use crate::hooks::{Hook, Verdict};

/// A hook that holds every descriptor for a time before it goes on.
#[derive(Debug)]
pub struct Delay {
    nanos: u64,
    held: Mutex<Option<(u32, u64)>>,
}

impl Delay {
    /// Each descriptor waits this long at the head of its queue.
    pub fn new(delay: Duration) -> Delay {
        Delay { nanos: delay.as_nanos() as u64, held: Mutex::new(None) }
    }
}

impl Hook for Delay {
    fn submit(&self, _: &Work, index: u32) -> Verdict {
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        let now = clock::now_ns();
        match *held {
            Some((i, since)) if i == index && now - since >= self.nanos => {
                *held = None;
                Verdict::Pass
            }
            Some((i, _)) if i == index => Verdict::Hold,
            _ => {
                *held = Some((index, now));
                Verdict::Hold
            }
        }
    }
}
