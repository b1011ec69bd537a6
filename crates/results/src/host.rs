//! Facts about the machine, read from the kernel's own files.
//!
//! Nothing here fails: what a machine does not show is reported as unknown, because a missing file must not stop a
//! measurement.

use std::fs;

use crate::schema::Host;

/// Reads everything once.
pub fn facts() -> Host {
    let cpuinfo = read("/proc/cpuinfo");
    Host {
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        cpu: field(&cpuinfo, "model name").unwrap_or("unknown").into(),
        cores: viaduct_os::cpu::count(),
        virtualised: virtualised(&cpuinfo),
        memory: memory("MemTotal"),
        governor: fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .ok()
            .map(|text| text.trim().into()),
        load: read("/proc/loadavg").split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
    }
}

/// Bytes of the last-level cache; 32 MiB where the system does not say.
pub fn last_level_cache() -> usize {
    let size = |index: usize| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        crate::size::parse(text.trim()).ok()
    };
    (0..8).filter_map(size).max().unwrap_or(32 << 20)
}

/// Bytes of memory that can be had without swapping.
pub fn available_memory() -> u64 {
    memory("MemAvailable")
}

/// Time that the hypervisor took, and all time, summed over `cpus`, in clock ticks since boot.
pub fn steal(cpus: &[usize]) -> (u64, u64) {
    steal_in(&read("/proc/stat"), cpus)
}

/// How often the scheduler has taken the core away from the calling thread.
pub fn involuntary_switches() -> u64 {
    field(&read("/proc/thread-self/status"), "nonvoluntary_ctxt_switches")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Nanoseconds that the calling thread was ready to run but another one had the core; 0 where the kernel does not tell.
pub fn run_delay_ns() -> u64 {
    read("/proc/thread-self/schedstat")
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn steal_in(stat: &str, cpus: &[usize]) -> (u64, u64) {
    let mut distinct = cpus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let (mut stolen, mut all) = (0, 0);
    for cpu in distinct {
        let label = format!("cpu{cpu} ");
        let Some(line) = stat.lines().find_map(|line| line.strip_prefix(&label)) else { continue };
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is already inside user.
        stolen += ticks.get(7).copied().unwrap_or(0);
        all += ticks.iter().take(8).sum::<u64>();
    }
    (stolen, all)
}

fn virtualised(cpuinfo: &str) -> bool {
    field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
        || fs::metadata("/sys/hypervisor/type").is_ok()
}

fn memory(name: &str) -> u64 {
    let meminfo = read("/proc/meminfo");
    let kib = field(&meminfo, name).and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The first `name: value` line of a kernel file.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_machine() {
        let host = facts();
        assert!(!host.kernel.is_empty());
        assert!(host.cores >= 1);
        assert!(host.memory > 0 && available_memory() <= host.memory);
    }

    #[test]
    fn steal_is_the_eighth_column_of_the_asked_cores() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 100 0\ncpu1 0 0 0 10 0 0 0 2 0 0\ncpu10 5 5 5 5 5 5 5 5 0 0\n";
        assert_eq!(steal_in(stat, &[0, 1]), (10, 48));
        assert_eq!(steal_in(stat, &[1, 1]), (2, 12));
        assert_eq!(steal_in(stat, &[7]), (0, 0));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("a b : 1\nab: 2\n", "ab"), Some("2"));
        assert_eq!(field("", "ab"), None);
    }
}
