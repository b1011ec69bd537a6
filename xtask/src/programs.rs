//! Programs of the crate registry that benchmarks compare with: built below `target/`, by full runs alone.
//!
//! They are no dependencies: a benchmark says of one that is not there that it is not installed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::progress::say;
use crate::step::Step;
use crate::tally::Tally;

/// How long one program may take to build.
const PATIENCE: Duration = Duration::from_secs(900);

/// A crate with a program.
#[derive(Clone, Copy, Debug)]
struct Program {
    name: &'static str,
    version: &'static str,
    /// What the program is called.
    file: &'static str,
}

/// The sort of uutils; what Debian has may be years older.
const PROGRAMS: &[Program] = &[Program { name: "uu_sort", version: "0.12.0", file: "sort" }];

/// The folder below the target folder.
const FOLDER: &str = "xtask/cargo";

/// Builds what is missing, if allowed; says what it does and why it does not.
pub(crate) fn provide(install: bool, full: bool, target: &Path) {
    let folder = target.join(FOLDER);
    for program in PROGRAMS.iter().filter(|program| full && !program.is_in(&folder)) {
        let good = install && {
            say(format_args!("programs: building {} {}", program.name, program.version));
            program.build(&folder)
        };
        if !good {
            let reason = if install { "cargo failed" } else { "--no-install" };
            say(format_args!("programs: missing {} ({reason}); benchmarks go without", program.name));
        }
    }
}

impl Program {
    fn is_in(self, folder: &Path) -> bool {
        folder.join("bin").join(self.file).is_file()
    }

    fn build(self, folder: &Path) -> bool {
        let built = folder.join("build");
        let mut command = Command::new("cargo");
        command.args(["install", self.name, "--version", self.version, "--locked", "--root"]).arg(folder);
        let good = Step::new(command).env("CARGO_TARGET_DIR", &built).run(PATIENCE, &mut Tally::default());
        let _ = std::fs::remove_dir_all(built);
        good.is_ok_and(|end| end.is_good()) && self.is_in(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn nothing_is_built_without_leave_or_in_a_quick_run() {
        let folder = TempDir::new("programs");
        provide(false, true, folder.path());
        provide(true, false, folder.path());
        assert!(!folder.join(FOLDER).exists());
    }
}
