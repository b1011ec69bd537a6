//! What the control groups of this process allow: memory, CPU time, CPU set.
//!
//! Both versions of the interface are read, every ancestor counts (a limit further up binds as well), and a group
//! that cannot be seen is no limit. Serves [`crate::budget`] and [`crate::cpu`]; it never writes.

use std::fs;
use std::path::{Path, PathBuf};

/// The tightest memory limit in bytes.
pub(crate) fn memory_limit() -> Option<u64> {
    let v1 = values("memory", "memory.limit_in_bytes").into_iter();
    let v2 = values("", "memory.max").into_iter();
    // Version 1 says "unlimited" with a huge number, version 2 with a word that does not parse.
    v1.chain(v2).filter_map(|text| text.trim().parse::<u64>().ok()).filter(|&n| n < 1 << 60).min()
}

/// The tightest CPU quota, in whole CPUs, rounded up.
pub(crate) fn cpu_quota() -> Option<usize> {
    let v2 = values("", "cpu.max").into_iter().filter_map(|text| {
        let (quota, period) = text.trim().split_once(' ')?;
        cpus(quota, period)
    });
    let quotas = values("cpu", "cpu.cfs_quota_us");
    let periods = values("cpu", "cpu.cfs_period_us");
    let v1 = quotas.iter().zip(&periods).filter_map(|(q, p)| cpus(q.trim(), p.trim()));
    v1.chain(v2).min()
}

/// How many CPUs the innermost CPU set has.
pub(crate) fn cpuset_size() -> Option<usize> {
    let v1 = values("cpuset", "cpuset.effective_cpus");
    let v2 = values("", "cpuset.cpus.effective");
    v1.into_iter().chain(v2).map(|text| list_len(text.trim())).filter(|&n| n > 0).min()
}

/// Number of CPUs in a kernel list such as `0-3,8`.
pub(crate) fn list_len(list: &str) -> usize {
    let range = |part: &str| -> Option<usize> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(range).sum()
}

fn cpus(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0 && quota > 0).then(|| quota.div_ceil(period) as usize)
}

/// The contents of `file` in the group of `controller` (empty: version 2) and in all its ancestors.
fn values(controller: &str, file: &str) -> Vec<String> {
    let Ok(table) = fs::read_to_string("/proc/self/cgroup") else { return Vec::new() };
    let Some(group) = group_of(&table, controller) else { return Vec::new() };
    let roots: &[&str] = if controller.is_empty() {
        &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
    } else {
        &["/sys/fs/cgroup"]
    };
    roots.iter().flat_map(|root| read_up(&Path::new(root).join(controller), &group, file)).collect()
}

fn group_of(table: &str, controller: &str) -> Option<PathBuf> {
    table.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let ours = names.split(',').any(|name| name == controller);
        ours.then(|| PathBuf::from(path.trim_start_matches('/')))
    })
}

fn read_up(root: &Path, group: &Path, file: &str) -> Vec<String> {
    // In a container the path may name a group that only the host can see; its ancestors end at the root we have.
    group.ancestors().filter_map(|dir| fs::read_to_string(root.join(dir).join(file)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_lines_of_both_versions() {
        let table = "4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/d:e\n";
        assert_eq!(group_of(table, "memory"), Some(PathBuf::from("a/b")));
        assert_eq!(group_of(table, "cpu"), Some(PathBuf::from("c")));
        assert_eq!(group_of(table, ""), Some(PathBuf::from("d:e")));
        assert_eq!(group_of(table, "pids"), None);
    }

    #[test]
    fn quotas_round_up_and_unlimited_is_none() {
        assert_eq!(cpus("150000", "100000"), Some(2));
        assert_eq!(cpus("-1", "100000"), None);
        assert_eq!(cpus("max", "100000"), None);
        assert_eq!(cpus("1", "0"), None);
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(list_len("0-3,8"), 5);
        assert_eq!(list_len("7"), 1);
        assert_eq!(list_len(""), 0);
        assert_eq!(list_len("5-2"), 0);
    }

    #[test]
    fn this_machine_answers_without_panic() {
        let _ = (memory_limit(), cpu_quota(), cpuset_size());
    }
}
