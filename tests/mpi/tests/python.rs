//! mpi4py, as its wheel was built for MPICH: its benchmarks, and the tests that come with its source.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use viaduct_kit::effort::full;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::wheels::{is_there, need_source, need_wheel};
use viaduct_mpi_tests::{Launcher, Mpi, good, run, text};

/// What is run, and what is known to fail.
const EXPECTED: &str = include_str!("../mpi4py/expected.txt");

#[test]
fn its_benchmarks_run() {
    let Some(python) = need_wheel("mpi4py") else { return };
    let mpi = Mpi::new();
    for (ranks, words, sign) in [
        (3, &["helloworld"][..], "I am process 2 of 3"),
        (3, &["ringtest"], "3 processes"),
        (2, &["pingpong", "--max-size", "20000", "--loop", "20"], "16384"),
    ] {
        let Some(mut command) = mpi.launch(Launcher::Ours, ranks, &python) else { return };
        command.args(["-m", "mpi4py.bench"]).args(words);
        let said = good(command);
        assert!(said.contains(sign), "{said}");
    }
}

#[test]
fn it_takes_our_library_also_beside_another_in_its_environment() {
    let Some(python) = need_wheel("mpi4py") else { return };
    let mpi = Mpi::new();
    let Some(mut command) = mpi.launch(Launcher::Ours, 1, &python) else { return };
    command.args(["-c", "from mpi4py import MPI; print(MPI.Get_library_version())"]);
    let said = good(command);
    assert!(said.starts_with("Viaduct"), "{said}");
}

/// A module of its tests, and which of these fail.
struct Module {
    name: &'static str,
    quick: bool,
    failing: BTreeSet<&'static str>,
}

/// What the list says, for an environment whose packages it asks for.
fn modules(has_package: impl Fn(&str) -> bool) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    for line in EXPECTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.split_once(' '), modules.last_mut()) {
            (Some(("quick", name)), _) => {
                modules.push(Module { name, quick: true, failing: BTreeSet::new() })
            }
            (Some(("long", name)), _) => {
                modules.push(Module { name, quick: false, failing: BTreeSet::new() })
            }
            (_, Some(last)) => {
                let (name, package) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
                if package.is_empty() || has_package(package) {
                    assert!(last.failing.insert(name), "{line} stands there twice");
                }
            }
            _ => panic!("a test before its module: {line}"),
        }
    }
    modules
}

/// The tests that one rank says have failed, and whether it came to the end.
fn failed(report: &str) -> (BTreeSet<String>, bool) {
    let names = report.lines().filter(|line| line.starts_with("ERROR: ") || line.starts_with("FAIL: "));
    let names = names.filter_map(|line| Some(line.rsplit_once('(')?.1.split_once(')')?.0.to_owned()));
    let ended = report.lines().any(|line| line.starts_with("Ran ") && line.contains(" tests in "));
    (names.collect(), ended)
}

/// Runs modules with some ranks; what has failed in any of them.
fn run_modules(
    mpi: &Mpi,
    python: &Path,
    source: &Path,
    ranks: usize,
    names: &[&str],
) -> Option<BTreeSet<String>> {
    let folder = TempDir::new("mpi4py");
    folder.open_to_all();
    let mut command = mpi.launch(Launcher::Ours, ranks, "sh")?;
    // A file for each rank, of which each finds its own.
    let script = format!("exec \"$@\" 2> '{}'/$VIADUCT_RANK", folder.path().display());
    command.args(["-c", &script, "sh"]).arg(python).args(["test/main.py", "--no-builddir", "-v"]).args(names);
    command.current_dir(source).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = run(&mut command);
    let mut all = BTreeSet::new();
    for rank in 0..ranks {
        let report = fs::read_to_string(folder.join(rank.to_string())).unwrap_or_default();
        let (failed, ended) = failed(&report);
        let tail: Vec<&str> = report.lines().rev().take(30).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        assert!(
            ended,
            "rank {rank} of {ranks}, {names:?}: {}\n{}\n{}",
            output.status,
            text(&output),
            tail.join("\n")
        );
        all.extend(failed);
    }
    Some(all)
}

/// Numbers of ranks that a module runs with in a long run.
fn ranks_of(module: &str) -> &'static [usize] {
    if module.starts_with("test_cco") { &[1, 2, 3, 4, 5, 8, 16] } else { &[1, 2, 3, 4] }
}

#[test]
fn its_own_tests_pass_but_for_calls_that_are_refused() {
    let Some(python) = need_wheel("mpi4py") else { return };
    let Some(source) = need_source("mpi4py", "4.1.2") else { return };
    let mpi = Mpi::new();
    let environment = python.ancestors().nth(2).expect("python is in bin of its environment");
    let modules = modules(|package| is_there(environment, package));
    let modules: Vec<Module> = modules.into_iter().filter(|module| full() || module.quick).collect();
    let expected: BTreeSet<&str> = modules.iter().flat_map(|module| module.failing.iter().copied()).collect();
    let names: Vec<&str> = modules.iter().map(|module| module.name).collect();
    // A long run has jobs of one module, so that each has the whole time limit.
    let size = if full() { 1 } else { names.len() };
    let mut failed = BTreeSet::new();
    for names in names.chunks(size) {
        for &ranks in if full() { ranks_of(names[0]) } else { &[2] } {
            let Some(more) = run_modules(&mpi, &python, &source, ranks, names) else { return };
            let new: Vec<_> = more.iter().filter(|name| !expected.contains(name.as_str())).collect();
            assert!(new.is_empty(), "{ranks} ranks: {new:?} failed");
            failed.extend(more);
        }
    }
    let mended: Vec<_> = expected.iter().filter(|name| !failed.contains(**name)).collect();
    assert!(mended.is_empty(), "take out of the list, they pass: {mended:?}");
}
