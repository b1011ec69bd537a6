//! Tells the program which commit it was built from, where that can be known: results say so.
//!
//! `VIADUCT_COMMIT` in the environment goes before what git says; without either, results carry no commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=VIADUCT_COMMIT");
    if std::env::var_os("VIADUCT_COMMIT").is_some() {
        return;
    }
    // The log of HEAD grows with every commit and every checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=VIADUCT_COMMIT={commit}");
    }
}

/// What git prints, if there is a git and it knows this folder.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
