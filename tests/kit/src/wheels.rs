//! Python packages that a test needs: `cargo xtask test` installs them into an environment below `target/`.
//!
//! ```no_run
//! # fn test() {
//! let Some(python) = viaduct_kit::wheels::need_wheel("mpi4py") else { return };
//! let mut command = std::process::Command::new(python);
//! # }
//! ```

use std::env;
use std::path::{Path, PathBuf};

use crate::packages::skip;

/// The folder of the environment below the target folder.
pub const FOLDER: &str = "xtask/venv";

/// The folder of sources, as their makers published them, below the target folder.
pub const SOURCES: &str = "xtask/sdist";

/// The Python interpreter that has this package, or `None` after having logged that this test is skipped for want of it.
pub fn need_wheel(name: &str) -> Option<PathBuf> {
    let found = environment().filter(|folder| is_there(folder, name)).map(|folder| python(&folder));
    if found.is_none() {
        skip(&format!("no Python package {name} (cargo xtask test installs it from the network)"));
    }
    found
}

/// The folder with the source of a package, or `None` after having logged that this test is skipped for want of it.
pub fn need_source(name: &str, version: &str) -> Option<PathBuf> {
    let found = below_target(&Path::new(SOURCES).join(format!("{name}-{version}")));
    if found.is_none() {
        skip(&format!("no source of {name} {version} (cargo xtask test fetches it from the network)"));
    }
    found
}

/// Whether a package is installed in the environment in `folder`.
pub fn is_there(folder: &Path, name: &str) -> bool {
    python(folder).exists() && mark(folder, name).exists()
}

/// The file that says that a package is installed, and in which version.
pub fn mark(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("installed-{name}"))
}

fn python(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

/// The environment beside the build that the running test binary is of: the target folder is some folders above it.
fn environment() -> Option<PathBuf> {
    below_target(Path::new(FOLDER))
}

fn below_target(name: &Path) -> Option<PathBuf> {
    let binary = env::current_exe().ok()?;
    binary.ancestors().map(|folder| folder.join(name)).find(|folder| folder.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempdir::TempDir;
    use std::fs;

    #[test]
    fn a_package_is_there_if_it_was_installed() {
        let folder = TempDir::new("wheels");
        fs::write(mark(folder.path(), "one"), "1").unwrap();
        assert!(!is_there(folder.path(), "one"));
        fs::create_dir(folder.join("bin")).unwrap();
        fs::write(python(folder.path()), "").unwrap();
        assert!(is_there(folder.path(), "one"));
        assert!(!is_there(folder.path(), "two"));
    }
}
