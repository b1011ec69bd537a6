//! `viaduct mpi`: where Viaduct's MPI is, what a user sets for it, and what it has.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use viaduct_mpi::prefix::{self, LIBRARY};
use viaduct_mpi::table::{self, Entry};

use crate::cli::mpi::{CoverageArgs, MpiArgs, MpiVerb, Part};
use crate::output;

pub(crate) fn run(args: &MpiArgs) -> Result<ExitCode> {
    match &args.what {
        MpiVerb::Path { part } => path(*part),
        MpiVerb::Env => environment(),
        MpiVerb::Coverage(args) => coverage(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn path(part: Part) -> Result<()> {
    let folder = folder()?;
    let named = match part {
        Part::All => folder,
        Part::Bin => folder.join("bin"),
        Part::Include => folder.join("include"),
        Part::Lib => folder.join("lib"),
    };
    writeln!(io::stdout(), "{}", named.display())?;
    Ok(())
}

/// Lines for a shell: `eval "$(viaduct mpi env)"`.
fn environment() -> Result<()> {
    let folder = folder()?;
    let quoted = format!("'{}'", folder.display().to_string().replace('\'', "'\\''"));
    let mut out = io::stdout().lock();
    for (name, part) in [("PATH", "bin"), ("LD_LIBRARY_PATH", "lib"), ("PKG_CONFIG_PATH", "lib/pkgconfig")] {
        writeln!(out, "export {name}={quoted}/{part}\"${{{name}:+:${name}}}\"")?;
    }
    // mpi4py prefers an MPI that lies in its own environment to the loader path.
    writeln!(out, "export MPI4PY_LIBMPI={quoted}/lib/libmpi.so.12")?;
    Ok(())
}

/// The private folder, which is made if it is not there: `mpi` beside the library.
pub(crate) fn folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("our own program")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [(beside.to_owned(), ""), (beside.join("../lib/viaduct"), ""), (beside.to_owned(), "deps/")];
    let Some((home, below)) = places.iter().find(|(home, below)| home.join(below).join(LIBRARY).exists())
    else {
        bail!("{LIBRARY} is not beside {}; build it (cargo build --release) or install it", own.display());
    };
    let home = home.canonicalize()?;
    let folder = home.join("mpi");
    let made = prefix::make(&folder, &Path::new("../..").join(below).join(LIBRARY));
    let Err(error) = made else { return Ok(folder) };
    if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Err(error).with_context(|| format!("making {}", folder.display()));
    }
    // The build tree is another user's: this user has such a folder of the same form in the cache.
    let cached = cache().map(|cache| cache.join(name(&home))).with_context(|| {
        format!("making {}: {error}; hint: set HOME or XDG_CACHE_HOME to a folder of yours", folder.display())
    })?;
    let folder = cached.join("mpi");
    prefix::make(&folder, &home.join(below).join(LIBRARY))
        .and_then(|()| prefix::link(&own, &cached.join("viaduct")))
        .with_context(|| {
            format!("making {}, since {} is another user's", folder.display(), home.display())
        })?;
    Ok(folder)
}

/// Where this user's programs keep what can be made again.
fn cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("viaduct"))
}

/// A name for a folder's path, different for each build tree.
fn name(folder: &Path) -> String {
    folder.to_string_lossy().trim_start_matches('/').replace('/', "-")
}

/// A row of the table.
fn row(entry: &Entry<'static>) -> [String; 4] {
    let state = if entry.implemented { "yes" } else { "refused" };
    [entry.name.to_owned(), entry.group.to_owned(), state.to_owned(), table::programs(entry).join(", ")]
}

fn coverage(args: &CoverageArgs) -> Result<()> {
    let all = table::entries();
    let rows = all.iter().filter(|entry| !args.refused || !entry.implemented).map(row).collect();
    output::table::print(args.format, ["function", "group", "there", "linked by"], rows)?;
    let there = all.iter().filter(|entry| entry.implemented).count();
    writeln!(io::stderr(), "{there} of {} are there; the others are refused by name", all.len())?;
    Ok(())
}
