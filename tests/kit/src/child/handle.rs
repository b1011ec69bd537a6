//! The parent's side of a child: lines, signals, exit status, and the certainty that it is gone afterwards.
//!
//! No thread is involved: the child's output is read while the parent waits for something, so a test with children
//! has the same number of threads as one without.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::effort::scaled;

/// How many of a child's last lines a failure shows.
const REMEMBERED: usize = 20;

/// A running child. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: process::Child,
    death: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    partial: Vec<u8>,
    lines: VecDeque<String>,
    seen: VecDeque<String>,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts any command as a child of the kit, with pipes for its input and output; its errors go where ours go.
    ///
    /// # Panics
    ///
    /// If the command cannot be started.
    pub fn start(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process =
            command.spawn().unwrap_or_else(|error| panic!("child {name}: {command:?}: {error}"));
        let death =
            pidfd_open(pid_of(&process), PidfdFlags::empty()).expect("a child not yet reaped has a pidfd");
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (partial, lines, seen) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { name: name.to_owned(), process, death, stdin, stdout, partial, lines, seen, status: None }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends one line, which the child gets from [`hear`](super::hear).
    ///
    /// # Panics
    ///
    /// If the child no longer reads.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the child's input was closed before");
        let sent = stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush());
        if let Err(error) = sent {
            self.fail(&format!("does not take the line \"{line}\": {error}"));
        }
    }

    /// Closes the child's input: [`hear`](super::hear) gives `None` there.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// The next line of output; `None` if the child closed its output or said nothing in time.
    pub fn next_line(&mut self, limit: Duration) -> Option<String> {
        let end = Instant::now() + scaled(limit);
        while self.lines.is_empty() && self.stdout.is_some() {
            if !self.read_some(end) {
                break;
            }
        }
        self.lines.pop_front()
    }

    /// Waits for a line that starts with `prefix`, passing over others, and gives what follows the prefix.
    ///
    /// # Panics
    ///
    /// If no such line comes in time; the message shows what came instead.
    pub fn expect_line(&mut self, prefix: &str, limit: Duration) -> String {
        let end = Instant::now() + scaled(limit);
        loop {
            while let Some(line) = self.lines.pop_front() {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return rest.to_owned();
                }
            }
            if self.stdout.is_none() {
                self.fail(&format!("closed its output without a line \"{prefix}...\""));
            }
            if !self.read_some(end) {
                self.fail(&format!("said no line \"{prefix}...\" within {:?}", scaled(limit)));
            }
        }
    }

    /// Ends the child with SIGKILL, whatever state it is in. Its status is still to be had from [`wait`](Self::wait).
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    /// Stops the child (SIGSTOP): it keeps everything and does nothing.
    pub fn stop(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped child go on (SIGCONT).
    pub fn cont(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends any signal. A child that has ended already is left alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.status.is_none() {
            // The process is ours and not reaped, so its number cannot belong to another one.
            let _ = kill_process(pid_of(&self.process), signal);
        }
    }

    /// Whether the child still runs (a stopped one does).
    pub fn is_running(&mut self) -> bool {
        self.reap().is_none()
    }

    /// Waits for the end of the child and gives its status.
    ///
    /// # Panics
    ///
    /// If it does not end in time.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + scaled(limit);
        loop {
            if let Some(status) = self.reap() {
                return status;
            }
            if !self.read_some(end) {
                self.fail(&format!("did not end within {:?}", scaled(limit)));
            }
        }
    }

    /// Closes the child's input and waits for a good end.
    ///
    /// # Panics
    ///
    /// If it ends in any other way than with 0, or not in time.
    pub fn finish(mut self, limit: Duration) {
        self.close_input();
        let status = self.wait(limit);
        if !status.success() {
            self.fail("did not end well");
        }
    }

    /// Waits for output or for the end of the child; false if neither happened before `end`.
    fn read_some(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a time limit fits a timespec");
        let mut fds = Vec::with_capacity(2);
        if self.status.is_none() {
            fds.push(PollFd::new(&self.death, PollFlags::IN));
        }
        if let Some(stdout) = &self.stdout {
            fds.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN));
        }
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return false,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("waiting for child {}: {error}", self.name),
        }
        let output_ready = self.stdout.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty());
        if output_ready {
            self.read_output();
        } else {
            self.reap();
        }
        true
    }

    fn read_output(&mut self) {
        let Some(stdout) = &mut self.stdout else { return };
        let mut buffer = [0; 4096];
        match stdout.read(&mut buffer) {
            Ok(0) => {
                self.stdout = None;
                if !self.partial.is_empty() {
                    self.partial.push(b'\n');
                }
            }
            Ok(read) => self.partial.extend_from_slice(&buffer[..read]),
            Err(error) => panic!("reading from child {}: {error}", self.name),
        }
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            if self.seen.len() == REMEMBERED {
                self.seen.pop_front();
            }
            self.seen.push_back(line.clone());
            self.lines.push_back(line);
        }
    }

    fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().expect("the child is ours to wait for");
        }
        self.status
    }

    fn fail(&mut self, what: &str) -> ! {
        let state = match self.reap() {
            None => "it still runs".to_owned(),
            Some(status) => match status.signal() {
                Some(signal) => format!("it was ended by signal {signal}"),
                None => format!("it ended with {}", status.code().unwrap_or_default()),
            },
        };
        let lines: Vec<String> = self.seen.iter().map(|line| format!("    {line}")).collect();
        let said = if lines.is_empty() { "nothing".to_owned() } else { format!("\n{}", lines.join("\n")) };
        panic!("child {} (pid {}) {what}; {state}; its last lines: {said}", self.name, self.pid());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn pid_of(process: &process::Child) -> Pid {
    Pid::from_child(process)
}
