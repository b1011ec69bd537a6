//! Time: the monotonic clock for deadlines, the cycle counter for measuring.
//!
//! Design, sections 2.7 and 10: clocks are monotonic, and a benchmark must know what reading the clock costs. The wall
//! clock is deliberately absent: a change of the date must not make a healthy peer look dead.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the monotonic clock. Without a system call where the kernel offers that.
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds of CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Nanoseconds of CPU time that all threads of this process have used.
pub fn process_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// What reading [`now_ns`] costs, in nanoseconds: the least of many tries, as interruptions only add.
pub fn timer_cost_ns() -> f64 {
    const READS: u32 = 200;
    let batch = || {
        let start = now_ns();
        for _ in 0..READS {
            std::hint::black_box(now_ns());
        }
        (now_ns() - start) as f64 / f64::from(READS + 1)
    };
    (0..20).map(|_| batch()).fold(f64::INFINITY, f64::min)
}

/// The cycle counter of the CPU on x86-64, the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Tsc;

impl Tsc {
    /// Cycles so far. Earlier loads are done before it is read, so it can end a measurement as well as start one.
    #[inline]
    pub fn cycles() -> u64 {
        counter()
    }

    /// Cycles at about this instruction: what came before may still be under way. Disturbs what it is in the middle of
    /// the least, and is only good for stretches that are much longer than a reading.
    #[inline]
    pub fn about() -> u64 {
        unordered()
    }
}

/// How long a cycle of [`Tsc`] lasts.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Nanoseconds per cycle.
    pub ns_per_cycle: f64,
}

impl Calibration {
    /// Compares the counter with the clock for about ten milliseconds.
    pub fn measure() -> Calibration {
        const SLICE_NS: u64 = 2_000_000;
        let mut slices = [0.0; 5].map(|_: f64| {
            let (cycles, start) = (Tsc::cycles(), now_ns());
            let mut end = start;
            while end - start < SLICE_NS {
                std::hint::spin_loop();
                end = now_ns();
            }
            // A counter that stands still would make every duration infinite; take it for a clock instead.
            (end - start) as f64 / (Tsc::cycles().wrapping_sub(cycles)).max(1) as f64
        });
        slices.sort_unstable_by(f64::total_cmp);
        Calibration { ns_per_cycle: slices[slices.len() / 2] }
    }

    /// Converts a number of cycles.
    #[inline]
    pub fn ns(&self, cycles: u64) -> f64 {
        cycles as f64 * self.ns_per_cycle
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // Not RDTSCP, which a few hypervisors lack; the fence before gives the same order.
    // SAFETY: both instructions belong to every x86-64 CPU and touch no memory.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn unordered() -> u64 {
    // SAFETY: belongs to every x86-64 CPU and touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn counter() -> u64 {
    now_ns()
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn unordered() -> u64 {
    now_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_the_thread_and_of_all() {
        let spend = |ns: u64| {
            let before = thread_cpu_ns();
            while thread_cpu_ns() - before < ns {}
        };
        let (thread, process) = (thread_cpu_ns(), process_cpu_ns());
        std::thread::spawn(move || spend(5_000_000)).join().unwrap();
        let others = process_cpu_ns() - process;
        assert!(others >= 5_000_000, "{others}");
        spend(1_000_000);
        let (thread, process) = (thread_cpu_ns() - thread, process_cpu_ns() - process);
        assert!(thread >= 1_000_000 && process >= 6_000_000, "{thread} {process}");
    }

    #[test]
    fn the_clock_does_not_run_backwards() {
        let mut last = now_ns();
        for _ in 0..1000 {
            let now = now_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn calibration_is_positive_and_converts() {
        let calibration = Calibration::measure();
        assert!(calibration.ns_per_cycle > 0.0 && calibration.ns_per_cycle.is_finite());
        assert_eq!(calibration.ns(0), 0.0);
        assert!(timer_cost_ns() > 0.0);
    }
}
