//! Processes that this one starts, adopts, signals and buries.
//!
//! Catapult (Millennium Sort, section 3.1) promises that nothing outlives its job. Three things of the kernel's carry
//! that: a process group for each rank; the signal that a process gets when its parent dies; and the subreaper, to which
//! orphans fall instead of to the system's first process. [`fork_worker`] makes two processes that watch each other, so
//! that whichever is killed, the other cleans up.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
};
use rustix::process::{getrlimit, set_child_subreaper, set_parent_process_death_signal, setrlimit, wait};

use crate::error::OsError;
use crate::signals::number;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What [`reap`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This process has ended.
    Ended(i32, Exit),
    /// There are children, and all of them live.
    Living,
    /// There are none.
    Childless,
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Forked {
    /// The old process; the new one has this number.
    Parent(i32),
    /// The new process.
    Worker,
}

/// From now on the orphans below this process become its children.
///
/// # Errors
/// The kernel's.
pub fn adopt_orphans() -> Result<(), OsError> {
    set_child_subreaper(Some(getpid())).map_err(|e| OsError::sys("prctl(PR_SET_CHILD_SUBREAPER)", e))
}

/// Makes a second process that goes on from here, as `fork` does. It gets SIGTERM when this one dies.
///
/// # Errors
/// The kernel's; and if this process has more than one thread: a lock that another one holds would stay locked in the
/// new process without end.
pub fn fork_worker() -> Result<Forked, OsError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(OsError::sys("fork", io::Error::from_raw_os_error(libc::EDEADLK)));
    }
    let old = getpid();
    // SAFETY: there is one thread, so the child has the whole of a consistent process.
    match unsafe { libc::fork() } {
        -1 => Err(OsError::sys("fork", io::Error::last_os_error())),
        0 => {
            end_with(old, Signal::TERM).map_err(|e| OsError::sys("prctl(PR_SET_PDEATHSIG)", e))?;
            Ok(Forked::Worker)
        }
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Ends a worker without what its parent had planned for its own end: files to remove, sockets to unbind.
pub fn quit(status: u8) -> ! {
    // SAFETY: no precondition; nothing of this process is used afterwards.
    unsafe { libc::_exit(i32::from(status)) }
}

/// The limit of open files that this process was started with, if it was raised.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises this process' limit of open files as far as it may; says what it is then. Commands of [`as_rank`] have the old
/// one again: programs that use `select` count on it.
pub fn raise_open_files() -> u64 {
    let old = getrlimit(Resource::Nofile);
    if old.current != old.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: old.maximum, ..old }).is_ok()
    {
        OPEN_FILES.get_or_init(|| old);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Has the command run as the head of a process group of its own that ends with this process, with these descriptors
/// open under the numbers they have here.
pub fn as_rank(command: &mut Command, keep: Vec<OwnedFd>) {
    let (parent, raw): (Pid, Vec<RawFd>) = (getpid(), keep.iter().map(AsRawFd::as_raw_fd).collect());
    command.process_group(0);
    let open_files = OPEN_FILES.get().copied();
    let before_exec = move || {
        // The descriptors live as long as the command does: this closure has them.
        let _ = &keep;
        for &fd in &raw {
            // SAFETY: fcntl with integers; the descriptor is open, and its flags are this process' own.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(limit) = &open_files {
            setrlimit(Resource::Nofile, *limit)?;
        }
        // A launcher reads its signals; its ranks have theirs as usual.
        crate::signals::unblock_all();
        end_with(parent, Signal::KILL)
    };
    // SAFETY: the closure makes system calls only, which is allowed between fork and exec; it allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

/// Has reads and writes on a descriptor come back at once. Only for descriptors whose open file is this process' alone.
///
/// # Errors
/// The kernel's.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), OsError> {
    let flags = fcntl_getfl(fd).map_err(|e| OsError::sys("fcntl(F_GETFL)", e))?;
    fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(|e| OsError::sys("fcntl(F_SETFL)", e))
}

/// Leaves session, terminal and process group of the process that started this one.
///
/// # Errors
/// The kernel's: a head of a process group cannot.
pub fn leave_session() -> Result<(), OsError> {
    rustix::process::setsid().map(|_| ()).map_err(|e| OsError::sys("setsid", e))
}

/// The next child that has ended, adopted ones too. Never waits.
pub fn reap() -> Reaped {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let exit = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => continue,
                };
                return Reaped::Ended(pid.as_raw_nonzero().get(), exit);
            }
            Ok(None) => return Reaped::Living,
            Err(Errno::INTR) => {}
            Err(_) => return Reaped::Childless,
        }
    }
}

/// Sends a signal to one process. One that is gone is none of our business.
pub fn signal(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), named(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to a process group.
pub fn signal_group(group: i32, signal: i32) {
    if let (Some(group), Some(signal)) = (Pid::from_raw(group), named(signal)) {
        let _ = kill_process_group(group, signal);
    }
}

/// Kills every process below this one, adopted ones too; says how many it found. They still have to be reaped.
pub fn kill_descendants() -> usize {
    let found = descendants(getpid().as_raw_nonzero().get());
    for &pid in &found {
        signal(pid, number::KILL);
    }
    found.len()
}

/// Kills what is below this process but neither in `keep` nor below one of them: what ended workers left behind.
pub fn kill_strays(keep: &[i32]) {
    let kept: Vec<i32> = keep.iter().flat_map(|&pid| descendants(pid).into_iter().chain([pid])).collect();
    for pid in descendants(getpid().as_raw_nonzero().get()) {
        if !kept.contains(&pid) {
            signal(pid, number::KILL);
        }
    }
}

/// The processes below `root` that have not ended.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((state, parent)) = state_and_parent(&stat) {
            all.push((pid, parent, state));
        }
    }
    let (mut family, mut found) = (vec![root], Vec::new());
    while let Some(parent) = family.pop() {
        for &(pid, _, state) in all.iter().filter(|(_, up, _)| *up == parent) {
            family.push(pid);
            if !matches!(state, 'Z' | 'X') {
                found.push(pid);
            }
        }
    }
    found
}

fn state_and_parent(stat: &str) -> Option<(char, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Asks for a signal at the death of `parent`; fails if that has died already.
fn end_with(parent: Pid, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    // It may have died between fork and the line above, and then nothing will ever come.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

fn named(signal: i32) -> Option<Signal> {
    Signal::from_named_raw(signal)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_stat_line_gives_state_and_parent() {
        assert_eq!(state_and_parent("7 (a) b) Z 3 7"), Some(('Z', 3)));
        assert_eq!(state_and_parent("nonsense"), None);
    }

    #[test]
    fn a_rank_heads_its_group_and_has_its_descriptor() {
        let (kept, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = kept.as_raw_fd();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("test -S /proc/self/fd/{number} && ps -o pgid= -p $$; echo $$"));
        as_rank(&mut command, vec![kept.into()]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words.len(), 2, "{text}");
        assert_eq!(words[0], words[1], "head of its own group");
    }

    #[test]
    fn living_processes_below_are_found() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let ours = getpid().as_raw_nonzero().get();
        assert!(descendants(ours).contains(&(child.id() as i32)));
        signal(child.id() as i32, number::KILL);
        child.wait().unwrap();
        assert!(!descendants(ours).contains(&(child.id() as i32)));
    }
}
