//! The private folder of MPI: library names, headers, compilers and launchers, apart from any other MPI on the machine.
//!
//! ```text
//!   bin/      mpicc mpicxx mpic++ mpifort mpif77 mpif90 mpiexec mpirun      short scripts
//!   include/  mpi.h mpif.h
//!   lib/      libmpi.so libmpi.so.12 libmpich.so.12 libmpifort.so.12 ...    links to the one library
//!             pkgconfig/mpi.pc mpich.pc
//! ```
//!
//! A program takes Viaduct's MPI if `lib` is in its loader path, or if it was compiled by these compilers, and by no
//! accident otherwise.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The file that all library names are links to.
pub const LIBRARY: &str = "libvmpi.so";

/// The names by which linkers and prebuilt programs know the library, C's and Fortran's.
pub const NAMES: [&str; 8] = [
    "libmpi.so",
    "libmpi.so.12",
    "libmpich.so",
    "libmpich.so.12",
    "libmpifort.so",
    "libmpifort.so.12",
    "libmpichfort.so",
    "libmpichfort.so.12",
];

const HEADERS: [(&str, &str); 2] = [
    ("mpi.h", include_str!("../../../../capi/mpi/include/mpi.h")),
    ("mpif.h", include_str!("../../../../capi/mpi/include/mpif.h")),
];

const COMPILER: &str = include_str!("compiler.sh");
const MPIEXEC: &str = include_str!("mpiexec.sh");
const PKG_CONFIG: &str = include_str!("mpi.pc");

/// A compiler: its names, the variable and the option that name another one, and the usual one.
struct Compiler {
    names: &'static [&'static str],
    variable: &'static str,
    option: &'static str,
    usual: &'static str,
    flags: &'static str,
    libraries: &'static str,
}

/// gfortran takes calls of one procedure with arguments of several types for errors, which `mpif.h` cannot avoid.
const MISMATCHES: &str = " -fallow-argument-mismatch";

const COMPILERS: [Compiler; 4] = [
    Compiler {
        names: &["mpicc"],
        variable: "MPICH_CC",
        option: "cc",
        usual: "cc",
        flags: "",
        libraries: " -lmpi",
    },
    Compiler {
        names: &["mpicxx", "mpic++"],
        variable: "MPICH_CXX",
        option: "cxx",
        usual: "c++",
        flags: "",
        libraries: " -lmpi",
    },
    Compiler {
        names: &["mpifort", "mpif90"],
        variable: "MPICH_FC",
        option: "fc",
        usual: "gfortran",
        flags: MISMATCHES,
        libraries: " -lmpifort -lmpi",
    },
    Compiler {
        names: &["mpif77"],
        variable: "MPICH_F77",
        option: "f77",
        usual: "gfortran",
        flags: MISMATCHES,
        libraries: " -lmpifort -lmpi",
    },
];

/// Makes the folder, or what is missing or out of date in it. `library` is where the library is, seen from `lib`.
///
/// Processes may make it at the same time: every file appears whole.
///
/// # Errors
/// If something cannot be written; the message has its path.
pub fn make(folder: &Path, library: &Path) -> io::Result<()> {
    let (bin, include, lib) = (folder.join("bin"), folder.join("include"), folder.join("lib"));
    let packages = lib.join("pkgconfig");
    for part in [&bin, &include, &packages] {
        fs::create_dir_all(part).map_err(|error| at(part, &error))?;
    }
    for name in NAMES {
        link(library, &lib.join(name))?;
    }
    for (name, text) in HEADERS {
        write(&include.join(name), text, false)?;
    }
    for compiler in COMPILERS {
        for name in compiler.names {
            write(&bin.join(name), &compiler.script(name), true)?;
        }
    }
    for name in ["mpiexec", "mpirun"] {
        write(&bin.join(name), &MPIEXEC.replace("@NAME@", name), true)?;
    }
    let package = PKG_CONFIG.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    write(&packages.join("mpi.pc"), &package, false)?;
    link(Path::new("mpi.pc"), &packages.join("mpich.pc"))
}

impl Compiler {
    fn script(&self, name: &str) -> String {
        let text = COMPILER.replace("@NAME@", name).replace("@VARIABLE@", self.variable);
        let text = text.replace("@OPTION@", self.option).replace("@COMPILER@", self.usual);
        text.replace("@FLAGS@", self.flags).replace("@LIBRARIES@", self.libraries)
    }
}

/// Writes a file unless it says that already.
fn write(path: &Path, text: &str, program: bool) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    appear(path, |new| {
        fs::write(new, text)?;
        fs::set_permissions(new, fs::Permissions::from_mode(if program { 0o755 } else { 0o644 }))
    })
}

/// Makes a link unless it is there already.
///
/// # Errors
/// If it cannot be made; the message has its path.
pub fn link(to: &Path, path: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|there| there == to) {
        return Ok(());
    }
    appear(path, |new| symlink(to, new))
}

/// Makes something under another name, then gives it its own, so that no process sees half of it.
fn appear(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = Path::new(&name);
    let done = make(new).and_then(|()| fs::rename(new, path));
    done.map_err(|error| {
        let _ = fs::remove_file(new);
        at(path, &error)
    })
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use std::process::Command;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("viaduct-mpi-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn the_folder_has_every_name_and_is_made_again_without_change() {
        let folder = folder("names");
        for _ in 0..2 {
            make(&folder, Path::new("../../libvmpi.so")).unwrap();
        }
        for name in NAMES {
            let link = fs::read_link(folder.join("lib").join(name)).unwrap();
            assert_eq!(link, Path::new("../../libvmpi.so"));
        }
        for name in ["mpicc", "mpicxx", "mpic++", "mpifort", "mpif77", "mpif90", "mpiexec", "mpirun"] {
            let text = fs::read_to_string(folder.join("bin").join(name)).unwrap();
            assert!(!text.contains('@') || !text.contains("@NAME"), "{name}");
        }
        assert_eq!(fs::read_dir(folder.join("bin")).unwrap().count(), 8);
        fs::write(folder.join("include/mpi.h"), "old").unwrap();
        make(&folder, Path::new("../../libvmpi.so")).unwrap();
        assert!(fs::read_to_string(folder.join("include/mpi.h")).unwrap().contains("MPI_Send"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_compilers_say_what_they_would_run() {
        let folder = folder("show");
        make(&folder, Path::new("../../libvmpi.so")).unwrap();
        let show = |name: &str, words: &[&str]| {
            let output = Command::new(folder.join("bin").join(name)).args(words).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let include = format!("-I{}/include", folder.display());
        let whole = show("mpicc", &["-show", "x.c", "-o", "x"]);
        assert!(whole.starts_with(&format!("cc {include} x.c -o x -L")), "{whole}");
        assert!(whole.trim_end().ends_with("-lmpi"), "{whole}");
        let compile = show("mpicc", &["-compile_info"]);
        assert!(compile.contains(&include) && !compile.contains("-lmpi"), "{compile}");
        assert!(show("mpicxx", &["-link_info"]).contains("-lmpi"));
        assert!(show("mpif77", &["-show", "-c", "x.f"]).starts_with("gfortran"));
        assert!(show("mpicc", &["-cc=other", "-show"]).starts_with("other"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_header_declares_every_entry_point_of_the_table() {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let header = squeezed(HEADERS[0].1);
        for entry in table::entries() {
            // Of an array compilers believe that it is there, and warn of MPI_STATUSES_IGNORE.
            let declared =
                entry.prototype.replace("MPI_Status array_of_statuses[]", "MPI_Status *array_of_statuses");
            let tool = declared.replacen(" MPI_", " PMPI_", 1);
            for prototype in [declared, tool] {
                assert!(header.contains(&format!("{prototype};")), "{prototype}");
            }
        }
    }
}
