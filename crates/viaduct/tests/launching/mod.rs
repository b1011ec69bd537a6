//! What the tests of launching share: a folder of their own, a run and its end, processes that should be gone.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod cluster;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use viaduct_kit::effort::scaled;
use viaduct_kit::leaks::descendants;
use viaduct_kit::tempdir::TempDir;

/// Where the jobs of a test meet no others.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder = TempDir::new("launch");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// What a run gave.
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn command(folder: &Folder, args: &[&str]) -> Command {
    verb_command(folder, &[&["launch"], args].concat())
}

pub(crate) fn verb_command(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(args).env("VIADUCT_RUNTIME_DIR", folder.path());
    for stray in [
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "PBS_NODEFILE",
        "VIADUCT_TOKEN",
        "VIADUCT_TOKEN_FILE",
        "PMI_FD",
    ] {
        command.env_remove(stray);
    }
    command
}

pub(crate) fn launch(folder: &Folder, args: &[&str]) -> Run {
    finish(command(folder, args))
}

pub(crate) fn verb(folder: &Folder, args: &[&str]) -> Run {
    finish(verb_command(folder, args))
}

pub(crate) fn finish(mut command: Command) -> Run {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status.code().unwrap_or(-1);
    Run { status, out: text(&output.stdout), err: text(&output.stderr), bytes: output.stdout }
}

/// Another host that is this one: a shell in the place of ssh, and an agent at another address. Needs no rights.
pub(crate) struct Loopback<'a> {
    folder: &'a Folder,
    ssh: std::path::PathBuf,
    agent: std::process::Child,
}

impl Loopback<'_> {
    pub(crate) const HOST: &'static str = "127.0.0.2";

    pub(crate) fn new(folder: &Folder) -> Loopback<'_> {
        let (ssh, run) = (folder.path().join("own-ssh"), folder.path().join("there"));
        let text = format!(
            "#!/bin/sh\nfor w; do :; done\nunset SSH_CONNECTION\nVIADUCT_RUNTIME_DIR={0} VIADUCT_CACHE={0} exec sh -c \"$w\"\n",
            run.display()
        );
        std::fs::write(&ssh, text).unwrap();
        std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        // Below a launcher it would end with it.
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut serve = verb_command(folder, &["agent", "serve", "--allow-root"]);
        let agent = serve.env("VIADUCT_RUNTIME_DIR", &run).stdin(Stdio::null()).spawn().unwrap();
        // The socket is there a moment before it listens.
        wait_for("the agent", || viaduct_os::fdpass::Channel::connect(&run.join("agent")).is_ok());
        Loopback { folder, ssh, agent }
    }

    pub(crate) fn launch(&self, args: &[&str]) -> Run {
        finish(self.command(&[&["--hosts", Self::HOST], args].concat()))
    }

    /// A launch that can reach it, on whatever hosts `args` name.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let words = ["--allow-root", "--connect-timeout", "120"];
        let mut command = command(self.folder, &[&words[..], args].concat());
        command.env("VIADUCT_SSH", &self.ssh);
        command
    }

    /// The agent's process.
    pub(crate) fn agent(&self) -> u32 {
        self.agent.id()
    }
}

impl Drop for Loopback<'_> {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// Lines of a child's output; none after its end.
pub(crate) struct Lines(BufReader<ChildStdout>);

impl Lines {
    pub(crate) fn new(out: ChildStdout) -> Lines {
        Lines(BufReader::new(out))
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.0.read_line(&mut line).unwrap();
        (n > 0).then(|| line.trim_end().to_owned())
    }
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0, "process {pid} is there");
}

/// Every way to hide: another session, the background, ignored signals, a daemon that was forked twice.
pub(crate) const HIDE: &str = "setsid sh -c 'trap \"\" HUP TERM INT; while :; do sleep 1000; done' & \
    (setsid sh -c 'setsid sleep 1000 < /dev/null > /dev/null 2>&1 &' &); sleep 1000 & echo started; wait";

pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

pub(crate) fn child_of(pid: u32) -> Option<u32> {
    descendants(pid).first().map(|process| process.pid)
}

pub(crate) fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + scaled(Duration::from_secs(60));
    while !there() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}
