//! What takes turns: quick runs have a part of it each, full runs have all of it, and the summary names the rest.
//!
//! A quick run has [`TURNS`] for this. Units whose files changed since they last ran here come first, then those that
//! ran longest ago. `target/xtask/turns.json` has when that was; a fresh clone has no such file, and begins at a unit
//! that the number of commits chooses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The time that a quick run has for units, on two idle cores.
pub(crate) const TURNS: Duration = Duration::from_secs(120);

/// One thing that takes turns.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    /// What it takes on two idle cores, from a fresh clone; a unit that takes more than [`TURNS`] has a turn alone.
    seconds: u64,
    what: What,
    /// Beginnings of the paths whose change gives it a turn.
    paths: &'static [&'static str],
}

#[derive(Debug)]
enum What {
    /// The suite of this name.
    Suite,
    /// Tests of this package with names that start so.
    Tests(&'static str, &'static [&'static str]),
}

const CONFORMANCE: &str = "viaduct-conformance";
const FAULTS: &str = "viaduct-faults";
const PROGRAM: &str = "viaduct";
/// Where the code is whose instructions are counted.
pub(crate) const DATA_PATH: &[&str] = &[
    "crates/os/src",
    "crates/via/src",
    "crates/providers/",
    "crates/sovia/",
    "crates/mpi/",
    "crates/cashmere/",
    "crates/intercept/",
    "capi/",
];

/// Everything that takes turns.
const UNITS: &[Unit] = &[
    Unit {
        name: "loom",
        seconds: 90,
        what: What::Suite,
        paths: &[
            "crates/providers/tests/loom_",
            "crates/providers/tests/model",
            "crates/providers/src/shm/ring.rs",
            "crates/providers/src/shm/doorbell.rs",
            "crates/providers/src/shm/directory.rs",
            "crates/providers/src/parties.rs",
            "crates/os/src/bell.rs",
            "crates/os/src/turn.rs",
            "crates/os/src/bare/lock.rs",
            "crates/via/src/driver/place.rs",
        ],
    },
    Unit { name: "release", seconds: 200, what: What::Suite, paths: &["Cargo.toml", "Cargo.lock"] },
    Unit { name: "instructions", seconds: 280, what: What::Suite, paths: DATA_PATH },
    Unit {
        name: "miri",
        seconds: 170,
        what: What::Suite,
        paths: &[
            "crates/os/src/copy",
            "crates/via/src",
            "crates/sovia/src",
            "crates/providers/src",
            "crates/job/src",
        ],
    },
    Unit { name: "as-root", seconds: 150, what: What::Suite, paths: &[] },
    Unit {
        name: "worlds-loopback",
        seconds: 15,
        what: What::Tests(CONFORMANCE, &["loopback_counted::", "loopback_delayed::", "loopback_traced::"]),
        paths: &["crates/via/src", "crates/providers/src/loopback", "tests/conformance"],
    },
    Unit {
        name: "worlds-shm",
        seconds: 45,
        what: What::Tests(
            CONFORMANCE,
            &["shm_copying::", "shm_counted::", "shm_cramped::", "shm_delayed::", "shm_without_vm::"],
        ),
        paths: &["crates/providers/src/shm"],
    },
    Unit {
        name: "worlds-ofi",
        seconds: 90,
        what: What::Tests(CONFORMANCE, &["ofi_counted::", "ofi_cramped::"]),
        paths: &["crates/providers/src/ofi"],
    },
    Unit {
        name: "kill-sweeps",
        seconds: 40,
        what: What::Tests(
            FAULTS,
            &[
                "kill::a_client_that_copies_dies_at_every_step",
                "kill::a_server_that_copies_dies_at_every_step",
                "kill::the_peer_that_comes_dies_at_every_step",
                "kill::the_peer_that_waits_dies_at_every_step",
            ],
        ),
        paths: &["crates/providers/src/shm"],
    },
    Unit {
        name: "bench-suite",
        seconds: 60,
        what: What::Tests(
            PROGRAM,
            &["bench::the_whole_suite_in_a_hurry", "bench_cases::every_ping_pong_can_be_taken_apart"],
        ),
        paths: &["crates/bench/src", "crates/results/src", "crates/viaduct/src"],
    },
    Unit {
        name: "bench-ofi",
        seconds: 60,
        what: What::Tests(PROGRAM, &["bench_ofi::", "far::"]),
        paths: &["crates/bench/src/layers"],
    },
];

/// What units may take of a quick run: [`TURNS`] together, or the longest alone.
#[cfg(test)]
pub(crate) fn most() -> Duration {
    UNITS.iter().map(|unit| Duration::from_secs(unit.seconds)).fold(TURNS, Duration::max)
}

/// When a unit last passed here.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Record {
    commit: String,
    /// Seconds since 1970.
    time: u64,
}

/// Which units have their turn in this run.
#[derive(Debug)]
pub(crate) struct Rotation {
    /// One for each of [`UNITS`].
    turns: Vec<Turn>,
    records: BTreeMap<String, Record>,
    head: String,
    file: PathBuf,
}

/// Why a unit is in this run or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Everything is asked for.
    All,
    Changed,
    Next,
    /// Its files changed, but others did too.
    Waits,
    Not,
}

impl Rotation {
    /// Chooses; with `all` every unit.
    pub(crate) fn new(root: &Path, target: &Path, all: bool) -> Self {
        let file = target.join("xtask/turns.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let records: BTreeMap<String, Record> = serde_json::from_str(&text).unwrap_or_default();
        let number = beginning(root);
        let head = git(root, &["rev-parse", "--short", "HEAD"]).unwrap_or_default();
        let turns = if all {
            vec![Turn::All; UNITS.len()]
        } else {
            choose(&ages(&records, number), &changed(root, &records))
        };
        Self { turns, records, head, file }
    }

    /// Whether a suite is in this run; those that take no turns always are.
    pub(crate) fn has_suite(&self, name: &str) -> bool {
        let mut suites = UNITS.iter().zip(&self.turns).filter(|(unit, _)| matches!(unit.what, What::Suite));
        suites.find(|(unit, _)| unit.name == name).is_none_or(|(_, turn)| turn.is_now())
    }

    /// Whether a suite takes turns.
    #[cfg(test)]
    pub(crate) fn turns(suite: &str) -> bool {
        UNITS.iter().any(|unit| matches!(unit.what, What::Suite) && unit.name == suite)
    }

    /// The expression for nextest that leaves out the tests whose turn it is not, and nothing else.
    pub(crate) fn filterset(&self) -> String {
        let parts: Vec<String> = self
            .left_out()
            .map(|(package, starts)| format!("(package(={package}) and test(/^({})/))", starts.join("|")))
            .collect();
        if parts.is_empty() { "all()".to_owned() } else { format!("not ({})", parts.join(" or ")) }
    }

    /// What libtest's `--skip` takes to the same end.
    pub(crate) fn skips(&self) -> Vec<&'static str> {
        self.left_out().flat_map(|(_, starts)| starts.iter().copied()).collect()
    }

    fn left_out(&self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        UNITS.iter().zip(&self.turns).filter_map(|(unit, turn)| match unit.what {
            What::Tests(package, starts) if !turn.is_now() => Some((package, starts)),
            _ => None,
        })
    }

    /// Notes that the units of a suite that passed have had their turn: the one of that name, or all that are tests.
    pub(crate) fn passed(&mut self, suite: &str) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for (unit, turn) in UNITS.iter().zip(&self.turns) {
            let belongs = match unit.what {
                What::Suite => unit.name == suite,
                What::Tests(..) => suite == "tests",
            };
            if belongs && turn.is_now() {
                self.records.insert(unit.name.to_owned(), Record { commit: self.head.clone(), time });
            }
        }
        let text = serde_json::to_string_pretty(&self.records).unwrap_or_default();
        let folder = self.file.parent().unwrap_or(Path::new("."));
        // What cannot be noted has its turn again.
        let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&self.file, text));
    }

    /// The lines of the summary.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(unit, turn): (&Unit, &Turn)| {
            let last = self.records.get(unit.name).map_or("no run is recorded here".to_owned(), Record::told);
            let word = match turn {
                Turn::All => "in this run".to_owned(),
                Turn::Changed => "in this run (its files changed)".to_owned(),
                Turn::Next => "in this run (its turn)".to_owned(),
                Turn::Waits => format!("NOT IN THIS RUN, though its files changed; {last}"),
                Turn::Not => format!("not in this run; {last}"),
            };
            format!("{:<16}{word}", unit.name)
        };
        UNITS.iter().zip(&self.turns).map(line).collect()
    }
}

impl Turn {
    fn is_now(self) -> bool {
        matches!(self, Self::All | Self::Changed | Self::Next)
    }
}

impl Record {
    fn told(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let hours = now.saturating_sub(self.time) / 3600;
        format!("last passed at commit {}, {hours} h ago", self.commit)
    }
}

/// Where the turns begin without records: the number of commits, which goes on by one with each. A shallow clone has one commit
/// at all times; there the commit's own name decides, so that they do not begin at one place each time.
fn beginning(root: &Path) -> usize {
    let is_shallow =
        git(root, &["rev-parse", "--is-shallow-repository"]).is_some_and(|answer| answer == "true");
    let number = if is_shallow {
        git(root, &["rev-parse", "HEAD"]).and_then(|name| usize::from_str_radix(name.get(..8)?, 16).ok())
    } else {
        git(root, &["rev-list", "--count", "HEAD"]).and_then(|text| text.parse().ok())
    };
    number.unwrap_or(0)
}

/// For each unit a number that is lower the longer it has not run; without records the number of commits decides.
fn ages(records: &BTreeMap<String, Record>, commits: usize) -> Vec<(u64, usize)> {
    let count = UNITS.len();
    let ring = |index: usize| (index + count - commits % count) % count;
    UNITS
        .iter()
        .enumerate()
        .map(|(index, unit)| (records.get(unit.name).map_or(0, |record| record.time), ring(index)))
        .collect()
}

/// Takes units while there is time for them, the changed ones first. The first one always has its turn.
fn choose(ages: &[(u64, usize)], changed: &[bool]) -> Vec<Turn> {
    let mut order: Vec<usize> = (0..UNITS.len()).collect();
    order.sort_by_key(|&index| (!changed[index], ages[index]));
    let mut turns = vec![Turn::Not; UNITS.len()];
    let mut left = Some(TURNS.as_secs());
    for index in order {
        let fits = left.is_some_and(|left| UNITS[index].seconds <= left || left == TURNS.as_secs());
        turns[index] = match (fits, changed[index]) {
            (true, true) => Turn::Changed,
            (true, false) => Turn::Next,
            (false, true) => Turn::Waits,
            (false, false) => Turn::Not,
        };
        if fits {
            left = left.and_then(|left| left.checked_sub(UNITS[index].seconds));
        }
    }
    turns
}

/// For each unit whether one of its files changed since it last passed here, or else in the last commit or after it.
fn changed(root: &Path, records: &BTreeMap<String, Record>) -> Vec<bool> {
    let since = |base: &str| git(root, &["diff", "--name-only", base]).unwrap_or_default();
    let touched = |unit: &Unit| {
        let base = records.get(unit.name).map_or("HEAD~1", |record| record.commit.as_str());
        since(base).lines().any(|file| unit.paths.iter().any(|path| file.starts_with(path)))
    };
    UNITS.iter().map(touched).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::SUITES;
    use std::collections::BTreeSet;
    use viaduct_kit::tempdir::TempDir;

    fn none() -> Vec<bool> {
        vec![false; UNITS.len()]
    }

    #[test]
    fn a_shallow_clone_begins_at_its_commit() {
        let folder = TempDir::new("shallow");
        let (whole, shallow) = (folder.join("whole"), folder.join("shallow"));
        fs::create_dir(&whole).unwrap();
        git(&whole, &["init", "-q"]).unwrap();
        let commit = |words: &str| {
            let me =
                ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", words];
            git(&whole, &me).unwrap();
        };
        let mut seen = BTreeSet::new();
        for (number, words) in ["first", "second", "third"].into_iter().enumerate() {
            commit(words);
            assert_eq!(beginning(&whole), number + 1);
            let _ = fs::remove_dir_all(&shallow);
            let from = format!("file://{}", whole.display());
            git(folder.path(), &["clone", "-q", "--depth", "1", &from, "shallow"]).unwrap();
            seen.insert(beginning(&shallow));
        }
        assert_eq!(seen.len(), 3, "each commit has a place of its own");
    }

    fn position(name: &str) -> usize {
        UNITS.iter().position(|unit| unit.name == name).unwrap()
    }

    #[test]
    fn every_unit_has_its_turn_within_as_many_commits_as_there_are_units() {
        let mut seen = BTreeSet::new();
        for commits in 0..UNITS.len() {
            let turns = choose(&ages(&BTreeMap::new(), commits), &none());
            let now: Vec<usize> = (0..UNITS.len()).filter(|&index| turns[index].is_now()).collect();
            let seconds: u64 = now.iter().map(|&index| UNITS[index].seconds).sum();
            assert!(seconds <= TURNS.as_secs() || now.len() == 1, "{commits}: {seconds} s");
            seen.extend(now);
        }
        assert_eq!(seen.len(), UNITS.len());
    }

    #[test]
    fn changed_units_come_first_and_units_without_room_are_said_to_wait() {
        let changed = vec![true; UNITS.len()];
        let turns = choose(&ages(&BTreeMap::new(), 0), &changed);
        assert!(turns.contains(&Turn::Changed) && turns.contains(&Turn::Waits), "{turns:?}");
        let mut one = none();
        one[position("miri")] = true;
        assert_eq!(choose(&ages(&BTreeMap::new(), 0), &one)[position("miri")], Turn::Changed);
    }

    #[test]
    fn a_turn_is_noted_and_the_next_run_goes_on_from_there() {
        let folder = TempDir::new("turns");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut first = Rotation::new(root, folder.path(), true);
        assert!(first.has_suite("miri") && first.has_suite("doc-tests") && first.filterset() == "all()");
        first.passed("miri");
        first.passed("tests");
        let second = Rotation::new(root, folder.path(), false);
        let lines = second.lines();
        assert_eq!(lines.len(), UNITS.len());
        assert!(!second.records.contains_key("loom") && second.records.contains_key("worlds-shm"));
        assert!(second.has_suite("doc-tests") && !second.skips().is_empty());
    }

    #[test]
    fn suites_that_take_turns_are_in_the_table() {
        let names: BTreeSet<_> = SUITES.iter().map(|suite| suite.name).collect();
        for unit in UNITS.iter().filter(|unit| matches!(unit.what, What::Suite)) {
            assert!(names.contains(unit.name), "{}", unit.name);
            let suite = SUITES.iter().find(|suite| suite.name == unit.name).unwrap();
            let budget = suite.quick.unwrap().as_secs();
            assert!(
                unit.seconds <= budget,
                "{}: a turn of {} s, a budget of {budget} s",
                unit.name,
                unit.seconds
            );
        }
        assert!(UNITS.iter().map(|unit| unit.name).collect::<BTreeSet<_>>().len() == UNITS.len());
    }

    /// In every run: one world of each provider, and the one between users.
    const ALWAYS: [&str; 5] = ["auto", "loopback", "ofi_tcp", "shm", "shm_isolated"];

    #[test]
    fn every_world_is_in_every_run_or_takes_turns() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/tests/main.rs");
        let text = fs::read_to_string(file).unwrap();
        let there: BTreeSet<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("viaduct_conformance::suite!(")?.strip_suffix(");"))
            .map(|world| format!("{world}::"))
            .collect();
        let turning = UNITS.iter().filter_map(|unit| match unit.what {
            What::Tests(CONFORMANCE, starts) => Some(starts),
            _ => None,
        });
        let turning: BTreeSet<String> = turning.flatten().map(|start| (*start).to_owned()).collect();
        let always = ALWAYS.iter().map(|world| format!("{world}::"));
        assert_eq!(there, always.chain(turning.iter().cloned()).collect());
    }

    #[test]
    fn tests_that_take_turns_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for unit in UNITS {
            let What::Tests(package, starts) = unit.what else { continue };
            let folder = match package {
                CONFORMANCE => continue,
                FAULTS => "tests/faults/tests",
                _ => "crates/viaduct/tests",
            };
            for start in starts {
                let (file, test) = start.split_once("::").unwrap();
                let text = fs::read_to_string(root.join(folder).join(file).with_extension("rs")).unwrap();
                assert!(text.contains(test), "{start}");
            }
        }
    }
}
