//! Hosts that a batch system gave us: Slurm's and PBS's variables. Pure but for reading PBS's file.

use crate::error::Error;
use crate::hosts::{self, Host, Source};

/// The hosts of the allocation that we run in, if we run in one.
///
/// # Errors
/// If the batch system's variables cannot be understood.
pub fn hosts(
    variable: &dyn Fn(&str) -> Option<String>,
    source: &dyn Source,
) -> Result<Option<Vec<Host>>, Error> {
    if let Some(list) = variable("SLURM_JOB_NODELIST").or_else(|| variable("SLURM_NODELIST")) {
        let mut hosts = hosts::parse(&list, source)?;
        let tasks = variable("SLURM_TASKS_PER_NODE").or_else(|| variable("SLURM_JOB_CPUS_PER_NODE"));
        if let Some(tasks) = tasks {
            let counts =
                repeated(&tasks).ok_or_else(|| hosts::bad(&tasks, "not what Slurm writes: 4(x2),3"))?;
            for (host, count) in hosts.iter_mut().zip(counts) {
                host.slots = count;
            }
        }
        return Ok(Some(hosts));
    }
    match variable("PBS_NODEFILE") {
        Some(path) => hosts::file::parse(&source.file(&path)?, &path).map(Some),
        None => Ok(None),
    }
}

/// The host with this name is the one we are on. Batch systems may leave out the domain, or write it.
pub fn call_local(hosts: &mut [Host], own: &str) {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if let Some(host) = hosts.iter_mut().find(|host| !own.is_empty() && short(&host.name) == short(own)) {
        "localhost".clone_into(&mut host.name);
    }
}

/// Slurm's `4(x2),3`: 4, 4, 3.
fn repeated(text: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let count = count.parse().ok().filter(|&n: &usize| n > 0)?;
        if times > hosts::MOST {
            return None;
        }
        counts.extend(std::iter::repeat_n(count, times));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File(&'static str);

    impl Source for File {
        fn group(&self, name: &str) -> Result<String, Error> {
            Err(hosts::bad(name, "no groups here"))
        }

        fn file(&self, _: &str) -> Result<String, Error> {
            Ok(self.0.to_owned())
        }
    }

    fn found(list: &[(&str, &str)], file: &'static str) -> Result<Option<Vec<(String, usize)>>, Error> {
        let lookup = |name: &str| list.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let hosts = hosts(&lookup, &File(file))?;
        Ok(hosts.map(|list| list.into_iter().map(|host| (host.name, host.slots)).collect()))
    }

    fn pairs(list: &[(&str, usize)]) -> Option<Vec<(String, usize)>> {
        Some(list.iter().map(|(name, slots)| ((*name).to_owned(), *slots)).collect())
    }

    #[test]
    fn slurm() {
        let list = [("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_TASKS_PER_NODE", "4(x2),3")];
        assert_eq!(found(&list, "").unwrap(), pairs(&[("n1", 4), ("n2", 4), ("n3", 3)]));
        assert_eq!(found(&list[..1], "").unwrap(), pairs(&[("n1", 1), ("n2", 1), ("n3", 1)]));
        assert!(found(&[list[0], ("SLURM_TASKS_PER_NODE", "4(x")], "").is_err());
    }

    #[test]
    fn pbs() {
        let found = found(&[("PBS_NODEFILE", "/var/spool/nodes")], "a\na\nb\n").unwrap();
        assert_eq!(found, pairs(&[("a", 2), ("b", 1)]));
    }

    #[test]
    fn the_host_that_we_are_on_needs_no_agent() {
        let host = |name: &str| Host { name: name.to_owned(), slots: 2 };
        let mut hosts = [host("n1"), host("n2.cluster"), host("n3")];
        call_local(&mut hosts, "n2");
        assert_eq!(hosts, [host("n1"), host("localhost"), host("n3")]);
        call_local(&mut hosts, "");
        call_local(&mut hosts, "n3.cluster");
        assert_eq!(hosts[2], host("localhost"));
    }

    #[test]
    fn no_batch_system() {
        assert_eq!(found(&[], "").unwrap(), None);
    }
}
