//! A partner that stops at a point for a while and is then continued. Stopped is not dead.

use std::time::{Duration, Instant};

use viaduct_kit::child::Child;
use viaduct_kit::effort::scaled;
use viaduct_kit::process::is_stopped;

use crate::session::Partner;

/// How long a stopped partner stays so.
const FROZEN: Duration = Duration::from_millis(250);

/// A child that stops by itself and is continued after a while, and what waiting for it cost.
pub struct Frozen<'a> {
    /// The child.
    pub child: &'a mut Child,
    since: Option<(Instant, Duration)>,
    /// Waits that ended in a time-out while it was stopped.
    pub timeouts: u64,
    /// Share of one CPU this process used while it waited, in per cent.
    pub cpu: Option<f64>,
}

impl<'a> Frozen<'a> {
    /// A child that is going to stop.
    pub fn new(child: &'a mut Child) -> Frozen<'a> {
        Frozen { child, since: None, timeouts: 0, cpu: None }
    }
}

impl Partner for Frozen<'_> {
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }

    fn is_there(&mut self) -> bool {
        if self.cpu.is_none() && is_stopped(self.child.pid()) {
            self.timeouts += 1;
            let (start, cpu) = *self.since.get_or_insert_with(|| (Instant::now(), cpu_time()));
            if start.elapsed() >= scaled(FROZEN) {
                let used = cpu_time() - cpu;
                self.cpu = Some(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64());
                self.child.cont();
            }
        }
        self.child.is_running()
    }
}

/// User and system time of all threads of this process.
pub fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for a write of the structure, whose all-zero value is valid.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
