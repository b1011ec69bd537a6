//! RDMA one way: how many bytes a second can be written into, or read from, another process' memory.
//!
//! Whoever has the bytes in the end reads every one of them inside the timed region: the target of the writes, which
//! sees them come by the last word of each and gives room back by a write of its own, or the initiator of the reads.

mod told;

use viaduct_via::{Descriptor, Op};

use crate::cases::rdma::check_size;
use crate::cases::spinning::{self, QUICK};
use crate::cases::{Apart, Case, nothing, shape};
use crate::error::Result;
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::layers::way::{Proof, Way};
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
            reached by calls of the kernel or by a thread of the other process, not through a mapping. Nobody writes \
            to what is read meanwhile, so what fits into this processor's cache comes from it (MB = 10^6 bytes)",
    window: 4,
    axis: "",
    references: false,
    via: end,
    derive: nothing,
    logp: Apart::Not,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    spinning::points(settings, CASE.name, (sizes, QUICK), |size| {
        check_size(size)?;
        let of = |series: &str| shape(Motion::Stream, size, window).on(series, None);
        let others =
            Way::others().into_iter().flat_map(|way| ["write-imm", "read"].map(|s| way.shaped(of(s))));
        Ok(["write", "write-imm", "read"].map(of).into_iter().chain(others).collect())
    })
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let (size, window) = (variant.size, variant.window);
    let slot = size.next_multiple_of(64);
    let (way, series) = Way::of(&variant);
    if series == "write-imm" {
        return told::end(place, way);
    }
    // Behind the slots there is a line for the number of messages that the target has read.
    let mut lent = Lent::join(&mut place, slot * window + 64, window + CREDITS)?;
    if series == "read" {
        let mut bytes = vec![0; size];
        for number in 0..window {
            pattern::fill(&mut bytes, number as u64);
            lent.own.write(number * slot, &bytes);
        }
        let idle = lent.descriptors(&mut place, Op::RdmaRead, window, size)?;
        return Ok(Box::new(Reads { place, lent, idle, slot, proof: Proof::new(way), bytes }));
    }
    let spare = lent.descriptors(&mut place, Op::RdmaWrite, window, size)?;
    let credits = lent.descriptors(&mut place, Op::RdmaWrite, CREDITS, 8)?;
    let writes = Writes {
        place,
        lent,
        spare,
        credits,
        slot,
        window: window as u64,
        sent: 0,
        received: 0,
        told: 0,
        scratch: vec![0; size],
    };
    Ok(Box::new(Looped::new(writes, &variant)))
}

/// Writes of the target that may be under way.
const CREDITS: usize = 4;

struct Writes {
    place: Place,
    lent: Lent,
    spare: Vec<Descriptor>,
    credits: Vec<Descriptor>,
    /// Bytes from one slot to the next.
    slot: usize,
    window: u64,
    sent: u64,
    received: u64,
    /// What the writer was last told about `received`.
    told: u64,
    scratch: Vec<u8>,
}

impl Writes {
    fn slot_of(&self, seq: u64) -> usize {
        (seq % self.window) as usize * self.slot
    }

    /// Where the number of messages read is kept.
    fn counter(&self) -> usize {
        self.slot * self.window as usize
    }

    fn grant(&mut self) -> Result<()> {
        let counter = self.counter();
        let nic = &mut self.place.nic;
        let mut descriptor = match self.credits.pop() {
            Some(descriptor) => descriptor,
            None => self.lent.reap(nic)?,
        };
        descriptor.write(0, 0, &self.received.to_le_bytes());
        descriptor.set_remote(self.lent.there(counter));
        self.lent.post(nic, descriptor)?;
        self.told = self.received;
        if let Some(descriptor) = self.lent.done(nic)? {
            self.credits.push(descriptor);
        }
        Ok(())
    }

    /// Waits until the target has read all but `behind` of what was sent.
    #[inline(always)]
    fn wait_behind(&mut self, behind: u64) -> Result<()> {
        let (counter, sent) = (self.counter(), self.sent);
        self.lent.watch(&mut self.place.nic, counter, &mut self.spare, |read| sent - read <= behind)
    }
}

impl Wire for Writes {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        self.wait_behind(self.window - 1)?;
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
        descriptor.write(0, self.scratch.len() - 8, &seq.to_le_bytes());
        descriptor.set_remote(self.lent.there(slot));
        self.lent.post(nic, descriptor)?;
        self.sent += 1;
        if let Some(descriptor) = self.lent.done(nic)? {
            self.spare.push(descriptor);
        }
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (slot, size) = (self.slot_of(seq), self.scratch.len());
        self.lent.watch(&mut self.place.nic, slot + size - 8, &mut self.credits, |word| word == seq)?;
        let value = if CHECK {
            self.lent.own.read(slot, &mut self.scratch);
            pattern::mismatches(&self.scratch[..size - 8], seq)
        } else {
            sum_lent(&self.lent.own, slot, size)
        };
        self.received += 1;
        if self.received - self.told >= (self.window / 4).max(1) {
            self.grant()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        if self.told == self.received { Ok(()) } else { self.grant() }
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
