//! CPUs: how many there are for us, which, and whether they are busy.
//!
//! Serves the waiting policy (design, section 2.2: no spinning when runnable tasks exceed the cores) and benchmarks,
//! which pin. It decides nothing itself.

use std::cell::Cell;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

pub use crate::crowd::crowded;
use crate::{cgroup, clock};

/// Binds the calling thread to one CPU.
///
/// # Errors
/// The kernel's: `InvalidInput` if there is no such CPU, or it is not ours.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Has the command run on these CPUs only; it fails to start if none of them is ours.
pub fn bind_command(command: &mut Command, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    // SAFETY: the closure makes one system call, which is allowed between fork and exec; it allocates nothing.
    unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &set)?)) };
}

/// The CPUs the calling thread may run on.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![current()], // more CPUs than the set can name
    }
}

/// How many CPUs the calling thread may use: its affinity, and no more than the container's quota.
pub fn count() -> usize {
    allowed().len().min(quota()).max(1)
}

/// How many CPUs this process and its peers may use together: the machine or the container, whatever this thread is
/// pinned to. Constant for the life of the process.
///
/// This, not [`count`], says whether spinning can pay: two ranks pinned to one CPU each are allowed one each and yet run
/// side by side.
pub fn machine() -> usize {
    static MACHINE: OnceLock<usize> = OnceLock::new();
    *MACHINE.get_or_init(|| online().min(cgroup::cpuset_size().unwrap_or(usize::MAX)).min(quota()).max(1))
}

/// How many CPUs the machine runs with, whether or not they are for us.
fn online() -> usize {
    static ONLINE: OnceLock<usize> = OnceLock::new();
    *ONLINE.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online = online.map_or(0, |list| cgroup::list_len(list.trim()));
        if online > 0 { online } else { allowed().len() }
    })
}

/// How many CPUs of the machine the calling thread may use, if they are not all: its affinity, the CPU set and the quota of its
/// container. At most about 50 ms old.
pub(crate) fn own_share() -> Option<usize> {
    std::thread_local! {
        static CACHE: Cell<(u64, Option<usize>)> = const { Cell::new((0, None)) };
    }
    CACHE.with(|cache| {
        let (at, known) = cache.get();
        let now = clock::now_ns();
        if at != 0 && now.saturating_sub(at) < 50_000_000 {
            return known;
        }
        // Every wait comes by here: no allocation, unlike `allowed`.
        let affinity = sched_getaffinity(None).map_or(1, |set| set.count() as usize);
        let own = affinity.min(machine());
        let share = (own < online()).then_some(own);
        cache.set((now, share));
        share
    })
}

/// The CPU this thread runs on just now.
pub fn current() -> usize {
    sched_getcpu()
}

/// How many threads run or want to run on this machine, the caller included. At most about 50 ms old.
pub fn runnable() -> Option<u32> {
    const FRESH_MS: u64 = 50;
    // Upper half: even milliseconds plus one, so that 0 means never; lower half: the number plus one, 0 for unknown.
    static CACHE: AtomicU64 = AtomicU64::new(0);
    let now = (clock::now_ns() / 1_000_000) & 0xffff_fffe;
    let cached = CACHE.load(Ordering::Relaxed);
    let age = now.wrapping_add(1).wrapping_sub(cached >> 32) & 0xffff_ffff;
    let value = if cached != 0 && age < FRESH_MS {
        cached & 0xffff_ffff
    } else {
        let value = read_runnable().map_or(0, |n| u64::from(n) + 1);
        CACHE.store((now + 1) << 32 | value, Ordering::Relaxed);
        value
    };
    u32::try_from(value).ok()?.checked_sub(1)
}

fn quota() -> usize {
    static QUOTA: OnceLock<usize> = OnceLock::new();
    *QUOTA.get_or_init(|| cgroup::cpu_quota().unwrap_or(usize::MAX))
}

fn read_runnable() -> Option<u32> {
    let file = open("/proc/loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buf = [0; 128];
    let n = read(&file, &mut buf).ok()?;
    parse_runnable(std::str::from_utf8(&buf[..n]).ok()?)
}

/// `0.84 0.20 0.06 1/85 3021`: the number before the stroke.
fn parse_runnable(loadavg: &str) -> Option<u32> {
    let (running, _) = loadavg.split(' ').nth(3)?.split_once('/')?;
    running.parse::<u32>().ok().filter(|&n| n < u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_holds_for_the_thread() {
        std::thread::spawn(|| {
            let cpus = allowed();
            let last = *cpus.last().unwrap();
            pin(last).unwrap();
            assert_eq!(allowed(), [last]);
            assert_eq!((current(), count()), (last, 1));
        })
        .join()
        .unwrap();
        assert!(pin(usize::MAX).is_err());
        assert!(machine() >= 1);
    }

    #[test]
    fn loadavg_lines() {
        assert_eq!(parse_runnable("0.84 0.20 0.06 12/85 3021\n"), Some(12));
        assert_eq!(parse_runnable("0.84 0.20"), None);
        assert_eq!(parse_runnable(""), None);
        let _ = (runnable(), runnable()); // read, then cached
    }
}
