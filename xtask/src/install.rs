//! `cargo xtask install --prefix DIR`: the C library with its header, pkg-config file and manual pages.
//!
//! ```text
//!  lib/libvipl.so.1.VERSION   libvipl.so.1   libvipl.so     include/vipl.h     lib/pkgconfig/vipl.pc
//!  share/man/man3/VipOpenNic.3 ...   a page for each group; further names of a page are pages that name it
//!  share/man/man7/vipl.7
//! ```

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::progress::say;
use crate::workspace::{self, Workspace};

const PACKAGE: &str = "viaduct-vipl";
/// The line of a manual page that lists its further names.
const ALIASES: &str = ".\\\" also:";

/// Builds and installs.
pub(crate) fn run(workspace: &Workspace, prefix: &Path) -> Result<bool> {
    ensure!(prefix.is_absolute(), "--prefix {}: an absolute path is wanted", prefix.display());
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--package", PACKAGE]);
    let status = command.status().context("cargo cannot be started")?;
    ensure!(status.success(), "building {PACKAGE}: {status}");
    let package = workspace.packages.iter().find(|package| package.name == PACKAGE);
    let package = package.with_context(|| format!("no package {PACKAGE}"))?;
    let library = workspace.target_directory.join("release/libvipl.so");
    for file in install(package.folder(), &library, &package.version, prefix)? {
        say(format_args!("{}", file.display()));
    }
    Ok(true)
}

/// Installs what was built; gives the files.
fn install(package: &Path, library: &Path, version: &str, prefix: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let lib = prefix.join("lib");
    let whole = format!("libvipl.so.1.{version}");
    files.push(put(&fs::read(library).with_context(|| library.display().to_string())?, &lib.join(&whole))?);
    fs::set_permissions(lib.join(&whole), fs::Permissions::from_mode(0o755))?;
    for (link, to) in [("libvipl.so.1", whole.as_str()), ("libvipl.so", "libvipl.so.1")] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        symlink(to, &link).with_context(|| link.display().to_string())?;
        files.push(link);
    }
    files.push(put(&fs::read(package.join("include/vipl.h"))?, &prefix.join("include/vipl.h"))?);
    let pc = fs::read_to_string(package.join("vipl.pc.in"))?;
    let pc = pc.replace("@PREFIX@", &prefix.display().to_string()).replace("@VERSION@", version);
    files.push(put(pc.as_bytes(), &lib.join("pkgconfig/vipl.pc"))?);
    for page in fs::read_dir(package.join("man"))? {
        files.extend(install_page(&page?.path(), &prefix.join("share/man"))?);
    }
    files.sort();
    Ok(files)
}

fn install_page(page: &Path, man: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(page)?;
    let name = page.file_name().and_then(|name| name.to_str()).context("a page without a name")?;
    let section = name.rsplit('.').next().unwrap_or("3");
    let folder = man.join(format!("man{section}"));
    let mut files = vec![put(text.as_bytes(), &folder.join(name))?];
    let aliases = text.lines().filter_map(|line| line.strip_prefix(ALIASES)).flat_map(str::split_whitespace);
    for alias in aliases {
        let other = format!(".so man{section}/{name}\n");
        files.push(put(other.as_bytes(), &folder.join(format!("{alias}.{section}")))?);
    }
    Ok(files)
}

fn put(bytes: &[u8], to: &Path) -> Result<PathBuf> {
    let folder = to.parent().context("a file in a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(to, bytes).with_context(|| to.display().to_string())?;
    Ok(to.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn everything_is_put_in_its_place() {
        let (built, prefix) = (TempDir::new("built"), TempDir::new("prefix"));
        fs::write(built.join("libvipl.so"), "library").unwrap();
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/vipl");
        let files = install(&package, &built.join("libvipl.so"), "9.8.7", prefix.path()).unwrap();
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        assert_eq!(fs::read_to_string(prefix.join("lib/libvipl.so")).unwrap(), "library");
        assert_eq!(fs::read_link(prefix.join("lib/libvipl.so.1")).unwrap(), Path::new("libvipl.so.1.9.8.7"));
        let pc = fs::read_to_string(prefix.join("lib/pkgconfig/vipl.pc")).unwrap();
        assert!(pc.contains("Version: 9.8.7") && pc.contains(&format!("prefix={}", prefix.path().display())));
        assert!(!pc.contains('@'));
        // Once more, over the old files.
        assert_eq!(install(&package, &built.join("libvipl.so"), "9.8.7", prefix.path()).unwrap(), files);
    }

    #[test]
    fn every_function_of_the_header_has_a_page() {
        let (built, prefix) = (TempDir::new("built"), TempDir::new("prefix"));
        fs::write(built.join("libvipl.so"), "library").unwrap();
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/vipl");
        install(&package, &built.join("libvipl.so"), "1", prefix.path()).unwrap();
        let header = fs::read_to_string(package.join("include/vipl.h")).unwrap();
        let words = header.split(|c: char| !c.is_ascii_alphanumeric());
        let functions: Vec<&str> = words.filter(|word| word.starts_with("Vip")).collect();
        assert!(functions.len() >= 46);
        for function in functions {
            let page = prefix.join(format!("share/man/man3/{function}.3"));
            assert!(page.exists(), "no manual page {function}(3)");
        }
    }
}
