//! How far a program has come: the first worker says it in a file that the launcher shows on a terminal.
//!
//! Seldom enough to cost nothing: a look at the clock at a barrier, a write every fifth of a second.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer says nothing more.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of the file.
const LENGTH: usize = 40;
/// How long a worker gives the launcher to take its words off the terminal.
const FAREWELL: Duration = Duration::from_millis(150);
const END: &str = "end";

pub(crate) struct Progress {
    file: Option<File>,
    said: Cell<Option<Instant>>,
    share: Cell<f64>,
    barriers: Cell<u64>,
}

impl Progress {
    /// Says nothing.
    pub(crate) fn none() -> Progress {
        Progress { file: None, said: Cell::default(), share: Cell::new(0.0), barriers: Cell::default() }
    }

    /// Says it in a file, which the launcher has made. One that cannot be opened is no reason to stop.
    pub(crate) fn to(path: &Path) -> Progress {
        Progress { file: File::options().write(true).open(path).ok(), ..Progress::none() }
    }

    /// The share of the work that is done.
    pub(crate) fn share(&self, share: f64) {
        self.share.set(share.clamp(0.0, 1.0));
        self.say();
    }

    /// Another barrier is behind us.
    pub(crate) fn barrier(&self) {
        self.barriers.set(self.barriers.get() + 1);
        self.say();
    }

    fn say(&self) {
        let Some(file) = &self.file else { return };
        let now = Instant::now();
        if self.said.get().is_some_and(|said| now - said < PAUSE) {
            return;
        }
        self.said.set(Some(now));
        write(file, &format!("{:.4} {}", self.share.get(), self.barriers.get()));
    }

    /// The program has done its work, and prints what it found.
    pub(crate) fn end(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.said.get().is_some()) {
            write(file, END);
            std::thread::sleep(FAREWELL);
        }
    }
}

fn write(file: &File, words: &str) {
    // A launcher that is gone needs nothing.
    let _ = file.write_at(format!("{words:LENGTH$}").as_bytes(), 0);
}

/// What a file of progress says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Said {
    /// How far the program is.
    Share {
        /// The share of the work that is done.
        share: f64,
        /// Barriers that are behind the first worker.
        barriers: u64,
    },
    /// It is done.
    End,
}

/// Reads a file of progress; None before the first word.
pub fn read(path: &Path) -> Option<Said> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    match words.next()? {
        END => Some(Said::End),
        share => Some(Said::Share { share: share.parse().ok()?, barriers: words.next()?.parse().ok()? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_that_was_said_is_read() {
        let folder = viaduct_kit::tempdir::TempDir::new("progress");
        let path = folder.path().join("progress");
        std::fs::write(&path, "").expect("a file");
        assert_eq!(read(&path), None);
        let progress = Progress::to(&path);
        progress.share(0.25);
        let share = |share, barriers| Some(Said::Share { share, barriers });
        assert_eq!(read(&path), share(0.25, 0));
        progress.barrier();
        assert_eq!(read(&path), share(0.25, 0), "too soon to say more");
        progress.said.set(None);
        progress.barrier();
        assert_eq!(read(&path), share(0.25, 2));
        progress.end();
        assert_eq!(read(&path), Some(Said::End));
    }
}
