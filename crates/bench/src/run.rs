//! The way in: run one case with settings and hand out its result lines as they come.

use std::thread;

use crate::cases::{Apart, Case, parts};
use crate::error::{Error, Result};
use crate::host;
use crate::layers::ofi;
use crate::measure;
use crate::pairing;
use crate::plan::Settings;
use crate::rng::Rng;
use crate::schema::{Line, Measurement};
use crate::session::PeerCommand;
use crate::summary::{self, Context};
use crate::timer::Timer;

/// What the caller hears while a case runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Work on this size goes on; `done` runs from 0 to 1 over the whole case.
    Progress {
        /// Message size in bytes.
        size: usize,
        /// Share of the work done.
        done: f64,
    },
    /// A result.
    Line(Line),
}

/// Runs `case`. Measurements are handed out point by point, ratios at the end.
///
/// Returns whether all data were valid. The work is done on a thread of its own, so that the caller is not left pinned
/// to a core.
pub fn run(
    case: &Case,
    settings: &Settings,
    command: &PeerCommand,
    listener: &mut (dyn FnMut(Event) + Send),
) -> Result<bool> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| run_pinned(case, settings, command, listener));
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_pinned(
    case: &Case,
    settings: &Settings,
    command: &PeerCommand,
    listener: &mut (dyn FnMut(Event) + Send),
) -> Result<bool> {
    let mut points = case.plan(settings)?;
    let host = host::facts();
    let cpu = settings.cpus[0];
    viaduct_os::cpu::pin(cpu).map_err(Error::os(format!("pinning the first process to core {cpu}")))?;
    let timer = Timer::calibrate();
    let fabric = settings.layers.iter().find_map(|layer| ofi::provider(*layer, &settings.providers.ofi));
    let timer_ns = timer.cost_ns();
    let context = Context { case, settings, host: &host, timer_ns, fabric: fabric.as_deref() };
    // Drift of the machine must not look like an effect of the size.
    Rng::new(settings.seed).shuffle(&mut points);
    let total = points.len() as f64;
    let (mut pairs, mut derived, mut valid) = (Vec::new(), Vec::new(), true);
    for (index, point) in points.iter().enumerate() {
        let mut tick = |share: f64| {
            listener(Event::Progress { size: point.size, done: (index as f64 + share) / total });
        };
        tick(0.0);
        let results = measure::measure(point, settings, command, &timer, &mut tick)?;
        let lines = summary::measurements(&context, &results);
        let known: Vec<Measurement> = lines.iter().filter(|l| l.missing.is_none()).cloned().collect();
        derived.extend((case.derive)(&known));
        if settings.logp && case.logp != Apart::Not {
            derived.extend(parts::derive(&known));
        }
        for line in lines {
            valid &= line.valid;
            listener(Event::Line(Line::Measurement(Box::new(line))));
        }
        pairs.extend(pairing::pairs(&context, &results));
    }
    derived.into_iter().for_each(|line| listener(Event::Line(line)));
    pairs.sort_by_key(|pair| pair.size);
    pairs.into_iter().for_each(|pair| listener(Event::Line(Line::Pair(pair))));
    Ok(valid)
}

/// Puts measurements in the order in which people read them: by size, then as the layers were asked for.
pub fn sort_for_reading(lines: &mut [Measurement]) {
    // Stable: layers and placements stay in the order in which they were handed out.
    lines.sort_by_key(|line| line.size);
}
