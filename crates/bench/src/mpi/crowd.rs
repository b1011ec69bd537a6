//! The cases with sixteen ranks on two cores, timed from start to end: `mpi-crowd` runs IMB-MPI1 of Intel's wheel, `mpi-many` does the same
//! operations in a program of ours.
//!
//! IMB as its makers built it runs on every library with the binary interface of MPICH; Open MPI has another one, and only compiles the
//! program of ours. Libraries that spin while they wait take minutes for what takes others seconds: after [`LIMIT`] a run is cut
//! off, and counts as that.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cases::MANY;
use super::ways::{Ready, Tools, wheel};
use crate::error::{Error, Result};

/// After this a run is cut off.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// Barrier, one operation of each kind, and exchanges, up to 4 KiB, fifty times each.
const WORDS: &str =
    "-npmin RANKS -iter 50 -iter_policy off -msglog 0:12 Barrier Allreduce Bcast Alltoall Sendrecv";

/// Folders in which distributions have the library of MPICH.
const MPICH: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/libmpich.so.12",
    "/usr/lib/aarch64-linux-gnu/libmpich.so.12",
    "/usr/lib64/mpich/lib/libmpi.so.12",
    "/usr/lib/libmpich.so.12",
];

/// How long a run took, and whether it was cut off.
pub(super) struct Took {
    pub(super) milliseconds: f64,
    pub(super) cut: bool,
}

/// What holds programs to the two cores: a program, and its words.
///
/// # Errors
/// If it is missing.
pub(super) fn held(tools: &Tools<'_>, cpus: [usize; 2]) -> Result<(PathBuf, Vec<String>)> {
    let [one, other] = cpus;
    Ok((tool(tools, "taskset")?, vec!["-c".to_owned(), format!("{one},{other}")]))
}

fn tool(tools: &Tools<'_>, name: &str) -> Result<PathBuf> {
    tools.launcher.find(name).ok_or_else(|| {
        Error::usage(format!("there is no program `{name}`"), "apt-get install coreutils util-linux")
    })
}

/// Runs IMB-MPI1 on the two cores.
///
/// # Errors
/// If a program is missing, or it fails before its time is over.
pub(super) fn imb(tools: &Tools<'_>, ready: &Ready, cpus: [usize; 2], quick: bool) -> Result<Took> {
    let no_wheel =
        || Error::usage("IMB-MPI1 is not there", "pip install --no-deps impi_rt, as for Intel MPI");
    let program = wheel().ok_or_else(no_wheel)?.join("bin/IMB-MPI1");
    let ranks = ranks(quick);
    let words: Vec<String> = WORDS.split(' ').map(|word| word.replace("RANKS", &ranks.to_string())).collect();
    let further = library(tools.folder, ready)?;
    timed(tools, ready, cpus, ranks, (&program, &words), &further, "All processes entering MPI_Finalize")
}

/// Runs the program of ours on the two cores.
///
/// # Errors
/// If a program is missing, or it fails before its time is over.
pub(super) fn ours(
    tools: &Tools<'_>,
    ready: &Ready,
    cpus: [usize; 2],
    quick: bool,
    program: &Path,
) -> Result<Took> {
    let words = ["crowd".to_owned()];
    timed(tools, ready, cpus, ranks(quick), (program, &words), &[], "ranks have done everything")
}

fn ranks(quick: bool) -> usize {
    if quick { 4 } else { MANY }
}

/// Runs a program, which says `sign` at its good end.
fn timed(
    tools: &Tools<'_>,
    ready: &Ready,
    cpus: [usize; 2],
    ranks: usize,
    (program, words): (&Path, &[String]),
    further: &[(&'static str, Option<OsString>)],
    sign: &str,
) -> Result<Took> {
    let (taskset, mut before) = held(tools, cpus)?;
    // The launcher is asked to end first, so that it takes its ranks along.
    let timeout = tool(tools, "timeout")?.display().to_string();
    before.extend([timeout, "-k10".into(), LIMIT.as_secs().to_string()]);
    let begun = Instant::now();
    let said = ready.run_under((&taskset, &before), tools, program, ranks, words, further, 2 * LIMIT);
    let took = begun.elapsed();
    let milliseconds = took.as_secs_f64() * 1e3;
    match said {
        Ok(said) if said.contains(sign) => Ok(Took { milliseconds, cut: false }),
        Ok(_) => Err(Error::usage(
            format!("{} did not come to its end", program.display()),
            "run it by hand to see why",
        )),
        Err(_) if took >= LIMIT => Ok(Took { milliseconds: LIMIT.as_secs_f64() * 1e3, cut: true }),
        Err(error) => Err(error),
    }
}

/// The loader path on which MPICH has the name that IMB-MPI1 was linked with; the others bring it.
fn library(folder: &Path, ready: &Ready) -> Result<Vec<(&'static str, Option<OsString>)>> {
    if !ready.is_mpich() {
        return Ok(Vec::new());
    }
    let missing = || Error::usage("the library of MPICH was not found", "apt-get install libmpich12");
    let file = MPICH.iter().map(PathBuf::from).find(|file| file.exists()).ok_or_else(missing)?;
    let folder = folder.join("mpich");
    let link = folder.join("libmpi.so.12");
    if !link.exists() {
        std::fs::create_dir_all(&folder).map_err(Error::os(format!("making {}", folder.display())))?;
        std::os::unix::fs::symlink(&file, &link).map_err(Error::os(format!("making {}", link.display())))?;
    }
    Ok(vec![("LD_LIBRARY_PATH", Some(folder.into_os_string()))])
}
