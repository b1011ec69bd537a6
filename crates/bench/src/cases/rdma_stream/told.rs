//! A stream of RDMA writes with immediate data: the target is told of each by a completion, and tells of the room by
//! writes with immediate data of its own.
//!
//! A reader that watches memory relies on the last word coming last, which neither the kernel nor a helper promises. So this is
//! the stream in which the ways to the memory can be compared.

use super::slots::Slots;
use crate::error::Result;
use crate::layers::via::Place;
use crate::layers::way::{MemoryWay, Proof};
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::sum_lent;

pub(super) fn end(place: Place, way: MemoryWay) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let told = Told { slots: Slots::join(place)?, granted: 0, proof: Proof::new(way) };
    Ok(Box::new(Looped::new(told, &variant)))
}

struct Told {
    slots: Slots,
    /// Messages that the target has read, as far as it told.
    granted: u64,
    proof: Proof,
}

impl Told {
    fn take_grant(&mut self) -> Result<()> {
        let nic = &mut self.slots.place.nic;
        let done = self.slots.lent.immediate(nic)?;
        // Only the lower half of the count comes; what is new is less than that.
        let new = done.immediate.unwrap_or(0).wrapping_sub(self.granted as u32);
        self.granted += u64::from(new);
        self.slots.lent.repost(nic, done.descriptor)
    }

    fn grant(&mut self) -> Result<()> {
        let counter = self.slots.counter();
        let nic = &mut self.slots.place.nic;
        let mut descriptor = self.slots.lent.free(nic, &mut self.slots.credits)?;
        descriptor.set_immediate(Some(self.slots.received as u32));
        descriptor.set_remote(self.slots.lent.there(counter));
        self.slots.lent.post(nic, descriptor)?;
        self.proof.posted += 1;
        self.slots.told = self.slots.received;
        self.slots.credits.extend(self.slots.lent.done(nic)?);
        Ok(())
    }
}

impl Wire for Told {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        while self.slots.sent - self.granted == self.slots.window {
            self.take_grant()?;
        }
        let slot = self.slots.slot_of(seq);
        let nic = &mut self.slots.place.nic;
        let mut descriptor = self.slots.lent.free(nic, &mut self.slots.spare)?;
        if CHECK {
            pattern::fill(&mut self.slots.scratch, seq);
            descriptor.write(0, 0, &self.slots.scratch);
        }
        descriptor.set_immediate(Some(seq as u32));
        descriptor.set_remote(self.slots.lent.there(slot));
        self.slots.lent.post(nic, descriptor)?;
        self.proof.posted += 1;
        self.slots.sent += 1;
        self.slots.spare.extend(self.slots.lent.done(nic)?);
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (slot, size) = (self.slots.slot_of(seq), self.slots.scratch.len());
        let done = self.slots.lent.immediate(&mut self.slots.place.nic)?;
        let value = if CHECK {
            self.slots.lent.own.read(slot, &mut self.slots.scratch);
            let untold = done.immediate != Some(seq as u32) || done.length as usize != size;
            pattern::mismatches(&self.slots.scratch, seq) + u64::from(untold)
        } else {
            sum_lent(&self.slots.lent.own, slot, size)
        };
        self.slots.lent.repost(&mut self.slots.place.nic, done.descriptor)?;
        self.slots.received += 1;
        if self.slots.is_due() {
            self.grant()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        if self.slots.told != self.slots.received {
            self.grant()?;
        }
        // What a helper does is only announced while this end looks at its connection.
        self.slots.lent.settle(&mut self.slots.place.nic, &mut self.slots.credits)
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        while self.granted != self.slots.sent {
            self.take_grant()?;
        }
        self.slots.lent.settle(&mut self.slots.place.nic, &mut self.slots.spare)
    }

    fn begin(&mut self) {
        self.proof.begin(&self.slots.place.nic);
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) -> Result<()> {
        self.proof.finish(&self.slots.place.nic, run, tally);
        Ok(())
    }
}
