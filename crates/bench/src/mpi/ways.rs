//! The MPI libraries that are measured: ours by shared memory and by libfabric, and those that are installed.
//!
//! Each compiles `program.c` with its own `mpicc`. Intel's library has none in its wheel: the program that our compiler made runs
//! on it by loader path, since both have the binary interface of MPICH.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::rivals::Launcher;

/// An MPI library, and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct MpiWay {
    /// Its name in results.
    pub layer: &'static str,
    /// What it is, and how it was set.
    pub about: &'static str,
    /// The provider, if it is ours.
    pub provider: Option<&'static str>,
    /// How to get it.
    pub install: &'static str,
    /// Cases that it is for; empty for all.
    pub(super) only: &'static [&'static str],
    find: fn(&Tools<'_>) -> Option<Ready>,
}

/// Where libraries and programs are looked for.
pub(super) struct Tools<'a> {
    pub(super) launcher: &'a Launcher,
    /// The private folder of our own library.
    pub(super) ours: &'a Path,
    /// A folder for what is compiled.
    pub(super) folder: &'a Path,
}

/// An MPI library that is there: what compiles a program, what starts it, and the variables of both.
#[derive(Clone)]
pub(super) struct Ready {
    compiler: PathBuf,
    start: PathBuf,
    words: Vec<String>,
    variables: Vec<(&'static str, Option<OsString>)>,
}

/// All of them, ours first.
pub const ALL: &[MpiWay] = &[
    MpiWay {
        layer: "mpi",
        about: "Viaduct's MPI by shared memory",
        provider: Some("shm"),
        install: "cargo build --release",
        only: &[],
        find: |tools| Some(tools.own(&[])),
    },
    MpiWay {
        layer: "mpi:ofi",
        about: "Viaduct's MPI by libfabric's TCP, though both ranks are on one host",
        provider: Some("ofi:tcp"),
        install: "apt-get install libfabric1",
        only: &["mpi-latency", "mpi-bandwidth"],
        find: |tools| Some(tools.own(&[("VIADUCT_PROVIDER", "ofi:tcp")])),
    },
    MpiWay {
        layer: "rival:openmpi",
        about: "Open MPI as it is installed, ranks not bound",
        provider: None,
        install: "apt-get install openmpi-bin libopenmpi-dev gcc",
        only: &[],
        find: |tools| tools.other("openmpi", &open_mpi(&[]), &[]),
    },
    MpiWay {
        layer: "rival:openmpi-yield",
        about: "Open MPI whose waits yield the core",
        provider: None,
        install: "apt-get install openmpi-bin libopenmpi-dev gcc",
        only: &["mpi-one-core"],
        find: |tools| tools.other("openmpi", &open_mpi(&["--mca", "mpi_yield_when_idle", "1"]), &[]),
    },
    MpiWay {
        layer: "rival:mpich",
        about: "MPICH as it is installed",
        provider: None,
        install: "apt-get install mpich libmpich-dev gcc",
        only: &[],
        find: |tools| tools.other("mpich", &[], &[]),
    },
    MpiWay {
        layer: "rival:mpich-tcp",
        about: "MPICH forced onto TCP, as in the thesis",
        provider: None,
        install: "apt-get install mpich libmpich-dev gcc",
        only: &["mpi-latency", "mpi-bandwidth", "mpi-buffers", "mpi-segments", "mpi-any"],
        find: |tools| tools.other("mpich", &[], &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self")]),
    },
    MpiWay {
        layer: "rival:intelmpi",
        about: "Intel MPI of the wheel impi_rt",
        provider: None,
        install: "pip install --no-deps impi_rt, into target/xtask/venv or the environment that VIRTUAL_ENV names",
        only: &[],
        find: intel,
    },
];

/// Compiling may take this long.
const COMPILING: Duration = Duration::from_secs(120);

impl MpiWay {
    /// The library, if it is there.
    pub(super) fn ready(&self, tools: &Tools<'_>) -> Option<Ready> {
        (self.find)(tools)
    }
}

impl Ready {
    /// Compiles the program, once for each compiler.
    pub(super) fn compile(&self, tools: &Tools<'_>, source: &Path) -> Result<PathBuf> {
        let words = self.compiler.to_string_lossy().replace(['/', '.'], "-");
        let program = tools.folder.join(format!("program{words}"));
        if !program.exists() {
            let names = [&program, source].map(|path| path.display().to_string());
            let [to, from] = names;
            let args = ["-O2".to_owned(), "-w".into(), "-o".into(), to, from];
            tools.launcher.whole_in(&self.compiler, &args, &clean(), COMPILING)?;
        }
        Ok(program)
    }

    /// Runs the program by so many ranks, and gives what it printed.
    pub(super) fn run(
        &self,
        tools: &Tools<'_>,
        program: &Path,
        ranks: usize,
        args: &[String],
        limit: Duration,
    ) -> Result<String> {
        let variables = [&clean()[..], &self.variables].concat();
        tools.launcher.whole_in(&self.start, &self.words_for(program, ranks, args), &variables, limit)
    }

    /// Runs a program by so many ranks under another one, with further variables.
    #[allow(clippy::too_many_arguments, reason = "those of `run`, and what comes before and beside them")]
    pub(super) fn run_under(
        &self,
        (tool, before): (&Path, &[String]),
        tools: &Tools<'_>,
        program: &Path,
        ranks: usize,
        args: &[String],
        further: &[(&'static str, Option<OsString>)],
        limit: Duration,
    ) -> Result<String> {
        let start = [self.start.display().to_string()];
        let words = [before, &start, &self.words_for(program, ranks, args)].concat();
        let variables = [&clean()[..], &self.variables, further].concat();
        tools.launcher.whole_in(tool, &words, &variables, limit)
    }

    /// What the launcher is told.
    fn words_for(&self, program: &Path, ranks: usize, args: &[String]) -> Vec<String> {
        let head = ["-n".to_owned(), ranks.to_string(), program.display().to_string()];
        [&self.words[..], &head, args].concat()
    }

    /// Whether it is MPICH as it is installed.
    pub(super) fn is_mpich(&self) -> bool {
        self.start.file_name().is_some_and(|name| name == "mpiexec.mpich")
    }

    /// Whether programs that were built for MPICH run on it.
    pub(super) fn has_interface_of_mpich(&self) -> bool {
        self.start.file_name().is_none_or(|name| name != "mpiexec.openmpi")
    }
}

/// No library is taken by accident.
fn clean() -> Vec<(&'static str, Option<OsString>)> {
    vec![("LD_LIBRARY_PATH", None), ("LD_PRELOAD", None), ("VIADUCT_PROVIDER", None)]
}

impl Tools<'_> {
    fn own(&self, variables: &[(&'static str, &str)]) -> Ready {
        let named = variables.iter().flat_map(|(name, _)| ["-x".to_owned(), (*name).to_owned()]);
        Ready {
            compiler: self.ours.join("bin/mpicc"),
            start: self.ours.join("bin/mpiexec"),
            words: named.collect(),
            variables: set(variables),
        }
    }

    fn other(&self, which: &str, words: &[String], variables: &[(&'static str, &str)]) -> Option<Ready> {
        Some(Ready {
            compiler: self.launcher.find(&format!("mpicc.{which}"))?,
            start: self.launcher.find(&format!("mpiexec.{which}"))?,
            words: words.to_vec(),
            variables: set(variables),
        })
    }
}

fn set(variables: &[(&'static str, &str)]) -> Vec<(&'static str, Option<OsString>)> {
    variables.iter().map(|(name, value)| (*name, Some((*value).into()))).collect()
}

/// It would bind ranks to cores of its own choice, and refuses root without being told.
pub(crate) fn open_mpi(further: &[&str]) -> Vec<String> {
    let root = rustix::process::geteuid().is_root().then_some("--allow-run-as-root");
    let words = ["--bind-to", "none", "--oversubscribe"].into_iter().chain(root);
    words.chain(further.iter().copied()).map(Into::into).collect()
}

/// Where the wheel of Intel MPI is: in the environment that is active, or in that of this build.
pub(super) fn wheel() -> Option<PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let own = std::env::current_exe().ok()?;
    let built = own.ancestors().map(|folder| folder.join("xtask/venv"));
    let has =
        |folder: &PathBuf| folder.join("lib/libmpi.so.12").exists() && folder.join("bin/IMB-MPI1").exists();
    active.into_iter().chain(built).find(has)
}

/// Intel's, of the wheel.
fn intel(tools: &Tools<'_>) -> Option<Ready> {
    let folder = wheel()?;
    let lib = folder.join("lib");
    let variables = vec![
        ("LD_LIBRARY_PATH", Some(lib.into_os_string())),
        ("I_MPI_ROOT", Some(folder.clone().into_os_string())),
        ("I_MPI_FABRICS", Some("shm".into())),
        ("I_MPI_PIN", Some("0".into())),
    ];
    Some(Ready {
        compiler: tools.ours.join("bin/mpicc"),
        start: folder.join("bin/mpiexec.hydra"),
        words: Vec::new(),
        variables,
    })
}

/// A way by its name, with or without `rival:`.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<&'static MpiWay> {
    let known = ALL.iter().find(|way| way.layer == name || way.layer.strip_prefix("rival:") == Some(name));
    let names =
        || ALL.iter().map(|way| way.layer.trim_start_matches("rival:")).collect::<Vec<_>>().join(", ");
    known.ok_or_else(|| Error::usage(format!("there is no MPI `{name}`"), format!("known: {}", names())))
}
