//! Viaduct's MPI as programs find it: a private folder with links to the library that was just built, and two launchers.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::{full, scaled};
use viaduct_kit::packages::{find_program, skip};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::prefix::{LIBRARY, make};

/// The headers of Debian's MPICH.
pub const MPICH_HEADERS: &str = "/usr/include/x86_64-linux-gnu/mpich";

/// The private folder for one test.
pub struct Mpi {
    folder: TempDir,
    runtime: TempDir,
}

/// What starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `viaduct launch`.
    Ours,
    /// `mpiexec.hydra` of Debian's MPICH.
    Hydra,
}

impl Mpi {
    /// A folder with links to the library beside this test.
    ///
    /// # Panics
    /// If the library was not built.
    pub fn new() -> Mpi {
        let library = beside(LIBRARY);
        assert!(library.exists(), "{library:?} is not there: cargo build -p viaduct-libmpi");
        let (folder, runtime) = (TempDir::new("mpi"), TempDir::new("mpi-run"));
        folder.open_to_all();
        make(folder.path(), &library).expect("the folder is new and ours");
        Mpi { folder, runtime }
    }

    /// The private folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the libraries are.
    pub fn lib(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// Compiles a program of the C set, with MPICH's headers where they are installed, else with ours.
    pub fn compile(&self, name: &str) -> Option<Compiled> {
        let theirs = Path::new(MPICH_HEADERS).join("mpi.h").exists();
        let include =
            if theirs { MPICH_HEADERS.to_owned() } else { format!("{}/include", self.folder().display()) };
        self.compile_with(&include, name)
    }

    /// As [`Mpi::compile`], with our own headers.
    pub fn compile_with_our_headers(&self, name: &str) -> Option<Compiled> {
        self.compile_with(&format!("{}/include", self.folder().display()), name)
    }

    fn compile_with(&self, include: &str, name: &str) -> Option<Compiled> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name).with_extension("c");
        let link = format!("-L{}", self.lib().display());
        let mut flags = vec!["-isystem", include, &link, "-lmpi", "-pthread", "-O2"];
        if include == MPICH_HEADERS {
            // It tells the compiler that statuses are arrays, and marks are none.
            flags.push("-Wno-stringop-overflow");
        }
        compile_c_file(source, &flags)
    }

    /// A command that runs a program as ranks of a job; `None` if the launcher is not installed, and then the test is
    /// logged as skipped.
    pub fn launch(&self, launcher: Launcher, ranks: usize, program: impl AsRef<OsStr>) -> Option<Command> {
        let mut command = match launcher {
            Launcher::Ours => {
                let ours = beside("../viaduct");
                if !ours.exists() {
                    skip("no program viaduct beside the tests (cargo build)");
                    return None;
                }
                let mut command = Command::new(ours);
                command.args(["launch", "-n"]);
                command
            }
            Launcher::Hydra => {
                let Some(hydra) = find_program("mpiexec.hydra") else {
                    skip("no mpiexec.hydra here (apt-get install mpich)");
                    return None;
                };
                let mut command = Command::new(hydra);
                command.args(["-launcher", "fork", "-n"]);
                command
            }
        };
        command.arg(ranks.to_string()).arg(program);
        self.dress(&mut command);
        Some(command)
    }

    /// Has a command find the library, as `viaduct mpi env` would, and a run-time folder of its own.
    pub fn dress(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.lib()).env("VIADUCT_RUNTIME_DIR", self.runtime.path());
        command.env("MPI4PY_LIBMPI", self.lib().join("libmpi.so.12"));
    }
}

impl Default for Mpi {
    fn default() -> Self {
        Self::new()
    }
}

/// A file beside the tests' own program.
///
/// # Panics
/// If the program was removed while it runs.
pub fn beside(name: &str) -> PathBuf {
    env::current_exe().expect("a running program has a path").with_file_name(name)
}

/// Runs a command to its good end; its output.
///
/// # Panics
/// If it does not end with 0; the message has its output.
pub fn good(mut command: Command) -> String {
    let output = run(&mut command);
    let text = text(&output);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// Runs a command to its end, whatever that is.
///
/// # Panics
/// If it cannot be started.
pub fn run(command: &mut Command) -> Output {
    // Sixteen processes of Python on two cores take their time, with a library that was not optimised.
    let limit = Duration::from_secs(if full() { 1800 } else { 120 });
    let _watchdog = Watchdog::arm(scaled(limit), "an MPI program");
    command.output().expect("the program can be started")
}

/// What a program wrote.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
