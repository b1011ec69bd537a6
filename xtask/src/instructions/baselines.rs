//! The file of baselines: with what they were counted, and a count for each operation.
//!
//! ```text
//!  # comment
//!  rustc 1.95.0
//!  machine x86_64 avx2
//!  post_recv 60.0
//! ```

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

const HEADER: &str = "\
# Instructions of one operation: release build, one thread (over VIA: provider shm, both NICs driven by it), counted by callgrind.
# Written by `cargo xtask instructions --renew`. The commit that renews it says what changed the counts.
";

/// What was counted, and with what.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Baselines {
    /// The compiler's version, such as 1.95.0.
    pub(super) rustc: String,
    /// Architecture and the features that choose code when the program runs.
    pub(super) machine: String,
    /// Operations with their counts, in the order of the program.
    pub(super) counts: Vec<(String, f64)>,
}

impl Baselines {
    pub(super) fn count(&self, operation: &str) -> Option<f64> {
        self.counts.iter().find(|(known, _)| known == operation).map(|(_, count)| *count)
    }

    /// Why counts made now cannot be held against these, if they cannot.
    pub(super) fn differ_from(&self, now: &Self) -> Option<String> {
        if self.machine != now.machine {
            return Some(format!("they are of {}, this is {}", self.machine, now.machine));
        }
        let other = minor(&self.rustc) != minor(&now.rustc);
        other.then(|| format!("they are of rustc {}, this is {}", self.rustc, now.rustc))
    }
}

impl FromStr for Baselines {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut baselines = Self::default();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            match line.split_once(' ') {
                Some(("rustc", version)) => version.clone_into(&mut baselines.rustc),
                Some(("machine", machine)) => machine.clone_into(&mut baselines.machine),
                Some((operation, count)) => {
                    let count: f64 = count.trim().parse().with_context(|| format!("no count: {line}"))?;
                    baselines.counts.push((operation.to_owned(), count));
                }
                None => bail!("neither a comment nor an operation with its count: {line}"),
            }
        }
        Ok(baselines)
    }
}

impl fmt::Display for Baselines {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{HEADER}rustc {}\nmachine {}\n", self.rustc, self.machine)?;
        self.counts.iter().try_for_each(|(operation, count)| writeln!(f, "{operation} {count:.1}"))
    }
}

/// `1.95` of `1.95.0`: patches seldom change the code that is made.
fn minor(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baselines(rustc: &str, machine: &str) -> Baselines {
        let counts = vec![("post_recv".to_owned(), 60.0), ("send_inline-8".to_owned(), 133.5)];
        Baselines { rustc: rustc.to_owned(), machine: machine.to_owned(), counts }
    }

    #[test]
    fn written_baselines_are_read_back() {
        let written = baselines("1.95.0", "x86_64 avx2");
        let read: Baselines = written.to_string().parse().unwrap();
        assert_eq!(read, written);
        assert_eq!((read.count("send_inline-8"), read.count("other")), (Some(133.5), None));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!("post_recv".parse::<Baselines>().is_err());
        assert!("post_recv many".parse::<Baselines>().is_err());
    }

    #[test]
    fn another_compiler_or_machine_is_noticed_and_a_patch_is_not() {
        let old = baselines("1.95.0", "x86_64 avx2");
        assert_eq!(old.differ_from(&baselines("1.95.2", "x86_64 avx2")), None);
        assert!(old.differ_from(&baselines("1.96.0", "x86_64 avx2")).unwrap().contains("1.96.0"));
        assert!(old.differ_from(&baselines("1.95.0", "aarch64")).unwrap().contains("aarch64"));
    }
}
