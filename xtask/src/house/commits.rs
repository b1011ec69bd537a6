//! First lines of new commits, which are those that `main` does not have yet: short, because lists cut them off.

use std::path::Path;
use std::process::Command;

use super::Finding;

/// Characters of a first line are fewer.
const TOO_LONG: usize = 72;

/// Nothing without git, in a clone without `main`, or on `main` itself.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(["log", "--no-merges", "--format=%s", "main..HEAD"]);
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or_else(Vec::new, |output| judge(&String::from_utf8_lossy(&output.stdout)))
}

fn judge(subjects: &str) -> Vec<Finding> {
    let long = subjects.lines().filter(|subject| subject.chars().count() >= TOO_LONG);
    let what = |subject: &str| format!("the first line of a commit is too long: {subject}");
    let mend = "say it in fewer than 72 characters, and the rest in the body (git commit --amend)";
    long.map(|subject| Finding::error(Path::new(".git"), 1, what(subject), mend)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_first_line_is_found() {
        assert_eq!(judge(&format!("short\n{}\n", "x".repeat(71))), []);
        assert_eq!(judge(&format!("short\n{}\n", "x".repeat(72))).len(), 1);
    }
}
