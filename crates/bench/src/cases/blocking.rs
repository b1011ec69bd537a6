//! Blocking (thesis, section 3.6, figure 3.9): receives through the call that sleeps, against polling.
//!
//! Before it sleeps the call looks for a while; how long is the axis. What is gained is CPU time, which is told beside
//! the latency. With `--cpus A,A` both ends share a core: whoever looks then keeps the other from working.

use std::time::Duration;

use viaduct_os::clock::thread_cpu_ns;
use viaduct_os::wait::{Spin, WaitConfig};

use crate::cases::{Apart, Case, nothing, shape, variants};
use crate::error::Result;
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
            blocking call looks for so many microseconds, then sleeps. cpu_us (in JSON) is the CPU time of the \
            answering thread for one message received and answered",
    window: 1,
    axis: "spin_us",
    references: false,
    logp: Apart::Polled,
    via: build,
    derive: nothing,
};

const SPINS: &[u64] = &[0, 1, 5, 20, 50, 100];
/// For a first impression.
const FEWEST: &[u64] = &[0, 50];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let quick = settings.quick && settings.sizes.is_empty();
    let sizes = if quick { &[8] } else { sizes };
    let spins = if settings.quick { FEWEST } else { SPINS };
    let point = |size: &usize| {
        let shape = shape(Motion::PingPong, *size, CASE.window);
        let with = |wait, shape: Variant| {
            let all = variants(settings, &settings.layers, &shape).into_iter();
            all.map(move |variant| Variant { wait: variant.layer.wait(wait), ..variant })
        };
        let mut all = Vec::new();
        // On one core polling would keep the other end from ever sending.
        if !settings.one_core() {
            all.extend(with(Wait::Poll, shape.clone().on("poll", None)));
        }
        for spin in spins {
            let shape = shape.clone().on("spin", Some(*spin as f64)).with("spin_us", *spin);
            all.extend(with(Wait::Block, shape));
        }
        Point { size: *size, variants: all }
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
