//! The clock of the timed regions: the processor's counter, calibrated once against the system's clock.

use std::hint::black_box;
use std::time::Duration;

use viaduct_os::clock::{Calibration, Tsc};

/// Reads the time in ticks and knows how long a tick is.
#[derive(Clone, Debug)]
pub struct Timer {
    calibration: Calibration,
    cost_ns: f64,
    about_ns: f64,
}

impl Timer {
    /// Calibrates the counter; takes about ten milliseconds.
    pub fn calibrate() -> Timer {
        let mut timer = Timer { calibration: Calibration::measure(), cost_ns: 0.0, about_ns: 0.0 };
        timer.cost_ns = timer.measure_cost(Tsc::cycles);
        timer.about_ns = timer.measure_cost(Tsc::about);
        timer
    }

    /// The time now.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        Tsc::cycles()
    }

    /// Nanoseconds in so many ticks.
    pub fn to_ns(&self, ticks: u64) -> f64 {
        self.calibration.ns(ticks)
    }

    /// Ticks in so many nanoseconds.
    pub fn to_ticks(&self, ns: f64) -> u64 {
        (ns / self.to_ns(1 << 20) * f64::from(1 << 20)) as u64
    }

    /// Lets time pass: asleep while there is plenty, so that the core is not owed to others, and awake towards the end,
    /// so that an end that pauses has nothing to wake up from.
    pub(crate) fn pause(&self, time: Duration) {
        const AWAKE: Duration = Duration::from_micros(500);
        let end = self.ticks() + self.to_ticks(time.as_nanos() as f64);
        if time > 2 * AWAKE {
            std::thread::sleep(time - AWAKE);
        }
        while self.ticks() < end {
            std::hint::spin_loop();
        }
    }

    /// What one reading costs, in nanoseconds.
    pub fn cost_ns(&self) -> f64 {
        self.cost_ns
    }

    /// What a reading costs that waits for nothing ([`Tsc::about`]), in nanoseconds.
    pub(crate) fn about_ns(&self) -> f64 {
        self.about_ns
    }

    fn measure_cost(&self, read: impl Fn() -> u64) -> f64 {
        const READS: u32 = 1000;
        let best = (0..20).map(|_| {
            let before = self.ticks();
            for _ in 0..READS {
                black_box(read());
            }
            self.ticks() - before
        });
        self.to_ns(best.min().unwrap_or(0)) / f64::from(READS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_the_system_says() {
        let timer = Timer::calibrate();
        let (ticks, system) = (timer.ticks(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (ours, theirs) = (timer.to_ns(timer.ticks() - ticks), system.elapsed().as_nanos() as f64);
        assert!((ours / theirs - 1.0).abs() < 0.2, "{ours} against {theirs}");
        assert!(timer.cost_ns() > 0.0);
    }
}
