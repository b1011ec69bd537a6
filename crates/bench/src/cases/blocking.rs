//! Blocking (thesis, section 3.6, figure 3.9): receives through the call that sleeps, against polling.
//!
//! Before it sleeps the call looks for a while; how long is the axis. What is gained is CPU time, which is told beside
//! the latency. Messages that come after a pause find a receiver that sleeps, unless it looks longer than the pause: a
//! further axis. With `--cpus A,A` both ends share a core: the end that spins then keeps the other from working.

use std::time::Duration;

use viaduct_os::clock::thread_cpu_ns;
use viaduct_os::wait::{Spin, WaitConfig};

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::ofi::direct;
use crate::layers::via::{Place, plain};
use crate::loops::End;
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant, Wait};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "blocking",
    about: "what it costs to sleep until a message comes, after looking for it for a while, and what CPU time it saves",
    unit: "us",
    lower_is_better: true,
    sizes: &[8, 1024, 4096],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong, small messages by value, one way = half of the round trip. poll: receives are polled; spin: the \
            blocking call looks for so many microseconds, then sleeps. gap-poll, gap-spin-0, gap-spin-50: the same with \
            a pause of so many microseconds before each exchange, which is not timed; sockets sleep at once, which is spin 0. cpu_us (in JSON) is the CPU time of the \
            answering thread for one message received and answered",
    window: 1,
    axis: "spin_us",
    references: References::Sockets,
    logp: Apart::Polled,
    via: build,
    ofi: Some(|site| Ok(Box::new(Clocked(direct::plain(site)?)))),
    derive: nothing,
};

const SPINS: &[u64] = &[0, 1, 5, 20, 50, 100];
/// Pauses before a message, and the budgets that they are set against.
const GAPS: &[u64] = &[10, 100, 1_000, 10_000];
const BUDGETS: &[u64] = &[0, 50];
/// For a first impression.
const FEWEST: &[u64] = &[0, 50];
const FEWEST_GAPS: &[u64] = &[100];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let quick = settings.quick && settings.sizes.is_empty();
    let sizes = if quick { &[8] } else { sizes };
    let point = |size: &usize| {
        let mut all = Vec::new();
        // On one core polling would keep the other end from ever sending.
        let poll = (!settings.one_core()).then_some(Wait::Poll);
        all.extend(poll.map(|wait| (wait, shape(Motion::PingPong, *size, CASE.window).on("poll", None))));
        for spin in settings.places(SPINS, FEWEST) {
            let shape = shape(Motion::PingPong, *size, CASE.window).on("spin", Some(*spin as f64));
            all.push((Wait::Block, shape.with("spin_us", *spin)));
        }
        // A pause costs time, and its effect does not depend on the size.
        let gaps = if sizes.first() == Some(size) { settings.places(GAPS, FEWEST_GAPS) } else { &[] };
        for gap in gaps {
            let spaced = |series: &str| {
                let shape = shape(Motion::Spaced, *size, CASE.window).on(series, Some(*gap as f64));
                Variant { axis: "gap_us".into(), ..shape.with("pause", gap * 1000) }
            };
            all.extend(poll.map(|wait| (wait, spaced("gap-poll"))));
            for spin in BUDGETS {
                let shape = spaced(&format!("gap-spin-{spin}")).with("spin_us", *spin);
                all.push((Wait::Block, shape));
            }
        }
        let waiting = |(wait, shape): (Wait, Variant)| {
            let all = variants(settings, &settings.layers, &shape).into_iter();
            // The kernel's sockets either spin or sleep at once.
            let fits = move |v: &Variant| {
                !v.layer.is_kernel() || v.layer.wait(wait) == wait && v.arg("spin_us") == 0
            };
            all.filter(fits).map(move |variant| Variant { wait: variant.layer.wait(wait), ..variant })
        };
        Point { size: *size, variants: all.into_iter().flat_map(waiting).collect() }
    };
    Ok(sizes.iter().map(point).collect())
}

fn build(mut place: Place) -> Result<Box<dyn End>> {
    let spin = match place.variant.arg("spin_us") {
        0 => Spin::Never,
        time => Spin::For(Duration::from_micros(time)),
    };
    place.nic.set_wait(WaitConfig { spin });
    Ok(Box::new(Clocked(plain(place)?)))
}

/// An end that tells what CPU time answering takes.
struct Clocked(Box<dyn End>);

impl End for Clocked {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        self.0.lead(run, timer, samples)
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        let before = thread_cpu_ns();
        let mut tally = self.0.follow(run)?;
        let used = (thread_cpu_ns() - before) as f64;
        tally.extra.insert("cpu_us".into(), used / 1e3 / run.count as f64);
        Ok(tally)
    }
}
