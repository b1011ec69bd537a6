//! One process of a node: its pipes, its PMI socket, its end.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use viaduct_job::pmi::wire::Lines;
use viaduct_os::children::{self, set_nonblocking};
use viaduct_os::cpu;
use viaduct_os::epoll::{Epoll, Interest};

use super::TOKEN;
use crate::environment::{self, REMOVED};
use crate::error::Error;
use crate::hosts::Host;
use crate::outcome::{NOT_EXECUTABLE, NOT_STARTED};
use crate::output::Stream;
use crate::plan::NodePlan;
use crate::wire::{End, Event};

/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// The kernel's number for a file that it cannot execute.
const ENOEXEC: i32 = 8;

/// What a token is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Output(Stream),
    Input,
    Pmi,
}

/// Rank within the node, and what of it.
pub(super) fn split(token: u64) -> (usize, What) {
    let what = match token & 3 {
        0 => What::Output(Stream::Out),
        1 => What::Output(Stream::Err),
        2 => What::Input,
        _ => What::Pmi,
    };
    (((token & !TOKEN) >> 2) as usize, what)
}

fn token(local: usize, what: What) -> u64 {
    let low = match what {
        What::Output(stream) => stream.index() as u64,
        What::Input => 2,
        What::Pmi => 3,
    };
    TOKEN | (local as u64) << 2 | low
}

#[derive(Debug)]
pub(super) struct Process {
    local: usize,
    pid: Option<i32>,
    end: Option<End>,
    begun: Instant,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    input: Option<ChildStdin>,
    queue: VecDeque<u8>,
    no_more: bool,
    armed: bool,
    /// Whether output is reported to the owner's epoll set.
    watched: bool,
    cpus: Vec<u32>,
    pmi: Option<UnixStream>,
    lines: Lines,
}

impl Process {
    /// One that has ended before it began.
    pub(super) fn not_started(local: usize, end: End) -> Process {
        Process { end: Some(end), ..Process::new(local) }
    }

    fn new(local: usize) -> Process {
        Process {
            local,
            pid: None,
            end: None,
            begun: Instant::now(),
            out: None,
            err: None,
            input: None,
            queue: VecDeque::new(),
            no_more: false,
            armed: false,
            watched: false,
            cpus: Vec::new(),
            pmi: None,
            lines: Lines::default(),
        }
    }

    pub(super) fn start(
        plan: &NodePlan,
        local: usize,
        cpus: Option<&[u32]>,
        epoll: &Epoll,
    ) -> Result<Process, Error> {
        let short = |why: viaduct_os::error::OsError| Error::system("starting a rank", why);
        let wants_input = plan.input.reaches(plan.ranks[local].rank);
        let (ours, theirs) = UnixStream::pair().map_err(|e| Error::system("a socket for PMI", e))?;
        let mut command = command(plan, local);
        for name in REMOVED {
            command.env_remove(name);
        }
        command.envs(environment::of_rank(plan, local, theirs.as_raw_fd()));
        command.stdin(if wants_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        children::as_rank(&mut command, vec![theirs.into()]);
        if let Some(cpus) = cpus {
            cpu::bind_command(&mut command, &cpus.iter().map(|&cpu| cpu as usize).collect::<Vec<_>>());
        }
        let mut process = Process { cpus: cpus.unwrap_or_default().to_vec(), ..Process::new(local) };
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(why) => {
                let program = command.get_program().to_string_lossy().into_owned();
                process.end = Some(explain(&program, plan, &command, &why));
                return Ok(process);
            }
        };
        process.pid = Some(child.id() as i32);
        (process.out, process.err, process.input) =
            (child.stdout.take(), child.stderr.take(), child.stdin.take());
        ours.set_nonblocking(true).map_err(|e| Error::system("a socket for PMI", e))?;
        process.pmi = Some(ours);
        // The write end of a pipe is the child's alone; reading what is not there must not hold up the others.
        let fds = [
            process.out.as_ref().map(AsFd::as_fd),
            process.err.as_ref().map(AsFd::as_fd),
            process.input.as_ref().map(AsFd::as_fd),
        ];
        for fd in fds.into_iter().flatten() {
            set_nonblocking(fd).map_err(short)?;
        }
        process.watch(epoll).map_err(short)?;
        let pmi = process.pmi.as_ref().expect("just put there");
        epoll.add(pmi, token(local, What::Pmi), Interest::Read).map_err(short)?;
        Ok(process)
    }

    /// The CPUs that it is bound to, if it is.
    pub(super) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// How it ended; only for one that has.
    pub(super) fn end(&self) -> &End {
        self.end.as_ref().unwrap_or(&End::Code(0))
    }

    pub(super) fn has_exited(&self) -> bool {
        self.end.is_some()
    }

    /// Notes its end; the microseconds it took.
    pub(super) fn exited(&mut self, end: End) -> u64 {
        self.end = Some(end);
        self.begun.elapsed().as_micros() as u64
    }

    /// To it and everything in its process group, as long as its number is surely its own.
    pub(super) fn signal(&self, signal: i32) {
        if let (Some(pid), None) = (self.pid, &self.end) {
            children::signal_group(pid, signal);
        }
    }

    /// Reads once; the rest is reported again.
    pub(super) fn read(&mut self, rank: u32, stream: Stream, epoll: &Epoll, events: &mut Vec<Event>) {
        if self.read_once(rank, stream, events) == Some(0) {
            match stream {
                Stream::Out => drop(self.out.take().inspect(|fd| drop(epoll.del(fd)))),
                Stream::Err => drop(self.err.take().inspect(|fd| drop(epoll.del(fd)))),
            }
            events.push(Event::OutputEnd(rank, stream));
        }
    }

    /// Reads all that is there, once all writers are gone.
    pub(super) fn drain(&mut self, rank: u32, stream: Stream, events: &mut Vec<Event>) {
        while self.read_once(rank, stream, events).is_some_and(|n| n > 0) {}
        match stream {
            Stream::Out => drop(self.out.take()),
            Stream::Err => drop(self.err.take()),
        }
        events.push(Event::OutputEnd(rank, stream));
    }

    /// How much there was; `None` if nothing is there now.
    fn read_once(&mut self, rank: u32, stream: Stream, events: &mut Vec<Event>) -> Option<usize> {
        let mut bytes = vec![0; PIECE];
        let n = match stream {
            Stream::Out => self.out.as_mut()?.read(&mut bytes),
            Stream::Err => self.err.as_mut()?.read(&mut bytes),
        };
        match n {
            Ok(n) => {
                bytes.truncate(n);
                if n > 0 {
                    events.push(Event::Output(rank, stream, bytes));
                }
                Some(n)
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => Some(0),
        }
    }

    /// More input.
    pub(super) fn give(&mut self, bytes: &[u8], epoll: &Epoll) {
        if self.input.is_some() {
            self.queue.extend(bytes);
            self.feed(epoll);
        }
    }

    pub(super) fn end_input(&mut self) {
        self.no_more = true;
        self.push();
    }

    /// There is room in its pipe.
    pub(super) fn feed(&mut self, epoll: &Epoll) {
        self.push();
        self.arm(epoll);
    }

    /// Bytes of input that it has not taken.
    pub(super) fn waiting_input(&self) -> usize {
        self.queue.len()
    }

    /// Watches its input pipe exactly while something waits.
    fn arm(&mut self, epoll: &Epoll) {
        let wanted = self.input.is_some() && !self.queue.is_empty();
        let Some(input) = &self.input else { return };
        if wanted != self.armed {
            self.armed = wanted;
            let _ = match wanted {
                true => epoll.add(input, token(self.local, What::Input), Interest::Write),
                false => epoll.del(input),
            };
        }
    }

    /// Stops or goes on reading its output.
    pub(super) fn pause(&mut self, pause: bool, epoll: &Epoll) {
        match (pause, self.watched) {
            (false, false) => drop(self.watch(epoll)),
            (true, true) => {
                self.watched = false;
                let _ = self.out.as_ref().map(|fd| epoll.del(fd));
                let _ = self.err.as_ref().map(|fd| epoll.del(fd));
            }
            _ => {}
        }
    }

    /// Hands every line that it said to `each`, reading at most so many pieces; false if it talks nonsense.
    pub(super) fn hear(&mut self, pieces: usize, epoll: &Epoll, each: &mut dyn FnMut(&str)) -> bool {
        for _ in 0..pieces {
            let Some(pmi) = &mut self.pmi else { return true };
            let mut bytes = [0; 4096];
            match pmi.read(&mut bytes) {
                Ok(n) if n > 0 => {
                    if self.lines.feed(&bytes[..n], &mut *each).is_ok() {
                        continue;
                    }
                    drop(self.pmi.take().inspect(|fd| drop(epoll.del(fd))));
                    return false;
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return true,
                Ok(_) | Err(_) => {
                    drop(self.pmi.take().inspect(|fd| drop(epoll.del(fd))));
                    return true;
                }
            }
        }
        true
    }

    /// Answers on its PMI socket. A rank has one question open at a time, so there is always room.
    pub(super) fn answer(&mut self, line: &str) {
        if let Some(pmi) = &mut self.pmi {
            let _ = pmi.write_all(line.as_bytes());
        }
    }

    fn watch(&mut self, epoll: &Epoll) -> Result<(), viaduct_os::error::OsError> {
        self.watched = true;
        if let Some(fd) = &self.out {
            epoll.add(fd, token(self.local, What::Output(Stream::Out)), Interest::Read)?;
        }
        if let Some(fd) = &self.err {
            epoll.add(fd, token(self.local, What::Output(Stream::Err)), Interest::Read)?;
        }
        Ok(())
    }

    /// Writes what fits.
    fn push(&mut self) {
        while let Some(input) = &mut self.input {
            let (front, _) = self.queue.as_slices();
            if front.is_empty() {
                if self.no_more {
                    self.input = None;
                }
                return;
            }
            match input.write(front) {
                Ok(n) => drop(self.queue.drain(..n)),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                // It closed its input: what is left is dropped.
                Err(_) => {
                    self.input = None;
                    self.queue.clear();
                }
            }
        }
        self.queue.clear();
    }
}

/// The command of a rank, in a debugger if that is wanted.
fn command(plan: &NodePlan, local: usize) -> Command {
    let rank = plan.ranks[local];
    let empty = Vec::new();
    let program = plan.programs.get(rank.app as usize);
    let words = program.map_or(&empty, |program| &program.command);
    let mut words: Vec<OsString> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    if plan.debug == Some(rank.rank) {
        words.splice(..0, ["gdb", "-q", "-nx", "--args"].map(OsString::from));
    }
    let mut command = Command::new(words.first().map_or(OsStr::new(""), |word| word));
    command.args(words.iter().skip(1));
    if let Some(folder) = program.and_then(|program| program.folder.as_ref()) {
        command.current_dir(folder);
    }
    command
}

/// Why a program did not start: the kernel says "not found" for a folder, a program and its interpreter alike.
fn explain(program: &str, plan: &NodePlan, command: &Command, why: &std::io::Error) -> End {
    let host = &plan.host;
    let path = Path::new(program);
    let folder = command.get_current_dir();
    let file = folder.map_or_else(|| path.to_owned(), |folder| folder.join(path));
    let is_path = program.contains('/');
    let (what, code) = match folder {
        Some(folder) if !folder.is_dir() => {
            (format!("the folder {} is not there, or may not be entered", folder.display()), NOT_STARTED)
        }
        _ if is_path && file.is_dir() => (format!("{program} is a folder, not a program"), NOT_EXECUTABLE),
        _ if is_path && file.is_file() && why.kind() == ErrorKind::NotFound => {
            let interpreter = interpreter(&file).map(|name| format!(" ({name})")).unwrap_or_default();
            (format!("{program} is there, but its interpreter{interpreter} is not"), NOT_STARTED)
        }
        _ if is_path && file.is_file() && why.kind() == ErrorKind::PermissionDenied => {
            (format!("{program} may not be executed; `chmod +x` allows it"), NOT_EXECUTABLE)
        }
        _ if why.kind() == ErrorKind::WouldBlock => {
            ("no more processes are allowed here (`ulimit -u`)".to_owned(), NOT_EXECUTABLE)
        }
        _ if why.raw_os_error() == Some(ENOEXEC) => {
            (format!("{program} is no program for this machine: a script begins with #!"), NOT_EXECUTABLE)
        }
        _ if why.kind() == ErrorKind::NotFound || is_nowhere(program) => {
            let hint = match (is_local(host), is_path) {
                (true, true) => "is the path right?",
                (true, false) => "it is in no folder of PATH; a program of this folder is written ./NAME",
                (false, _) => "--stage takes it there",
            };
            (format!("{program}: not found; {hint}"), NOT_STARTED)
        }
        _ => (format!("{program}: {why}"), NOT_EXECUTABLE),
    };
    End::NotStarted(format!("{host}: {what}"), code)
}

fn is_local(host: &str) -> bool {
    Host { name: host.to_owned(), slots: 1 }.is_local()
}

/// The program that the first line of a script names.
fn interpreter(script: &Path) -> Option<String> {
    let mut start = [0; 128];
    let n = File::open(script).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..n].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let name = String::from_utf8_lossy(line).split_whitespace().next()?.to_owned();
    Some(name)
}

/// Whether a bare name is in no folder of the path. A folder that may not be entered makes the kernel say "denied".
fn is_nowhere(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    !program.contains('/') && !std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_rank_and_kind() {
        for local in [0, 1, 4095] {
            for what in [What::Output(Stream::Out), What::Output(Stream::Err), What::Input, What::Pmi] {
                assert_eq!(split(token(local, what)), (local, what));
            }
        }
    }

    #[test]
    fn a_flood_of_pmi_is_read_in_pieces() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.write_all(&b"cmd=get_maxes\n".repeat(4000)).unwrap();
        let epoll = Epoll::new().unwrap();
        let mut process = Process { pmi: Some(ours), ..Process::new(0) };
        let mut turns = Vec::new();
        while turns.iter().sum::<usize>() < 4000 {
            let mut lines = 0;
            assert!(process.hear(2, &epoll, &mut |_| lines += 1));
            turns.push(lines);
        }
        assert!(turns.len() >= 7 && turns.iter().all(|&lines| lines <= 2 * 4096 / 14 + 1), "{turns:?}");
    }
}
