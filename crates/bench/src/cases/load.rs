//! Load: how late messages come when they are sent by the clock, at a share of the highest rate.
//!
//! A ping-pong sends nothing while it waits, so one stall spoils one sample and hides all that would have been sent
//! meanwhile. Here the schedule is fixed beforehand and a message counts from the moment at which it was due, whether
//! the sender was ready or not. The receiver notes when it has read each message and writes the notes into the sender's
//! memory after the slice: percentiles are over every single message.

use viaduct_os::clock::Tsc;
use viaduct_via::{Descriptor, Op};

use crate::cases::spinning::spins;
use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::half::{Half, Side};
use crate::layers::lent::Lent;
use crate::layers::via::Place;
use crate::loops::{End, tally};
use crate::paced;
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant};
use crate::stats::median;
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "load",
    about: "how late messages come at a share of the highest rate: the tail of the latency",
    unit: "us",
    lower_is_better: true,
    sizes: &[64],
    value: |ns, _| ns / 1e3,
    points,
    timed: "one way by the shared cycle counter, from the moment at which a message was due to when it has been read; \
            messages are due at even distances, at so many percent of the rate that short streams reached just before \
            (no coordinated omission). p50 is over slices, the other percentiles over all messages",
    window: 64,
    axis: "percent",
    references: References::Sockets,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const PERCENT: &[u64] = &[10, 20, 30, 40, 50, 60, 70, 80, 90];
const QUICK: &[u64] = &[10, 50, 90];

/// Messages of a slice at the full rate; less load makes fewer, so that all slices take the same time.
const MOST: u64 = 20_000;

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    spins(settings, CASE.name)?;
    let window = settings.window.unwrap_or(CASE.window);
    let point = |size: &usize| {
        let of = |percent: &u64| {
            let shape = shape(Motion::Calls, (*size).max(1), window).on("", Some(*percent as f64));
            let shape = shape.with("count", MOST * percent / 100).with("one-clock", 1);
            let all = variants(settings, &settings.layers, &shape.with(paced::PERCENT, *percent));
            all.into_iter().map(on_sockets).collect::<Vec<_>>()
        };
        let places = settings.places(PERCENT, QUICK);
        Point { size: (*size).max(1), variants: places.iter().flat_map(of).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}

/// Sockets have no memory of the sender to write notes into: theirs come back with the tally (`paced.rs`).
fn on_sockets(variant: Variant) -> Variant {
    if variant.layer.is_kernel() { Variant { motion: Motion::OneWay, ..variant } } else { variant }
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    let stream = Variant { motion: Motion::Stream, ..place.variant.clone() };
    let half = Half::create(&mut place.nic, place.tag, &stream, place.side, place.patience.clone())?;
    place.join(half.vi(), &[])?;
    let notes = 8 * (place.variant.arg("count") as usize + 1);
    let lent = Lent::join(&mut place, notes, 2)?;
    let letter = lent.descriptors(&mut place, Op::RdmaWrite, 1, notes)?.pop();
    let percent = place.variant.x.unwrap_or(100.0);
    let mut open = OpenLoop { place, half, lent, letter, peak: 0.0, percent, next: 1 };
    open.find_peak()?;
    Ok(Box::new(open))
}

struct OpenLoop {
    place: Place,
    half: Half,
    /// The sender lends memory for the notes.
    lent: Lent,
    letter: Option<Descriptor>,
    /// Ticks for a message at the highest rate.
    peak: f64,
    percent: f64,
    next: u64,
}

impl OpenLoop {
    /// Streams a few times as fast as it goes; the median counts.
    fn find_peak(&mut self) -> Result<()> {
        const STREAMS: usize = 7;
        const MESSAGES: u64 = 2_000;
        let (nic, mut times) = (&mut self.place.nic, Vec::new());
        for _ in 0..STREAMS {
            let start = Tsc::cycles();
            for seq in self.next..self.next + MESSAGES {
                match self.place.side {
                    Side::Lead => self.half.send::<true, false>(nic, seq)?,
                    Side::Follow => drop(std::hint::black_box(self.half.recv::<true, false>(nic, seq)?)),
                }
            }
            match self.place.side {
                Side::Lead => self.half.wait_acknowledged(nic)?,
                Side::Follow => self.half.acknowledge(nic)?,
            }
            self.next += MESSAGES;
            times.push((Tsc::cycles() - start) as f64 / MESSAGES as f64);
        }
        self.peak = median(&times).unwrap_or(1.0).max(1.0);
        Ok(())
    }

    fn send<const CHECK: bool>(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let (nic, first) = (&mut self.place.nic, self.next);
        self.next += run.count;
        let interval = self.peak * 100.0 / self.percent;
        // The receiver is on its way to its loop; give it a moment.
        let start = timer.ticks() + timer.to_ticks(20_000.0);
        let due = |number: u64| start + (number as f64 * interval) as u64;
        for number in 0..run.count {
            while timer.ticks() < due(number) {
                std::hint::spin_loop();
            }
            self.half.send::<true, CHECK>(nic, first + number)?;
        }
        self.half.wait_acknowledged(nic)?;
        let end = self.next;
        self.lent.watch(nic, 8 * run.count as usize, &mut Vec::new(), |word| word == end)?;
        let mut notes = vec![0; 8 * run.count as usize];
        self.lent.own.read(0, &mut notes);
        let (words, _) = notes.as_chunks::<8>();
        let arrivals = words.iter().map(|word| u64::from_le_bytes(*word));
        samples.extend(arrivals.zip(0..).map(|(at, number)| at.saturating_sub(due(number))));
        let last = due(run.count - 1) + samples.last().copied().unwrap_or(0);
        let rate = |ticks: f64| 1e3 / (timer.to_ns(1 << 20) / f64::from(1 << 20) * ticks);
        let extra = [
            ("peak_mmsg", rate(self.peak)),
            ("offered_mmsg", rate(interval)),
            ("achieved_mmsg", rate((last - start) as f64 / run.count as f64)),
        ];
        let extra = extra.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Tally { extra, ..Tally::default() })
    }

    fn take<const CHECK: bool>(&mut self, run: &Run) -> Result<Tally> {
        let (nic, first) = (&mut self.place.nic, self.next);
        self.next += run.count;
        let mut notes = Vec::with_capacity(8 * (run.count as usize + 1));
        let mut total = 0u64;
        for seq in first..self.next {
            total = total.wrapping_add(self.half.recv::<true, CHECK>(nic, seq)?);
            notes.extend(Tsc::cycles().to_le_bytes());
        }
        self.half.acknowledge(nic)?;
        notes.extend(self.next.to_le_bytes());
        let mut letter = self.letter.take().expect("one slice at a time");
        letter.write(0, 0, &notes);
        self.lent.post(nic, letter)?;
        self.letter = Some(self.lent.reap(nic)?);
        Ok(tally::<CHECK>(total))
    }
}

impl End for OpenLoop {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        if run.check {
            self.send::<true>(run, timer, samples)
        } else {
            self.send::<false>(run, timer, samples)
        }
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        if run.check { self.take::<true>(run) } else { self.take::<false>(run) }
    }
}
