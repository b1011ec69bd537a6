//! Tests that are skipped say so, by the name of the test, also from a child.

use std::fs;
use std::process::{Command, Stdio};

use viaduct_kit::packages::{SKIP_LOG, need_program};
use viaduct_kit::skip;
use viaduct_kit::tempdir::TempDir;

viaduct_kit::child!(SKIPS, |_args| {
    assert!(need_program("no-such-program", "no-such-package").is_none());
    assert!(need_program("sh", "dash").is_some());
    skip!("needs {} hands", 3);
});

#[test]
fn a_skip_is_said_and_logged() {
    let folder = TempDir::new("skips");
    let log = folder.join("log");
    let mut command: Command = SKIPS.command(&[]);
    let output = command.env(SKIP_LOG, &log).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    let owner = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "main".to_owned());
    let test = format!("{owner}::skips::a_skip_is_said_and_logged");
    let reasons = ["no-such-program not found (apt-get install no-such-package)", "needs 3 hands"];
    let said: String = reasons.iter().map(|reason| format!("SKIP {test}: {reason}\n")).collect();
    let logged: String = reasons.iter().map(|reason| format!("{test}\t{reason}\n")).collect();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), said);
    assert_eq!(fs::read_to_string(log).unwrap(), logged);
}
