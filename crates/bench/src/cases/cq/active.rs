//! Several VIs that all carry traffic: their completions come out of one queue, or each is asked for its own.
//!
//! A round is one message on every VI and an answer on each. With a completion queue an end that waits asks one place; without,
//! it asks every VI in turn, which is what a server did before there were such queues.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use viaduct_via::{Completion, Cq, Descriptor, Error as ViaError, Op, Queue, Vi, ViAttributes};

use crate::control::Turns;
use crate::error::Result;
use crate::layers::half::{checked, failure};
use crate::layers::stock::{Manner, Pieces, Plain, descriptors};
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::plan::{Run, Tally, Variant, Wait};
use crate::timer::Timer;

/// Exchanges of a sample, about, and samples of a slice.
const SAMPLE: u64 = 64;
const SAMPLES: u64 = 40;

/// `shape` with that many active VIs.
pub(super) fn active(shape: Variant, count: u64) -> Variant {
    let batch = SAMPLE.next_multiple_of(count);
    let shape = shape.with("active", count).with("batch", batch).with("count", batch * SAMPLES);
    Variant { connections: count as usize, axis: "active queues".into(), ..shape }
}

pub(super) fn end(mut place: Place) -> Result<Box<dyn End>> {
    let count = place.variant.connections;
    let whole = Pieces::whole(place.variant.size);
    let cq = match place.variant.arg("cq") {
        // Two receives and two sends of each VI.
        1 => Some(place.nic.create_cq(4 * count + 2).map_err(|e| place.failed(&e))?),
        _ => None,
    };
    let mut lines = Vec::with_capacity(count);
    for _ in 0..count {
        let attributes = ViAttributes::new(place.tag).depth(4);
        let attributes = cq.into_iter().fold(attributes, ViAttributes::cq);
        let vi = place.nic.create_vi(attributes).map_err(|e| place.failed(&e))?;
        let receives = descriptors(&mut place.nic, place.tag, Op::Receive, 2, whole);
        for receive in receives.map_err(|e| place.failed(&e))? {
            place.nic.post_recv(vi, receive).map_err(|e| place.failed(&e.error))?;
        }
        let spare = descriptors(&mut place.nic, place.tag, Op::Send, 2, whole);
        let spare = spare.map_err(|e| place.failed(&e))?;
        place.join(vi, &[])?;
        lines.push(ActiveVi { vi, spare, seq: 1 });
    }
    let layer = place.variant.layer.name();
    let block = cq.is_some() && place.variant.wait == Wait::Block;
    let plain = Plain::new(place.variant.size);
    let place_of = lines.iter().enumerate().map(|(at, line): (usize, &ActiveVi)| (line.vi, at)).collect();
    let early = VecDeque::new();
    Ok(Box::new(Rounds(Active { place, lines, place_of, cq, early, block, layer, plain, turn: 0 })))
}

/// One VI.
struct ActiveVi {
    vi: Vi,
    /// Send descriptors that are not posted.
    spare: Vec<Descriptor>,
    /// The message to come.
    seq: u64,
}

struct Active {
    place: Place,
    lines: Vec<ActiveVi>,
    /// Where in `lines` a VI is: a completion only names the VI.
    place_of: HashMap<Vi, usize>,
    cq: Option<Cq>,
    /// Receives that came out of the queue while a send was looked for.
    early: VecDeque<Completion>,
    block: bool,
    layer: &'static str,
    plain: Plain,
    /// The VI that is asked next, where each is.
    turn: usize,
}

impl Several for Active {
    fn count(&self) -> usize {
        self.lines.len()
    }

    /// Messages on every VI, answers from every VI.
    fn round<const CHECK: bool>(&mut self) -> Result<u64> {
        for at in 0..self.lines.len() {
            let seq = self.lines[at].seq;
            self.send::<CHECK>(at, seq)?;
        }
        let mut total = 0u64;
        for _ in 0..self.lines.len() {
            let (at, value) = self.receive::<CHECK>()?;
            self.lines[at].seq += 1;
            total = total.wrapping_add(value);
        }
        Ok(total)
    }

    /// Answers one message, whichever comes.
    fn answer<const CHECK: bool>(&mut self) -> Result<u64> {
        let (at, value) = self.receive::<CHECK>()?;
        let seq = self.lines[at].seq;
        self.send::<CHECK>(at, seq)?;
        self.lines[at].seq += 1;
        Ok(value)
    }
}

impl Active {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, at: usize, seq: u64) -> Result<()> {
        let mut descriptor = loop {
            match self.lines[at].spare.pop() {
                Some(descriptor) => break descriptor,
                None => self.reap(at)?,
            }
        };
        self.plain.write::<CHECK>(&mut descriptor, seq);
        let posted = self.place.nic.post_send(self.lines[at].vi, descriptor);
        posted.map_err(|e| failure(self.layer, &e.error))
    }

    /// Looks for a send of a VI that is done.
    fn reap(&mut self, at: usize) -> Result<()> {
        let found = match self.cq {
            Some(cq) => self.place.nic.poll_cq(cq),
            None => self.place.nic.poll_send(self.lines[at].vi),
        };
        match found.map_err(|e| failure(self.layer, &e))? {
            Some(done) if done.queue == Queue::Receive => self.early.push_back(done),
            Some(done) => self.give_back(checked(self.layer, done)?),
            None => self.place.patience.check("waiting for a send to complete")?,
        }
        Ok(())
    }

    #[inline(always)]
    fn give_back(&mut self, done: Completion) {
        let at = self.place_of[&done.vi];
        self.lines[at].spare.push(done.descriptor);
    }

    /// Waits for a message on any VI, reads it and posts its receive again.
    #[inline(always)]
    fn receive<const CHECK: bool>(&mut self) -> Result<(usize, u64)> {
        let (at, done) = self.wait()?;
        let value = self.plain.read::<CHECK>(&done, self.lines[at].seq);
        let posted = self.place.nic.post_recv(done.vi, done.descriptor);
        posted.map_err(|e| failure(self.layer, &e.error))?;
        Ok((at, value))
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<(usize, Completion)> {
        let mut turns = Turns::default();
        loop {
            let found = match self.cq {
                _ if !self.early.is_empty() => self.early.pop_front(),
                Some(cq) if self.block => self.sleep(cq)?,
                Some(cq) => self.place.nic.poll_cq(cq).map_err(|e| failure(self.layer, &e))?,
                None => self.ask_next()?,
            };
            if let Some(done) = found {
                let done = checked(self.layer, done)?;
                if done.queue == Queue::Receive {
                    return Ok((self.place_of[&done.vi], done));
                }
                self.give_back(done);
                continue;
            }
            turns.pause(&self.place.patience, "waiting for a completion")?;
        }
    }

    fn sleep(&mut self, cq: Cq) -> Result<Option<Completion>> {
        match self.place.nic.wait_cq(cq, Some(Duration::from_millis(200))) {
            Ok(done) => Ok(Some(done.0)),
            Err(ViaError::Timeout) => {
                self.place.patience.check("waiting for a completion")?;
                Ok(None)
            }
            Err(error) => Err(failure(self.layer, &error)),
        }
    }

    /// Asks one VI for a message; the next call asks the next.
    #[inline(always)]
    fn ask_next(&mut self) -> Result<Option<Completion>> {
        let vi = self.lines[self.turn].vi;
        self.turn = if self.turn + 1 == self.lines.len() { 0 } else { self.turn + 1 };
        self.place.nic.poll_recv(vi).map_err(|e| failure(self.layer, &e))
    }
}

/// Several connections that all carry traffic.
pub(super) trait Several {
    /// How many.
    fn count(&self) -> usize;
    /// Messages on every one, answers from every one.
    fn round<const CHECK: bool>(&mut self) -> Result<u64>;
    /// Answers one message, whichever comes.
    fn answer<const CHECK: bool>(&mut self) -> Result<u64>;
}

/// Rounds over them, timed in batches.
pub(super) struct Rounds<S>(pub(super) S);

impl<S: Several> Rounds<S> {
    fn leads<const CHECK: bool>(
        &mut self,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<Tally> {
        let mut total = 0u64;
        for batch in 0..run.count / run.batch {
            let before = timer.ticks();
            for _ in 0..run.batch / self.0.count() as u64 {
                total = total.wrapping_add(self.0.round::<CHECK>()?);
            }
            // One way; the first batch also waits for the peer to reach its loop.
            if batch > 0 {
                samples.push((timer.ticks() - before) / 2);
            }
        }
        Ok(tally::<CHECK>(total))
    }

    fn follows<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let mut total = 0u64;
        for _ in 0..run.count {
            total = total.wrapping_add(self.0.answer::<CHECK>()?);
        }
        Ok(tally::<CHECK>(total))
    }
}

impl<S: Several> End for Rounds<S> {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check {
            self.leads::<true>(run, timer, samples)
        } else {
            self.leads::<false>(run, timer, samples)
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.follows::<true>(run) } else { self.follows::<false>(run) }
    }
}
