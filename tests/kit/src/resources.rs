//! Running out of something on purpose: limits of the process that put themselves back.
//!
//! A limit holds for the whole process, so such a test belongs into [`isolated!`](crate::isolated!) or a
//! [`child!`](crate::child!). Root is not bound by `RLIMIT_MEMLOCK`: start the child through
//! [`unprivileged`](crate::unprivileged::unprivileged).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs `work` with at most `limit` open descriptors (numbers 0 to `limit - 1`).
pub fn with_nofile_limit<R>(limit: u64, work: impl FnOnce() -> R) -> R {
    with_limit(Resource::Nofile, limit, work)
}

/// Runs `work` with at most `limit` bytes of locked memory.
pub fn with_memlock_limit<R>(limit: u64, work: impl FnOnce() -> R) -> R {
    with_limit(Resource::Memlock, limit, work)
}

/// Runs `work` with room for `extra` more bytes of address space than are used now.
pub fn with_extra_memory<R>(extra: u64, work: impl FnOnce() -> R) -> R {
    with_limit(Resource::As, used_address_space() + extra, work)
}

/// Runs `work` under a lower soft limit and puts the old one back, also if `work` panics.
///
/// # Panics
///
/// If the limit is above the hard limit.
pub fn with_limit<R>(resource: Resource, limit: u64, work: impl FnOnce() -> R) -> R {
    let before = getrlimit(resource);
    let lowered = Rlimit { current: Some(limit), maximum: before.maximum };
    setrlimit(resource, lowered).unwrap_or_else(|error| panic!("limit {resource:?} = {limit}: {error}"));
    let _restore = Restore { resource, before };
    work()
}

/// No core files from here on, for a child that is going to crash on purpose.
pub fn no_core_files() {
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })
        .expect("a soft limit may always be lowered");
}

struct Restore {
    resource: Resource,
    before: Rlimit,
}

impl Drop for Restore {
    fn drop(&mut self) {
        let before = Rlimit { current: self.before.current, maximum: self.before.maximum };
        setrlimit(self.resource, before).expect("a soft limit may go back below the hard one");
    }
}

fn used_address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status is readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a process has a size");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("the size is a number of kB");
    kib * 1024
}
