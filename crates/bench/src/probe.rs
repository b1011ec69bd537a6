//! Where the two cores are at this moment: a bare ping-pong of one cache line, taken around every slice.
//!
//! The virtual cores of a rented machine move between hardware threads, cores and sockets without notice, and the time
//! of a cache-line transfer moves with them by a factor of ten. So a slice only counts if the probe before and the
//! probe after it agree, and only slices of the same placement are compared.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::session::Session;
use crate::stats::median;
use crate::timer::Timer;

/// How near two cores are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Placement {
    /// Both ends on one core, taking turns.
    Same,
    /// Two hardware threads of one core.
    Smt,
    /// Two cores with a common cache.
    Near,
    /// Two cores without one.
    Far,
    /// It changed while we measured.
    Mixed,
    /// Two hosts.
    Hosts,
}

impl Placement {
    /// All but the changing one.
    pub(crate) const STEADY: [Placement; 5] =
        [Placement::Same, Placement::Smt, Placement::Near, Placement::Far, Placement::Hosts];

    /// Judges by the one-way time of a bare line.
    pub fn of_ns(one_way: f64) -> Placement {
        match one_way {
            ns if ns < 40.0 => Placement::Smt,
            ns if ns <= 150.0 => Placement::Near,
            _ => Placement::Far,
        }
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Same => "same",
            Placement::Smt => "smt",
            Placement::Near => "near",
            Placement::Far => "far",
            Placement::Mixed => "mixed",
            Placement::Hosts => "hosts",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One look at the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Where the cores are.
    pub(crate) placement: Placement,
    /// One-way time of a bare line; `None` if both ends share a core.
    pub(crate) ns: Option<f64>,
    /// Share of the probe's time that was lost in gaps: a core was away, taken by a process or by the hypervisor.
    pub(crate) gap: f64,
}

impl Probe {
    /// Takes a probe, which lasts 0.2 to 1 ms; on one core, or on two hosts, there is nothing to find out.
    pub(crate) fn take(session: &mut Session, timer: &Timer, one_core: bool) -> Result<Probe> {
        if session.is_far() {
            return Ok(Probe { placement: Placement::Hosts, ns: None, gap: 0.0 });
        }
        if one_core {
            return Ok(Probe { placement: Placement::Same, ns: None, gap: 0.0 });
        }
        let mut next = session.start_probe(BATCHES * EXCHANGES)?;
        let control = session.control();
        let patience = control.patience();
        let mut batches = [0.0; BATCHES as usize];
        for batch in &mut batches {
            let before = timer.ticks();
            for _ in 0..EXCHANGES {
                control.ping.store(next, Ordering::Release);
                patience.spin_until("probing", || control.pong.load(Ordering::Acquire) == next)?;
                next += 1;
            }
            *batch = timer.to_ns(timer.ticks() - before) / (2 * EXCHANGES) as f64;
        }
        session.settle("probing")?;
        let ns = median(&batches).expect("there are batches");
        Ok(Probe { placement: Placement::of_ns(ns), ns: Some(ns), gap: gap_share(&batches, ns) })
    }
}

/// What batches took beyond twice the median, as a share of all their time.
fn gap_share(batches: &[f64], median: f64) -> f64 {
    let lost: f64 = batches.iter().filter(|batch| **batch > 2.0 * median).map(|batch| batch - median).sum();
    lost / batches.iter().sum::<f64>().max(f64::MIN_POSITIVE)
}

const BATCHES: u64 = 12;
const EXCHANGES: u64 = 150;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_lies_far_above_the_median() {
        assert_eq!(gap_share(&[50.0, 60.0, 55.0, 100.0], 55.0), 0.0);
        assert_eq!(gap_share(&[50.0, 50.0, 850.0, 50.0], 50.0), 0.8);
        assert_eq!(gap_share(&[], 0.0), 0.0);
    }

    #[test]
    fn thresholds() {
        let names = [28.0, 39.9, 40.0, 60.0, 150.0, 151.0, 265.0].map(|ns| Placement::of_ns(ns).name());
        assert_eq!(names, ["smt", "smt", "near", "near", "near", "far", "far"]);
    }
}
