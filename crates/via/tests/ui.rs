//! What the types make impossible: each program of `ui/` is a mistake that must not compile.
//!
//! A line that ends with `//~ E0382` must have exactly that error (`//~ unused`: the lint that says so, which the program
//! denies), and no other line may have one. The compiler is asked
//! directly, against the library this test was built with, so that no dependency is built a second time.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use viaduct_kit::tempdir::TempDir;

/// Line and code of every error of a program; `None` if the compiler could not be asked.
fn errors(program: &Path, library: &Path, out: &Path) -> Option<BTreeSet<(usize, String)>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition=2024", "--emit=metadata", "--error-format=short", "--crate-type=bin", "-Awarnings"])
        .arg("--extern")
        .arg(format!("viaduct_via={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", library.parent()?.display()))
        .arg("--out-dir")
        .arg(out)
        .arg(program)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: BTreeSet<_> = text.lines().filter_map(|line| error_of(line, program)).collect();
    assert!(output.status.success() || !errors.is_empty(), "{}: {text}", program.display());
    Some(errors)
}

/// `path:LINE:COLUMN: error[CODE]: ...`; a lint that the program denies has no code, and is known by its first word.
fn error_of(line: &str, program: &Path) -> Option<(usize, String)> {
    let rest = line.strip_prefix(program.to_str()?)?.strip_prefix(':')?;
    let (number, rest) = rest.split_once(':')?;
    let name = match rest.split_once("error[") {
        Some((_, rest)) => rest.split_once(']')?.0,
        None => rest.split_once("error: ")?.1.split(' ').next()?,
    };
    Some((number.parse().ok()?, name.to_owned()))
}

fn expected(text: &str) -> BTreeSet<(usize, String)> {
    let marked = text.lines().enumerate().filter_map(|(n, line)| Some((n + 1, line.split_once("//~ ")?.1)));
    marked.map(|(n, code)| (n, code.trim().to_owned())).collect()
}

/// The library this test was linked with: the newest one with which a good program compiles.
fn library(folder: &TempDir) -> Option<PathBuf> {
    let good = folder.join("good.rs");
    fs::write(
        &good,
        "use viaduct_via::Nic;\nfn close(nic: Nic) { drop(nic) }\nfn main() { let _ = close; }\n",
    )
    .unwrap();
    let deps = env::current_exe().ok()?.parent()?.to_owned();
    let mut found: Vec<_> = fs::read_dir(deps)
        .ok()?
        .flatten()
        .filter(|e| {
            let name = e.file_name().to_string_lossy().into_owned();
            name.starts_with("libviaduct_via-") && name.ends_with(".rlib")
        })
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    found.sort();
    let works = |library: &PathBuf| {
        std::panic::catch_unwind(|| errors(&good, library, folder.path()))
            .is_ok_and(|errors| errors.is_some_and(|errors| errors.is_empty()))
    };
    found.into_iter().rev().map(|(_, path)| path).find(works)
}

#[test]
fn mistakes_do_not_compile() {
    let folder = TempDir::new("ui");
    let Some(library) = library(&folder) else {
        viaduct_kit::skip!("no compiler that fits the library this test was built with");
    };
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut count = 0;
    for program in fs::read_dir(programs).unwrap().flatten().map(|e| e.path()) {
        let wanted = expected(&fs::read_to_string(&program).unwrap());
        assert!(!wanted.is_empty(), "{}: no line is marked", program.display());
        let found = errors(&program, &library, folder.path()).expect("it was there a moment ago");
        assert_eq!(found, wanted, "{}", program.display());
        count += 1;
    }
    assert!(count >= 10);
}
