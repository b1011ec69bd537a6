//! A hang becomes a failure: a time limit that ends the process and says what it was doing.
//!
//! A limit of the kit is generous (it is no timing assertion) and stretched by `VIADUCT_TEST_SCALE`. When it passes,
//! every thread and every child is listed with what the kernel says it waits for, the processes below this one are killed, and
//! it is aborted, so that the harness reports the test that hung.

use std::fs;
use std::path::Path;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::effort::scaled;
use crate::leaks::descendants;

/// Threads of the kit start with this; [`LeakCheck`](crate::leaks::LeakCheck) does not count them.
pub(crate) const KIT_THREAD: &str = "kit-";

/// Ends the process with a report unless it is dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    disarm: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the clock. `what` says in the report what took too long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use viaduct_kit::watchdog::Watchdog;
    /// let _watchdog = Watchdog::arm(Duration::from_secs(30), "two peers connect");
    /// ```
    #[must_use = "a watchdog that is dropped at once watches nothing"]
    pub fn arm(limit: Duration, what: &str) -> Self {
        let (disarm, disarmed) = mpsc::channel();
        let (limit, what) = (scaled(limit), what.to_owned());
        let (running, runs) = mpsc::channel();
        let watch = move || {
            drop(running);
            if disarmed.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("WATCHDOG {what}: not done after {limit:?}\n{}", report());
                end_descendants();
                process::abort();
            }
        };
        let thread = thread::Builder::new().name(format!("{KIT_THREAD}watchdog")).spawn(watch);
        let thread = thread.expect("a thread can be started");
        // The thread gives itself its name before it comes to `watch`; without that a leak check counts it as a test's own.
        let _: Result<(), _> = runs.recv();
        Self { disarm: Some(disarm), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The closed channel ends the thread.
        self.disarm = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Kills every process below this one: it would go on beside the next try of its test. A process may start another before it dies.
fn end_descendants() {
    for _ in 0..20 {
        let living = descendants(process::id()).into_iter().filter(|process| !process.ended);
        let living: Vec<_> = living.filter_map(|process| Pid::from_raw(process.pid as i32)).collect();
        if living.is_empty() {
            return;
        }
        for pid in living {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What every thread of this process and every process below it is doing, as far as the kernel tells.
pub fn report() -> String {
    let mut text = String::new();
    describe_process(Path::new("/proc/self"), process::id(), &mut text);
    for descendant in descendants(process::id()) {
        describe_process(&Path::new("/proc").join(descendant.pid.to_string()), descendant.pid, &mut text);
    }
    text + "  (for full stacks: gdb -p PID -batch -ex 'thread apply all bt' while it hangs)"
}

fn describe_process(folder: &Path, pid: u32, text: &mut String) {
    let name = line_of(&folder.join("comm")).unwrap_or_else(|| "gone".to_owned());
    text.push_str(&format!("  process {pid} {name}\n"));
    let Ok(tasks) = fs::read_dir(folder.join("task")) else { return };
    let mut tasks: Vec<_> = tasks.flatten().map(|task| task.path()).collect();
    tasks.sort();
    for task in tasks {
        text.push_str(&describe_thread(&task));
    }
}

fn describe_thread(task: &Path) -> String {
    let id = task.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = line_of(&task.join("comm")).unwrap_or_default();
    let state = fs::read_to_string(task.join("stat")).ok().and_then(|stat| state_of(&stat)).unwrap_or('?');
    let wait = line_of(&task.join("wchan")).filter(|wait| wait != "0").unwrap_or_else(|| "-".to_owned());
    let call = line_of(&task.join("syscall")).map_or_else(|| "-".to_owned(), |line| call_of(&line));
    format!("    thread {id:>7} {name:<16} state {state}  in {call:<16} waits at {wait}\n")
}

fn line_of(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The letter after the name in parentheses, which may itself hold anything.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The first field of the kernel's `syscall` file is a number or `running`.
fn call_of(line: &str) -> String {
    const NAMES: [(libc::c_long, &str); 14] = [
        (libc::SYS_futex, "futex"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_waitid, "waitid"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    ];
    let first = line.split_whitespace().next().unwrap_or("-");
    let Ok(number) = first.parse::<libc::c_long>() else { return first.to_owned() };
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("syscall {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_in_time_does_nothing() {
        let watchdog = Watchdog::arm(Duration::from_secs(600), "nothing");
        drop(watchdog);
    }

    #[test]
    fn the_report_names_the_threads() {
        let (stop, stopped) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let wait = move || {
            ready.send(()).unwrap();
            let _ = stopped.recv();
        };
        let waiter = thread::Builder::new().name("a-waiter".to_owned()).spawn(wait).unwrap();
        is_ready.recv().unwrap();
        let text = report();
        drop(stop);
        waiter.join().unwrap();
        assert!(text.contains("a-waiter"), "{text}");
        assert!(text.contains(&format!("process {}", process::id())), "{text}");
    }

    #[test]
    fn kernel_lines_are_understood() {
        assert_eq!(state_of("12 (a) b) S 1 2"), Some('S'));
        assert_eq!(call_of(&format!("{} 0x1 0x2", libc::SYS_futex)), "futex");
        assert_eq!(call_of("running"), "running");
        assert_eq!(call_of("99999 0x0"), "syscall 99999");
    }
}
