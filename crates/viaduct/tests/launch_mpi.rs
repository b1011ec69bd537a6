//! PMI-1 both ways: programs of MPICH under `viaduct launch`, and our ranks under `viaduct launch` and `mpiexec.hydra`.

use crate::launching;

use std::process::Command;
use std::time::Duration;

use launching::{Folder, Run, command, finish};
use viaduct_job::Job;
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::budget::Budget;

const NAME: &str = "VIADUCT_TEST_CHILD";

// A rank of ours: meets the others, shares memory with them, and says what it found.
viaduct_kit::child!(RANK, |args| {
    let mut job = Job::join(&|name| std::env::var(name).ok()).unwrap();
    let (rank, size) = (job.rank(), job.size());
    // More than one value of PMI holds.
    let ours = vec![rank as u8; 1500 + rank];
    let all = job.exchange(&ours).unwrap();
    assert!(all.iter().enumerate().all(|(n, bytes)| *bytes == vec![n as u8; 1500 + n]));
    let neighbours = job.neighbours().unwrap().len();
    let folder = std::env::var_os("VIADUCT_RUNTIME_DIR").unwrap();
    let segment = job.segment(4096, Budget::process(), std::path::Path::new(&folder)).unwrap();
    // SAFETY: a zeroed page that only atomics of the ranks touch.
    let words = unsafe { &*segment.as_ptr().cast::<[std::sync::atomic::AtomicU32; 64]>() };
    words[rank].store(100 + rank as u32, std::sync::atomic::Ordering::Release);
    job.barrier().unwrap();
    let sum: u32 = words.iter().map(|word| word.load(std::sync::atomic::Ordering::Acquire)).sum();
    println!("rank {rank} of {size}, {neighbours} here, sum {sum}");
    if args.first().is_some_and(|word| word == "abort") && rank == 1 {
        job.abort(9, "enough");
    }
    match args.first().map(String::as_str) {
        Some("segv") if rank == 1 => viaduct_os::children::signal(std::process::id() as i32, 11),
        Some("leave") if rank == 1 => viaduct_os::children::quit(0),
        Some("abort 0") if rank == 1 => job.abort(0, ""),
        Some("abort 256") if rank == 1 => job.abort(256, ""),
        None => return job.finish().unwrap(),
        Some(_) => {}
    }
    std::thread::sleep(std::time::Duration::from_secs(100));
});

fn rank_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

fn sorted(run: &Run) -> Vec<String> {
    let mut lines: Vec<String> = run.out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn expected(size: usize) -> Vec<String> {
    let sum: usize = (0..size).map(|rank| 100 + rank).sum();
    (0..size).map(|rank| format!("rank {rank} of {size}, {size} here, sum {sum}")).collect()
}

#[test]
fn our_ranks_meet_under_our_launcher_and_alone() {
    let folder = Folder::new();
    for size in [1, 5] {
        let count = size.to_string();
        let mut command = command(&folder, &["-n", &count, &rank_program()]);
        let run = finish(std::mem::replace(command.env(NAME, RANK.name()), Command::new("true")));
        assert_eq!((run.status, sorted(&run)), (0, expected(size)), "{}", run.err);
    }
    let mut alone = Command::new(rank_program());
    alone.env(NAME, RANK.name()).env("VIADUCT_RUNTIME_DIR", folder.path()).env_remove("PMI_FD");
    let run = finish(alone);
    assert_eq!((run.status, sorted(&run)), (0, expected(1)), "{}", run.err);
}

/// What `--dry-run` prints is a job, also without a launcher: together in one shell, or a line at a time.
#[test]
fn our_ranks_meet_when_lines_are_pasted() {
    let folder = Folder::new();
    for apart in [false, true] {
        let mut dry = command(&folder, &["--dry-run", "-n", "3", &rank_program()]);
        dry.env(NAME, RANK.name());
        let dry = finish(dry);
        assert!(
            dry.out.contains("VIADUCT_TOKEN_FILE=") && !dry.out.contains("VIADUCT_TOKEN="),
            "{}",
            dry.out
        );
        let shell = |text: &str| {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(text).env(NAME, RANK.name()).env("VIADUCT_RUNTIME_DIR", folder.path());
            shell.env_remove("PMI_FD");
            finish(shell)
        };
        let runs: Vec<Run> = if apart {
            let lines = dry.out.lines().filter_map(|line| line.strip_suffix(" &")).map(str::to_owned);
            // The first one last: the others wait for it.
            let pasted: Vec<String> = lines.rev().collect();
            assert_eq!(pasted.len(), 3, "{}", dry.out);
            std::thread::scope(|scope| {
                let threads: Vec<_> = pasted.iter().map(|line| scope.spawn(|| shell(line))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        } else {
            vec![shell(&dry.out)]
        };
        let mut lines: Vec<String> = runs.iter().flat_map(sorted).collect();
        lines.sort();
        assert_eq!(lines, expected(3), "{}", runs.iter().map(|run| &*run.err).collect::<String>());
        assert!(runs.iter().all(|run| run.status == 0));
    }
}

#[test]
fn our_ranks_meet_under_hydra() {
    let Some(hydra) = need_program("mpiexec.hydra", "mpich") else { return };
    let folder = Folder::new();
    let mut command = Command::new(hydra);
    command
        .args(["-n", "3", &rank_program()])
        .env(NAME, RANK.name())
        .env("VIADUCT_RUNTIME_DIR", folder.path());
    let run = finish(command);
    assert_eq!((run.status, sorted(&run)), (0, expected(3)), "{}", run.err);
}

#[test]
fn a_rank_that_aborts_ends_the_job_with_its_code() {
    let folder = Folder::new();
    let mut command = command(&folder, &["-n", "3", &rank_program(), "abort"]);
    command.env(NAME, RANK.name());
    let run = finish(command);
    assert_eq!(run.status, 9, "{}", run.err);
    assert!(run.err.contains("rank 1: enough"), "{}", run.err);
}

#[test]
fn the_rank_that_ended_a_job_gives_its_status() {
    let folder = Folder::new();
    for (how, status, words) in [
        ("segv", 139, "rank 1: ended without finishing its job (MPI_Finalize"),
        ("leave", 1, "rank 1: ended without finishing its job (MPI_Finalize"),
        ("abort 0", 1, "rank 1:"),
        ("abort 256", 1, "rank 1:"),
    ] {
        let mut command = command(&folder, &["-n", "3", &rank_program(), how]);
        command.env(NAME, RANK.name());
        let run = finish(command);
        assert!(run.status == status && run.err.contains(words), "{how}: {} {}", run.status, run.err);
    }
}

/// The others can never leave their first barrier.
#[test]
fn a_job_with_a_rank_that_cannot_be_started_ends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a job with a rank that cannot be started");
    let folder = Folder::new();
    let mut command = command(&folder, &["-n", "2", &rank_program(), ":", "-n", "1", "./nothere"]);
    command.env(NAME, RANK.name());
    let run = finish(command);
    assert_eq!(run.status, 127, "{}", run.err);
    assert!(run.err.contains("rank 2 could not be started; ending the job"), "{}", run.err);
}

/// A program of MPI, built with MPICH.
fn ring() -> Option<(TempDir, String)> {
    let compiler = need_program("mpicc.mpich", "libmpich-dev")?;
    let folder = TempDir::new("mpich");
    let (source, program) = (folder.join("ring.c"), folder.join("ring"));
    std::fs::write(&source, RING).unwrap();
    let mut compile = Command::new(compiler);
    let run = finish(std::mem::replace(compile.arg("-o").arg(&program).arg(&source), Command::new("true")));
    assert_eq!(run.status, 0, "{}", run.err);
    Some((folder, program.to_str().unwrap().to_owned()))
}

/// A program built with MPICH runs on Intel's library: both have one binary interface.
#[test]
fn programs_of_intel_mpi_start_unchanged() {
    let Some(root) = std::env::var_os("I_MPI_ROOT").map(std::path::PathBuf::from) else {
        viaduct_kit::skip!("I_MPI_ROOT says where Intel MPI is (`pip install impi-rt` has it)");
    };
    let Some((folder, program)) = ring() else { return };
    std::os::unix::fs::symlink(root.join("lib/libmpi.so.12"), folder.join("libmpich.so.12")).unwrap();
    let jobs = Folder::new();
    let mut command = command(&jobs, &["-n", "4", &program]);
    let path = format!("{}:{}", folder.path().display(), root.join("lib").display());
    command.env("LD_LIBRARY_PATH", path).env("I_MPI_FABRICS", "shm").env("I_MPI_DEBUG", "2");
    let run = finish(command);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.contains("Intel(R) MPI") && run.out.contains("4 ranks, token 6\n"), "{}", run.out);
}

#[test]
fn programs_of_mpich_start_unchanged() {
    let Some((_folder, program)) = ring() else { return };
    let jobs = Folder::new();
    let launch = |args: &[&str]| {
        let mut command = command(&jobs, args);
        // Other tests make and remove networks meanwhile, and UCX would choose one of them.
        command.env("UCX_NET_DEVICES", "lo");
        finish(command)
    };
    let run = launch(&["-n", "4", &program]);
    assert_eq!((run.status, &*run.out), (0, "4 ranks, token 6\n"), "{}", run.err);
    let run = launch(&["-n", "3", &program, "abort"]);
    assert!(run.status == 7 && run.err.contains("rank 1: called MPI_Abort(7)"), "{}", run.err);
    let run = launch(&["-n", "3", &program, "leave"]);
    assert!(run.status == 1 && run.err.contains("without finishing its job (MPI_Finalize"), "{}", run.err);
}

const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && !strcmp(argv[1], "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && !strcmp(argv[1], "leave") && rank == 1) _Exit(0);
    MPI_Allreduce(&rank, &token, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, token %d\n", size, token);
    MPI_Finalize();
    return 0;
}
"#;
