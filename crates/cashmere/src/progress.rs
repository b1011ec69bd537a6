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
        let mut line = format!("{:.4} {} ", self.share.get(), self.barriers.get()).into_bytes();
        line.resize(LENGTH, b' ');
        // A launcher that is gone needs nothing.
        let _ = file.write_at(&line, 0);
    }
}

/// What a file of progress says: the share that is done, and barriers; None before the first word.
pub fn read(path: &Path) -> Option<(f64, u64)> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_read() {
        let folder = viaduct_kit::tempdir::TempDir::new("progress");
        let path = folder.path().join("progress");
        std::fs::write(&path, "").expect("a file");
        assert_eq!(read(&path), None);
        let progress = Progress::to(&path);
        progress.share(0.25);
        assert_eq!(read(&path), Some((0.25, 0)));
        progress.barrier();
        assert_eq!(read(&path), Some((0.25, 0)), "too soon to say more");
        progress.said.set(None);
        progress.barrier();
        assert_eq!(read(&path), Some((0.25, 2)));
    }
}
