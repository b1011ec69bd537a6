//! A stream of RDMA writes with immediate data: the target is told of each by a completion, and tells of the room by
//! writes with immediate data of its own.
//!
//! Whoever watches memory relies on the last word coming last, which neither the kernel nor a helper promises. So this is
//! the stream in which the ways to the memory can be compared.

use viaduct_via::{Descriptor, Op};

use super::CREDITS;
use crate::error::Result;
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::layers::way::{Proof, Way};
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::sum_lent;

pub(super) fn end(mut place: Place, way: Way) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let (size, window) = (variant.size, variant.window);
    let slot = size.next_multiple_of(64);
    let lent = Lent::join(&mut place, slot * window + 64, window + CREDITS)?;
    let spare = lent.descriptors(&mut place, Op::RdmaWrite, window, size)?;
    let credits = lent.descriptors(&mut place, Op::RdmaWrite, CREDITS, 8)?;
    let told = Told {
        place,
        lent,
        spare,
        credits,
        slot,
        window: window as u64,
        sent: 0,
        granted: 0,
        received: 0,
        told: 0,
        proof: Proof::new(way),
        scratch: vec![0; size],
    };
    Ok(Box::new(Looped::new(told, &variant)))
}

struct Told {
    place: Place,
    lent: Lent,
    spare: Vec<Descriptor>,
    credits: Vec<Descriptor>,
    /// Bytes from one slot to the next.
    slot: usize,
    window: u64,
    sent: u64,
    /// Messages that the target has read, as far as it told.
    granted: u64,
    received: u64,
    /// What the writer was last told about `received`.
    told: u64,
    proof: Proof,
    scratch: Vec<u8>,
}

impl Told {
    fn slot_of(&self, seq: u64) -> usize {
        (seq % self.window) as usize * self.slot
    }

    fn take_grant(&mut self) -> Result<()> {
        let nic = &mut self.place.nic;
        let done = self.lent.immediate(nic)?;
        // Only the lower half of the count comes; what is new is less than that.
        let new = done.immediate.unwrap_or(0).wrapping_sub(self.granted as u32);
        self.granted += u64::from(new);
        self.lent.repost(nic, done.descriptor)
    }

    fn grant(&mut self) -> Result<()> {
        let nic = &mut self.place.nic;
        let mut descriptor = match self.credits.pop() {
            Some(descriptor) => descriptor,
            None => self.lent.reap(nic)?,
        };
        descriptor.set_immediate(Some(self.received as u32));
        descriptor.set_remote(self.lent.there(self.slot * self.window as usize));
        self.lent.post(nic, descriptor)?;
        self.proof.posted += 1;
        self.told = self.received;
        self.credits.extend(self.lent.done(nic)?);
        Ok(())
    }
}

impl Wire for Told {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        while self.sent - self.granted == self.window {
            self.take_grant()?;
        }
        let slot = self.slot_of(seq);
        let nic = &mut self.place.nic;
        let mut descriptor = match self.spare.pop() {
            Some(descriptor) => descriptor,
            None => self.lent.reap(nic)?,
        };
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            descriptor.write(0, 0, &self.scratch);
        }
        descriptor.set_immediate(Some(seq as u32));
        descriptor.set_remote(self.lent.there(slot));
        self.lent.post(nic, descriptor)?;
        self.proof.posted += 1;
        self.sent += 1;
        self.spare.extend(self.lent.done(nic)?);
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (slot, size) = (self.slot_of(seq), self.scratch.len());
        let done = self.lent.immediate(&mut self.place.nic)?;
        let value = if CHECK {
            self.lent.own.read(slot, &mut self.scratch);
            let untold = done.immediate != Some(seq as u32) || done.length as usize != size;
            pattern::mismatches(&self.scratch, seq) + u64::from(untold)
        } else {
            sum_lent(&self.lent.own, slot, size)
        };
        self.lent.repost(&mut self.place.nic, done.descriptor)?;
        self.received += 1;
        if self.received - self.told >= (self.window / 4).max(1) {
            self.grant()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        if self.told != self.received {
            self.grant()?;
        }
        // What a helper does is only announced while this end looks at its connection.
        self.lent.settle(&mut self.place.nic, &mut self.credits)
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        while self.granted != self.sent {
            self.take_grant()?;
        }
        self.lent.settle(&mut self.place.nic, &mut self.spare)
    }

    fn begin(&mut self) {
        self.proof.begin(&self.place.nic);
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) -> Result<()> {
        self.proof.finish(&self.place.nic, run, tally);
        Ok(())
    }
}
