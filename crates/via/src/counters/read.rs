//! Reads the counters pages of other processes. What they hold was written by others: bounds and names are checked.

use std::fs;
use std::sync::atomic::Ordering;

use viaduct_os::segment::{Access, Segment};

use super::{
    Counter, HEADER_WORDS, JOB, LAYER_COUNTS, MAGIC, NAME_WORDS, OF_LAYER, OF_NIC, RANK, SEGMENT_NAME,
    SLOT_HEADER, SLOT_WORDS, SLOTS, VERSION,
};
use crate::raw;

/// Counters of one slot of some process: of a NIC, or of another layer.
#[derive(Clone, Debug)]
pub struct SlotCounters {
    /// The process.
    pub pid: u32,
    /// The command it runs.
    pub command: String,
    /// The job that it belongs to, if it says so.
    pub job: Option<String>,
    /// Its rank in the job.
    pub rank: Option<u64>,
    /// Number of the slot within the process.
    pub slot: usize,
    /// The layer that counts; for a NIC, its provider.
    pub layer: String,
    /// The counters by name, in the order of the page.
    pub counts: Vec<(String, u64)>,
}

impl SlotCounters {
    /// The counter with this name, if the slot has it.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
    }
}

/// Reads the counters of every process whose `/proc` entries this user may read.
pub fn scan() -> Vec<SlotCounters> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut all: Vec<SlotCounters> = processes
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .flat_map(read_process)
        .collect();
    all.sort_by_key(|n| (n.pid, n.slot));
    all
}

/// Reads the counters of one process.
pub fn read_process(pid: u32) -> Vec<SlotCounters> {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let command = shown(&fs::read(format!("/proc/{pid}/comm")).unwrap_or_default());
    let ours = |path: &std::path::Path| {
        fs::read_link(path).is_ok_and(|t| t.to_string_lossy().starts_with(&format!("/memfd:{SEGMENT_NAME}")))
    };
    let mut out = Vec::new();
    for fd in fds.flatten().filter(|e| ours(&e.path())) {
        // The process may put anything else there meanwhile, a pipe that nothing is written to among it.
        let Ok(file) = viaduct_os::proc_fd::open_file(&fd.path()) else { continue };
        let Ok(segment) = Segment::open(file, Access::ReadOnly, 1 << 20) else { continue };
        let words = raw::words(&segment);
        let word = |i: usize| words.get(i).map_or(0, |w| w.load(Ordering::Acquire));
        // A page inherited across fork belongs to the parent.
        if word(0) != MAGIC || word(1) != VERSION || word(4) != u64::from(pid) {
            continue;
        }
        let rank = word(RANK).checked_sub(1);
        let job = rank.map(|_| name(&word, JOB));
        for slot in 0..SLOTS {
            let at = HEADER_WORDS + slot * SLOT_WORDS;
            let Some(counts) = counts(&word, at) else { continue };
            let (command, job, layer) = (command.clone(), job.clone(), name(&word, at + 1));
            out.push(SlotCounters { pid, command, job, rank, slot, layer, counts });
        }
    }
    out
}

/// The counters of the slot at this place; none if it is not in use.
fn counts(word: &impl Fn(usize) -> u64, at: usize) -> Option<Vec<(String, u64)>> {
    let first = at + SLOT_HEADER;
    match word(at) {
        0 => None,
        OF_NIC => {
            let all = Counter::ALL.iter().enumerate();
            Some(all.map(|(i, counter)| (counter.name(), word(first + i))).collect())
        }
        state => {
            let count = ((state - OF_LAYER) as usize).min(LAYER_COUNTS);
            let named = |i: usize| name(word, first + LAYER_COUNTS + i * NAME_WORDS);
            Some((0..count).map(|i| (named(i), word(first + i))).collect())
        }
    }
}

fn name(word: &impl Fn(usize) -> u64, at: usize) -> String {
    let bytes: Vec<u8> = (at..at + NAME_WORDS).flat_map(|i| word(i).to_le_bytes()).collect();
    shown(&bytes)
}

/// A name that another process chose, fit to be printed: what a terminal would obey is a question mark.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let text = text.trim_end_matches(['\0', '\n']);
    text.chars().map(|c| if c.is_control() || c == '\u{FFFD}' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_processes_do_not_command_a_terminal() {
        assert_eq!(shown(b"shm\0\0\0"), "shm");
        assert_eq!(shown(b"\x1b[2Jroot\x07\xff\n"), "?[2Jroot??");
        assert_eq!(shown("k\u{f6}ln\u{85}".as_bytes()), "k\u{f6}ln?");
    }

    #[test]
    fn a_slot_that_lies_about_its_counters_shows_no_more_than_there_are() {
        assert_eq!(counts(&|_| 0, 0), None);
        assert_eq!(counts(&|_| u64::MAX, 0).map(|all| all.len()), Some(LAYER_COUNTS));
        assert_eq!(counts(&|_| OF_NIC, 0).map(|all| all.len()), Some(Counter::ALL.len()));
        assert_eq!(counts(&|_| OF_LAYER, 0), Some(Vec::new()));
    }
}
