//! The measuring of one point: validate, calibrate, then slices in random order with a probe on either side.
//!
//! Slices are short (a few milliseconds) and both processes sleep between them: the scheduler then lets a slice run
//! through even on a busy machine. A slice during which a core was taken away is set aside, and so is one whose two
//! probes disagree. The second process is started afresh several times within a point: which physical pages the buffers
//! got can change a bandwidth by a factor of two, and stays the same as long as the processes live.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::host;
use crate::plan::{Point, Run, Settings, Variant};
use crate::probe::{Placement, Probe};
use crate::rng::Rng;
use crate::session::{PeerCommand, Session};
use crate::stats::median;
use crate::timer::Timer;

/// Fewest like-placed, undisturbed slices that a point goes on for, within reason.
pub(crate) const WANTED: usize = 6;

/// Everything known about one variant after measuring.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) variant: Variant,
    /// The validation passes of all launches were right.
    pub(crate) valid: bool,
    /// What the layer lacks for it, if anything; then it was not measured.
    pub(crate) missing: Option<String>,
    pub(crate) slices: Vec<Slice>,
    /// Slices of now and then in which every message was timed by itself, if a sample of the others is a batch.
    pub(crate) singles: Vec<Slice>,
    /// Share of the time that the hypervisor took.
    pub(crate) steal: f64,
}

impl Measured {
    /// Slices in `placement`, the undisturbed ones if `clean`.
    pub(crate) fn placed(&self, placement: Placement, clean: bool) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |s| s.placement == placement && !(clean && s.disturbed))
    }
}

/// One timed slice.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// The launch of the second process it belongs to.
    pub(crate) launch: usize,
    /// The round it belongs to: in each round every variant has one slice.
    pub(crate) round: usize,
    /// What the probes agreed on, or `Mixed`.
    pub(crate) placement: Placement,
    /// Mean of the two probes.
    pub(crate) probe_ns: Option<f64>,
    /// A core was taken away meanwhile, or just before or after.
    pub(crate) disturbed: bool,
    /// Share of the time that was lost in gaps just before or after.
    pub(crate) gap: f64,
    /// Nanoseconds for one message (one way), sample by sample.
    pub(crate) ns: Vec<f64>,
    /// Their median.
    pub(crate) median: f64,
    /// Exchanges in a sample.
    pub(crate) batch: u64,
    /// Further numbers of the case.
    pub(crate) extra: BTreeMap<String, f64>,
}

/// Measures all variants of `point`. `tick` is called after every slice with the share of the work done.
pub(crate) fn measure(
    point: &Point,
    settings: &Settings,
    command: &PeerCommand,
    timer: &Timer,
    tick: &mut dyn FnMut(f64),
) -> Result<Vec<Measured>> {
    let mut bench = Bench {
        point,
        settings,
        timer,
        rng: Rng::new(settings.seed ^ point.size as u64),
        launch: 0,
        round: 0,
        runs: vec![None; point.variants.len()],
        results: point
            .variants
            .iter()
            .map(|v| Measured {
                variant: v.clone(),
                valid: true,
                missing: None,
                slices: Vec::new(),
                singles: Vec::new(),
                steal: 0.0,
            })
            .collect(),
    };
    let steal_before = host::steal(&settings.cpus);
    let budget = Duration::from_secs_f64(settings.time * point.variants.len() as f64);
    let launches = settings.launches as u32;
    for launch in 0..launches {
        let mut session = Session::start(command, settings, point.arena())?;
        bench.launch = launch as usize;
        let runs = bench.set_up(&mut session)?;
        // Setting up is not part of the time that the user gave.
        let limit = Limit { start: Instant::now(), budget: budget / launches, last: launch + 1 == launches };
        bench.slices(&mut session, runs, &limit, &mut |share| {
            tick((f64::from(launch) + share) / f64::from(launches))
        })?;
    }
    let (stolen, all) = host::steal(&settings.cpus);
    let (stolen, all) = (stolen - steal_before.0, all - steal_before.1);
    for result in &mut bench.results {
        result.steal = if all == 0 { 0.0 } else { stolen as f64 / all as f64 };
    }
    Ok(bench.results)
}

/// How long one launch goes on.
struct Limit {
    start: Instant,
    budget: Duration,
    /// The last launch goes on until there is enough.
    last: bool,
}

impl Limit {
    fn share(&self) -> f64 {
        (self.start.elapsed().as_secs_f64() / self.budget.as_secs_f64()).min(1.0)
    }
}

struct Bench<'a> {
    point: &'a Point,
    settings: &'a Settings,
    timer: &'a Timer,
    rng: Rng,
    launch: usize,
    round: usize,
    /// What a slice of each variant consisted of in the launch before.
    runs: Vec<Option<Run>>,
    results: Vec<Measured>,
}

impl Bench<'_> {
    /// Opens, validates and calibrates every variant; returns what a slice of each consists of.
    fn set_up(&mut self, session: &mut Session) -> Result<Vec<(usize, Run)>> {
        let mut runs = Vec::new();
        for (index, variant) in self.point.variants.iter().enumerate() {
            if self.results[index].missing.is_none() {
                self.results[index].missing = session.missing(variant)?;
            }
            if self.results[index].missing.is_some() {
                session.leave_out();
                continue;
            }
            session.open(variant)?;
            self.results[index].valid &= self.validate(session, index, variant)?;
            if !self.results[index].valid {
                continue;
            }
            let run = self.calibrate(session, index, variant)?;
            self.runs[index] = Some(run);
            runs.push((index, run));
        }
        Ok(runs)
    }

    /// Rounds of slices until the time is up.
    fn slices(
        &mut self,
        session: &mut Session,
        mut runs: Vec<(usize, Run)>,
        limit: &Limit,
        tick: &mut dyn FnMut(f64),
    ) -> Result<()> {
        while !runs.is_empty() {
            self.rng.shuffle(&mut runs);
            self.round += 1;
            for (index, run) in &runs {
                let slice = self.slice(session, *index, run)?;
                self.results[*index].slices.push(slice);
                session.rest(REST)?;
                let single = self.point.variants[*index].one_by_one(run);
                if let Some(run) = single.filter(|_| self.round % SINGLES_EVERY == 1) {
                    let slice = self.slice(session, *index, &run)?;
                    self.results[*index].singles.push(slice);
                    session.rest(REST)?;
                }
                tick(limit.share());
            }
            if self.finished(limit) {
                break;
            }
        }
        Ok(())
    }

    /// Sends patterned messages through the same loops as the timed slices and checks every byte.
    fn validate(&mut self, session: &mut Session, index: usize, variant: &Variant) -> Result<bool> {
        let run = match variant.set_run() {
            Some(run) => Run { check: true, ..run },
            None => {
                // Every buffer of the window is used at least twice, without moving gigabytes.
                let least = 2 * variant.window + 3;
                let most = if self.settings.time < BRIEF { 100 } else { 1000 };
                let count = ((16 << 20) / variant.size.max(1)).clamp(least, least.max(most));
                variant.trial(count as u64, true)
            }
        };
        let (led, followed) = session.run(index, &run, self.timer, &mut Vec::new())?;
        Ok(led.bad == 0 && followed.bad == 0)
    }

    /// Warms up and finds how many messages make a slice, and how many exchanges a sample. A fresh TCP connection needs
    /// the warm-up most: in its first milliseconds it is several times slower than later.
    fn calibrate(&mut self, session: &mut Session, index: usize, variant: &Variant) -> Result<Run> {
        if let Some(run) = variant.set_run() {
            session.run(index, &run, self.timer, &mut Vec::new())?;
            return Ok(run);
        }
        let target = variant.motion.slice_ns();
        let mut count = self.runs[index].map_or(4, |run| run.count);
        // The fastest run counts, or a pause during calibration would make every slice too short.
        let mut per_message = f64::INFINITY;
        let start = Instant::now();
        loop {
            let mut samples = Vec::new();
            let before = self.timer.ticks();
            let run = variant.trial(count, false);
            session.run(index, &run, self.timer, &mut samples)?;
            let whole = self.timer.to_ns(self.timer.ticks() - before);
            let times: Vec<f64> = samples.iter().map(|ticks| self.timer.to_ns(*ticks)).collect();
            if whole >= target / 2.0 {
                let sample = median(&times).unwrap_or(whole);
                per_message = per_message.min(variant.motion.per_message(sample, whole, run.count));
            }
            let long_enough = whole >= 0.8 * target || count >= variant.most();
            if long_enough && start.elapsed() >= WARM_UP {
                break;
            }
            if !long_enough {
                count = (count as f64 * (1.2 * target / whole).clamp(1.5, 32.0)) as u64;
            }
        }
        let per_message = per_message.clamp(1.0, target);
        let count = (target / per_message).ceil().max(4.0) as u64;
        // A clock reading may cost at most one percent of a sample.
        let worth = (100.0 * self.timer.cost_ns() / per_message).ceil().max(1.0) as u64;
        let batch = if self.settings.single { 1 } else { worth };
        Ok(variant.timed(count, batch))
    }

    fn slice(&mut self, session: &mut Session, index: usize, run: &Run) -> Result<Slice> {
        let one_core = self.settings.one_core();
        let mut samples = Vec::new();
        let before = Probe::take(session, self.timer, one_core)?;
        let (switches, delay) = (host::involuntary_switches(), host::run_delay_ns());
        let start = self.timer.ticks();
        let (led, followed) = session.run(index, run, self.timer, &mut samples)?;
        let whole = self.timer.to_ns(self.timer.ticks() - start);
        let delay = (host::run_delay_ns() - delay).max(followed.delay) as f64;
        let switches = host::involuntary_switches() - switches + followed.switches;
        let after = Probe::take(session, self.timer, one_core)?;
        let motion = self.point.variants[index].motion;
        let messages = motion.messages(run) as f64;
        let samples = motion.samples(samples, followed.samples);
        let clock = motion.clock_ns(self.timer);
        let time = |ticks: &u64| (self.timer.to_ns(*ticks) - clock).max(0.0) / messages;
        let ns: Vec<f64> = samples.iter().map(time).collect();
        Ok(Slice {
            launch: self.launch,
            round: self.round,
            placement: if before.placement == after.placement { before.placement } else { Placement::Mixed },
            probe_ns: before.ns.zip(after.ns).map(|(a, b)| (a + b) / 2.0),
            // Two processes on one core take it from each other all the time.
            disturbed: !one_core
                && !self.point.variants[index].helped()
                && (switches > 0 || delay > DELAY_LIMIT * whole)
                || before.gap.max(after.gap) > GAP_LIMIT,
            gap: before.gap.max(after.gap),
            median: median(&ns).unwrap_or(0.0),
            ns,
            batch: run.batch,
            extra: led.extra.into_iter().chain(followed.extra).collect(),
        })
    }

    fn finished(&self, limit: &Limit) -> bool {
        let elapsed = limit.start.elapsed();
        if elapsed < limit.budget {
            return false;
        }
        let most = if self.settings.quick {
            limit.budget + Duration::from_millis(300)
        } else {
            limit.budget * 3 + Duration::from_secs(2)
        };
        !limit.last || elapsed > most || self.results.iter().all(enough)
    }
}

/// At least one placement has as many good slices as an interval needs.
fn enough(result: &Measured) -> bool {
    !result.valid
        || result.missing.is_some()
        || Placement::STEADY.iter().any(|p| result.placed(*p, true).count() >= WANTED)
}

/// Share of a slice that an end was kept waiting for its core, above which the slice is set aside. Waking up alone
/// costs a blocking layer a few percent; a compiler next door costs it half of its time without ever taking a core from
/// a running process.
const DELAY_LIMIT: f64 = 0.1;

/// Share of a probe lost in gaps above which a slice next to it is set aside.
const GAP_LIMIT: f64 = 0.1;

/// Least time that a layer runs in a fresh launch before it is timed.
const WARM_UP: Duration = Duration::from_millis(20);

/// Seconds for a variant below which fewer messages are checked: validation would take longer than what is timed.
const BRIEF: f64 = 0.05;

/// Rounds of which the first has a slice of single messages beside the batches.
const SINGLES_EVERY: usize = 4;

const REST: Duration = Duration::from_millis(3);
