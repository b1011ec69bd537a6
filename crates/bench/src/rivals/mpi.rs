//! MPI: a small ping-pong and stream of ours (`pingpong.c`), compiled on the way by the compiler of each implementation.
//!
//! It does what our cases do: one message there and back, or a window of sixteen one way whose receiver reads every
//! byte; it pins its two ranks by itself and prints one number.

use std::path::PathBuf;
use std::time::Duration;

use super::child::failed;
use super::{Ground, Reading, Rival, Want};
use crate::error::{Error, Result};

pub(super) const OPEN_MPI: Rival = Rival {
    name: "openmpi",
    programs: &["mpicc.openmpi", "mpiexec.openmpi"],
    install: "apt-get install openmpi-bin libopenmpi-dev gcc",
    about: "Open MPI, MPI_Send and MPI_Recv; a window of 16 for bandwidth, the receiver reads every byte",
    measure: |ground, want| measure(ground, want, "openmpi"),
    server: None,
};

pub(super) const MPICH: Rival = Rival {
    name: "mpich",
    programs: &["mpicc.mpich", "mpiexec.mpich"],
    install: "apt-get install mpich libmpich-dev gcc",
    about: "MPICH, MPI_Send and MPI_Recv; a window of 16 for bandwidth, the receiver reads every byte",
    measure: |ground, want| measure(ground, want, "mpich"),
    server: None,
};

const SOURCE: &str = include_str!("pingpong.c");

/// Compiling and running may take this long.
const LIMIT: Duration = Duration::from_secs(60);

fn measure(ground: &Ground<'_>, want: Want, which: &str) -> Result<Option<Reading>> {
    let program = compiled(ground, which)?;
    let (test, size) = match want {
        Want::Latency(size) => ("latency", size),
        Want::Bandwidth(size) => ("bandwidth", size),
        Want::PingPong(_) => return Ok(None),
    };
    let mut args: Vec<String> = Vec::new();
    if which == "openmpi" {
        // It would bind ranks to cores of its own choice, and refuses root without being told.
        args.extend(["--bind-to", "none", "--oversubscribe"].map(Into::into));
        if rustix::process::geteuid().is_root() {
            args.push("--allow-run-as-root".into());
        }
    }
    args.extend(["-n".into(), "2".into(), program.display().to_string(), test.into(), size.to_string()]);
    args.push(ground.time.as_secs_f64().to_string());
    args.extend(ground.cpus().map(|cpu| cpu.to_string()));
    let start = tool(ground, &format!("mpiexec.{which}"))?;
    let said = ground.launcher.whole(None, &start, &args, LIMIT)?;
    let value = parse(&said).ok_or_else(|| failed(which, "printed no number"))?;
    Ok(Some(Reading { size, value }))
}

fn tool(ground: &Ground<'_>, name: &str) -> Result<PathBuf> {
    ground.find(name).ok_or_else(|| failed(name, "is not installed"))
}

/// The program, compiled the first time it is wanted.
fn compiled(ground: &Ground<'_>, which: &str) -> Result<PathBuf> {
    let program = ground.folder.join(format!("pingpong-{which}"));
    if program.exists() {
        return Ok(program);
    }
    let source = ground.folder.join("pingpong.c");
    std::fs::write(&source, SOURCE).map_err(Error::os(format!("writing {}", source.display())))?;
    let args = ["-O2".into(), "-o".into(), program.display().to_string(), source.display().to_string()];
    ground.launcher.whole(None, &tool(ground, &format!("mpicc.{which}"))?, &args, LIMIT)?;
    Ok(program)
}

/// The line `result NUMBER`.
fn parse(said: &str) -> Option<f64> {
    said.lines()
        .find_map(|line| line.strip_prefix("result ")?.trim().parse().ok())
        .filter(|value| *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_among_the_launchers_words() {
        assert_eq!(parse("some warning of the launcher\nresult 0.512\n"), Some(0.512));
        assert_eq!((parse("result 0\n"), parse("result nonsense\n"), parse("")), (None, None, None));
    }
}
