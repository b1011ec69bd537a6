//! The sort as a whole: what is sorted, how, within which memory.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use viaduct_river::disk::{Direct, Partial};
use viaduct_river::{Delimited, Fixed, KeyRange, RecordFormat};

use crate::Error;
use crate::order::{AnyOrder, FieldsOrder};
use crate::text::{TextKey, TextOrder};

/// Where records come from.
pub enum Input {
    /// A file, or something else with a name.
    Path(PathBuf),
    /// A stream, with a name for messages.
    Stream(PathBuf, Box<dyn Read + Send>),
}

/// Where records go.
pub enum Target {
    /// A file, which has its name once it is complete.
    Path(PathBuf),
    /// A stream, with a name for messages.
    Stream(PathBuf, Box<dyn Write + Send>),
}

/// What is sorted, and by what.
#[derive(Clone, Debug)]
pub enum Records {
    /// Records of one size.
    Fixed {
        /// Bytes of each.
        size: usize,
        /// Fields of the key, the most important first.
        keys: Vec<KeyRange>,
    },
    /// Text, in the order of GNU sort in the C locale.
    Text {
        /// Byte that ends a line.
        mark: u8,
        /// Keys, the most important first; none for whole lines.
        keys: Vec<TextKey>,
        /// Separator of fields; without one, blanks separate.
        tab: Option<u8>,
        /// Greater lines first, where no key decides.
        reverse: bool,
    },
}

impl Default for Records {
    fn default() -> Records {
        let key = KeyRange { offset: 0, len: crate::KEY, descending: false };
        Records::Fixed { size: crate::RECORD, keys: vec![key] }
    }
}

/// How to sort.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is sorted, and by what.
    pub records: Records,
    /// Records with equal keys keep the order of the input; else the rest of the record decides.
    pub stable: bool,
    /// Of records with equal keys only the first is kept.
    pub unique: bool,
    /// The inputs are sorted already: they are merged.
    pub merge: bool,
    /// Bytes of memory to use; 80 % of what is available without.
    pub memory: Option<u64>,
    /// Threads; 0 for one a core.
    pub threads: usize,
    /// Folders for temporary files; empty for the folder of the output.
    pub tmp: Vec<PathBuf>,
    /// Whether files are used past the page cache.
    pub direct: Direct,
    /// Whether order and checksum of the output are proven.
    pub checksum: bool,
    /// What is done with a piece of a record at the end of a file.
    pub partial: Partial,
    /// Whether the sort waits until the disk has the output and its name.
    pub durable: bool,
    /// Whether text where records of one size are expected is an error.
    pub refuse_text: bool,
    /// For tests: sorts in two passes, with partitions of so many bytes at most, records and pairs together.
    #[doc(hidden)]
    pub partition: Option<u64>,
    /// For measurements: all pairs in one bucket, so that they are sorted by comparison alone.
    #[doc(hidden)]
    pub one_bucket: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            records: Records::default(),
            stable: false,
            unique: false,
            merge: false,
            memory: None,
            threads: 0,
            tmp: Vec::new(),
            direct: Direct::Auto,
            checksum: true,
            partial: Partial::Refuse,
            durable: false,
            refuse_text: false,
            partition: None,
            one_bucket: false,
        }
    }
}

impl Settings {
    pub(crate) fn format(&self) -> Arc<dyn RecordFormat> {
        match self.records {
            Records::Fixed { size, .. } => Arc::new(Fixed(size)),
            Records::Text { mark, .. } => Arc::new(Delimited(mark)),
        }
    }

    pub(crate) fn order(&self) -> Result<AnyOrder, Error> {
        // Where only the first of equals is kept, the input says which is the first.
        let stable = self.stable || self.unique;
        match &self.records {
            Records::Fixed { size, keys } => {
                let whole = [KeyRange { offset: 0, len: *size, descending: false }];
                let keys = if keys.is_empty() { &whole[..] } else { keys };
                for key in keys {
                    if !key.is_in(*size) {
                        let (at, len) = (key.offset, key.len);
                        let what = format!("the key {at}:{len} does not lie in records of {size} bytes");
                        return Err(Error::Usage(what));
                    }
                }
                Ok(AnyOrder::Fields(FieldsOrder::new(keys.to_vec(), stable)))
            }
            Records::Text { mark, keys, tab, reverse } => {
                Ok(AnyOrder::Text(TextOrder::new(keys.clone(), *tab, *reverse, stable, *mark)))
            }
        }
    }

    pub(crate) fn threads(&self) -> usize {
        if self.threads > 0 { self.threads } else { viaduct_os::cpu::count() }
    }

    /// These settings with the memory that they come to now.
    pub(crate) fn pinned(&self) -> Settings {
        Settings { memory: Some(self.budget()), ..self.clone() }
    }

    pub(crate) fn budget(&self) -> u64 {
        self.memory.unwrap_or_else(|| viaduct_os::files::available_memory() / 5 * 4).max(MOST_MODEST)
    }
}

/// The least memory that a sort works with.
pub const MOST_MODEST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_sort_is_what_was_available_when_it_began() {
        let settings = Settings::default().pinned();
        let before = settings.budget();
        let taken = vec![1u8; 64 << 20];
        assert_eq!(settings.budget(), before, "with {} MB taken since", taken.len() >> 20);
        let said = Settings { memory: Some(1 << 30), ..Settings::default() }.pinned();
        assert_eq!(said.budget(), 1 << 30);
    }
}

/// How far a sort is. Shared with the thread that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    stop: AtomicBool,
    phase: AtomicUsize,
    done: AtomicU64,
    total: AtomicU64,
}

/// What a sort does.
pub(crate) const PHASES: [&str; 5] = ["prepare", "read", "distribute", "sort and write", "merge"];

impl Progress {
    /// Asks the sort to end early.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the sort was asked to end.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(viaduct_river::Error::Stopped.into()) } else { Ok(()) }
    }

    /// A new phase, with `total` bytes to do.
    pub(crate) fn enter(&self, phase: usize, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The phase, bytes done and bytes to do.
    pub fn look(&self) -> (&'static str, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (PHASES[self.phase.load(Ordering::Relaxed)], load(&self.done), load(&self.total))
    }
}
