//! `cargo xtask against REV`: the program of another commit and that of this tree, measured by turns on this machine.
//!
//! Times of different minutes do not compare here, so each case runs with both programs one right after the other, in
//! several rounds. Each round is compared by `viaduct report --compare`, which names points that are worse for sure and by
//! more than 5 %. A point that is named in every round has failed; what is named in some of them was the machine. The last
//! lines say how many points each round compared, and of how many it knows nothing; a round that compared none has failed. A
//! case that one of the two programs cannot run, or writes no results for, is left out, and named at the end.

mod echo;
mod score;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::progress::say;
use crate::workspace::{self, Workspace};
use score::{Rounds, Score};

/// What is measured where no case is named: the words behind `viaduct bench`, and an example.
const CASES: [&str; 9] = [
    "latency",
    "rate",
    "bandwidth",
    "rdma",
    "cq --connections 1,64",
    "latency --provider ofi:tcp",
    "sockets --quick",
    "launch",
    echo::CASE,
];

/// How a line of `viaduct report --compare` begins that names a worse point.
const WORSE: &str = "worse by ";

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The commit to compare with.
    pub(crate) revision: String,
    pub(crate) rounds: u32,
    /// Words behind `viaduct bench`, each in one argument, or "example echo"; none: [`CASES`].
    pub(crate) cases: Vec<String>,
}

/// Builds both programs, measures them by turns, and prints what stays worse. Whether nothing does.
pub(crate) fn run(workspace: &Workspace, wanted: &Wanted) -> Result<bool> {
    let folder = workspace.target_directory.join("against");
    fs::create_dir_all(&folder)?;
    let source = Checkout::new(&workspace.root, &folder.join("source"), &wanted.revision)?;
    say(format_args!("building {}", wanted.revision));
    let old = build(&source.folder, &folder.join("target"))?;
    say("building this tree");
    let new = build(&workspace.root, &workspace.target_directory)?;
    let cases =
        if wanted.cases.is_empty() { CASES.map(str::to_owned).to_vec() } else { wanted.cases.clone() };
    let echoes = if cases.iter().any(|case| case == echo::CASE) {
        let old = echo::build(&source.folder, &folder.join("target"))?;
        Some([old, echo::build(&workspace.root, &workspace.target_directory)?])
    } else {
        None
    };
    let mut rounds = Rounds::default();
    let mut lacking = BTreeMap::new();
    for round in 1..=wanted.rounds {
        rounds.begin();
        let files = ["old", "new"].map(|which| folder.join(format!("{which}-{round}.jsonl")));
        files.iter().for_each(|file| drop(fs::remove_file(file)));
        let benched = cases.iter().filter(|case| *case != echo::CASE && !lacking.contains_key(case.as_str()));
        for case in benched.collect::<Vec<_>>() {
            say(format_args!("round {round} of {}: {case}", wanted.rounds));
            // The first one of a pair may find the machine colder: they take turns in that, too.
            let mut pair = [(&old, &files[0]), (&new, &files[1])];
            if round % 2 == 0 {
                pair.reverse();
            }
            if let Some(why) = measure_both(pair, case)? {
                say(format_args!("{case} is not compared: {why}"));
                lacking.insert(case.as_str(), why);
            }
        }
        if files[0].exists() {
            rounds.add_talk(&compare(&new, &files, &folder.join(format!("round-{round}.html")))?)?;
        }
        if let Some([old, new]) = &echoes {
            say(format_args!("round {round} of {}: {}", wanted.rounds, echo::CASE));
            let (score, talk) = compare_echoes(old, new, round)?;
            rounds.add(score, &talk);
        }
    }
    for (case, why) in &lacking {
        println!("not compared: {case}, since {why}");
    }
    println!("pages: {}", folder.display());
    rounds.judge()
}

/// A commit's files, in a folder of their own that goes with this value.
struct Checkout {
    root: PathBuf,
    folder: PathBuf,
}

impl Checkout {
    fn new(root: &Path, folder: &Path, revision: &str) -> Result<Checkout> {
        let checkout = Checkout { root: root.to_owned(), folder: folder.to_owned() };
        // What a run left behind that was ended.
        checkout.remove();
        let path = folder.to_str().context("the folder's name is not text")?;
        let good = git(root, &["worktree", "add", "--detach", "--force", path, revision]);
        ensure!(good, "git has no commit {revision} here, or cannot check it out into {path}");
        Ok(checkout)
    }

    fn remove(&self) {
        if self.folder.exists() {
            let _ = git(&self.root, &["worktree", "remove", "--force", &self.folder.to_string_lossy()]);
            let _ = fs::remove_dir_all(&self.folder);
        }
        let _ = git(&self.root, &["worktree", "prune"]);
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        self.remove();
    }
}

fn git(root: &Path, arguments: &[&str]) -> bool {
    workspace::succeeds(Command::new("git").arg("-C").arg(root).args(arguments))
}

/// The path of `viaduct`, built as users get it.
fn build(source: &Path, target: &Path) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release"]).current_dir(source).env("CARGO_TARGET_DIR", target);
    ensure!(cargo.stdin(Stdio::null()).status()?.success(), "{} does not build", source.display());
    Ok(target.join("release/viaduct"))
}

/// Appends the results of a case to the file of each program. If one of them has none, neither gets any, and the answer says why.
fn measure_both(pair: [(&PathBuf, &PathBuf); 2], case: &str) -> Result<Option<String>> {
    let [first, second] = pair.map(|(program, file)| measure(program, case, file));
    let results = match (first?, second?) {
        (Ok(first), Ok(second)) => [first, second],
        (Err(why), _) | (_, Err(why)) => return Ok(Some(why)),
    };
    for ((_, file), part) in pair.into_iter().zip(results) {
        let mut text = fs::read(file).unwrap_or_default();
        text.extend(part);
        fs::write(file, text)?;
    }
    Ok(None)
}

/// The status with which `viaduct` refuses words that it does not know, and says what it cannot do on this machine.
const REFUSED: i32 = 2;

/// The results of a case; if the program, which may be an old one, cannot run it or writes none for it, why.
fn measure(program: &Path, case: &str, file: &Path) -> Result<Result<Vec<u8>, String>> {
    let part = file.with_extension("part");
    let mut bench = Command::new(program);
    bench.arg("bench").args(case.split_whitespace()).arg("-o").arg(&part);
    let output = bench.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    let results = fs::read(&part).ok();
    let _ = fs::remove_file(part);
    let talk = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(REFUSED) {
        let said = talk.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
        return Ok(Err(format!("{} does not run it ({said})", program.display())));
    }
    ensure!(output.status.success(), "{}: bench {case}: {}: {talk}", program.display(), output.status);
    Ok(results.ok_or_else(|| format!("{} writes no results for it", program.display())))
}

/// The two examples by turns: how many ratios have which verdict, and a line for each that is worse.
fn compare_echoes(old: &Path, new: &Path, round: u32) -> Result<(Score, String)> {
    Ok(if round.is_multiple_of(2) {
        let new = echo::measure(new)?;
        echo::compare(&echo::measure(old)?, &new)
    } else {
        let old = echo::measure(old)?;
        echo::compare(&old, &echo::measure(new)?)
    })
}

/// What the comparison of two files says on standard error.
fn compare(program: &Path, files: &[PathBuf; 2], page: &Path) -> Result<String> {
    let mut report = Command::new(program);
    report.arg("report").args(files).args(["--compare", "-o"]).arg(page);
    let output = report.stdin(Stdio::null()).output()?;
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "viaduct report: {talk}");
    talk.lines().filter(|line| !line.starts_with(WORSE)).for_each(say);
    Ok(talk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn a_commit_is_checked_out_and_goes_again() {
        let folder = TempDir::new("against");
        let root = folder.join("repository");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "old").unwrap();
        let me = ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first"];
        assert!(git(&root, &["init", "-q"]) && git(&root, &["add", "."]) && git(&root, &me));
        fs::write(root.join("file"), "new").unwrap();
        let place = folder.join("source");
        let checkout = Checkout::new(&root, &place, "HEAD").unwrap();
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "old");
        drop(checkout);
        assert!(!place.exists());
        assert!(Checkout::new(&root, &place, "no-such-commit").is_err());
    }

    /// A program that does this with the file it shall write to, in `$1`, its words in `$words`.
    fn program(folder: &TempDir, name: &str, what: &str) -> PathBuf {
        let path = folder.join(name);
        let head = "#!/bin/sh\nwords=$*\nwhile [ $# -gt 1 ]; do shift; done\n";
        fs::write(&path, format!("{head}{what}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn results_of_cases_are_put_together() {
        let folder = TempDir::new("against");
        let files = ["old.jsonl", "new.jsonl"].map(|name| folder.join(name));
        let both = program(&folder, "both", "echo line > \"$1\"");
        for case in ["latency --quick", "rate"] {
            assert_eq!(measure_both([(&both, &files[0]), (&both, &files[1])], case).unwrap(), None);
        }
        for file in &files {
            assert_eq!(fs::read_to_string(file).unwrap(), "line\nline\n");
        }
    }

    #[test]
    fn a_case_that_one_program_lacks_is_left_out_and_a_failure_is_none() {
        let folder = TempDir::new("against");
        let files = ["old.jsonl", "new.jsonl"].map(|name| folder.join(name));
        let new = program(&folder, "new", "echo line > \"$1\"");
        for (lacks, said) in [
            ("echo error: no such case >&2; exit 2", "does not run it (error: no such case)"),
            ("exit 0", "writes no results"),
        ] {
            let old = program(&folder, "old", lacks);
            for pair in [
                [(&old, &files[0]), (&new, &files[1])],
                [(&new, &files[1]), (&old, &files[0])],
                [(&old, &files[0]), (&old, &files[1])],
            ] {
                let why = measure_both(pair, "launch").unwrap().expect("it is left out");
                assert!(why.contains(said) && why.contains("old"), "{why}");
            }
        }
        assert!(files.iter().all(|file| !file.exists()));
        let broken = program(&folder, "broken", "echo line > \"$1\"; exit 1");
        assert!(measure_both([(&broken, &files[0]), (&new, &files[1])], "launch").is_err());
    }
}
