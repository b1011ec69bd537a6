//! Whether more threads want to run than there are CPUs for them: then a thread that spins keeps away the one it waits for.
//!
//! The kernel tells how many threads of the whole machine are runnable. That is the answer where all CPUs of the machine are
//! ours to use. Inside a CPU set, a quota or an affinity it is not: a host with a hundred busy threads says nothing of the two
//! CPUs that a container has, and sixteen ranks on those two are no crowd to a host of sixty-four. There this thread's own
//! record counts, in which the kernel writes how long it ran and how long it was ready to and had no CPU.

use std::cell::Cell;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;

use crate::{clock, cpu};

/// Whether the CPUs that this thread may use are crowded. At most about 50 ms old; false where the kernel does not tell.
pub fn crowded() -> bool {
    match cpu::own_share() {
        None => cpu::runnable().is_some_and(|n| n as usize > cpu::machine()),
        Some(_) => LAST.with(|last| {
            let (now, before) = (clock::now_ns(), last.get());
            if now.saturating_sub(before.at) < FRESH_NS && before.at != 0 {
                return before.crowded;
            }
            let record = own_record().unwrap_or_default();
            let crowded = before.record.judge(record).unwrap_or(before.crowded);
            last.set(Look { at: now, record, crowded });
            crowded
        }),
    }
}

/// Whether they are crowded beyond doubt, for threads of an executor: these wake each other for moments, to share what there is to do,
/// so that a few more than there are CPUs are no crowd.
pub(crate) fn crowded_for_good() -> bool {
    match cpu::own_share() {
        None => cpu::runnable().is_some_and(|n| n as usize > 2 * cpu::machine()),
        Some(_) => crowded(),
    }
}

const FRESH_NS: u64 = 50_000_000;

/// What a thread found out when it last looked.
#[derive(Clone, Copy, Default)]
struct Look {
    at: u64,
    record: Record,
    crowded: bool,
}

std::thread_local! {
    static LAST: Cell<Look> = const { Cell::new(Look { at: 0, record: Record { ran: 0, waited: 0 }, crowded: false }) };
}

/// Nanoseconds a thread has run, and was ready to run and waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    ran: u64,
    waited: u64,
}

impl Record {
    /// Whether a thread whose record was this one and is `now` that was held up by others: for more than a fifth of the time
    /// that it wanted to run. None if it hardly wanted to.
    fn judge(self, now: Record) -> Option<bool> {
        let ran = now.ran.checked_sub(self.ran)?;
        let waited = now.waited.checked_sub(self.waited)?;
        let wanted = ran + waited;
        (wanted > ENOUGH_NS).then_some(waited > wanted / 5)
    }

    /// `run-time wait-time slices`.
    fn parse(text: &str) -> Option<Record> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Record { ran: numbers.next()?.ok()?, waited: numbers.next()?.ok()? })
    }
}

/// Too little to judge by: a few switches.
const ENOUGH_NS: u64 = 100_000;

fn own_record() -> Option<Record> {
    let file = open("/proc/thread-self/schedstat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 96];
    let n = read(&file, &mut buffer).ok()?;
    Record::parse(std::str::from_utf8(&buffer[..n]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_cpu_is_in_a_crowd() {
        let before = Record { ran: 5_000_000, waited: 70_000_000 };
        let after = |ran, waited| Record { ran: before.ran + ran, waited: before.waited + waited };
        assert_eq!(before.judge(after(1_000_000, 10_000)), Some(false));
        assert_eq!(before.judge(after(1_000_000, 1_000_000)), Some(true));
        assert_eq!(before.judge(after(40_000, 50_000)), None, "it was asleep");
        assert_eq!(before.judge(Record::default()), None, "the record of another thread");
    }

    #[test]
    fn records_of_the_kernel() {
        assert_eq!(Record::parse("123 456 7\n"), Some(Record { ran: 123, waited: 456 }));
        assert!([" ", "1", "x 1 2", ""].iter().all(|text| Record::parse(text).is_none()));
    }

    /// Three threads on one CPU: each has it for a third of the time. The test ends when one of them has noticed.
    #[test]
    fn threads_that_share_a_cpu_find_it_crowded() {
        if own_record().is_none() {
            viaduct_kit::skip!("this kernel keeps no record of threads");
        }
        let cpu = *cpu::allowed().last().unwrap();
        let noticed = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    cpu::pin(cpu).unwrap();
                    while !noticed.load(std::sync::atomic::Ordering::Relaxed) {
                        if crowded() {
                            noticed.store(true, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
    }
}
