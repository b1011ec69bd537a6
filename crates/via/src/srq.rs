//! Shared receive queues: receive descriptors that several VIs draw from (beyond VIA 1.0).

use std::collections::VecDeque;

use crate::descriptor::{Descriptor, Status};
use crate::handle::ProtectionTag;

#[derive(Debug)]
pub(crate) struct SrqCore {
    /// With the tag of the regions in it, if it names any.
    ring: VecDeque<(Descriptor, Option<ProtectionTag>)>,
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

    pub(crate) fn post(&mut self, descriptor: Descriptor, tag: Option<ProtectionTag>) {
        self.ring.push_back((descriptor, tag));
    }

    /// The next descriptor, for a VI with this tag: only now can the tags be compared.
    pub(crate) fn draw(&mut self, vi: ProtectionTag) -> Option<Descriptor> {
        let (mut descriptor, tag) = self.ring.pop_front()?;
        if tag.is_some_and(|tag| !tag.goes_with(vi)) {
            descriptor.work_mut().verdict = Status::ProtectionError;
        }
        Some(descriptor)
    }

    /// The next descriptor, back to its owner.
    pub(crate) fn take(&mut self) -> Option<Descriptor> {
        self.ring.pop_front().map(|(descriptor, _)| descriptor)
    }
}
