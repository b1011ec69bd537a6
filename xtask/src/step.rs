//! One command: its output is passed on and counted, its progress said, and it is ended if it hangs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use viaduct_kit::leaks::descendants;
use viaduct_kit::unprivileged::User;

use crate::progress::{say, seconds};
use crate::tally::{Harness, Tally};
use crate::workspace;

/// How often a silent or long command is mentioned.
const MENTION: Duration = Duration::from_secs(60);

/// How long output may stay open after a command's end, held by something it left behind.
const LINGER: Duration = Duration::from_secs(5);

/// A command of a suite.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) command: Command,
    /// The user it runs as, whose folders must live until the end.
    pub(crate) user: Option<Rc<User>>,
    /// How its results are read.
    pub(crate) harness: Harness,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ended(ExitStatus),
    /// Ended by us, far beyond its budget.
    Hung,
}

impl End {
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Ended(status) if status.success())
    }
}

impl Step {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, user: None, harness: Harness::Libtest }
    }

    /// A Cargo command.
    pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let mut command = workspace::cargo();
        command.args(arguments);
        Self::new(command)
    }

    /// Sets an environment variable of the command.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the command to its end, or for `patience` at most.
    pub(crate) fn run(&mut self, patience: Duration, tally: &mut Tally) -> Result<End> {
        let shown = self.shown();
        say(format_args!("$ {shown}"));
        let start = Instant::now();
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let (sender, lines) = channel();
        read_lines(child.stdout.take(), Stream::Out, &sender);
        read_lines(child.stderr.take(), Stream::Err, &sender);
        drop(sender);
        let hung = !pass_on(&lines, &mut child, start + patience, tally)?;
        if hung {
            say(format_args!("HUNG: ended after {}: {shown}", seconds(start.elapsed())));
            end_with_all_below(&mut child);
        }
        let status = child.wait().with_context(|| format!("waiting for {shown}"))?;
        Ok(if hung { End::Hung } else { End::Ended(status) })
    }

    /// The command as one would type it, without its folder.
    fn shown(&self) -> String {
        let program = std::path::Path::new(self.command.get_program()).file_name().unwrap_or_default();
        let words = std::iter::once(program).chain(self.command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let user = if self.user.is_some() { "as an ordinary user: " } else { "" };
        format!("{user}{}", words.join(" "))
    }
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Out,
    Err,
}

/// Sends the lines of a stream, from a thread, until it closes.
fn read_lines(stream: Option<impl Read + Send + 'static>, kind: Stream, sender: &Sender<(Stream, Vec<u8>)>) {
    let Some(stream) = stream else { return };
    let sender = sender.clone();
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(read) if read > 0 && sender.send((kind, line)).is_ok() => {}
                _ => return,
            }
        }
    });
}

/// Passes lines on until both streams are closed; false if `end` came first.
fn pass_on(
    lines: &Receiver<(Stream, Vec<u8>)>,
    child: &mut Child,
    end: Instant,
    tally: &mut Tally,
) -> Result<bool> {
    let start = Instant::now();
    let mut mention = start + MENTION;
    let mut gone: Option<Instant> = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok((stream, line)) => pass_line(stream, &line, tally),
            Err(RecvTimeoutError::Disconnected) => return Ok(true),
            Err(RecvTimeoutError::Timeout) if gone.is_none() && child.try_wait()?.is_some() => {
                gone = Some(Instant::now());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if gone.is_some_and(|since| now - since > LINGER) {
            say("a process left behind keeps the output open; not waiting for it");
            return Ok(true);
        }
        if now >= mention {
            say(format_args!("... still at it, for {}", seconds(now - start)));
            mention = now + MENTION;
        }
        if now >= end {
            return Ok(false);
        }
    }
}

/// With the printing macros, so that in our own unit tests the harness keeps these lines to itself.
fn pass_line(stream: Stream, line: &[u8], tally: &mut Tally) {
    let line = String::from_utf8_lossy(line);
    match stream {
        Stream::Out => print!("{line}"),
        Stream::Err => eprint!("{line}"),
    }
    tally.read(&line);
}

/// Ends the command and what it started, found by parentage, and nothing else.
fn end_with_all_below(child: &mut Child) {
    let below = descendants(child.id());
    let _ = child.kill();
    for process in below {
        if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step::new(command)
    }

    #[test]
    fn output_of_both_streams_is_counted() {
        let mut tally = Tally::default();
        let script = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; \
                      echo 'test result: ok. 3 passed; 0 failed; 1 ignored' >&2";
        let end = shell(script).run(Duration::from_secs(60), &mut tally).unwrap();
        assert!(end.is_good());
        assert_eq!((tally.passed, tally.ignored), (5, 1));
    }

    #[test]
    fn a_bad_end_is_seen() {
        let end = shell("exit 3").run(Duration::from_secs(60), &mut Tally::default()).unwrap();
        assert!(!end.is_good());
        let missing =
            Step::new(Command::new("no-such-program")).run(Duration::from_secs(60), &mut Tally::default());
        assert!(missing.unwrap_err().to_string().contains("no-such-program"));
    }

    #[test]
    fn a_hang_is_ended_with_what_it_started() {
        let folder = viaduct_kit::tempdir::TempDir::new("hang");
        let mut step = shell("sleep 600 & echo $! > pid; sleep 600");
        step.command.current_dir(folder.path());
        let end = step.run(Duration::from_secs(1), &mut Tally::default()).unwrap();
        assert_eq!(end, End::Hung);
        let pid: u32 = std::fs::read_to_string(folder.join("pid")).unwrap().trim().parse().unwrap();
        while is_running(pid) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_program_is_shown_without_its_folder() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["test", "--doc"]);
        assert_eq!(Step::new(command).shown(), "cargo test --doc");
    }

    /// Gone, or dead and waiting for the process that adopted it.
    fn is_running(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
    }
}
