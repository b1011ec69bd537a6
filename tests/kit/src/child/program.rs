//! The child's side: being started again, talking to the parent.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::Child;
use crate::packages::{TEST_NAME, test_name};

/// Names the program that a re-executed binary shall run.
const CHILD: &str = "VIADUCT_TEST_CHILD";

/// The exit code of a child that panicked, as for Rust programs in general.
const PANICKED: i32 = 101;

/// Code that can run in a process of its own; made by [`child!`](crate::child!).
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    body: fn(&[String]),
}

impl Program {
    /// Used by [`child!`](crate::child!), which also arranges that [`enter`](Self::enter) is called.
    pub const fn new(name: &'static str, body: fn(&[String])) -> Self {
        Self { name, body }
    }

    /// Starts a child that runs this program.
    pub fn spawn(&self, args: &[&str]) -> Child {
        Child::start(self.name, self.command(args))
    }

    /// The command that [`spawn`](Self::spawn) starts, for callers that add to it (an environment, another
    /// user, limits) and then hand it to [`Child::start`].
    pub fn command(&self, args: &[&str]) -> Command {
        let binary = env::current_exe().expect("the path of the running binary is known");
        let mut command = Command::new(binary);
        command.args(args).env(CHILD, self.name).env(TEST_NAME, test_name());
        let parent = getpid();
        let die_with_parent = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent is gone already the signal would never come.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: the closure makes two system calls and allocates nothing, which is allowed between fork and exec.
        unsafe { command.pre_exec(die_with_parent) };
        command
    }

    /// The program's full name, module path included.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the program and exits if this process was started for it; else returns at once.
    pub fn enter(&self) {
        if env::var_os(CHILD).is_none_or(|wanted| wanted != self.name) {
            return;
        }
        // Under a wrapper such as strace the parent is the wrapper; a change of user cleared what was set before exec.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("SIGKILL is a valid signal");
        ignore_broken_pipes();
        // SAFETY: no other thread exists this early, so none reads the environment meanwhile. Without the removal
        // every program that the child starts from this binary would become the same child.
        unsafe { env::remove_var(CHILD) };
        let args: Vec<String> = env::args().skip(1).collect();
        let result = panic::catch_unwind(AssertUnwindSafe(|| (self.body)(&args)));
        process::exit(if result.is_ok() { 0 } else { PANICKED });
    }
}

/// Says one line to the parent. A parent that no longer listens is no error: it is about to end the child.
pub fn say(line: impl Display) {
    let text = format!("{line}\n");
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Waits for one line from the parent; `None` once it has closed its end.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) => None,
        Ok(_) => Some(line.trim_end_matches('\n').to_owned()),
        Err(error) => panic!("reading from the parent: {error}"),
    }
}

/// What the Rust runtime does before `main`, which a child never reaches.
fn ignore_broken_pipes() {
    // SAFETY: setting a signal to be ignored touches no memory of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
