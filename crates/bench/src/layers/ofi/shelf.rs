//! Messages whose memory is registered in one way or another, on libfabric, as `heap.rs` has it for VIA (thesis, 3.4).

use std::collections::VecDeque;

use viaduct_providers::ofi::bare::{Done, Message};

use crate::error::Result;
use crate::layers::heap::{CACHED, Register, Reuse};
use crate::layers::ofi::Site;
use crate::layers::ofi::stock::{Stock, fill, messages, total, used_up, wrong};
use crate::layers::stock::Pieces;
use crate::layers::stocked::Needs;
use crate::plan::{Run, Tally};

/// Memory of one end.
pub(crate) struct Shelves {
    sends: Shelf,
    receives: Shelf,
    scratch: Vec<u8>,
    /// Misses that are unavoidable: nothing was in the cache yet.
    slack: u64,
}

impl Shelves {
    /// `count` buffers each way.
    pub(crate) fn new(site: &Site, register: Register, count: usize, needs: &Needs) -> Result<Shelves> {
        let size = site.variant.size;
        let shelf = || -> Result<Shelf> {
            let free = messages(site, count, Pieces::whole(size), false)?.into();
            Ok(Shelf { register, free, cached: VecDeque::with_capacity(count), reuse: register.reuse() })
        };
        let slack = (needs.sends + needs.receives + 4) as u64;
        Ok(Shelves { sends: shelf()?, receives: shelf()?, scratch: vec![0; size], slack })
    }
}

impl Stock for Shelves {
    #[inline(always)]
    fn outgoing<const CHECK: bool>(&mut self, site: &Site, seq: u64) -> Result<Option<Message>> {
        let Some(mut message) = self.sends.take(site)? else { return Ok(None) };
        if CHECK {
            fill(&mut message, &mut self.scratch, seq);
        }
        Ok(Some(message))
    }

    #[inline(always)]
    fn returned(&mut self, message: Message) {
        self.sends.give_back(message);
    }

    #[inline(always)]
    fn incoming(&mut self, site: &Site, used: Option<Message>) -> Result<Message> {
        if let Some(used) = used {
            self.receives.give_back(used);
        }
        self.receives.take(site)?.ok_or_else(|| used_up(site))
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Done, seq: u64) -> u64 {
        if CHECK { wrong(done, &mut self.scratch, seq) } else { total(&done.message) }
    }

    fn begin(&mut self) {
        for shelf in [&mut self.sends, &mut self.receives] {
            shelf.reuse.iter_mut().for_each(Reuse::begin);
        }
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) {
        if let (Some(sends), Some(receives)) = (&self.sends.reuse, &self.receives.reuse) {
            Reuse::finish(sends, receives, self.slack, run, tally);
        }
    }
}

/// The buffers of one direction.
struct Shelf {
    register: Register,
    /// Not registered; the one used longest ago comes first.
    free: VecDeque<Message>,
    /// Registered and not in use; the one used longest ago comes first.
    cached: VecDeque<Message>,
    reuse: Option<Reuse>,
}

impl Shelf {
    /// Another buffer; `None` while all are in use.
    #[inline(always)]
    fn take(&mut self, site: &Site) -> Result<Option<Message>> {
        if self.reuse.as_mut().is_some_and(|reuse| reuse.hit(!self.cached.is_empty())) {
            return Ok(self.cached.pop_front());
        }
        let Some(mut message) = self.free.pop_front() else { return Ok(None) };
        if self.register != Register::Never {
            message.register(&site.domain).map_err(|e| site.failed(&e))?;
        }
        Ok(Some(message))
    }

    #[inline(always)]
    fn give_back(&mut self, message: Message) {
        let oldest = match self.register {
            Register::Missing(_) => {
                self.cached.push_back(message);
                if self.cached.len() <= CACHED { None } else { self.cached.pop_front() }
            }
            Register::Each | Register::Never => Some(message),
        };
        if let Some(mut message) = oldest {
            message.deregister();
            self.free.push_back(message);
        }
    }
}
