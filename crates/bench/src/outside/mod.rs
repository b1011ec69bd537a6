//! Programs of others, unmodified, over TCP and over Viaduct in one run: file transfer and remote procedure calls (SOVIA,
//! sections 5.3 and 5.4), and servers of today.
//!
//! ```text
//!  mod.rs     the ways to run a program, and how they take turns
//!  ftp.rs     vsftpd and curl       rpc.rs   rpcgen on libtirpc       apps.rs   redis, memcached, nginx, postgresql
//!  plain.rs   a C program with send and recv: small messages, a stream, short connections
//! ```
//!
//! Each way has a server of its own for the whole run; clients take turns, so that a busy moment hits all alike. A ratio is
//! taken round by round.

mod apps;
mod ftp;
mod plain;
mod rpc;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use viaduct_results::schema::Line;
use viaduct_results::table::{Better, Table};

use crate::error::{Error, Result};
use crate::rivals::Launcher;
use crate::rivals::child::{Running, failed};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programs {
    /// File transfer, the paper's table I.
    Ftp,
    /// Remote procedure calls, the paper's figure 10.
    Rpc,
    /// Servers of today.
    Apps,
}

impl Programs {
    /// The one of this name.
    pub fn find(name: &str) -> Option<Programs> {
        [Programs::Ftp, Programs::Rpc, Programs::Apps].into_iter().find(|which| which.name() == name)
    }

    /// Its name, which is that of its table, too.
    pub fn name(self) -> &'static str {
        match self {
            Programs::Ftp => "ftp",
            Programs::Rpc => "rpc",
            Programs::Apps => "apps",
        }
    }
}

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunWay {
    /// As it is.
    Tcp,
    /// Kernel TCP with the library's way of waiting: `viaduct run --no-upgrade`.
    Spinning,
    /// `viaduct run`.
    Viaduct,
}

impl RunWay {
    pub(crate) const ALL: [RunWay; 3] = [RunWay::Tcp, RunWay::Spinning, RunWay::Viaduct];

    pub(crate) fn row(self) -> &'static str {
        match self {
            RunWay::Tcp => "TCP",
            RunWay::Spinning => "TCP, spinning",
            RunWay::Viaduct => "Viaduct",
        }
    }

    /// The rows that its ratios are taken against.
    pub(crate) fn against(self) -> &'static [&'static str] {
        match self {
            RunWay::Tcp => &[],
            RunWay::Spinning => &["TCP"],
            RunWay::Viaduct => &["TCP", "TCP, spinning"],
        }
    }
}

/// What all need.
#[derive(Debug)]
pub struct Ground {
    /// How programs are started.
    pub launcher: Launcher,
    /// A folder of this run, in memory where there is one.
    pub folder: PathBuf,
    /// How often each is measured, after one time that does not count.
    pub rounds: usize,
    /// A first impression is enough: less work in each round.
    pub quick: bool,
    /// The name of the agent that upgrades connections: this run's own.
    pub agent: String,
    /// How many connections the agent of a name has upgraded.
    pub upgraded: fn(&str) -> u64,
}

impl Ground {
    /// Where a program is; the error says how to get it.
    pub(crate) fn need(&self, program: &str, package: &str) -> Result<PathBuf> {
        let system = ["/usr/sbin", "/sbin"].map(|folder| PathBuf::from(folder).join(program));
        let found = self.launcher.find(program).or_else(|| system.into_iter().find(|file| file.is_file()));
        found.ok_or_else(|| {
            Error::usage(format!("{program} is not installed"), format!("apt-get install {package}"))
        })
    }

    /// A program in this way, with an agent that is this run's own.
    fn words(&self, way: RunWay, tool: &Path, args: &[String]) -> (PathBuf, Vec<String>) {
        let mut words = vec![format!("VIADUCT_CLAIM={}", self.agent)];
        if way != RunWay::Tcp {
            words.extend([self.launcher.program.display().to_string(), "run".into()]);
            words.extend((way == RunWay::Spinning).then(|| "--no-upgrade".into()));
            words.push("--".into());
        }
        words.push(tool.display().to_string());
        words.extend(args.iter().cloned());
        ("/usr/bin/env".into(), words)
    }

    /// Starts a server and waits until its port answers.
    pub(crate) fn server(&self, way: RunWay, tool: &Path, args: &[String], port: u16) -> Result<Running> {
        let (env, words) = self.words(way, tool, args);
        let mut server = self.launcher.start(None, &env, &words)?;
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if server.has_ended() || Instant::now() > end {
                return Err(failed(&tool.display().to_string(), "does not answer"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Runs a client to its end; what it said.
    pub(crate) fn client(&self, way: RunWay, tool: &Path, args: &[String]) -> Result<String> {
        let (env, words) = self.words(way, tool, args);
        self.launcher.whole(None, &env, &words, PATIENCE)
    }

    /// As [`client`](Self::client), for a figure of what upgraded connections give: without one it would be a figure of TCP, and is
    /// an error. Says how many there were.
    pub(crate) fn counted(
        &self,
        way: RunWay,
        tool: &Path,
        args: &[String],
        upgraded: &Upgraded,
    ) -> Result<String> {
        let before = (self.upgraded)(&self.agent);
        let said = self.client(way, tool, args)?;
        if way == RunWay::Viaduct {
            let count = (self.upgraded)(&self.agent).saturating_sub(before);
            if count == 0 {
                return Err(failed(&tool.display().to_string(), "had no connection upgraded"));
            }
            upgraded.0.set(Some(count));
        }
        Ok(said)
    }
}

/// How many connections of the last run were upgraded, where that is counted.
#[derive(Clone, Default)]
pub(crate) struct Upgraded(Rc<Cell<Option<u64>>>);

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One value: a row and a column of the table, and how it is measured once.
pub(crate) struct Subject<'a> {
    pub(crate) row: String,
    pub(crate) column: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// The rows that ratios are taken against.
    pub(crate) against: &'static [&'static str],
    pub(crate) upgraded: Upgraded,
    pub(crate) run: Box<dyn FnMut() -> Result<f64> + 'a>,
}

/// Measures, and hands out lines.
///
/// # Errors
/// If a program is missing or does not start.
pub fn run(which: Programs, ground: &Ground, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<Line>> {
    match which {
        Programs::Ftp => ftp::run(ground, progress),
        Programs::Rpc => rpc::run(ground, progress),
        Programs::Apps => apps::run(ground, progress),
    }
}

/// A table for `which`.
pub(crate) fn table(which: Programs, ground: &Ground) -> Table {
    let config = BTreeMap::from([("rounds".to_owned(), ground.rounds.to_string())]);
    Table::new(which.name(), config)
}

/// Lets all subjects take turns. One that fails is left out from then on, and its cell says why.
pub(crate) fn turns(
    table: &Table,
    rounds: usize,
    subjects: &mut [Subject<'_>],
    progress: &mut dyn FnMut(&str, f64),
) -> Vec<Line> {
    let mut taken: Vec<Result<Vec<f64>>> = subjects.iter().map(|_| Ok(Vec::new())).collect();
    let mut counts = vec![Vec::new(); subjects.len()];
    let steps = ((rounds + 1) * subjects.len()) as f64;
    for round in 0..=rounds {
        for (index, (subject, taken)) in subjects.iter_mut().zip(&mut taken).enumerate() {
            progress(&subject.column, (round * index) as f64 / steps);
            let Ok(values) = taken else { continue };
            match (subject.run)() {
                Ok(value) if round > 0 => {
                    values.push(value);
                    counts[index].extend(subject.upgraded.0.take().map(|count| count as f64));
                }
                Ok(_) => {}
                Err(error) => *taken = Err(error),
            }
        }
    }
    let mut lines = Vec::new();
    for ((subject, values), counts) in subjects.iter().zip(&taken).zip(&counts) {
        let place = table.cell(&subject.row, &subject.column, subject.unit, subject.better);
        lines.push(match values {
            Ok(values) => place.of(values),
            Err(error) => place.missing(error.to_string()),
        });
        if values.is_ok() && !counts.is_empty() {
            let column = format!("{}, upgraded", subject.column);
            lines.push(table.cell(&subject.row, column, "connections", Better::More).of(counts));
        }
        for row in subject.against {
            let like = |other: &Subject<'_>| other.row == *row && other.column == subject.column;
            let base = subjects.iter().position(like).and_then(|place| taken[place].as_ref().ok());
            if let (Ok(values), Some(base)) = (values, base) {
                let column = format!("{}, times {row}", subject.column);
                let place = table.cell(&subject.row, column, "", Better::More);
                lines.push(place.of(&ratios(subject.better, values, base)));
            }
        }
    }
    lines
}

/// How many times as good each round was.
fn ratios(better: Better, values: &[f64], base: &[f64]) -> Vec<f64> {
    let ratio = |(&value, &base): (&f64, &f64)| match better {
        Better::Less => base / value,
        _ => value / base,
    };
    values.iter().zip(base).map(ratio).collect()
}

/// A port that was free a moment ago, below those that the kernel gives to clients.
pub(crate) fn free_port() -> Result<u16> {
    let start = (std::process::id() % 20_000) as u16;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = (0..20_000).map(|number| 10_000 + (start + number) % 20_000);
    ports.into_iter().find(free).ok_or_else(|| failed("the kernel", "has no free port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject<'a>(row: &str, value: impl FnMut() -> Result<f64> + 'a) -> Subject<'a> {
        let against: &[_] = if row == "TCP" { &[] } else { &["TCP"] };
        let (row, column) = (row.to_owned(), "time".to_owned());
        let upgraded = Upgraded::default();
        Subject { row, column, unit: "us", better: Better::Less, against, upgraded, run: Box::new(value) }
    }

    #[test]
    fn values_take_turns_and_ratios_are_of_one_round() {
        let table = Table::new("t", BTreeMap::new());
        let (mut slow, mut fast) = (0.0, 0.0);
        let mut subjects = [
            subject("TCP", || {
                slow += 10.0;
                Ok(slow)
            }),
            subject("Viaduct", || {
                fast += 1.0;
                Ok(fast)
            }),
            subject("broken", || Err(failed("it", "does not work"))),
        ];
        let lines = turns(&table, 3, &mut subjects, &mut |_, _| ());
        drop(subjects);
        let cells: Vec<_> = lines
            .iter()
            .map(|line| match line {
                Line::Cell(cell) => {
                    (cell.row.as_str(), cell.column.as_str(), cell.value, cell.missing.is_some())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = [
            ("TCP", "time", Some(30.0), false),
            ("Viaduct", "time", Some(3.0), false),
            ("Viaduct", "time, times TCP", Some(10.0), false),
            ("broken", "time", None, true),
        ];
        assert_eq!(cells, wanted);
    }

    #[test]
    fn names_are_found() {
        assert_eq!(Programs::find("rpc"), Some(Programs::Rpc));
        assert_eq!(Programs::find("latency"), None);
    }
}
