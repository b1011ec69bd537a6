//! RDMA reads of memory that the other process has just written, so that the bytes really come from there.
//!
//! The target writes every byte, says so by a small RDMA write, and waits for an answer by another one; only the read in
//! between is timed.

use viaduct_via::{Descriptor, Op};

use crate::error::Result;
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::sum_buffer;
use crate::timer::Timer;

pub(super) fn end(mut place: Place) -> Result<Box<dyn End>> {
    let size = place.variant.size;
    // Behind the bytes, in a line of its own, lies the word by which the ends tell each other that it is their turn.
    let turn = size.next_multiple_of(64);
    let lent = Lent::join(&mut place, turn + 64, 2)?;
    let read = lent.descriptors(&mut place, Op::RdmaRead, 1, size)?.pop();
    let tell = lent.descriptors(&mut place, Op::RdmaWrite, 2, 8)?;
    let tell = tell.into_iter().map(|descriptor| descriptor.remote(lent.there(turn))).collect();
    Ok(Box::new(Fresh { place, lent, turn, read, tell, next: 1, scratch: vec![0; size] }))
}

struct Fresh {
    place: Place,
    lent: Lent,
    /// Where the word for turns lies.
    turn: usize,
    read: Option<Descriptor>,
    tell: Vec<Descriptor>,
    next: u64,
    scratch: Vec<u8>,
}

impl Fresh {
    /// Tells the other end that it is its turn.
    fn pass(&mut self, seq: u64) -> Result<()> {
        let nic = &mut self.place.nic;
        let mut descriptor = self.lent.free(nic, &mut self.tell)?;
        descriptor.write(0, 0, &seq.to_le_bytes());
        self.lent.post(nic, descriptor)?;
        // Nothing else may be under way when the next read is waited for.
        let done = self.lent.reap(nic)?;
        self.tell.push(done);
        Ok(())
    }

    fn wait_turn(&mut self, seq: u64) -> Result<()> {
        self.lent.watch(&mut self.place.nic, self.turn, &mut self.tell, |word| word == seq)
    }

    fn reads<const CHECK: bool>(
        &mut self,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<Tally> {
        let (mut total, first) = (0u64, self.next);
        self.next += run.count;
        for seq in first..self.next {
            self.wait_turn(seq)?;
            let descriptor = self.read.take().expect("one read at a time");
            let start = timer.ticks();
            self.lent.post(&mut self.place.nic, descriptor)?;
            let done = self.lent.reap(&mut self.place.nic)?;
            let buffer = &done.buffers()[0];
            let value = if CHECK {
                buffer.read(0, &mut self.scratch);
                pattern::mismatches(&self.scratch, seq)
            } else {
                sum_buffer(buffer, self.scratch.len())
            };
            let ticks = timer.ticks() - start;
            samples.push(ticks.saturating_sub(timer.to_ticks(timer.cost_ns())));
            total = total.wrapping_add(value);
            self.read = Some(done);
            self.pass(seq)?;
        }
        Ok(tally::<CHECK>(total))
    }

    fn writes<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let first = self.next;
        self.next += run.count;
        for seq in first..self.next {
            if CHECK {
                pattern::fill(&mut self.scratch, seq);
            } else {
                self.scratch.fill(seq as u8);
            }
            self.lent.own.write(0, &self.scratch);
            self.pass(seq)?;
            self.wait_turn(seq)?;
        }
        Ok(Tally::default())
    }
}

impl End for Fresh {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check {
            self.reads::<true>(run, timer, samples)
        } else {
            self.reads::<false>(run, timer, samples)
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.writes::<true>(run) } else { self.writes::<false>(run) }
    }
}
