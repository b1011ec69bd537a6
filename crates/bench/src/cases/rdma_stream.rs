//! RDMA one way: how many bytes a second can be written into, or read from, another process' memory.
//!
//! The end that has the bytes at last reads every one of them inside the timed region: the target of the writes, which
//! sees them come by the last word of each and gives room back by a write of its own, or the initiator of the reads.

mod slots;
mod told;

use viaduct_via::{Descriptor, Op};

use self::slots::Slots;
use crate::cases::rdma::check_size;
use crate::cases::spinning::{self, QUICK};
use crate::cases::{Apart, Case, References, nothing, shape};
use crate::error::Result;
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::layers::way::{MemoryWay, Proof};
use crate::loops::{End, Looped, Wire, tally};
use crate::pattern;
use crate::plan::{Motion, Point, Run, Settings, Tally};
use crate::raw::{sum_buffer, sum_lent};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "rdma-stream",
    about: "how many bytes a second one process can write into, or read from, the memory of another",
    unit: "MB/s",
    lower_is_better: false,
    sizes: &[4 << 10, 64 << 10, 1 << 20],
    value: |ns, size| size as f64 / ns * 1e3,
    points,
    timed: "write: from the first post until the target has seen and read every byte of the last, with a window that \
            the target gives back by writes of its own; read: from the first post until the reader has read every byte \
            of the last; write-imm: writes that the target hears of by completions; -kernel, -helper: private memory, \
            reached by calls of the kernel or by a thread of the other process, not through a mapping. Neither end writes \
            to what is read meanwhile, so what fits into this processor's cache comes from it (MB = 10^6 bytes)",
    window: 4,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    spinning::points(settings, CASE.name, (sizes, QUICK), |size| {
        check_size(size)?;
        let of = |series: &str| shape(Motion::Stream, size, window).on(series, None);
        let others =
            MemoryWay::others().into_iter().flat_map(|way| ["write-imm", "read"].map(|s| way.shaped(of(s))));
        Ok(["write", "write-imm", "read"].map(of).into_iter().chain(others).collect())
    })
}

fn end(place: Place) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let (way, series) = MemoryWay::of(&variant);
    match series {
        "write-imm" => told::end(place, way),
        "read" => reads(place, way),
        _ => Ok(Box::new(Looped::new(Writes { slots: Slots::join(place)? }, &variant))),
    }
}

fn reads(mut place: Place, way: MemoryWay) -> Result<Box<dyn End>> {
    let (size, window) = (place.variant.size, place.variant.window);
    let slot = size.next_multiple_of(64);
    let mut lent = Lent::join(&mut place, slot * window, window)?;
    let mut bytes = vec![0; size];
    for number in 0..window {
        pattern::fill(&mut bytes, number as u64);
        lent.own.write(number * slot, &bytes);
    }
    let idle = lent.descriptors(&mut place, Op::RdmaRead, window, size)?;
    Ok(Box::new(Reads { place, lent, idle, slot, proof: Proof::new(way), bytes }))
}

/// Writes whose target watches the last word of each.
struct Writes {
    slots: Slots,
}

impl Writes {
    fn grant(&mut self) -> Result<()> {
        let counter = self.slots.counter();
        let nic = &mut self.slots.place.nic;
        let mut descriptor = self.slots.lent.free(nic, &mut self.slots.credits)?;
        descriptor.write(0, 0, &self.slots.received.to_le_bytes());
        descriptor.set_remote(self.slots.lent.there(counter));
        self.slots.lent.post(nic, descriptor)?;
        self.slots.told = self.slots.received;
        if let Some(descriptor) = self.slots.lent.done(nic)? {
            self.slots.credits.push(descriptor);
        }
        Ok(())
    }

    /// Waits until the target has read all but `behind` of what was sent.
    #[inline(always)]
    fn wait_behind(&mut self, behind: u64) -> Result<()> {
        let (counter, sent) = (self.slots.counter(), self.slots.sent);
        self.slots
            .lent
            .watch(&mut self.slots.place.nic, counter, &mut self.slots.spare, |read| sent - read <= behind)
    }
}

impl Wire for Writes {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        self.wait_behind(self.slots.window - 1)?;
        let slot = self.slots.slot_of(seq);
        let nic = &mut self.slots.place.nic;
        let mut descriptor = self.slots.lent.free(nic, &mut self.slots.spare)?;
        if CHECK {
            pattern::fill(&mut self.slots.scratch, seq);
            descriptor.write(0, 0, &self.slots.scratch);
        }
        descriptor.write(0, self.slots.scratch.len() - 8, &seq.to_le_bytes());
        descriptor.set_remote(self.slots.lent.there(slot));
        self.slots.lent.post(nic, descriptor)?;
        self.slots.sent += 1;
        if let Some(descriptor) = self.slots.lent.done(nic)? {
            self.slots.spare.push(descriptor);
        }
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (slot, size) = (self.slots.slot_of(seq), self.slots.scratch.len());
        self.slots.lent.watch(
            &mut self.slots.place.nic,
            slot + size - 8,
            &mut self.slots.credits,
            |word| word == seq,
        )?;
        let value = if CHECK {
            self.slots.lent.own.read(slot, &mut self.slots.scratch);
            pattern::mismatches(&self.slots.scratch[..size - 8], seq)
        } else {
            sum_lent(&self.slots.lent.own, slot, size)
        };
        self.slots.received += 1;
        if self.slots.is_due() {
            self.grant()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        if self.slots.told == self.slots.received { Ok(()) } else { self.grant() }
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        self.wait_behind(0)
    }
}

struct Reads {
    place: Place,
    lent: Lent,
    /// Not posted.
    idle: Vec<Descriptor>,
    slot: usize,
    proof: Proof,
    bytes: Vec<u8>,
}

impl Reads {
    /// `count` reads with as many under way as the window allows; they are done in order.
    fn stream<const CHECK: bool>(&mut self, count: u64) -> Result<u64> {
        let (mut total, mut posted, window) = (0u64, 0, self.idle.len() as u64);
        for taken in 0..count {
            while posted < count && posted - taken < window {
                let mut descriptor = self.idle.pop().expect("as many as the window");
                if CHECK {
                    self.bytes.fill(0);
                    descriptor.write(0, 0, &self.bytes);
                }
                descriptor.set_remote(self.lent.there((posted % window) as usize * self.slot));
                self.lent.post(&mut self.place.nic, descriptor)?;
                posted += 1;
            }
            let done = self.lent.reap(&mut self.place.nic)?;
            let buffer = &done.buffers()[0];
            total = total.wrapping_add(if CHECK {
                buffer.read(0, &mut self.bytes);
                pattern::mismatches(&self.bytes, taken % window)
            } else {
                sum_buffer(buffer, self.bytes.len())
            });
            self.idle.push(done);
        }
        Ok(total)
    }
}

impl End for Reads {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        self.proof.begin(&self.place.nic);
        let before = timer.ticks();
        let mut tally = if run.check {
            tally::<true>(self.stream::<true>(run.count)?)
        } else {
            tally::<false>(self.stream::<false>(run.count)?)
        };
        samples.push(timer.ticks() - before);
        self.proof.posted = run.count;
        self.proof.finish(&self.place.nic, run, &mut tally);
        Ok(tally)
    }

    /// The memory is read without this process.
    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}
