//! The counters page: what every NIC and every layer of a process has done, readable from outside at no cost to the process.
//!
//! One sealed memfd per process holds a versioned header (process, job, rank) and slots of counters. A NIC has a
//! [`CounterSlot`] with the counters of [`Counter`], to which its owner adds with plain stores (one writer per slot). Any
//! other layer opens a [`LayerSlot`], whose counters it names itself. Readers such as `viaduct stat` find the page through
//! `/proc/PID/fd` and map it read only ([`read`]). Nothing has a name in the file system, so nothing stays behind.
//!
//! ```text
//!   header  magic, version, slots, words of a slot, process, rank + 1 or 0, job (3 words)
//!   slot    state, layer (3 words), 60 counts                                          state 1: a NIC
//!           state, layer (3 words), 15 counts, 15 names (3 words each)     state 2 and above: a layer with state - 2 counters
//! ```

pub mod read;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use viaduct_os::budget::Budget;
use viaduct_os::fork;
use viaduct_os::segment::Segment;

use crate::raw;

/// Name of the segment, by which readers find it.
pub const SEGMENT_NAME: &str = "viaduct-counters";
/// First word of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"viaductc");
/// Version of the layout.
pub const VERSION: u64 = 2;
/// NICs and layers of one process that have a slot; more go uncounted.
pub const SLOTS: usize = 64;
/// Words of a slot: state, layer (3 words), counters.
const SLOT_WORDS: usize = 64;
const SLOT_HEADER: usize = 4;
/// Counters of a slot.
pub(crate) const COUNTS: usize = SLOT_WORDS - SLOT_HEADER;
/// Words before the first slot.
const HEADER_WORDS: usize = 64;
/// Place of the rank in the header, of which one more is written; 0 is none.
const RANK: usize = 5;
/// Place of the job's name in the header.
const JOB: usize = 6;
/// Words of a name.
const NAME_WORDS: usize = 3;
/// State of the slot of a NIC.
const OF_NIC: u64 = 1;
/// State of the slot of a layer without counters; each counter adds one.
const OF_LAYER: u64 = 2;
/// Counters of a layer.
pub const LAYER_COUNTS: usize = COUNTS / (1 + NAME_WORDS);

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
    ///
    /// # Errors
    /// The system's, if there is no memory for the page.
    pub fn open(provider: &str) -> Result<CounterSlot, viaduct_os::error::OsError> {
        let slot = Arc::new(Slot::open(provider, OF_NIC)?);
        let counts =
            raw::Counts::new(slot.words()[SLOT_HEADER..].try_into().expect("a slot has this many words"));
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

/// The counters of a layer that is no NIC, with names of its own. Clones are the same slot; any thread may count.
#[derive(Clone, Debug)]
pub struct LayerSlot {
    slot: Arc<Slot>,
    count: usize,
}

impl LayerSlot {
    /// A slot for `layer` with these counters, of which [`LAYER_COUNTS`] are kept; of a name, 24 bytes.
    ///
    /// # Errors
    /// If memory for the page is short.
    pub fn open(layer: &str, names: &[&str]) -> Result<LayerSlot, viaduct_os::error::OsError> {
        let names = &names[..names.len().min(LAYER_COUNTS)];
        let slot = Slot::prepare(layer)?;
        for (index, name) in names.iter().enumerate() {
            let at = SLOT_HEADER + LAYER_COUNTS + index * NAME_WORDS;
            write_name(&slot.words()[at..at + NAME_WORDS], name);
        }
        slot.publish(OF_LAYER + names.len() as u64);
        Ok(LayerSlot { slot: Arc::new(slot), count: names.len() })
    }

    /// Adds to the counter with this place in the list of names; there is none beyond it.
    pub fn add(&self, index: usize, n: u64) {
        if index < self.count {
            self.slot.words()[SLOT_HEADER + index].fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The value of a counter; 0 for one that there is not.
    pub fn read(&self, index: usize) -> u64 {
        if index < self.count { self.slot.words()[SLOT_HEADER + index].load(Ordering::Relaxed) } else { 0 }
    }
}

/// Says which rank of which job this process is: readers show it beside every slot.
///
/// # Errors
/// If memory for the page is short.
pub fn join_job(job: &str, rank: usize) -> Result<(), viaduct_os::error::OsError> {
    let page = process_page()?;
    let words = raw::words(&page.segment);
    write_name(&words[JOB..JOB + NAME_WORDS], job);
    words[RANK].store(rank as u64 + 1, Ordering::Release);
    Ok(())
}

/// Writes as much of a name as its words hold, whole characters only.
fn write_name(words: &[AtomicU64], name: &str) {
    let mut bytes = [0u8; NAME_WORDS * 8];
    let longest = name.len().min(bytes.len());
    let n = (0..=longest).rev().find(|&n| name.is_char_boundary(n)).unwrap_or(0);
    bytes[..n].copy_from_slice(&name.as_bytes()[..n]);
    for (word, part) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_le_bytes(part.try_into().expect("chunks of 8")), Ordering::Relaxed);
    }
}

impl Slot {
    /// A slot of the page, or one of our own if that is full.
    fn open(layer: &str, state: u64) -> Result<Slot, viaduct_os::error::OsError> {
        let slot = Slot::prepare(layer)?;
        slot.publish(state);
        Ok(slot)
    }

    /// A slot that readers do not see yet.
    fn prepare(layer: &str) -> Result<Slot, viaduct_os::error::OsError> {
        let page = process_page()?;
        let index = {
            let mut used = page.used.lock().unwrap_or_else(|e| e.into_inner());
            let free = used.iter().position(|u| !u);
            if let Some(i) = free {
                used[i] = true;
            }
            free
        };
        let own = (0..SLOT_WORDS).map(|_| AtomicU64::new(0)).collect();
        let slot = Slot { page, index, own };
        slot.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        write_name(&slot.words()[1..SLOT_HEADER], layer);
        Ok(slot)
    }

    fn publish(&self, state: u64) {
        self.words()[0].store(state, Ordering::Release);
    }

    fn words(&self) -> &[AtomicU64] {
        match self.index {
            Some(i) => self.page.slot(i),
            None => &self.own,
        }
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

#[cfg(test)]
mod tests {
    use super::read::{SlotCounters, read_process};
    use super::*;

    fn own(layer: &str) -> Vec<SlotCounters> {
        read_process(std::process::id()).into_iter().filter(|slot| slot.layer == layer).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn counts_are_seen_through_proc() {
        let slot = CounterSlot::open("testing").unwrap();
        slot.add(Counter::Sends, 3);
        slot.add(Counter::Yields, 1);
        let mine = own("testing");
        assert_eq!(mine.len(), 1);
        assert_eq!((mine[0].value("sends"), mine[0].value("yields")), (Some(3), Some(1)));
        assert_eq!(mine[0].counts.len(), Counter::ALL.len());
        drop(slot);
        assert!(own("testing").is_empty());
        assert_eq!(Counter::BytesSent.name(), "bytes-sent");
        const { assert!(Counter::ALL.len() + SLOT_HEADER <= SLOT_WORDS) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn a_layer_names_its_own_counters() {
        let names = ["claims", "upgrades that have a long name", "k\u{f6}ln"];
        let slot = LayerSlot::open("layer-test", &names).unwrap();
        slot.add(0, 2);
        slot.clone().add(2, 40);
        slot.add(3, 7);
        let [seen] = &own("layer-test")[..] else { panic!("one slot") };
        let counts: Vec<(&str, u64)> = seen.counts.iter().map(|(name, value)| (&**name, *value)).collect();
        assert_eq!(counts, [("claims", 2), ("upgrades that have a lon", 0), ("k\u{f6}ln", 40)]);
        assert_eq!((slot.read(0), slot.read(2), slot.read(3)), (2, 40, 0));
        drop(slot);
        assert!(own("layer-test").is_empty());
        let many: Vec<&str> = (0..40).map(|_| "x").collect();
        let slot = LayerSlot::open("layer-many", &many).unwrap();
        slot.add(LAYER_COUNTS, 1);
        assert_eq!(own("layer-many")[0].counts.len(), LAYER_COUNTS);
        let none = LayerSlot::open("layer-none", &[]).unwrap();
        assert!(own("layer-none")[0].counts.is_empty());
        drop(none);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn slots_say_which_rank_of_which_job_their_process_is() {
        let slot = LayerSlot::open("job-test", &["one"]).unwrap();
        join_job("v00c0ffee", 3).unwrap();
        let seen = own("job-test");
        assert_eq!((seen[0].job.as_deref(), seen[0].rank), (Some("v00c0ffee"), Some(3)));
        drop(slot);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn more_slots_than_the_page_has_count_for_themselves() {
        let all: Vec<LayerSlot> = (0..SLOTS + 2).map(|_| LayerSlot::open("crowd", &["n"]).unwrap()).collect();
        all.iter().for_each(|slot| slot.add(0, 5));
        assert!(all.iter().all(|slot| slot.read(0) == 5));
        let seen = own("crowd");
        assert!(seen.len() <= SLOTS && seen.iter().all(|slot| slot.value("n") == Some(5)));
    }
}
