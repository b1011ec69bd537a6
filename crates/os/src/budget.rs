//! The library's own byte budget for shared memory.
//!
//! Design, section 2.4: a memfd that is allocated in full can drive a container over its limit, and the kernel then
//! kills a process instead of failing a call. So bytes are charged here first, and the refusal is a typed error that
//! the caller can act on. This is bookkeeping, not a memory allocator, and it counts only what this process created.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::cgroup;
use crate::error::OsError;

/// A limit in bytes and what has been charged against it; clones share both.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

impl Budget {
    /// A budget of its own with this limit in bytes.
    pub fn new(limit: u64) -> Budget {
        Budget { inner: Arc::new(Inner { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }) }
    }

    /// The budget of this process: half of what the machine or the container has, or its share of that.
    pub fn process() -> &'static Budget {
        static PROCESS: OnceLock<Budget> = OnceLock::new();
        PROCESS.get_or_init(|| Budget::new(machine_memory() / 2))
    }

    /// Makes the budget of this process the share of one of `count` processes that belong together on this host. What was
    /// charged before stays charged, though it may be more. Never raises it: the smallest share counts.
    pub fn share_process(count: usize) {
        let share = machine_memory() / 2 / (count as u64).max(1);
        Budget::process().inner.limit.fetch_min(share, Ordering::Relaxed);
    }

    /// Takes `bytes` out of the budget until the answer is dropped.
    ///
    /// # Errors
    /// [`OsError::Budget`] if fewer than `bytes` are left.
    pub fn charge(&self, bytes: u64) -> Result<Charge, OsError> {
        let inner = &self.inner;
        let limit = self.limit();
        inner
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= limit)
            })
            .map(|_| Charge { inner: Arc::clone(inner), bytes })
            .map_err(|used| OsError::Budget { wanted: bytes, used, limit })
    }

    /// Bytes charged at this moment.
    pub fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// The most that can be charged.
    pub fn limit(&self) -> u64 {
        self.inner.limit.load(Ordering::Relaxed)
    }
}

/// Bytes taken out of a [`Budget`]; dropping it gives them back.
#[derive(Debug)]
pub struct Charge {
    inner: Arc<Inner>,
    bytes: u64,
}

impl Charge {
    /// How many bytes this charge holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.inner.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inner {
    limit: AtomicU64,
    used: AtomicU64,
}

/// Refuses what the machine cannot give at this moment, whatever the budget says.
///
/// The kernel does not: it hands out pages until none are left and then kills processes, of others as well.
pub(crate) fn check_available(bytes: u64) -> Result<(), OsError> {
    // Below this the question costs more than the answer is worth.
    const WORTH_ASKING: u64 = 4 << 20;
    if bytes < WORTH_ASKING {
        return Ok(());
    }
    let available =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    if fits(bytes, available.unwrap_or_else(machine_memory)) {
        return Ok(());
    }
    Err(OsError::sys("fallocate", std::io::Error::from_raw_os_error(libc::ENOMEM)))
}

/// Leaves an eighth to everybody else.
fn fits(bytes: u64, available: u64) -> bool {
    bytes <= available - available / 8
}

/// Physical memory, or less if a control group says so.
fn machine_memory() -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let group = cgroup::memory_limit();
    // With neither readable (a bare chroot) a small figure is safer than none: it fails early and by name.
    total.into_iter().chain(group).min().unwrap_or(1 << 30)
}

/// A line of /proc/meminfo, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_refund_and_refuse() {
        let budget = Budget::new(100);
        let a = budget.charge(60).unwrap();
        assert_eq!((budget.used(), a.bytes()), (60, 60));
        match budget.clone().charge(41) {
            Err(OsError::Budget { wanted: 41, used: 60, limit: 100 }) => {}
            other => panic!("{other:?}"),
        }
        let b = budget.charge(40).unwrap();
        drop(a);
        assert_eq!(budget.used(), 40);
        drop(b);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn sums_do_not_wrap() {
        let budget = Budget::new(u64::MAX);
        let _a = budget.charge(u64::MAX).unwrap();
        assert!(budget.charge(1).is_err());
    }

    #[test]
    fn process_budget_is_real() {
        assert!(Budget::process().limit() > 0);
        assert_eq!(field("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal:"), Some(2 << 20));
        assert_eq!(field("nothing", "MemTotal:"), None);
    }

    #[test]
    fn a_process_can_have_a_share_of_the_host() {
        let before = Budget::process().charge(1).unwrap();
        let whole = machine_memory() / 2;
        Budget::share_process(4);
        assert_eq!(Budget::process().limit(), whole / 4);
        assert!(Budget::process().charge(whole / 2).is_err());
        drop(before);
        for (count, share) in [(0, whole / 4), (1, whole / 4), (8, whole / 8)] {
            Budget::share_process(count);
            assert_eq!(Budget::process().limit(), share, "{count}");
        }
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        assert!(fits(875, 1000) && !fits(876, 1000) && !fits(1, 0));
        assert!(check_available(1).is_ok());
        assert!(matches!(check_available(u64::MAX), Err(OsError::NoMemory { .. })));
        assert!(matches!(check_available(1 << 50), Err(OsError::NoMemory { .. })));
    }
}
