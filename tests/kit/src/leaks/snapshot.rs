//! One look at the process, taken from /proc, and the difference of two.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::watchdog::KIT_THREAD;

/// Mappings are counted if their name has this in it.
const MAPPING: &str = "viaduct";

/// A process below this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
    /// Whether it has ended and its parent has not asked for its status yet.
    pub ended: bool,
}

/// Everything a leak check compares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    fds: BTreeMap<u32, String>,
    maps: BTreeMap<String, u64>,
    processes: BTreeSet<Process>,
    files: BTreeSet<PathBuf>,
    threads: Vec<String>,
}

impl Snapshot {
    pub(super) fn take(folders: &[PathBuf], ignore_ended: bool) -> Self {
        let mut files = BTreeSet::new();
        for folder in folders {
            files_below(folder, &mut files);
        }
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc/self/maps is readable");
        let binary = env::current_exe().unwrap_or_default();
        let mut processes = descendants(process::id());
        processes.retain(|process| !(ignore_ended && process.ended));
        Self {
            fds: open_fds(),
            maps: named_maps(&maps, &binary.to_string_lossy()),
            processes: processes.into_iter().collect(),
            files,
            threads: threads(),
        }
    }

    /// One line per thing that came or went.
    pub(super) fn difference(&self, after: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let fd = |(fd, target): (&u32, &String)| format!("fd {fd} -> {target}");
        compare(self.fds.iter().map(fd), after.fds.iter().map(fd), &mut lines);
        let map = |(name, bytes): (&String, &u64)| format!("mapping {name}, {bytes} bytes");
        compare(self.maps.iter().map(map), after.maps.iter().map(map), &mut lines);
        let process = |process: &Process| {
            let state = if process.ended { ", ended but not waited for" } else { "" };
            format!("process {} {}{state}", process.pid, process.name)
        };
        compare(self.processes.iter().map(process), after.processes.iter().map(process), &mut lines);
        let file = |file: &PathBuf| format!("file {}", file.display());
        compare(self.files.iter().map(file), after.files.iter().map(file), &mut lines);
        if self.threads.len() != after.threads.len() {
            let (before, now) = (self.threads.join(", "), after.threads.join(", "));
            lines.push(format!("  threads: {} before ({before})", self.threads.len()));
            lines.push(format!("           {} now ({now})", after.threads.len()));
        }
        lines
    }
}

/// All processes below `root`, children of children too.
pub fn descendants(root: u32) -> Vec<Process> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, ended, parent)) = parse_stat(&stat) else { continue };
        all.push((parent, Process { pid, name, ended }));
    }
    let (mut family, mut found) = (BTreeSet::from([root]), Vec::new());
    loop {
        let (below, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(parent, _)| family.contains(parent));
        if below.is_empty() {
            return found;
        }
        family.extend(below.iter().map(|(_, process)| process.pid));
        found.extend(below.into_iter().map(|(_, process)| process));
        all = rest;
    }
}

/// Name, whether ended, and parent out of a line of /proc/PID/stat.
fn parse_stat(stat: &str) -> Option<(String, bool, u32)> {
    let (start, rest) = stat.rsplit_once(')')?;
    let name = start.split_once('(')?.1.to_owned();
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((name, ended, fields.next()?.parse().ok()?))
}

/// Descriptors and what they are, without the one that reads the list.
fn open_fds() -> BTreeMap<u32, String> {
    let own = format!("/proc/{}/fd", process::id());
    let mut fds = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc/self/fd is readable").flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if target != own {
            fds.insert(fd, target);
        }
    }
    fds
}

/// Bytes mapped per name; by sum, since a change of protection splits a mapping into several lines.
fn named_maps(maps: &str, binary: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in maps.lines() {
        // The name is the sixth field and may hold blanks.
        let mut fields = line.splitn(6, ' ');
        let (Some(range), Some(name)) = (fields.next(), fields.nth(4)) else { continue };
        let name = name.trim_start();
        if !name.contains(MAPPING) || name == binary {
            continue;
        }
        let bound = |text: &str| u64::from_str_radix(text, 16).ok();
        let bytes = range.split_once('-').and_then(|(from, to)| Some(bound(to)? - bound(from)?));
        *sums.entry(name.to_owned()).or_default() += bytes.unwrap_or(0);
    }
    sums
}

fn files_below(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    // A folder that does not exist holds no file, and may come into being later.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        files.insert(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files_below(&entry.path(), files);
        }
    }
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc/self/task is readable").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.retain(|name| !name.starts_with(KIT_THREAD));
    names.sort();
    names
}

fn compare(
    before: impl Iterator<Item = String>,
    after: impl Iterator<Item = String>,
    lines: &mut Vec<String>,
) {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (before.collect(), after.collect());
    lines.extend(before.difference(&after).map(|gone| format!("  - {gone}")));
    lines.extend(after.difference(&before).map(|new| format!("  + {new}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_understood() {
        assert_eq!(parse_stat("7 (a (b) c) S 3 7"), Some(("a (b) c".to_owned(), false, 3)));
        assert_eq!(parse_stat("8 (dead) Z 7 7"), Some(("dead".to_owned(), true, 7)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn mappings_are_summed_by_name() {
        let maps = "1000-3000 rw-s 00000000 00:01 9          /memfd:viaduct ring (deleted)\n\
                    3000-4000 r--s 00002000 00:01 9          /memfd:viaduct ring (deleted)\n\
                    5000-6000 r-xp 00000000 08:01 5          /bin/viaduct-test\n\
                    7000-8000 rw-p 00000000 00:00 0          [heap]\n\
                    8000-9000 rw-p 00000000 00:00 0 \n";
        let sums = named_maps(maps, "/bin/viaduct-test");
        assert_eq!(sums, BTreeMap::from([("/memfd:viaduct ring (deleted)".to_owned(), 0x3000)]));
    }

    #[test]
    fn the_difference_shows_both_sides() {
        let before = Snapshot { fds: BTreeMap::from([(3, "/old".to_owned())]), ..Snapshot::default() };
        let after = Snapshot {
            fds: BTreeMap::from([(3, "/new".to_owned())]),
            threads: vec!["worker".to_owned()],
            ..Snapshot::default()
        };
        let lines = before.difference(&after);
        assert_eq!(lines[..2], ["  - fd 3 -> /old", "  + fd 3 -> /new"]);
        assert!(lines[2].contains("0 before") && lines[3].contains("1 now (worker)"), "{lines:?}");
        assert!(before.difference(&before).is_empty());
    }
}
