//! What the basic operations cost: the variants by remote writes and by messages, on two nodes and on four, and a wake-up across
//! cores in every round.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use viaduct_os::{cpu, futex};
use viaduct_results::stats::median;

use super::{Bench, Emit, Progress, points, tables};

/// The variant that has everything by remote write, and the one that has nothing so.
pub(super) const WAYS: [&str; 2] = ["dms", "none"];

/// Values of all rounds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By variant, nodes and name of the point.
    values: BTreeMap<(&'static str, usize, String), Vec<f64>>,
    /// Microseconds of a wake-up across cores.
    pub(super) wake: Vec<f64>,
}

impl Found {
    /// Values of a point; empty if it was never told.
    pub(super) fn of(&self, way: &'static str, nodes: usize, name: &str) -> &[f64] {
        self.values.get(&(way, nodes, name.to_owned())).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, way: &'static str, nodes: usize, said: &str) {
        for (name, value) in points(said) {
            self.values.entry((way, nodes, name)).or_default().push(value);
        }
    }
}

/// Measures all operations, and writes their tables.
///
/// # Errors
/// If a run fails, or a line cannot be written.
pub fn operations(bench: &Bench<'_>, progress: Progress<'_>, emit: Emit<'_>) -> io::Result<()> {
    let mut found = Found::default();
    let turns = if bench.quick { "24" } else { "400" };
    let runs: Vec<(&'static str, usize)> = WAYS.into_iter().flat_map(|way| [(way, 2), (way, 4)]).collect();
    let steps = (bench.rounds * runs.len()) as f64;
    for round in 0..bench.rounds {
        for turn in 0..runs.len() {
            let (way, nodes) = runs[(round + turn) % runs.len()];
            progress(&format!("operations {way}"), (round * runs.len() + turn) as f64 / steps);
            let words = ["costs", "--variant", way, "--nodes", &nodes.to_string(), "--rounds", turns];
            found.add(way, nodes, &bench.dsm(&words)?);
        }
        found.wake.push(wake(bench.cpus, if bench.quick { 200 } else { 5000 }));
    }
    tables::write(bench, &found, emit)
}

/// Two threads on two cores wake each other in turn by a futex: microseconds from a call to the other's return, the median.
fn wake(cpus: [usize; 2], turns: u32) -> f64 {
    let word = AtomicU32::new(0);
    let play = |me: u32| {
        // Where pinning is refused the kernel places them.
        let _ = cpu::pin(cpus[me as usize]);
        let (mut times, mut begun) = (Vec::new(), Instant::now());
        for turn in 0..turns {
            let mine = 2 * turn + me;
            loop {
                let now = word.load(Ordering::Acquire);
                if now == mine {
                    break;
                }
                futex::wait(&word, now, Some(Duration::from_secs(1)));
            }
            times.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
            begun = Instant::now();
            word.store(mine + 1, Ordering::Release);
            futex::wake(&word, 1);
        }
        times
    };
    let times = std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        let own = scope.spawn(|| play(0));
        let _ = other.join();
        own.join().unwrap_or_default()
    });
    median(&times).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_rounds_are_kept_by_variant_and_nodes() {
        let mut found = Found::default();
        found.add("dms", 2, "point lock 1\n");
        found.add("none", 2, "point lock 9\n");
        found.add("dms", 2, "point lock 3\n");
        assert_eq!(found.of("dms", 2, "lock"), [1.0, 3.0]);
        assert!(found.of("dms", 4, "lock").is_empty());
    }

    #[test]
    fn a_wake_up_takes_some_time() {
        let time = wake([0, 0], 50);
        assert!(time > 0.0 && time.is_finite());
    }
}
