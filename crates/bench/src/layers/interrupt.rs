//! Or where messages interrupt (thesis, section 3.2.3): the receiver computes, and messages take its core from it.
//!
//! Timing the call that takes a message would miss what the kernel does to bring it. So the receiver counts in a loop,
//! for a while without and for a while with messages, which the NIC's service thread takes by notify handlers on the same
//! core. What the loop lost is Or: the interrupt, the switch to the handler, the taking, and the switch back.
//!
//! The sender lets a pause pass before each message, so that the handler has gone back to sleep.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use viaduct_os::clock::Tsc;
use viaduct_os::cpu;
use viaduct_os::wait::{Spin, WaitConfig};
use viaduct_via::{Ended, Op, Queue, SharedNic, Vi, ViAttributes};

use crate::control::Patience;
use crate::error::{Error, Result};
use crate::layers::half::{CREDITS, Half, Side, failure};
use crate::layers::stock::{Pieces, descriptors, wrong};
use crate::layers::via::{Place, open_vis};
use crate::loops::End;
use crate::plan::{Motion, Run, Tally, Variant};
use crate::raw::sum_buffer;
use crate::timer::Timer;

/// Messages of one window, and the pause before each.
const MESSAGES: u64 = 20;
const PAUSE: Duration = Duration::from_micros(100);

/// Windows with messages in a slice; the first one is no sample.
const WINDOWS: u64 = 3;

/// `shape` as this way to receive.
pub(crate) fn interrupted(shape: Variant) -> Variant {
    let shape = shape.with("interrupt", 1).with("count", WINDOWS).with("helped", 1);
    Variant { motion: Motion::Calls, window: MESSAGES as usize, ..shape }
}

pub(crate) fn end(mut place: Place) -> Result<Box<dyn End>> {
    let stream = Variant { motion: Motion::Stream, ..place.variant.clone() };
    let others = place.variant.connections - 1;
    let idle = open_vis(&mut place, others)?;
    if place.side == Side::Lead {
        let half = Half::create(&mut place.nic, place.tag, &stream, Side::Lead, place.patience.clone())?;
        place.join(half.vi(), &[])?;
        return Ok(Box::new(Sender { place, half, _idle: idle, next: 1 }));
    }
    let (size, count) = (stream.size, MESSAGES as usize);
    place.nic.set_wait(WaitConfig { spin: Spin::Never });
    let attributes = ViAttributes::new(place.tag).depth(count.max(CREDITS) + 1);
    let vi = place.nic.create_vi(attributes).map_err(|e| place.failed(&e))?;
    let receives = descriptors(&mut place.nic, place.tag, Op::Receive, count, Pieces::whole(size));
    for receive in receives.map_err(|e| place.failed(&e))? {
        place.nic.post_recv(vi, receive).map_err(|e| place.failed(&e.error))?;
    }
    place.join(vi, &[])?;
    let Place { nic, patience, .. } = place;
    let layer = stream.layer.name();
    let nic = SharedNic::new(nic);
    let taken = Arc::new(Taken {
        vi,
        size,
        cpu: cpu::current(),
        check: AtomicBool::new(false),
        broken: AtomicBool::new(false),
        count: AtomicU64::new(0),
        bad: AtomicU64::new(0),
        sum: AtomicU64::new(0),
    });
    // The service thread starts now, and stays on the core of this one.
    arm(&nic, &taken).map_err(|e| failure(layer, &e))?;
    let window = Timer::calibrate().to_ticks(PAUSE.as_nanos() as f64) * (MESSAGES + 2);
    Ok(Box::new(Counting { nic, taken, _idle: idle, expected: 0, window, layer, patience }))
}

struct Sender {
    place: Place,
    half: Half,
    _idle: Vec<Half>,
    next: u64,
}

impl Sender {
    fn windows<const CHECK: bool>(&mut self, run: &Run, timer: &Timer) -> Result<Tally> {
        let pause = timer.to_ticks(PAUSE.as_nanos() as f64);
        for _ in 0..run.count {
            for _ in 0..MESSAGES {
                let end = timer.ticks() + pause;
                while timer.ticks() < end {}
                self.half.send::<true, CHECK>(&mut self.place.nic, self.next)?;
                self.next += 1;
            }
            // The window without messages has passed when this comes.
            self.half.wait_acknowledged(&mut self.place.nic)?;
        }
        Ok(Tally::default())
    }
}

impl End for Sender {
    fn lead(&mut self, run: &Run, timer: &Timer, _: &mut Vec<u64>) -> Result<Tally> {
        if run.check { self.windows::<true>(run, timer) } else { self.windows::<false>(run, timer) }
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

/// What the handlers know and leave behind.
struct Taken {
    vi: Vi,
    size: usize,
    /// The core of the loop, which handlers have to take from it.
    cpu: usize,
    check: AtomicBool,
    /// Nothing more will come.
    broken: AtomicBool,
    count: AtomicU64,
    bad: AtomicU64,
    sum: AtomicU64,
}

/// Takes the next message on the service thread, and arms itself again.
fn arm(nic: &SharedNic, taken: &Arc<Taken>) -> std::result::Result<(), viaduct_via::Error> {
    let taken_there = taken.clone();
    nic.notify(taken.vi, Queue::Receive, Box::new(move |nic, done| take(nic, &taken_there, done)))
}

fn take(nic: &SharedNic, taken: &Arc<Taken>, Ended(done): Ended) {
    if !done.status.is_success() {
        return taken.broken.store(true, Ordering::Relaxed);
    }
    let seq = taken.count.load(Ordering::Relaxed) + 1;
    let buffer = &done.descriptor.buffers()[0];
    if taken.check.load(Ordering::Relaxed) {
        let mut bytes = vec![0; taken.size];
        buffer.read(0, &mut bytes);
        let elsewhere = u64::from(cpu::current() != taken.cpu);
        taken.bad.fetch_add(wrong(&bytes, &done, seq) + elsewhere, Ordering::Relaxed);
    } else {
        taken.sum.fetch_add(sum_buffer(buffer, taken.size), Ordering::Relaxed);
    }
    let posted = nic.lock().post_recv(taken.vi, done.descriptor).is_ok();
    let armed = arm(nic, taken).is_ok();
    if !posted || !armed {
        taken.broken.store(true, Ordering::Relaxed);
    }
    taken.count.fetch_add(1, Ordering::Release);
}

/// The receiver: counts.
struct Counting {
    nic: SharedNic,
    taken: Arc<Taken>,
    _idle: Vec<Half>,
    /// Messages of all windows so far.
    expected: u64,
    /// Ticks of a window.
    window: u64,
    layer: &'static str,
    patience: Patience,
}

impl Counting {
    /// Counts for a window, and on until `messages` have been taken in all; gives the count and the time it took.
    fn count(&self, messages: u64) -> Result<(f64, f64)> {
        let start = Tsc::cycles();
        let (mut count, mut turns) = (0u64, 0u64);
        loop {
            for _ in 0..16 {
                count = black_box(count + 1);
            }
            let passed = Tsc::cycles() - start;
            if passed >= self.window && self.taken.count.load(Ordering::Acquire) >= messages {
                return Ok((count as f64, passed as f64));
            }
            turns += 1;
            if turns.is_multiple_of(1 << 20) {
                self.patience.check("counting while messages come")?;
                if self.taken.broken.load(Ordering::Relaxed) {
                    return Err(Error::layer(self.layer, "a handler lost the connection", ""));
                }
            }
        }
    }
}

impl End for Counting {
    fn lead(&mut self, _: &Run, _: &Timer, _: &mut Vec<u64>) -> Result<Tally> {
        Ok(Tally::default())
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        let bad = self.taken.bad.load(Ordering::Relaxed);
        self.taken.check.store(run.check, Ordering::Relaxed);
        let mut samples = Vec::new();
        for number in 0..run.count {
            // An end that comes late to its window has lost more than the messages took.
            let late = self.taken.count.load(Ordering::Acquire) > self.expected;
            self.expected += MESSAGES;
            let busy = self.count(self.expected)?;
            let quiet = self.count(self.expected)?;
            let told = self.nic.lock().send_inline(self.taken.vi, &self.expected.to_le_bytes(), None);
            told.map_err(|e| failure(self.layer, &e))?;
            if number > 0 && !late {
                samples.push((lost(busy, quiet) / MESSAGES as f64) as u64);
            }
        }
        let bad = self.taken.bad.load(Ordering::Relaxed) - bad;
        Ok(Tally { bad, sum: self.taken.sum.load(Ordering::Relaxed), samples, ..Tally::default() })
    }
}

/// Time that a busy window lost, if a quiet one tells how fast the loop counts: each is a count and a time.
fn lost(busy: (f64, f64), quiet: (f64, f64)) -> f64 {
    (busy.1 - busy.0 * quiet.1 / quiet.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_missing_from_the_count_were_lost() {
        assert_eq!(lost((900.0, 1000.0), (1000.0, 1000.0)), 100.0);
        assert_eq!(lost((900.0, 1000.0), (500.0, 500.0)), 100.0, "windows need not be of one length");
        assert_eq!(lost((1001.0, 1000.0), (1000.0, 1000.0)), 0.0);
    }
}
