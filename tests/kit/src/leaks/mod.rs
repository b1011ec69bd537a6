//! What a test left behind: descriptors, mappings, processes, files, threads.
//!
//! [`LeakCheck`] compares the whole process before and after, so the test must have the process for itself: write it
//! with [`isolated!`](crate::isolated!) or in a [`child!`](crate::child!). What a kernel or a library ends a moment
//! later (a thread on its way out, a child about to die) is given time to settle.

mod snapshot;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpid, set_child_subreaper};

use crate::effort::scaled;
use snapshot::Snapshot;

pub use snapshot::{Process, descendants};

/// How long a difference may take to go away by itself.
const SETTLE: Duration = Duration::from_secs(5);

/// A state of the process to which the test has to come back.
///
/// ```
/// # use viaduct_kit::leaks::LeakCheck;
/// let leaks = LeakCheck::start();
/// // ... open, connect, close ...
/// leaks.finish();
/// ```
#[derive(Debug)]
#[must_use = "a leak check that is not finished checks nothing"]
pub struct LeakCheck {
    options: Options,
    before: Snapshot,
}

impl LeakCheck {
    /// Remembers the present state: descriptors, mappings named after viaduct, processes below this one, threads.
    pub fn start() -> Self {
        Options::default().start()
    }

    /// Like [`start`](Self::start), and remembers the files below these folders, such as the run-time folder.
    pub fn start_with_folders<P: Into<PathBuf>>(folders: impl IntoIterator<Item = P>) -> Self {
        Options { folders: folders.into_iter().map(Into::into).collect(), ..Options::default() }.start()
    }

    /// Makes this process the parent of every orphan below it, so that a process which outlives the one that
    /// started it is seen here instead of vanishing to the system's first process. Ended orphans do not count.
    pub fn adopt_orphans(mut self) -> Self {
        set_child_subreaper(Some(getpid())).expect("any process may adopt");
        self.options.adopt = true;
        self
    }

    /// Changes how long a difference may take to go away.
    pub fn settle(mut self, limit: Duration) -> Self {
        self.options.settle = limit;
        self
    }

    /// Asserts that the state is as it was.
    ///
    /// # Panics
    ///
    /// If it is not, even after a while; the message shows what came (`+`) and what went (`-`).
    pub fn finish(self) {
        if let Some(difference) = self.difference() {
            panic!("something was left behind:\n{difference}");
        }
    }

    /// What differs after having settled; `None` if nothing does.
    pub fn difference(&self) -> Option<String> {
        let end = Instant::now() + scaled(self.options.settle);
        let mut pause = Duration::from_millis(1);
        loop {
            let difference = self.before.difference(&self.options.look());
            if difference.is_empty() {
                return None;
            }
            if Instant::now() >= end {
                return Some(difference.join("\n"));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}

#[derive(Debug)]
struct Options {
    folders: Vec<PathBuf>,
    adopt: bool,
    settle: Duration,
}

impl Options {
    fn start(self) -> LeakCheck {
        let before = self.look();
        LeakCheck { options: self, before }
    }

    fn look(&self) -> Snapshot {
        Snapshot::take(&self.folders, self.adopt)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { folders: Vec::new(), adopt: false, settle: SETTLE }
    }
}
