//! An MPI program under our `mpiexec --hosts`: ranks on hosts that are network namespaces with real sshds, one job over libfabric.

use crate::launching;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use launching::cluster::Cluster;
use launching::{Lines, Run, finish, signal, wait_for};
use viaduct_kit::cc::{Compiled, compile_c, compile_c_file};
use viaduct_kit::effort::{full, scaled};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::process::has_ended;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::prefix::{LIBRARY, make};
use viaduct_providers::Config;

/// Two hosts, and the private folder of MPI on the disk that they share.
struct Hosts {
    cluster: Cluster,
    mpi: PathBuf,
}

impl Hosts {
    /// `None`, and the test logged as skipped, where there is no root, no sshd, no libfabric or no library.
    fn new() -> Option<Hosts> {
        let library = std::env::current_exe().unwrap().with_file_name(LIBRARY);
        if !library.exists() {
            skip("libvmpi.so is not beside the tests (cargo build -p viaduct-libmpi)");
            return None;
        }
        let found = viaduct_providers::ofi::find(&Config::default().ofi);
        if !found.is_ok_and(|found| !found.offers.is_empty()) {
            skip("libfabric is not here (Debian: libfabric1)");
            return None;
        }
        let cluster = Cluster::new(2)?;
        let mpi = cluster.file("mpi");
        make(&mpi, &library).unwrap();
        // The launcher of the folder is the one beside it.
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_viaduct"), cluster.file("viaduct")).unwrap();
        Some(Hosts { cluster, mpi })
    }

    fn flags(&self) -> [String; 4] {
        let (include, lib) = (self.mpi.join("include"), self.mpi.join("lib"));
        let (include, lib) = (include.display().to_string(), format!("-L{}", lib.display()));
        ["-isystem".to_owned(), include, lib, "-lmpi".to_owned()]
    }

    /// A program of the C set.
    fn compile_of_set(&self, name: &str) -> Option<Compiled> {
        let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/c");
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["-pthread", "-O2"]).collect();
        compile_c_file(set.join(name).with_extension("c"), &flags)
    }

    /// `mpiexec` of the folder, with the hosts and a program with its words. Where hosts have one number of ranks each, the C
    /// set looks whether MPI_Comm_split_type finds it.
    fn mpiexec(&self, hosts: &str, each: usize, program: &[&str]) -> Command {
        let each = each.to_string();
        let before = ["--hosts", hosts, "-genv", "RANKS_OF_A_HOST", &each];
        let launch = self.cluster.command(&[&before, program].concat());
        let mut command = Command::new(self.mpi.join("bin/mpiexec"));
        let words: Vec<_> = launch.get_args().collect();
        assert_eq!(words[0], "launch", "the script says it itself");
        command.args(&words[1..]).current_dir(launch.get_current_dir().unwrap());
        for (name, value) in launch.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn run(&self, hosts: &str, each: usize, program: &[&str]) -> Run {
        let _watch = Watchdog::arm(scaled(Duration::from_secs(120)), "an MPI program on hosts");
        finish(self.mpiexec(hosts, each, program))
    }
}

#[test]
fn programs_run_on_hosts_under_mpiexec() {
    let Some(hosts) = Hosts::new() else { return };
    let all: &[(&str, &str, usize)] = if full() {
        &[
            ("p2p", "h[0-1]*2", 4),
            ("collectives", "h0,h1", 2),
            ("collectives", "h0*2,h1", 3),
            ("collectives", "h[0-1]*4", 8),
            ("comms", "h[0-1]*2", 4),
            ("types", "h0,h1", 2),
            ("objects", "h[0-1]*2", 4),
            ("older", "h[0-1]*2", 4),
            ("threads", "h0,h1", 2),
        ]
    } else {
        &[("comms", "h[0-1]*2", 4)]
    };
    for (name, places, ranks) in all {
        let Some(program) = hosts.compile_of_set(name) else { return };
        let run = hosts.run(places, ranks / 2, &[program.path().to_str().unwrap()]);
        assert_eq!(run.status, 0, "{name} on {places}: {} {}", run.out, run.err);
        assert!(run.out.contains(&format!("{name}: good with {ranks}")), "{} {}", run.out, run.err);
    }
    netpipe(&hosts);
}

/// A program that was built for MPICH, with a rank on each of two hosts. In the full form.
fn netpipe(hosts: &Hosts) {
    if !full() {
        return;
    }
    let Some(netpipe) = need_program("NPmpich2", "netpipe-mpich2") else { return };
    let out = hosts.cluster.file("np.out");
    let words = [netpipe.to_str().unwrap(), "-n", "5", "-u", "1048576", "-o", out.to_str().unwrap()];
    let run = hosts.run("h0,h1", 1, &words);
    assert!(run.status == 0 && (run.out.clone() + &run.err).contains("Mbps"), "{} {}", run.out, run.err);
}

/// Ranks say their processes; then the last one waits to be killed, and the others wait for a message of it.
const WAITING: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    int main(int argc, char **argv) { int rank, size, word = 0; MPI_Init(&argc, &argv);\n\
    MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size); MPI_Barrier(MPI_COMM_WORLD);\n\
    printf(\"process %d %d\\n\", rank, (int)getpid()); fflush(stdout);\n\
    if (rank == size - 1) pause();\n\
    MPI_Recv(&word, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
    MPI_Finalize(); return 0; }\n";

#[test]
fn a_rank_that_is_killed_ends_an_mpi_job_on_all_hosts() {
    let Some(hosts) = Hosts::new() else { return };
    let flags = hosts.flags();
    let Some(program) = compile_c(WAITING, &flags.each_ref().map(String::as_str)) else { return };
    let _watch = Watchdog::arm(scaled(Duration::from_secs(120)), "an MPI job with a rank that dies");
    let mut command = hosts.mpiexec("h[0-1]*2", 2, &[program.path().to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    let mut ranks = [0u32; 4];
    for _ in 0..ranks.len() {
        let line = lines.next().expect("each rank says its process");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words.len(), words[0]), (3, "process"), "{line}");
        // Namespaces of networks alone: a process has one number on all hosts.
        ranks[words[1].parse::<usize>().unwrap()] = words[2].parse().unwrap();
    }
    assert!(ranks.iter().all(|&pid| pid != 0 && !has_ended(pid)), "{ranks:?}");
    signal(ranks[3], 9);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    wait_for("the ranks of both hosts to end", || ranks.iter().all(|&pid| has_ended(pid)));
}
