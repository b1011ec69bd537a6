//! The counters page: what every NIC of a process has done, readable from outside at no cost to the process.
//!
//! One sealed memfd per process holds a versioned header and a slot of counters per NIC. Its owner adds with plain
//! stores (one writer per slot); readers such as `viaduct stat` find it through `/proc/PID/fd` and map it read only.
//! Nothing has a name in the file system, so nothing stays behind.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use viaduct_os::budget::Budget;
use viaduct_os::fork;
use viaduct_os::segment::{Access, Segment};

use crate::raw;

/// Name of the segment, by which readers find it.
pub const SEGMENT_NAME: &str = "viaduct-counters";
/// First word of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"viaductc");
/// Version of the layout.
pub const VERSION: u64 = 1;
/// NICs of one process that have a slot; more go uncounted.
pub const SLOTS: usize = 64;
/// Words of a slot: state, name (3 words), counters.
const SLOT_WORDS: usize = 64;
const SLOT_HEADER: usize = 4;
/// Counters of a slot.
pub(crate) const COUNTS: usize = SLOT_WORDS - SLOT_HEADER;
/// Words before the first slot: magic, version, slots, words per slot, process id.
const HEADER_WORDS: usize = 64;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        #[allow(missing_docs)]
        pub enum Counter { $($(#[$doc])* $name),* }

        impl Counter {
            /// All of them, in the order of the page.
            pub const ALL: &'static [Counter] = &[$(Counter::$name),*];
        }
    };
}

counters! {
    Sends, Receives, RdmaWrites, RdmaReads, Atomics, InlineSends,
    BytesSent, BytesReceived, BytesWritten, BytesRead,
    Connects, Rejects, Disconnects, Breaks, Flushed, Dropped,
    Regions, ImplicitRegistrations,
    MapHits, MapMisses, MapEvictions,
    DirectCopies, StagedCopies, PulledCopies, KernelCopies, HelperCopies,
    Doorbells, Wakes, Sleeps, Spins, Yields,
}

impl Counter {
    /// Name in tables and JSON, such as `bytes-sent`.
    pub fn name(self) -> String {
        let mut out = String::new();
        for (i, c) in format!("{self:?}").char_indices() {
            if c.is_ascii_uppercase() && i > 0 {
                out.push('-');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }
}

/// The counters of one NIC.
#[derive(Clone, Debug)]
pub struct CounterSlot {
    /// Where the counts are, found once: adding to one is on the data path.
    counts: raw::Counts,
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct Slot {
    page: Arc<Page>,
    index: Option<usize>,
    /// Counts go here when the page has no room.
    own: Box<[AtomicU64]>,
}

#[derive(Debug)]
struct Page {
    segment: Segment,
    used: Mutex<Vec<bool>>,
}

impl CounterSlot {
    /// A slot for a NIC of this provider.
    pub fn open(provider: &str) -> Result<CounterSlot, viaduct_os::error::OsError> {
        let page = process_page()?;
        let index = {
            let mut used = page.used.lock().unwrap_or_else(|e| e.into_inner());
            let free = used.iter().position(|u| !u);
            if let Some(i) = free {
                used[i] = true;
            }
            free
        };
        if let Some(i) = index {
            let words = page.slot(i);
            words.iter().for_each(|w| w.store(0, Ordering::Relaxed));
            let mut name = [0u8; 24];
            let n = provider.len().min(24);
            name[..n].copy_from_slice(&provider.as_bytes()[..n]);
            for (w, b) in words[1..SLOT_HEADER].iter().zip(name.chunks_exact(8)) {
                w.store(u64::from_le_bytes(b.try_into().expect("chunks of 8")), Ordering::Relaxed);
            }
            words[0].store(1, Ordering::Release);
        }
        let own = (0..SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let slot = Arc::new(Slot { page, index, own });
        let words = match slot.index {
            Some(i) => slot.page.slot(i),
            None => &slot.own,
        };
        let counts = raw::Counts::new(words[SLOT_HEADER..].try_into().expect("a slot has this many words"));
        Ok(CounterSlot { counts, slot })
    }

    /// Adds to a counter. One thread at a time counts for a NIC's data path; a lost count from another is harmless.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        let word = self.counts.word(counter as usize, &self.slot);
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Reads a counter.
    pub fn read(&self, counter: Counter) -> u64 {
        self.counts.word(counter as usize, &self.slot).load(Ordering::Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(i) = self.index {
            self.page.slot(i)[0].store(0, Ordering::Release);
            self.page.used.lock().unwrap_or_else(|e| e.into_inner())[i] = false;
        }
    }
}

impl Page {
    fn create() -> Result<Page, viaduct_os::error::OsError> {
        let bytes = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 8;
        let segment = Segment::create(SEGMENT_NAME, bytes, Budget::process())?;
        // A child keeps a private copy, so that a NIC it inherited but may not use can still be dropped.
        segment.private_in_child()?;
        let words = raw::words(&segment);
        words[1].store(VERSION, Ordering::Relaxed);
        words[2].store(SLOTS as u64, Ordering::Relaxed);
        words[3].store(SLOT_WORDS as u64, Ordering::Relaxed);
        words[4].store(u64::from(std::process::id()), Ordering::Relaxed);
        words[0].store(MAGIC, Ordering::Release);
        Ok(Page { segment, used: Mutex::new(vec![false; SLOTS]) })
    }

    #[inline]
    fn slot(&self, i: usize) -> &[AtomicU64] {
        let start = HEADER_WORDS + i * SLOT_WORDS;
        &raw::words(&self.segment)[start..start + SLOT_WORDS]
    }
}

/// The page of this process; a forked child gets its own.
fn process_page() -> Result<Arc<Page>, viaduct_os::error::OsError> {
    static PAGE: Mutex<Option<(u32, Arc<Page>)>> = Mutex::new(None);
    let mut page = PAGE.lock().unwrap_or_else(|e| e.into_inner());
    let generation = fork::generation();
    if let Some((g, p)) = page.as_ref()
        && *g == generation
    {
        return Ok(p.clone());
    }
    let fresh = Arc::new(Page::create()?);
    *page = Some((generation, fresh.clone()));
    Ok(fresh)
}

/// Counters of one NIC of some process.
#[derive(Clone, Debug)]
pub struct NicCounters {
    /// The process.
    pub pid: u32,
    /// The command it runs.
    pub command: String,
    /// Number of the NIC within the process.
    pub nic: usize,
    /// Its provider.
    pub provider: String,
    /// The counts, in the order of [`Counter::ALL`].
    pub values: Vec<u64>,
}

/// Reads the counters of every process whose `/proc` entries this user may read.
pub fn scan() -> Vec<NicCounters> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut all: Vec<NicCounters> = processes
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .flat_map(read_process)
        .collect();
    all.sort_by_key(|n| (n.pid, n.nic));
    all
}

/// Reads the counters of one process.
pub fn read_process(pid: u32) -> Vec<NicCounters> {
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
        for nic in 0..SLOTS {
            let at = HEADER_WORDS + nic * SLOT_WORDS;
            if word(at) != 1 {
                continue;
            }
            let name: Vec<u8> = (1..SLOT_HEADER).flat_map(|i| word(at + i).to_le_bytes()).collect();
            let provider = shown(&name);
            let values = (0..Counter::ALL.len()).map(|i| word(at + SLOT_HEADER + i)).collect();
            out.push(NicCounters { pid, command: command.clone(), nic, provider, values });
        }
    }
    out
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
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn counts_are_seen_through_proc() {
        let slot = CounterSlot::open("testing").unwrap();
        slot.add(Counter::Sends, 3);
        slot.add(Counter::Yields, 1);
        let mine: Vec<_> =
            read_process(std::process::id()).into_iter().filter(|n| n.provider == "testing").collect();
        assert_eq!(mine.len(), 1);
        assert_eq!(mine[0].values[Counter::Sends as usize], 3);
        assert_eq!(mine[0].values[Counter::Yields as usize], 1);
        drop(slot);
        assert!(!read_process(std::process::id()).iter().any(|n| n.provider == "testing"));
        assert_eq!(Counter::BytesSent.name(), "bytes-sent");
        const { assert!(Counter::ALL.len() + SLOT_HEADER <= SLOT_WORDS) };
    }
}
