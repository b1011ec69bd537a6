//! How far the first worker of a run of shared memory has come, shown on a terminal by its launcher.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use viaduct_cashmere::progress;
use viaduct_catapult::guard::HANDED_ON;
use viaduct_os::signals::{SignalFd, number};

use crate::cmd::jobs;
use crate::output::progress::Progress;

const PAUSE: Duration = Duration::from_millis(250);

/// A thread that looks at the worker's file, and the file.
pub(crate) struct Follow {
    path: PathBuf,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follow {
    pub(crate) fn new() -> Result<Follow> {
        let path = jobs::folder()?.join(format!("progress.{}", std::process::id()));
        std::fs::write(&path, "").with_context(|| format!("making {}", path.display()))?;
        // The launcher blocks these in its own thread and reads them: one that came to this thread would end it.
        let watched: Vec<i32> = HANDED_ON.into_iter().chain([number::CHLD, number::CONT]).collect();
        drop(SignalFd::block(&watched)?);
        let end = Arc::new(AtomicBool::new(false));
        let (told, file) = (end.clone(), path.clone());
        let thread = std::thread::spawn(move || follow(&file, &told));
        Ok(Follow { path, end, thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Short runs show nothing.
fn follow(path: &Path, end: &AtomicBool) {
    let mut bar: Option<Progress> = None;
    loop {
        std::thread::park_timeout(PAUSE);
        if end.load(Ordering::Acquire) {
            break;
        }
        if let Some((share, barriers)) = progress::read(path) {
            let bar = bar.get_or_insert_with(|| Progress::new("dsm"));
            bar.show(&format!("{barriers} barriers"), share);
        }
    }
    if let Some(bar) = bar {
        bar.clear();
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
