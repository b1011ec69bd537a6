//! RDMA: reaching into another process' memory without its help, one operation at a time.
//!
//! A write is a ping-pong without receives: the peer looks at the last word of its own memory and answers with a write
//! of its own. With immediate data the peer takes a completion instead. A read and the atomics have no peer that
//! answers; they are timed from the post to the completion.

mod fresh;

use viaduct_via::{Descriptor, Op};

use crate::cases::{Apart, Case, References, nothing, shape, spinning};
use crate::error::{Error, Result};
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::layers::way::{MemoryWay, Proof};
use crate::loops::{End, Looped, Wire, tally};
use crate::pattern;
use crate::plan::{Motion, Point, Run, Settings, Tally};
use crate::raw::{sum_buffer, sum_lent};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "rdma",
    about: "how long it takes to write, read or change memory of another process",
    unit: "us",
    lower_is_better: true,
    sizes: &[8, 64, 1 << 10, 4 << 10, 64 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "write: a ping-pong in which each end spins on the last word of its memory; write-imm: the same, told by a \
            completion; both one way = half of the round trip. read, fetch-add, compare-swap: from the post to the \
            completion, until the bytes are read; the other process does nothing, so from the second time on this \
            processor has them in its cache. read-fresh: the other process has changed every byte just before. \
            -kernel, -helper: private memory, reached by calls of the kernel or by a thread of the other process, not \
            through a mapping",
    window: 1,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const QUICK: &[usize] = &[8, 4 << 10];

/// Reads of freshly written memory in a slice: each needs the other process, so their samples do not tell how many fit.
const FRESH: u64 = 400;

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    spinning::points(settings, CASE.name, (sizes, QUICK), |size| {
        check_size(size)?;
        let of = |series: &&str| {
            let motion = if series.starts_with("write") { Motion::PingPong } else { Motion::Calls };
            let shape = shape(motion, size, CASE.window).on(series, None);
            if *series == "read-fresh" { shape.with("count", FRESH) } else { shape }
        };
        // Atomics work on one word, whatever the size.
        let atomics: &[&str] = if size == 8 { &["fetch-add", "compare-swap"] } else { &[] };
        let mapped = ["write", "write-imm", "read", "read-fresh"].iter().chain(atomics).map(of);
        let others =
            MemoryWay::others().into_iter().flat_map(|way| ["write-imm", "read"].map(|s| way.shaped(of(&s))));
        Ok(mapped.chain(others).collect())
    })
}

/// The last word of a write tells that all of it is there, so there has to be one.
pub(super) fn check_size(size: usize) -> Result<()> {
    if size > 0 && size.is_multiple_of(8) {
        return Ok(());
    }
    Err(Error::usage(
        format!("an RDMA write of {size} bytes does not end in a whole word"),
        "use --sizes 8 or other multiples of 8",
    ))
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    if variant.series == "read-fresh" {
        return fresh::end(place);
    }
    let size = variant.size;
    let mut lent = Lent::join(&mut place, size, 4)?;
    let (way, series) = MemoryWay::of(&variant);
    let proof = Proof::new(way);
    let op = match series {
        "write" | "write-imm" => {
            let spare = lent.descriptors(&mut place, Op::RdmaWrite, 2, size)?;
            let immediate = series == "write-imm";
            let writes = Writes { place, lent, spare, spent: None, immediate, proof, scratch: vec![0; size] };
            return Ok(Box::new(Looped::new(writes, &variant)));
        }
        "read" => Op::RdmaRead,
        "fetch-add" => Op::FetchAdd,
        _ => Op::CompareSwap,
    };
    let mut scratch = vec![0; size];
    if op == Op::RdmaRead {
        pattern::fill(&mut scratch, READ_SEQ);
        lent.own.write(0, &scratch);
    }
    let spare = match op {
        Op::RdmaRead => lent.descriptors(&mut place, op, 1, size)?,
        _ => atomics(&mut place, &lent, op)?,
    };
    Ok(Box::new(OneSided { place, lent, op, spare, done: 0, proof, scratch }))
}

/// The pattern in the memory that is read.
const READ_SEQ: u64 = 11;

/// One that adds 1; or two of which one swaps 0 for 1 and the other 1 for 0.
fn atomics(place: &mut Place, lent: &Lent, op: Op) -> Result<Vec<Descriptor>> {
    // Exactly one word is what comes back.
    let word = |d: Descriptor| d.into_buffer().split_at(8).0;
    let old = lent.descriptors(place, op, 2, 8)?.into_iter().map(word);
    let there = lent.there(0);
    Ok(match op {
        Op::FetchAdd => old.take(1).map(|old| Descriptor::fetch_add(old, there, 1)).collect(),
        _ => old
            .zip([(1, 0), (0, 1)])
            .map(|(old, (expected, new))| Descriptor::compare_swap(old, there, expected, new))
            .collect(),
    })
}

/// Writes there and back.
struct Writes {
    place: Place,
    lent: Lent,
    spare: Vec<Descriptor>,
    /// A receive that is posted again once the answer is on its way.
    spent: Option<Descriptor>,
    immediate: bool,
    proof: Proof,
    scratch: Vec<u8>,
}

impl Wire for Writes {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        let nic = &mut self.place.nic;
        let mut descriptor = self.lent.free(nic, &mut self.spare)?;
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            descriptor.write(0, 0, &self.scratch);
        }
        if self.immediate {
            descriptor.set_immediate(Some(seq as u32));
        } else {
            descriptor.write(0, self.scratch.len() - 8, &seq.to_le_bytes());
        }
        self.lent.post(nic, descriptor)?;
        self.proof.posted += 1;
        if let Some(spent) = self.spent.take() {
            self.lent.repost(nic, spent)?;
        }
        if let Some(descriptor) = self.lent.done(nic)? {
            self.spare.push(descriptor);
        }
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (nic, size) = (&mut self.place.nic, self.scratch.len());
        let mut bad = 0;
        let mut told = 0;
        if self.immediate {
            let done = self.lent.immediate(nic)?;
            bad = u64::from(done.immediate != Some(seq as u32) || done.length as usize != size);
            self.spent = Some(done.descriptor);
        } else {
            self.lent.watch(nic, size - 8, &mut self.spare, |word| word == seq)?;
            told = 8;
        }
        if !CHECK {
            return Ok(sum_lent(&self.lent.own, 0, size));
        }
        self.lent.own.read(0, &mut self.scratch);
        Ok(bad + pattern::mismatches(&self.scratch[..size - told], seq))
    }

    fn acknowledge(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        Ok(())
    }

    fn begin(&mut self) {
        self.proof.begin(&self.place.nic);
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) -> Result<()> {
        // What a helper does is only announced while this end looks at its connection.
        self.lent.settle(&mut self.place.nic, &mut self.spare)?;
        self.proof.finish(&self.place.nic, run, tally);
        Ok(())
    }
}

/// Reads and atomics.
struct OneSided {
    place: Place,
    lent: Lent,
    op: Op,
    spare: Vec<Descriptor>,
    /// Operations so far, by which the word that atomics change is known.
    done: u64,
    proof: Proof,
    scratch: Vec<u8>,
}

impl OneSided {
    /// One operation; returns the number of faults, or a number that depends on every byte.
    #[inline(always)]
    fn once<const CHECK: bool>(&mut self) -> Result<u64> {
        let nic = &mut self.place.nic;
        let mut descriptor = self.spare.pop().expect("one operation is under way at a time");
        if CHECK && self.op == Op::RdmaRead {
            self.scratch.fill(0);
            descriptor.write(0, 0, &self.scratch);
        }
        self.lent.post(nic, descriptor)?;
        let back = self.lent.reap(nic)?;
        let buffer = &back.buffers()[0];
        let value = match (self.op, CHECK) {
            (Op::RdmaRead, false) => sum_buffer(buffer, self.scratch.len()),
            (Op::RdmaRead, true) => {
                buffer.read(0, &mut self.scratch);
                pattern::mismatches(&self.scratch, READ_SEQ)
            }
            (_, false) => sum_buffer(buffer, 8),
            (_, true) => u64::from(sum_buffer(buffer, 8) != self.word()),
        };
        self.done += 1;
        // The two that swap take turns.
        self.spare.insert(0, back);
        Ok(value)
    }

    /// What the word in the peer's memory is after the operations so far.
    fn word(&self) -> u64 {
        if self.op == Op::FetchAdd { self.done } else { self.done % 2 }
    }

    fn run<const CHECK: bool>(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let mut total = 0u64;
        self.proof.begin(&self.place.nic);
        for _ in 0..run.count / run.batch {
            let before = timer.ticks();
            for _ in 0..run.batch {
                total = total.wrapping_add(self.once::<CHECK>()?);
            }
            samples.push(timer.ticks() - before);
        }
        self.proof.posted = run.count / run.batch * run.batch;
        let mut tally = tally::<CHECK>(total);
        self.proof.finish(&self.place.nic, run, &mut tally);
        Ok(tally)
    }
}

impl End for OneSided {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check { self.run::<true>(run, timer, samples) } else { self.run::<false>(run, timer, samples) }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        self.done += run.count / run.batch * run.batch;
        if run.check && self.op.is_atomic() {
            // What the first process was told must also be so here.
            let value = self.word();
            self.lent.watch(&mut self.place.nic, 0, &mut Vec::new(), |word| word == value)?;
        }
        Ok(Tally::default())
    }
}
