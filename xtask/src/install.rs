//! `cargo xtask install --prefix DIR`: the C libraries with their headers, pkg-config files and manual pages.
//!
//! ```text
//!  lib/libvipl.so.1.VERSION   libvipl.so.1   libvipl.so     include/vipl.h     lib/pkgconfig/vipl.pc
//!  share/man/man3/VipOpenNic.3 ...   a page for each group; further names of a page are pages that name it
//!  share/man/man7/vipl.7
//!  bin/viaduct   lib/libsovia_preload.so                     for unmodified programs
//!  lib/viaduct/libvmpi.so   lib/viaduct/mpi/{bin,include,lib}   MPI, in a folder of its own: it shadows no other MPI
//!  the same for libsovia; share/sovia/sovia_rpc.c: what programs compile themselves
//! ```

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::progress::say;
use crate::workspace::{self, Workspace};

/// Packages, and the names of their libraries.
const LIBRARIES: &[(&str, &str)] = &[("viaduct-vipl", "vipl"), ("viaduct-libsovia", "sovia")];
/// What unmodified programs need, and where it goes: the library finds the program from its own place.
const PLAIN: &[(&str, &str)] =
    &[("viaduct", "bin"), ("libsovia_preload.so", "lib"), ("libvmpi.so", "lib/viaduct")];
/// The packages that these are built from.
const PROGRAMS: [&str; 3] = ["viaduct", "viaduct-preload", "viaduct-libmpi"];
/// The line of a manual page that lists its further names.
const ALIASES: &str = ".\\\" also:";

/// Builds and installs.
pub(crate) fn run(workspace: &Workspace, prefix: &Path) -> Result<bool> {
    ensure!(prefix.is_absolute(), "--prefix {}: an absolute path is wanted", prefix.display());
    let mut command = workspace::cargo();
    command.args(["build", "--release"]);
    for package in LIBRARIES.iter().map(|(package, _)| package).chain(&PROGRAMS) {
        command.args(["--package", package]);
    }
    let status = command.status().context("cargo cannot be started")?;
    ensure!(status.success(), "building the libraries: {status}");
    for (name, library) in LIBRARIES {
        let package = workspace.packages.iter().find(|package| package.name == *name);
        let package = package.with_context(|| format!("no package {name}"))?;
        let built = workspace.target_directory.join(format!("release/lib{library}.so"));
        for file in install(package.folder(), library, &built, &package.version, prefix)? {
            say(format_args!("{}", file.display()));
        }
    }
    for (file, folder) in PLAIN {
        let built = workspace.target_directory.join("release").join(file);
        let place = prefix.join(folder).join(file);
        put(&fs::read(&built).with_context(|| built.display().to_string())?, &place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
        say(format_args!("{}", place.display()));
    }
    say(format_args!("{}", make_mpi(prefix)?));
    Ok(true)
}

/// Lets the installed program make the folder of MPI beside the installed library: links, headers, compilers, launchers.
fn make_mpi(prefix: &Path) -> Result<String> {
    let program = prefix.join("bin/viaduct");
    let output = Command::new(&program).args(["mpi", "path"]).output();
    let output = output.with_context(|| program.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "making the folder of MPI: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Installs a library that was built; gives the files.
fn install(package: &Path, name: &str, built: &Path, version: &str, prefix: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let lib = prefix.join("lib");
    let (plain, major) = (format!("lib{name}.so"), format!("lib{name}.so.1"));
    let whole = format!("{major}.{version}");
    files.push(put(&fs::read(built).with_context(|| built.display().to_string())?, &lib.join(&whole))?);
    fs::set_permissions(lib.join(&whole), fs::Permissions::from_mode(0o755))?;
    for (link, to) in [(&major, &whole), (&plain, &major)] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        symlink(to, &link).with_context(|| link.display().to_string())?;
        files.push(link);
    }
    let pc = fs::read_to_string(package.join(format!("{name}.pc.in")))?;
    let pc = pc.replace("@PREFIX@", &prefix.display().to_string()).replace("@VERSION@", version);
    files.push(put(pc.as_bytes(), &lib.join(format!("pkgconfig/{name}.pc")))?);
    files.extend(copy_all(&package.join("include"), &prefix.join("include"))?);
    // Sources that programs compile with their own.
    if package.join("rpc").is_dir() {
        files.extend(copy_all(&package.join("rpc"), &prefix.join("share").join(name))?);
    }
    for page in fs::read_dir(package.join("man"))? {
        files.extend(install_page(&page?.path(), &prefix.join("share/man"))?);
    }
    files.sort();
    Ok(files)
}

/// Copies the files of a folder.
fn copy_all(from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(from).with_context(|| from.display().to_string())?;
    files
        .map(|file| file.map(|f| f.path()).map_err(Into::into))
        .map(|file: Result<PathBuf>| {
            let file = file?;
            put(&fs::read(&file)?, &to.join(file.file_name().context("a file with a name")?))
        })
        .collect()
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

/// Writes a file, in place of the old one: programs that run keep what they have opened.
fn put(bytes: &[u8], to: &Path) -> Result<PathBuf> {
    let folder = to.parent().context("a file in a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let new = folder.join(format!(".{}.new", std::process::id()));
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, to)).with_context(|| to.display().to_string())?;
    Ok(to.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    fn package(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi").join(name)
    }

    /// Installs something in the library's place.
    fn installed(name: &str, prefix: &TempDir) -> Vec<PathBuf> {
        let built = TempDir::new("built");
        fs::write(built.join("lib.so"), "library").unwrap();
        install(&package(name), name, &built.join("lib.so"), "9.8.7", prefix.path()).unwrap()
    }

    #[test]
    fn everything_is_put_in_its_place() {
        for (_, name) in LIBRARIES {
            let prefix = TempDir::new("prefix");
            let files = installed(name, &prefix);
            assert!(files.iter().all(|file| file.exists()), "{files:?}");
            assert_eq!(fs::read_to_string(prefix.join(format!("lib/lib{name}.so"))).unwrap(), "library");
            let link = fs::read_link(prefix.join(format!("lib/lib{name}.so.1"))).unwrap();
            assert_eq!(link, PathBuf::from(format!("lib{name}.so.1.9.8.7")));
            assert!(prefix.join(format!("include/{name}.h")).exists());
            let pc = fs::read_to_string(prefix.join(format!("lib/pkgconfig/{name}.pc"))).unwrap();
            assert!(pc.contains("Version: 9.8.7"));
            assert!(pc.contains(&format!("prefix={}", prefix.path().display())) && !pc.contains('@'));
            // Once more, over the old files.
            assert_eq!(installed(name, &prefix), files);
        }
    }

    #[test]
    fn a_file_that_a_program_has_open_is_replaced_and_not_written_over() {
        let prefix = TempDir::new("prefix");
        let place = put(b"old", &prefix.join("lib/file")).unwrap();
        let mut open = fs::File::open(&place).unwrap();
        put(b"newer", &place).unwrap();
        assert_eq!(std::io::read_to_string(&mut open).unwrap(), "old");
        assert_eq!(fs::read_to_string(&place).unwrap(), "newer");
        assert_eq!(fs::read_dir(prefix.join("lib")).unwrap().count(), 1);
    }

    #[test]
    fn every_function_of_the_headers_has_a_page() {
        for (library, header, start, least) in [
            ("vipl", "vipl.h", "Vip", 46),
            ("sovia", "sovia.h", "sov_", 20),
            ("sovia", "sovia_rpc.h", "sov_", 4),
        ] {
            let prefix = TempDir::new("prefix");
            installed(library, &prefix);
            let header = fs::read_to_string(package(library).join("include").join(header)).unwrap();
            // In comments there may be the start of names alone.
            let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let functions: Vec<&str> =
                words.filter(|word| word.starts_with(start) && *word != start).collect();
            assert!(functions.len() >= least, "{functions:?}");
            for function in functions {
                let page = prefix.join(format!("share/man/man3/{function}.3"));
                assert!(page.exists(), "no manual page {function}(3)");
            }
        }
    }
}
