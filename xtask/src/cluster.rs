//! A cluster on this machine for a command: hosts `h0`, `h1` … with a network and an sshd each, gone when it ends.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use viaduct_kit::cluster::Cluster;
use viaduct_kit::leaks::descendants;
use viaduct_kit::tempdir::TempDir;

use crate::progress::say;

pub(crate) fn run(count: u8, words: &[String]) -> Result<ExitCode> {
    let Some((program, words)) = words.split_first() else { bail!("a command is missing") };
    // Agents leave the session that started them; they fall to us, and end with the cluster.
    set_child_subreaper(Some(getpid())).context("adopting orphans")?;
    let Some(cluster) = Cluster::new(count) else {
        bail!("there is no cluster to be had: root, `ip` and `sshd` are needed");
    };
    let folder = TempDir::new("cluster-run");
    say(format_args!("hosts h0 to h{}; ssh is `{}`", count - 1, cluster.ssh()));
    let mut command = Command::new(program);
    command.args(words).env("VIADUCT_SSH", cluster.ssh()).env("VIADUCT_RUNTIME_DIR", folder.join("run"));
    let status = command.status().with_context(|| format!("starting {program}"));
    drop(cluster);
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let left = descendants(std::process::id());
        let left: Vec<Pid> = left.iter().filter_map(|process| Pid::from_raw(process.pid as i32)).collect();
        for &pid in &left {
            let _ = kill_process(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        if left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(ExitCode::from(status?.code().unwrap_or(1) as u8))
}
