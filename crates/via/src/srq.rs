//! Shared receive queues: receive descriptors that several VIs draw from (beyond VIA 1.0).

use std::collections::VecDeque;

use crate::descriptor::Descriptor;

#[derive(Debug)]
pub(crate) struct SrqCore {
    ring: VecDeque<Descriptor>,
    depth: usize,
    pub(crate) users: usize,
}

impl SrqCore {
    pub(crate) fn new(depth: usize) -> SrqCore {
        SrqCore { ring: VecDeque::with_capacity(depth), depth, users: 0 }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ring.len() >= self.depth
    }

    pub(crate) fn post(&mut self, descriptor: Descriptor) {
        self.ring.push_back(descriptor);
    }

    pub(crate) fn take(&mut self) -> Option<Descriptor> {
        self.ring.pop_front()
    }
}
