//! One node of two workers against two threads of one process, by the same program on the same two cores. Both sides are started
//! anew in each round, so that neither keeps the pages of memory that it once got.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Barrier;
use std::time::Duration;

use viaduct_cashmere::node::start::Error;
use viaduct_dsm_apps::{App, Problem, Team};
use viaduct_os::cpu;
use viaduct_results::table::Better;

use super::{Bench, Emit, Progress, Ran, bar};
use crate::raw::Numbers;

/// At most so many times the time of threads.
const WANTED: f64 = 1.1;
/// Seconds of work that a measurement has at least.
const WORK: f64 = 5.0;
const WORKERS: usize = 2;

/// A thread among others that share numbers.
struct Threads<'a> {
    rank: usize,
    numbers: &'a [Numbers],
    barrier: &'a Barrier,
}

impl Team for Threads<'_> {
    type Numbers = usize;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        WORKERS
    }

    fn is_together(&self) -> bool {
        true
    }

    fn read(&self, numbers: usize, range: Range<usize>) -> impl Deref<Target = [f64]> {
        self.numbers[numbers].read(range)
    }

    fn write(&self, numbers: usize, range: Range<usize>) -> impl DerefMut<Target = [f64]> {
        self.numbers[numbers].write(range)
    }

    fn barrier(self) -> Result<Self, Error> {
        self.barrier.wait();
        Ok(self)
    }
}

/// Runs a program by two threads of this process, on its first two CPUs; gives the longest time of one, and the sum of the results.
///
/// # Errors
/// A size that is refused, or a program that needs more than barriers.
pub fn by_threads(app: App, problem: Problem) -> Result<(Duration, f64), Error> {
    let cpus = cpu::allowed();
    let numbers: Vec<Numbers> = app.arrays(problem.size)?.into_iter().map(Numbers::zeroes).collect();
    let barrier = Barrier::new(WORKERS);
    let handles: Vec<usize> = (0..numbers.len()).collect();
    let work = |rank: usize| {
        // Where pinning is refused the kernel places them.
        let _ = cpus.get(rank % cpus.len().max(1)).map(|&cpu| cpu::pin(cpu));
        let team = Threads { rank, numbers: &numbers, barrier: &barrier };
        app.run_on(team, &handles, problem).map(|(_, time)| time)
    };
    let work = &work;
    let times: Result<Vec<Duration>, Error> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|rank| scope.spawn(move || work(rank))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|time| time.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    });
    let longest = times?.into_iter().max().unwrap_or_default();
    let sum = numbers.iter().flat_map(|numbers| numbers.read(0..numbers.len()).iter()).sum();
    Ok((longest, sum))
}

/// Runs a program by one node of two workers, or with `how` by two threads.
fn run(bench: &Bench<'_>, app: App, problem: Problem, how: &[&str]) -> io::Result<Ran> {
    let (size, rounds) = (problem.size.to_string(), problem.rounds.to_string());
    let words = [app.name(), "--nodes", "1", "--procs", "2", "--size", &size, "--rounds", &rounds];
    bench.app(&[&words, how].concat())
}

/// The hidden word of `viaduct dsm` that asks for threads.
const BY_THREADS: [&str; 1] = ["--as-threads"];

/// A problem that takes threads long enough: SOR has more rounds then, LU more rows.
fn grown(bench: &Bench<'_>, app: App) -> io::Result<Problem> {
    if bench.quick {
        return Ok(Problem { size: 128, rounds: 4, check: false });
    }
    let small = match app {
        App::Sor => Problem { size: 2048, rounds: 11, check: false },
        _ => Problem { size: 1024, rounds: 1, check: false },
    };
    let factor = 1.15 * WORK / run(bench, app, small, &BY_THREADS)?.seconds.max(1e-3);
    Ok(match app {
        App::Sor => Problem { rounds: (10.0 * factor).ceil() as usize + 1, ..small },
        // The work grows with the third power of the rows.
        _ => {
            let rows = small.size as f64 * factor.cbrt().max(1.0);
            Problem { size: (rows as usize).next_multiple_of(64), ..small }
        }
    })
}

/// Measures SOR and LU by a node of two workers and by two threads, in turn; their results are equal.
///
/// # Errors
/// If a run fails, or a line cannot be written.
pub fn threads(bench: &Bench<'_>, progress: Progress<'_>, emit: Emit<'_>) -> io::Result<()> {
    let table = bench.table("dsm-bars");
    for (number, app) in [App::Sor, App::Lu].into_iter().enumerate() {
        let problem = grown(bench, app)?;
        let row = format!("{app}, one node of two workers / two threads");
        let node = || run(bench, app, problem, &[]);
        let plain = || run(bench, app, problem, &BY_THREADS);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds {
            progress(app.name(), (number * bench.rounds + round) as f64 / (2 * bench.rounds) as f64);
            // Each goes first every other time.
            let (node, plain) = if round % 2 == 0 {
                let node = node()?;
                (node, plain()?)
            } else {
                let plain = plain()?;
                (node()?, plain)
            };
            // Both add up the arrays in their order.
            if node.sum.to_bits() != plain.sum.to_bits() {
                let why = format!("the results differ: {} and {}", node.sum, plain.sum);
                return emit(table.cell(row, "ratio", "", Better::Less).wrong(why));
            }
            ours.push(node.seconds);
            theirs.push(plain.seconds);
        }
        emit(table.cell(&row, "ours", "s", Better::Less).of(&ours))?;
        emit(table.cell(&row, "theirs", "s", Better::Less).of(&theirs))?;
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        bar(&table, &row, &ratios, WANTED, emit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_compute_what_they_computed_before() {
        let problem = Problem { size: 64, rounds: 3, check: false };
        for app in [App::Sor, App::Lu] {
            let [once, again] = [(); 2].map(|()| by_threads(app, problem).expect("it runs").1);
            assert_eq!(once.to_bits(), again.to_bits(), "{app}");
        }
        assert!(by_threads(App::Gauss, problem).is_err());
    }
}
