//! Programs that sort the same records in turn: whole runs with their launch, and the most memory that each of them had, all of its
//! processes together.
//!
//! A run counts only if its output is there, as long as it has to be and in order. What we put out has to have the sum of the
//! input, too; some rivals change the ends of lines.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use viaduct_results::stats::median;
use viaduct_results::table::{Better, Table};

use super::{Bench, Emit, lines_of};

/// The file that every contender writes.
pub(super) const OUTPUT: &str = "theirs";

/// How often the memory of a process is looked at. The kernel keeps its peak, so that only the very end can be missed.
const LOOK: Duration = Duration::from_millis(5);

/// What an output has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Records of the benchmark, in order.
    Records,
    /// Lines in order, of at least so many bytes.
    Lines(usize),
    /// As many bytes as the input: the floor, not a rival.
    Copy,
}

/// What a file of records or of lines is.
pub(super) struct Seen {
    pub(super) ordered: bool,
    pub(super) count: u64,
    pub(super) sum: String,
}

impl Put {
    fn seen(self, bench: &Bench, name: &str) -> Option<Seen> {
        match self {
            Put::Copy => None,
            Put::Records => bench.records_of(name),
            Put::Lines(least) => lines_of(&bench.path(name), least),
        }
    }
}

/// A program that takes part.
pub(super) struct Contender {
    name: String,
    /// How it is called; why it is not, if it is not installed.
    command: Result<Vec<String>, String>,
    put: Put,
    /// The input, if its sum has to be that of the output.
    input: Option<String>,
    sum: Option<String>,
    seconds: Vec<f64>,
    peaks: Vec<f64>,
    failed: Option<String>,
}

impl Contender {
    pub(super) fn new(name: &str, command: Result<Vec<String>, String>, put: Put) -> Contender {
        let name = name.to_owned();
        let (seconds, peaks) = (Vec::new(), Vec::new());
        Contender { name, command, put, input: None, sum: None, seconds, peaks, failed: None }
    }

    /// `viaduct sort` with these words.
    pub(super) fn ours(bench: &Bench, name: &str, words: &[&str], input: &str, put: Put) -> Contender {
        let program = bench.program.to_string_lossy().into_owned();
        let words = [&["sort"], words, &[input, "-o", OUTPUT]].concat();
        let words = words.into_iter().map(str::to_owned);
        let ours = Contender::new(name, Ok(std::iter::once(program).chain(words).collect()), put);
        Contender { input: Some(input.to_owned()), ..ours }
    }

    /// Sorts once. `expected` are the records or lines of the input; `counts` is false for a run that warms caches.
    fn run(&mut self, bench: &Bench, expected: u64, counts: bool) {
        let Ok(words) = &self.command else { return };
        if self.failed.is_some() {
            return;
        }
        let _ = std::fs::remove_file(bench.path(OUTPUT));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&bench.folder).env("LC_ALL", "C");
        command.env("VIADUCT_RUNTIME_DIR", bench.folder.join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let ran = command.spawn().and_then(watched);
        let seconds = begun.elapsed().as_secs_f64();
        match ran {
            Ok((true, peak)) if self.is_right(bench, expected) => {
                if counts {
                    self.seconds.push(seconds);
                    self.peaks.push(peak as f64 / 1e6);
                }
            }
            Ok((true, _)) => self.failed = Some("its output is not sorted, or not all there".into()),
            Ok((false, _)) => self.failed = Some("it failed".into()),
            Err(error) => self.failed = Some(format!("it did not start: {error}")),
        }
    }

    fn is_right(&self, bench: &Bench, expected: u64) -> bool {
        if self.put == Put::Copy {
            return std::fs::metadata(bench.path(OUTPUT)).is_ok_and(|kind| kind.len() > 0);
        }
        let found = self.put.seen(bench, OUTPUT);
        found.is_some_and(|seen| {
            seen.ordered && seen.count == expected && self.sum.as_ref().is_none_or(|sum| *sum == seen.sum)
        })
    }

    /// The median time, if it ran.
    fn time(&self) -> Option<f64> {
        median(&self.seconds)
    }
}

/// Lets all run in turn, `bench.rounds` times; inputs that are sorted quickly get a first round that only warms.
pub(super) fn play(
    bench: &Bench,
    contenders: &mut [Contender],
    expected: u64,
    progress: &mut dyn FnMut(&str, f64),
) {
    let warm = usize::from(expected <= 2_000_000 && bench.rounds > 1);
    let (rounds, count) = (bench.rounds + warm, contenders.len());
    let mut sums = BTreeMap::new();
    for contender in contenders.iter_mut() {
        let Some(input) = contender.input.clone() else { continue };
        let sum = sums.entry(input).or_insert_with_key(|input| contender.put.seen(bench, input));
        contender.sum = sum.as_ref().map(|seen| seen.sum.clone());
        if contender.sum.is_none() {
            contender.failed = Some("its input could not be read".into());
        }
    }
    for round in 0..rounds {
        for (n, contender) in contenders.iter_mut().enumerate() {
            progress(&contender.name, (round * count + n) as f64 / (rounds * count) as f64);
            contender.run(bench, expected, round >= warm);
        }
    }
    let _ = std::fs::remove_file(bench.path(OUTPUT));
}

/// Times, peaks and the runs that they are of, and how many times those of others: `bases` has a column for each of these contenders.
pub(super) fn lines(
    contenders: &[Contender],
    bases: &[(&str, &str)],
    table: &Table,
    emit: Emit<'_>,
) -> io::Result<()> {
    for contender in contenders {
        let cell = table.cell(&contender.name, "time", "s", Better::Less);
        match (&contender.command, &contender.failed) {
            (Err(why), _) => emit(cell.missing(why.clone()))?,
            (_, Some(why)) => emit(cell.wrong(why.clone()))?,
            _ => {
                emit(cell.of(&contender.seconds))?;
                emit(table.cell(&contender.name, "peak memory", "MB", Better::Less).of(&contender.peaks))?;
                let runs = table.cell(&contender.name, "runs", "", Better::More);
                emit(runs.one(contender.seconds.len() as f64))?;
                for (column, base) in bases {
                    let base = contenders.iter().find(|other| other.name == *base).and_then(Contender::time);
                    if let (Some(time), Some(base)) = (contender.time(), base) {
                        emit(table.cell(&contender.name, *column, "", Better::More).one(time / base))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Waits for a process. Gives whether it was content, and the most memory that it had: the sum of the peaks of it and of all that
/// it started.
fn watched(mut child: Child) -> io::Result<(bool, u64)> {
    let first = child.id();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut peaks = BTreeMap::new();
            while !done.load(Ordering::Relaxed) {
                note_peaks(first, &mut peaks);
                std::thread::park_timeout(LOOK);
            }
            peaks.values().sum()
        });
        let ended = child.wait();
        done.store(true, Ordering::Relaxed);
        looker.thread().unpark();
        let peak = looker.join().unwrap_or_default();
        Ok((ended?.success(), peak))
    })
}

/// Notes the peak of a process and of those that it started, and of theirs.
fn note_peaks(process: u32, peaks: &mut BTreeMap<u32, u64>) {
    let mut left = vec![process];
    while let Some(process) = left.pop() {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        if let Some(bytes) = status.ok().as_deref().and_then(peak_in) {
            let peak = peaks.entry(process).or_insert(0);
            *peak = bytes.max(*peak);
        }
        // A child belongs to the thread that started it.
        for task in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
        }
    }
}

/// The peak of the resident memory in the words of the kernel.
fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_process_is_seen() {
        assert_eq!(peak_in("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1234 << 10));
        assert_eq!(peak_in("Name:\tx\n"), None);
        let (good, peak) = watched(Command::new("sleep").arg("0.2").spawn().unwrap()).unwrap();
        assert!(good && peak > 0);
        let words = ["-c", "sleep 0.2 & sleep 0.2; wait"];
        let (_, both) = watched(Command::new("sh").args(words).spawn().unwrap()).unwrap();
        assert!(both > 2 * peak, "{both} of a shell and two, {peak} of one");
        assert!(!watched(Command::new("false").spawn().unwrap()).unwrap().0);
    }
}
