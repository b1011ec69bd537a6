//! Overlap: how much of a transfer is hidden behind computing that goes on meanwhile (post, work, wait, as in COMB).
//!
//! First a few transfers are timed alone, T each. Then each is posted, the thread computes for as long as T without a
//! call into the library, and only then waits. If nothing was hidden all of it takes 2 T, if everything was it takes T.
//! Sending counts until the receiver says that it has read all bytes; an RDMA read counts until it is done.

use std::hint::black_box;

use viaduct_via::{Descriptor, Op};

use crate::cases::spinning::{self, QUICK};
use crate::cases::{Apart, Case, References, nothing, shape};
use crate::error::Result;
use crate::layers::half::Half;
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::pattern;
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant};
use crate::raw::sum_buffer;
use crate::stats::median;
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "overlap",
    about: "how much of a transfer is hidden behind computing: post, compute, wait",
    unit: "%",
    lower_is_better: false,
    sizes: &[64, 4 << 10, 64 << 10, 1 << 20],
    // Samples are shares, written down as if a microsecond were a percent.
    value: |ns, _| ns / 1e3,
    points,
    timed: "post, compute for as long as the transfer takes alone, wait; the share of the transfer that was hidden. send: \
            until the receiver says that it has read everything; read: until an RDMA read is done and its bytes are read. In JSON also how \
            long the transfer takes alone, the post, and all of it with computing",
    window: 4,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    spinning::points(settings, CASE.name, (sizes, QUICK), |size| {
        let size = size.max(1);
        let count = if size > 64 << 10 { 32 } else { 128 };
        let shape = |series| shape(Motion::Calls, size, CASE.window).on(series, None).with("count", count);
        Ok(["send", "read"].map(shape).to_vec())
    })
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let size = place.variant.size;
    if place.variant.series == "send" {
        let stream = Variant { motion: Motion::Stream, ..place.variant.clone() };
        let half = Half::create(&mut place.nic, place.tag, &stream, place.side, place.patience.clone())?;
        place.join(half.vi(), &[])?;
        return Ok(Box::new(Overlapped(Sends { place, half, next: 1 })));
    }
    let mut lent = Lent::join(&mut place, size, 2)?;
    let mut scratch = vec![0; size];
    pattern::fill(&mut scratch, READ_SEQ);
    lent.own.write(0, &scratch);
    let idle = lent.descriptors(&mut place, Op::RdmaRead, 1, size)?.pop();
    Ok(Box::new(Overlapped(Reads { place, lent, idle, scratch })))
}

/// The pattern in the memory that is read.
const READ_SEQ: u64 = 13;

/// A transfer in two parts.
trait Transfer {
    fn post<const CHECK: bool>(&mut self) -> Result<()>;
    /// Waits for its end; returns faults, or a number that depends on the bytes.
    fn wait<const CHECK: bool>(&mut self) -> Result<u64>;
    /// What the other side has to do for one transfer.
    fn answer<const CHECK: bool>(&mut self) -> Result<u64>;
}

struct Overlapped<T>(T);

impl<T: Transfer> Overlapped<T> {
    fn measure<const CHECK: bool>(
        &mut self,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<Tally> {
        let (mut total, mut alone) = (0u64, Vec::new());
        for _ in 0..run.count / 2 {
            let start = timer.ticks();
            self.0.post::<CHECK>()?;
            total = total.wrapping_add(self.0.wait::<CHECK>()?);
            alone.push((timer.ticks() - start) as f64);
        }
        let transfer = median(&alone).unwrap_or(1.0).max(1.0);
        let (mut posts, mut wholes) = (Vec::new(), Vec::new());
        for _ in run.count / 2..run.count {
            let start = timer.ticks();
            self.0.post::<CHECK>()?;
            let posted = timer.ticks();
            compute(posted + transfer as u64, timer);
            total = total.wrapping_add(self.0.wait::<CHECK>()?);
            let whole = (timer.ticks() - start) as f64;
            posts.push((posted - start) as f64);
            wholes.push(whole);
            let hidden = share(transfer, whole);
            samples.push(timer.to_ticks(hidden * 1e5));
        }
        let us = |ticks: f64| timer.to_ns(ticks as u64) / 1e3;
        let of = |all: &[f64]| us(median(all).unwrap_or(0.0));
        let extra = [("transfer_us", us(transfer)), ("post_us", of(&posts)), ("whole_us", of(&wholes))];
        let extra = extra.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Tally { extra, ..tally::<CHECK>(total) })
    }

    fn answer<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let mut total = 0u64;
        for _ in 0..run.count {
            total = total.wrapping_add(self.0.answer::<CHECK>()?);
        }
        Ok(tally::<CHECK>(total))
    }
}

impl<T: Transfer> End for Overlapped<T> {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check {
            self.measure::<true>(run, timer, samples)
        } else {
            self.measure::<false>(run, timer, samples)
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.answer::<true>(run) } else { self.answer::<false>(run) }
    }
}

/// How much of a transfer of length `alone` was hidden, if it and as much computing took `whole`.
fn share(alone: f64, whole: f64) -> f64 {
    ((2.0 * alone - whole) / alone).clamp(0.0, 1.0)
}

/// Keeps the processor busy, in registers, until `end`.
fn compute(end: u64, timer: &Timer) {
    let mut number = end;
    while timer.ticks() < end {
        for _ in 0..16 {
            number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
    }
}

struct Sends {
    place: Place,
    half: Half,
    next: u64,
}

impl Transfer for Sends {
    fn post<const CHECK: bool>(&mut self) -> Result<()> {
        self.next += 1;
        self.half.send::<true, CHECK>(&mut self.place.nic, self.next)
    }

    fn wait<const CHECK: bool>(&mut self) -> Result<u64> {
        self.half.wait_acknowledged(&mut self.place.nic).map(|()| 0)
    }

    fn answer<const CHECK: bool>(&mut self) -> Result<u64> {
        self.next += 1;
        let value = self.half.recv::<true, CHECK>(&mut self.place.nic, self.next)?;
        self.half.acknowledge(&mut self.place.nic)?;
        Ok(value)
    }
}

struct Reads {
    place: Place,
    lent: Lent,
    idle: Option<Descriptor>,
    scratch: Vec<u8>,
}

impl Transfer for Reads {
    fn post<const CHECK: bool>(&mut self) -> Result<()> {
        let mut descriptor = self.idle.take().expect("one is under way at a time");
        if CHECK {
            self.scratch.fill(0);
            descriptor.write(0, 0, &self.scratch);
        }
        self.lent.post(&mut self.place.nic, descriptor)
    }

    fn wait<const CHECK: bool>(&mut self) -> Result<u64> {
        let done = self.lent.reap(&mut self.place.nic)?;
        let buffer = &done.buffers()[0];
        let value = if CHECK {
            buffer.read(0, &mut self.scratch);
            pattern::mismatches(&self.scratch, READ_SEQ)
        } else {
            sum_buffer(buffer, self.scratch.len())
        };
        self.idle = Some(done);
        Ok(value)
    }

    fn answer<const CHECK: bool>(&mut self) -> Result<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_run_from_nothing_to_everything() {
        assert_eq!(share(10.0, 20.0), 0.0);
        assert_eq!(share(10.0, 15.0), 0.5);
        assert_eq!(share(10.0, 10.0), 1.0);
        assert_eq!((share(10.0, 9.0), share(10.0, 50.0)), (1.0, 0.0), "the clock is not perfect");
    }
}
