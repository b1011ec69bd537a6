//! How far the first worker of a run of shared memory has come, shown on a terminal.
//!
//! By a process of its own: the launcher forks, which one with threads must not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use viaduct_cashmere::progress::{self, Said};

use crate::cmd::jobs;
use crate::output::progress::Progress;

const PAUSE: Duration = Duration::from_millis(50);

/// The file that the worker writes to, and the process that shows it.
pub(crate) struct Follow {
    path: PathBuf,
    child: Child,
}

impl Follow {
    pub(crate) fn new() -> Result<Follow> {
        let path = jobs::folder()?.join(format!("progress.{}", std::process::id()));
        std::fs::write(&path, "").with_context(|| format!("making {}", path.display()))?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["dsm", "sor", "--follow"]).arg(&path);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Ok(Follow { child: child.context("starting what shows the progress")?, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // The launcher may have ended it in the middle of a line.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}

/// Shows what the file says, until it says no more, is gone, or the launcher is.
pub(crate) fn show(path: &Path) {
    let parent = std::os::unix::process::parent_id();
    let mut bar: Option<Progress> = None;
    while std::os::unix::process::parent_id() == parent {
        match progress::read(path) {
            Some(Said::Share { share, barriers }) => {
                let bar = bar.get_or_insert_with(|| Progress::new("dsm"));
                bar.show(&format!("{barriers} barriers"), share);
            }
            Some(Said::End) => break,
            None if !path.exists() => break,
            None => {}
        }
        std::thread::sleep(PAUSE);
    }
    if let Some(bar) = bar {
        bar.clear();
    }
}
