//! A stock of the program's own memory, which is registered in one way or another (thesis, section 3.4).
//!
//! Every message has another page-aligned buffer on the heap: registered for this message alone, never registered at
//! all, or out of a registration cache. The cache is as small as caches of this kind are: a hit uses a registered buffer
//! again, a miss registers a new one and lets go of the one that was used longest ago.

use std::collections::VecDeque;

use viaduct_via::{Buffer, Completion, Descriptor, Error, MemAttributes, Nic, Op, ProtectionTag};

use crate::layers::stock::{Stock, wrong};
use crate::layers::stocked::Needs;
use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::sum_part;

/// Registered buffers that the cache keeps beside those in use.
pub(crate) const CACHED: usize = 16;
const PAGE: usize = 4096;

/// When buffers are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    /// For each message.
    Each,
    /// Not at all.
    Never,
    /// For each message that the cache has none for; it has one for so many of a hundred.
    Missing(u64),
}

impl Register {
    /// So many of a hundred messages find a registered buffer.
    pub(crate) fn reuse(self) -> Option<Reuse> {
        match self {
            Register::Missing(percent) => Some(Reuse { percent, due: 0, hits: 0, misses: 0 }),
            Register::Each | Register::Never => None,
        }
    }
}

/// Which messages of one direction find a registered buffer, and how many did.
pub(crate) struct Reuse {
    percent: u64,
    /// Hits owed, in hundredths.
    due: u64,
    hits: u64,
    misses: u64,
}

impl Reuse {
    /// Whether the next message finds one, if there is `any`.
    #[inline(always)]
    pub(crate) fn hit(&mut self, any: bool) -> bool {
        self.due += self.percent;
        if self.due >= 100 && any {
            self.due -= 100;
            self.hits += 1;
            return true;
        }
        self.misses += 1;
        false
    }

    /// A slice begins.
    pub(crate) fn begin(&mut self) {
        (self.hits, self.misses) = (0, 0);
    }

    /// A slice has ended: adds the share of both directions, and a fault if it is not as wanted. `slack` misses are
    /// unavoidable: nothing was in the cache yet.
    pub(crate) fn finish(sends: &Reuse, receives: &Reuse, slack: u64, run: &Run, tally: &mut Tally) {
        let hits = sends.hits + receives.hits;
        let all = hits + sends.misses + receives.misses;
        if all == 0 {
            return;
        }
        tally.extra.insert("reuse".into(), 100.0 * hits as f64 / all as f64);
        if run.check && hits.abs_diff(all * sends.percent / 100) > slack {
            tally.bad += 1;
        }
    }
}

/// Heap memory of one end.
pub(crate) struct Heap {
    sends: Shelf,
    receives: Shelf,
    scratch: Vec<u8>,
    /// Misses that are unavoidable: nothing was in the cache yet.
    slack: u64,
}

impl Heap {
    /// `count` buffers each way for messages of `size` bytes.
    pub(crate) fn new(
        register: Register,
        tag: ProtectionTag,
        size: usize,
        count: usize,
        needs: &Needs,
    ) -> Heap {
        let shelf = |op| Shelf {
            op,
            register,
            attributes: MemAttributes::local(tag),
            size,
            free: (0..count).map(|_| vec![1; size.max(1) + PAGE - 1]).collect(),
            cached: VecDeque::with_capacity(count),
            reuse: register.reuse(),
        };
        Heap {
            sends: shelf(Op::Send),
            receives: shelf(Op::Receive),
            scratch: vec![0; size],
            slack: (needs.sends + needs.receives + 4) as u64,
        }
    }
}

impl Stock for Heap {
    #[inline(always)]
    fn outgoing<const CHECK: bool>(&mut self, nic: &mut Nic, seq: u64) -> Result<Option<Descriptor>, Error> {
        let Some(mut descriptor) = self.sends.take(nic)? else { return Ok(None) };
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            let start = start(&descriptor);
            descriptor.write(0, start, &self.scratch);
        }
        Ok(Some(descriptor))
    }

    #[inline(always)]
    fn returned(&mut self, nic: &mut Nic, descriptor: Descriptor) -> Result<(), Error> {
        self.sends.give_back(nic, descriptor)
    }

    #[inline(always)]
    fn incoming(&mut self, nic: &mut Nic, used: Option<Descriptor>) -> Result<Descriptor, Error> {
        if let Some(used) = used {
            self.receives.give_back(nic, used)?;
        }
        self.receives.take(nic)?.ok_or(Error::InvalidParameter("more receives than there are buffers"))
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64 {
        let (buffer, start) = (&done.descriptor.buffers()[0], start(&done.descriptor));
        if !CHECK {
            return sum_part(buffer, start, self.scratch.len());
        }
        buffer.read(start, &mut self.scratch);
        wrong(&self.scratch, done, seq)
    }

    fn begin(&mut self, _: &Nic) {
        for shelf in [&mut self.sends, &mut self.receives] {
            shelf.reuse.iter_mut().for_each(Reuse::begin);
        }
    }

    fn finish(&mut self, _: &Nic, run: &Run, _: u64, tally: &mut Tally) {
        if let (Some(sends), Some(receives)) = (&self.sends.reuse, &self.receives.reuse) {
            Reuse::finish(sends, receives, self.slack, run, tally);
        }
    }
}

/// The buffers of one direction.
struct Shelf {
    op: Op,
    register: Register,
    attributes: MemAttributes,
    size: usize,
    /// Not registered; the one used longest ago comes first.
    free: VecDeque<Vec<u8>>,
    /// Registered and not in use; the one used longest ago comes first.
    cached: VecDeque<Descriptor>,
    reuse: Option<Reuse>,
}

impl Shelf {
    /// A descriptor over another buffer; `None` while all are in use.
    #[inline(always)]
    fn take(&mut self, nic: &mut Nic) -> Result<Option<Descriptor>, Error> {
        if self.reuse.as_mut().is_some_and(|reuse| reuse.hit(!self.cached.is_empty())) {
            return Ok(self.cached.pop_front());
        }
        let Some(bytes) = self.free.pop_front() else { return Ok(None) };
        let start = bytes.as_ptr().addr().wrapping_neg() % PAGE;
        let buffer = match self.register {
            Register::Never => Buffer::from(bytes),
            Register::Each | Register::Missing(_) => nic.register(bytes, self.attributes)?,
        };
        Ok(Some(Descriptor::new(self.op).segment_range(buffer, start..start + self.size)))
    }

    #[inline(always)]
    fn give_back(&mut self, nic: &mut Nic, descriptor: Descriptor) -> Result<(), Error> {
        let oldest = match self.register {
            Register::Missing(_) => {
                self.cached.push_back(descriptor);
                if self.cached.len() <= CACHED { None } else { self.cached.pop_front() }
            }
            Register::Each | Register::Never => Some(descriptor),
        };
        let Some(buffer) = oldest.map(Descriptor::into_buffer) else { return Ok(()) };
        let bytes = match self.register {
            Register::Never => buffer.into_vec().ok(),
            Register::Each | Register::Missing(_) => nic.deregister(buffer)?,
        };
        self.free.push_back(bytes.ok_or(Error::InvalidParameter("the buffer is not on the heap"))?);
        Ok(())
    }
}

/// Where in its buffer the message begins.
#[inline(always)]
fn start(descriptor: &Descriptor) -> usize {
    let first = descriptor.buffers()[0].remote(0).addr;
    (descriptor.work().segments()[0].addr.addr() as u64 - first) as usize
}
