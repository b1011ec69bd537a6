//! CPU: how much processor time a message costs the sender and the receiver.
//!
//! The clock is the kernel's count of what the thread that works has used; what other threads of the process used
//! meanwhile (the control thread of the provider) is told apart. A thread that polls uses its core all the time, so
//! there the cost of a message is the time between messages; a thread that blocks leaves the core to others.

use std::collections::BTreeMap;

use viaduct_os::clock::{process_cpu_ns, thread_cpu_ns};

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::half::Side;
use crate::layers::via::{Place, plain};
use crate::loops::End;
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant, Wait};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "cpu",
    about: "how much CPU time a message costs the sender and the receiver",
    unit: "us",
    lower_is_better: true,
    sizes: &[64, 64 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "a stream with a window; CPU time of the thread that sends or receives, for one message; sender-block and \
            receiver-block: both wait in blocking calls. In JSON also for one byte (ns_per_byte), and what other \
            threads of that process used (others_us)",
    window: 16,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let window = settings.window.unwrap_or(CASE.window);
    let point = |size: &usize| {
        let of = |(series, wait): &(&str, Wait)| {
            let shape = shape(Motion::Stream, *size, window).on(series, None);
            let all = variants(settings, &settings.layers, &shape).into_iter();
            all.map(|v| Variant { wait: *wait, ..v }).collect::<Vec<_>>()
        };
        let mut series = vec![("sender-block", Wait::Block), ("receiver-block", Wait::Block)];
        if !settings.one_core() {
            series.extend([("sender", Wait::Poll), ("receiver", Wait::Poll)]);
        }
        Point { size: *size, variants: series.iter().flat_map(of).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}

fn end(place: Place) -> Result<Box<dyn End>> {
    let variant = place.variant.clone();
    let of = if variant.series.starts_with("sender") { Side::Lead } else { Side::Follow };
    let timed = of == place.side;
    Ok(Box::new(Metered { stream: plain(place)?, timed, size: variant.size, timer: Timer::calibrate() }))
}

/// A stream whose CPU time is counted.
struct Metered {
    stream: Box<dyn End>,
    /// This side is the one that the curve is about.
    timed: bool,
    size: usize,
    timer: Timer,
}

impl Metered {
    /// Runs a slice; gives its tally and, on the side that counts, the CPU time in ticks.
    fn count(
        &mut self,
        run: &Run,
        slice: impl FnOnce(&mut dyn End) -> Result<Tally>,
    ) -> Result<(Tally, Option<u64>)> {
        let before = (thread_cpu_ns(), process_cpu_ns());
        let tally = slice(&mut *self.stream)?;
        let (own, all) = (thread_cpu_ns() - before.0, process_cpu_ns() - before.1);
        if !self.timed {
            return Ok((tally, None));
        }
        let messages = run.count as f64;
        let extra = BTreeMap::from([
            ("ns_per_byte".to_owned(), own as f64 / messages / self.size as f64),
            ("others_us".to_owned(), all.saturating_sub(own) as f64 / messages / 1e3),
        ]);
        Ok((Tally { extra, ..tally }, Some(self.timer.to_ticks(own as f64))))
    }
}

impl End for Metered {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let (tally, ticks) = self.count(run, |stream| stream.lead(run, timer, &mut Vec::new()))?;
        samples.extend(ticks);
        Ok(tally)
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        let (tally, ticks) = self.count(run, |stream| stream.follow(run))?;
        Ok(Tally { samples: ticks.into_iter().collect(), ..tally })
    }
}
