//! Jobs that run on this host: each launcher and each node of a job keeps a door in the user's run-time folder, behind
//! which one learns what runs and may send it signals. `viaduct ps` and `viaduct kill` knock there.
//!
//! Only the owner gets through: the folder is private, and the kernel names the user of each caller.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::{process, runtime_dir};

use crate::error::Error;
use crate::outcome::Outcome;
use crate::plan::NodePlan;

/// Longest answer.
const LONGEST: usize = 64 << 10;
/// Guests at a time.
const MOST_GUESTS: usize = 64;
/// How long a guest waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a job says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub job: String,
    /// The process that answers.
    pub pid: u32,
    /// Whether it is the launcher, which knows of all nodes.
    pub launcher: bool,
    /// The program, as far as it is text.
    pub command: String,
    /// Seconds since its start.
    pub seconds: u64,
    /// Ranks in all, and those that still run.
    pub ranks: (u32, u32),
    /// Its hosts, as many as fit.
    pub hosts: Vec<String>,
}

impl Report {
    /// About these nodes.
    pub fn new(plans: &[NodePlan], outcome: &Outcome, begun: Instant) -> Report {
        let running = outcome.fates.iter().filter(|fate| fate.end.is_none()).count();
        Report { launcher: true, ..Report::of(plans, running, begun) }
    }

    /// About these nodes, of whose ranks so many run.
    pub fn of(plans: &[NodePlan], running: usize, begun: Instant) -> Report {
        let words = plans.iter().flat_map(|plan| &plan.programs).next().map(|program| &program.command);
        let words: Vec<_> = words.into_iter().flatten().map(|word| String::from_utf8_lossy(word)).collect();
        Report {
            job: plans.first().map(|plan| plan.job.clone()).unwrap_or_default(),
            pid: std::process::id(),
            launcher: false,
            command: words.join(" ").chars().take(200).collect(),
            seconds: begun.elapsed().as_secs(),
            ranks: (plans.iter().map(|plan| plan.ranks.len() as u32).sum(), running as u32),
            hosts: plans.iter().map(|plan| plan.host.clone()).take(256).collect(),
        }
    }
}

/// What a caller wants.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Wish {
    Report,
    Signal(i32),
}

/// The door of a job.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    epoll: Epoll,
    guests: Vec<Channel>,
}

impl Door {
    /// Opens one for a job, in the run-time folder. `part` tells apart the doors of one job on one host.
    ///
    /// # Errors
    /// If the folder is not ours alone.
    pub fn open(folder: &Path, job: &str, part: &str) -> Result<Door, Error> {
        let failed = |why: viaduct_os::error::OsError| Error::system("the door of the job", why);
        let folder = runtime_dir::runtime_dir(Some(&folder.join("jobs"))).map_err(failed)?;
        let listener = Listener::bind(&folder.join(format!("{job}.{part}"))).map_err(failed)?;
        let epoll = Epoll::new().map_err(failed)?;
        epoll.add(&listener, 0, Interest::Read).map_err(failed)?;
        Ok(Door { listener, epoll, guests: Vec::new() })
    }

    /// Answers all callers; the signals that they want sent.
    pub fn serve(&mut self, report: &Report) -> Vec<i32> {
        let mut signals = Vec::new();
        for _ in 0..MOST_GUESTS {
            let Ok(Some(guest)) = self.listener.accept() else { break };
            let ours = guest.peer().is_ok_and(|peer| peer.uid == process::effective_uid());
            if ours && self.epoll.add(&guest, 1, Interest::Read).is_ok() {
                // The oldest one that said nothing makes room.
                if self.guests.len() >= MOST_GUESTS {
                    self.guests.remove(0);
                }
                self.guests.push(guest);
            }
        }
        self.guests.retain(|guest| {
            let mut bytes = [0; 64];
            let wish = match guest.recv(&mut bytes, &mut Vec::new(), 0) {
                Ok(Recv::WouldBlock) => return true,
                Ok(Recv::Message(n)) => postcard::from_bytes(&bytes[..n]),
                _ => return false,
            };
            match wish {
                Ok(Wish::Signal(signal)) => signals.push(signal),
                Ok(Wish::Report) => {}
                Err(_) => return false,
            }
            let answer = postcard::to_stdvec(report).unwrap_or_default();
            let _ = guest.send(&answer, &[]);
            true
        });
        signals
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// What a visit found at one door of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visited {
    /// What the job says of itself.
    pub report: Report,
    /// It was wanted, and told to send its ranks a signal.
    pub signalled: bool,
}

/// Asks every job of this user on this host; only those that `wanted` wants get a signal.
///
/// # Errors
/// If the folder of doors cannot be read.
pub fn visit(folder: &Path, wanted: &dyn Fn(&str) -> Option<i32>) -> Result<Vec<Visited>, Error> {
    let folder = folder.join("jobs");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(Error::system(folder.display().to_string(), why)),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut reports = Vec::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((job, _)) = name.rsplit_once('.') else { continue };
        let signal = wanted(job);
        let wish = signal.map_or(Wish::Report, Wish::Signal);
        // A door without a listener is left from a job that was killed.
        if let Some(report) = knock(&path, wish) {
            reports.push(Visited { report, signalled: signal.is_some() });
        }
    }
    let _ = runtime_dir::sweep(&folder);
    Ok(reports)
}

fn knock(path: &Path, wish: Wish) -> Option<Report> {
    let channel = Channel::connect(path).ok()?;
    channel.send(&postcard::to_stdvec(&wish).ok()?, &[]).ok()?;
    let epoll = Epoll::new().ok()?;
    epoll.add(&channel, 0, Interest::Read).ok()?;
    let (end, mut bytes) = (Instant::now() + PATIENCE, vec![0; LONGEST]);
    loop {
        match channel.recv(&mut bytes, &mut Vec::new(), 0).ok()? {
            Recv::Message(n) => return postcard::from_bytes(&bytes[..n]).ok(),
            Recv::Closed => return None,
            Recv::WouldBlock => {
                epoll.wait(&mut Vec::new(), Some(end.checked_duration_since(Instant::now())?)).ok()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn a_job_reports_and_takes_signals() {
        let folder = TempDir::new("door");
        let mut door = Door::open(folder.path(), "job1", "0").unwrap();
        let report = Report::of(&[], 0, Instant::now());
        let path = folder.path().to_owned();
        let visitor = std::thread::spawn(move || visit(&path, &|job| (job == "job1").then_some(15)).unwrap());
        let mut signals = Vec::new();
        while !visitor.is_finished() {
            signals.extend(door.serve(&report));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(visitor.join().unwrap(), [Visited { report, signalled: true }]);
        assert_eq!(signals, [15]);
    }

    #[test]
    fn no_jobs_is_no_error() {
        let folder = TempDir::new("door");
        assert_eq!(visit(folder.path(), &|_| None).unwrap(), []);
    }
}
