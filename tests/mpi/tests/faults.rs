//! Ranks that are killed, give up, leave early, disagree or miss something: the job ends with a message, and nothing stays
//! behind.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use viaduct_kit::cc::{Compiled, compile_c};
use viaduct_kit::effort::scaled;
use viaduct_kit::packages::skip;
use viaduct_kit::process::has_ended;
use viaduct_mpi_tests::{Launcher, Mpi, good, run, text};

/// Compiles a program whose ranks say their process, run `before`, join, and run `deed`, in which `rank` and `in` are there.
fn program(mpi: &Mpi, before: &str, deed: &str) -> Option<Compiled> {
    let source = format!(
        "#define _GNU_SOURCE\n#include <mpi.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         #include <sys/prctl.h>\n#include <sys/uio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         static char in[1 << 20], out[1 << 20];\n\
         int main(int argc, char **argv) {{\n\
         int rank;\nprintf(\"process %d\\n\", (int)getpid());\nfflush(stdout);\n\
         {before}\n\
         MPI_Init(&argc, &argv);\nMPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
         {deed}\n\
         MPI_Finalize();\nprintf(\"done %d %d\\n\", in[0], out[0]);\nreturn 0; }}\n"
    );
    let include = format!("-I{}/include", mpi.folder().display());
    let link = format!("-L{}", mpi.lib().display());
    compile_c(&source, &[&include, &link, "-lmpi"])
}

/// A job of three ranks; what was said, and its exit status. No rank is left.
fn job_with(
    launcher: Launcher,
    set: &dyn Fn(&mut Command),
    before: &str,
    deed: &str,
) -> Option<(String, Option<i32>)> {
    let mpi = Mpi::new();
    let program = program(&mpi, before, deed)?;
    let mut command = mpi.launch(launcher, 3, program.path())?;
    set(&mut command);
    let output = run(&mut command);
    let said = text(&output);
    let ranks = said.lines().filter_map(|line| line.trim().strip_prefix("process ")?.parse().ok());
    let ranks: Vec<u32> = ranks.collect();
    // MPICH's launcher may end a moment before the helper that ends its ranks.
    let end = Instant::now() + scaled(Duration::from_secs(60));
    while !ranks.iter().all(|pid| has_ended(*pid)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    let left: Vec<_> = ranks.iter().filter(|pid| !has_ended(**pid)).collect();
    assert!(left.is_empty(), "processes {left:?} are left: {said}");
    Some((said, output.status.code()))
}

/// A job whose middle rank runs `deed`, while the others wait for it.
fn job(deed: &str) -> Option<(String, Option<i32>)> {
    job_with(Launcher::Ours, &|_| {}, "", &waiting(deed))
}

fn waiting(deed: &str) -> String {
    format!(
        "if (rank == 1) {{ {deed} }} else MPI_Recv(in, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);"
    )
}

#[test]
fn a_rank_that_is_killed_ends_the_job() {
    let Some((said, code)) = job("kill(getpid(), SIGKILL);") else { return };
    assert_ne!(code, Some(0), "{said}");
}

#[test]
fn a_rank_that_exits_without_finalize_ends_the_job() {
    let Some((said, code)) = job("exit(0);") else { return };
    assert_ne!(code, Some(0), "{said}");
}

#[test]
fn an_abort_ends_the_job_with_its_code() {
    let Some((said, code)) = job("MPI_Abort(MPI_COMM_WORLD, 42);") else { return };
    assert_eq!(code, Some(42), "{said}");
}

#[test]
fn an_abort_with_a_code_whose_low_byte_is_0_is_no_success() {
    for code in ["0", "256", "-512"] {
        let deed = format!("MPI_Abort(MPI_COMM_WORLD, {code});");
        for launcher in [Launcher::Ours, Launcher::Hydra] {
            if let Some((said, code)) = job_with(launcher, &|_| {}, "", &waiting(&deed)) {
                assert_ne!(code, Some(0), "{launcher:?} {deed} {said}");
            }
        }
        let mpi = Mpi::new();
        let Some(program) = program(&mpi, "", &deed) else { return };
        let mut alone = program.command();
        mpi.dress(&mut alone);
        assert_eq!(run(&mut alone).status.code(), Some(1), "{deed}");
    }
}

#[test]
fn the_launcher_of_mpich_ends_a_job_too() {
    // What it says of a rank that exits with 0 depends on which rank it hears of first; that the job ends does not.
    for (deed, bad) in
        [("kill(getpid(), SIGKILL);", true), ("exit(0);", false), ("MPI_Abort(MPI_COMM_WORLD, 42);", true)]
    {
        let Some((said, code)) = job_with(Launcher::Hydra, &|_| {}, "", &waiting(deed)) else { return };
        assert!(!bad || code != Some(0), "{deed} {said}");
    }
}

#[test]
fn an_error_without_a_handler_names_the_call_and_the_rank() {
    for launcher in [Launcher::Ours, Launcher::Hydra] {
        let deed = waiting("MPI_Send(in, 1, MPI_INT, 77, 0, MPI_COMM_WORLD);");
        let Some((said, code)) = job_with(launcher, &|_| {}, "", &deed) else { return };
        assert_ne!(code, Some(0), "{said}");
        assert!(said.contains("rank 1: MPI_Send") && said.contains("77"), "{launcher:?}: {said}");
    }
}

#[test]
fn a_call_that_is_not_there_is_refused_by_name() {
    let Some((said, code)) = job("MPI_Win win; MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);")
    else {
        return;
    };
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("MPI_Win_create_dynamic") && said.contains("not supported"), "{said}");
}

#[test]
fn a_message_that_is_too_long_for_its_receive_says_both_lengths() {
    let Some((said, code)) = job("MPI_Send(out, 10, MPI_INT, 0, 9, MPI_COMM_WORLD);") else { return };
    assert_ne!(code, Some(0), "{said}");
    assert!(
        said.contains("MPI_Recv") && said.contains("40 bytes") && said.contains("receive of 4"),
        "{said}"
    );
}

#[test]
fn ranks_in_different_collectives_are_named_with_what_they_call() {
    let deed = "int a = 1, b; if (rank == 1) MPI_Bcast(out, 1, MPI_INT, 1, MPI_COMM_WORLD);\n\
        else MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\nMPI_Barrier(MPI_COMM_WORLD);";
    let Some((said, code)) = job_with(Launcher::Ours, &|_| {}, "", deed) else { return };
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("is in MPI_") && said.contains("in one order"), "{said}");
}

/// Long messages to the next rank and from the one before.
const EXCHANGE: &str = "for (int i = 1; i < 4; i++) { memset(out, rank + i, sizeof out);\n\
    MPI_Sendrecv(out, sizeof out, MPI_BYTE, (rank + 1) % 3, 0, in, sizeof in, MPI_BYTE, (rank + 2) % 3, 0,\n\
    MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
    if (in[0] != (rank + 2) % 3 + i || in[sizeof in - 1] != in[0]) return 2; }";

/// Whether a rank may read the memory of the one before it; both are there until all have tried.
const PEEK: &str = "long word = 0x5a5a + rank, mine[2] = {getpid(), (long)&word}, theirs[2], read = 0;\n\
    MPI_Sendrecv(mine, 2, MPI_LONG, (rank + 1) % 3, 7, theirs, 2, MPI_LONG, (rank + 2) % 3, 7, MPI_COMM_WORLD,\n\
    MPI_STATUS_IGNORE);\n\
    struct iovec to = {&read, sizeof read}, from = {(void *)theirs[1], sizeof read};\n\
    if (process_vm_readv(theirs[0], &to, 1, &from, 1, 0) == sizeof read)\n\
    { printf(\"peeked\\n\"); if (read != 0x5a5a + (rank + 2) % 3) return 5; }\n\
    MPI_Barrier(MPI_COMM_WORLD);\n";

/// Three ranks exchange long messages, which the kernel is to copy. How many of them could read another's memory, and the sum
/// of the messages that the kernel copied.
fn exchanged_by_the_kernel(before: &str) -> Option<(usize, u64)> {
    let settings = |command: &mut Command| {
        command.env("VIADUCT_MPI_PRIVATE", "16K").env("VIADUCT_MPI_STATS", "on");
    };
    let (said, code) = job_with(Launcher::Ours, &settings, before, &format!("{PEEK}{EXCHANGE}"))?;
    assert_eq!((code, said.matches("done").count()), (Some(0), 3), "{said}");
    let counts = said.split(", ").filter_map(|part| part.strip_suffix(" by the kernel"));
    let counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
    assert!(counts.len() >= 3, "{said}");
    Some((said.matches("peeked").count(), counts.iter().sum()))
}

#[test]
fn ranks_that_may_not_read_each_other_send_long_messages() {
    // The kernel refuses the others what debuggers do; root alone may still.
    let Some((peeked, copied)) = exchanged_by_the_kernel("prctl(PR_SET_DUMPABLE, 0);") else { return };
    if peeked > 0 {
        return skip("the kernel lets this user read the memory of every process");
    }
    assert_eq!(copied, 0);
}

#[test]
fn ranks_that_may_read_each_other_send_long_messages_in_one_copy() {
    let Some((peeked, copied)) = exchanged_by_the_kernel("") else { return };
    if peeked < 3 {
        return skip("the kernel lets no process read the memory of another here");
    }
    // Three rounds of three messages.
    assert_eq!(copied, 9);
}

#[test]
fn without_shared_memory_a_job_ends_with_the_cause() {
    let none = |command: &mut Command| {
        command.env("VIADUCT_SHM_MEMORY_BUDGET", "64K");
    };
    let Some((said, code)) = job_with(Launcher::Ours, &none, "", EXCHANGE) else { return };
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("MPI_Init: ") && said.contains("raise the memory budget"), "{said}");
    // Enough for MPI_Init, and not for a connection.
    let little = |command: &mut Command| {
        command.env("VIADUCT_SHM_MEMORY_BUDGET", "256K").env("VIADUCT_MPI_CONNECT_ALL", "0");
    };
    let Some((said, code)) = job_with(Launcher::Ours, &little, "", EXCHANGE) else { return };
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("could not be connected") && said.contains("shared memory"), "{said}");
}

#[test]
fn with_no_shared_memory_left_messages_arrive_all_the_same() {
    let little = |command: &mut Command| {
        command.env("VIADUCT_SHM_MEMORY_BUDGET", "4M");
    };
    // More than may be shared: it is ordinary memory then.
    let deed = format!(
        "char *big; MPI_Alloc_mem(8 << 20, MPI_INFO_NULL, &big); memset(big, rank + 1, 8 << 20);\n\
         if (rank < 2) MPI_Send(big, 8 << 20, MPI_BYTE, rank + 1, 5, MPI_COMM_WORLD);\n\
         if (rank > 0) MPI_Recv(big, 8 << 20, MPI_BYTE, rank - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
         if (rank > 0 && (big[0] != rank || big[(8 << 20) - 1] != rank)) return 3;\n\
         MPI_Free_mem(big);\n{EXCHANGE}"
    );
    let Some((said, code)) = job_with(Launcher::Ours, &little, "", &deed) else { return };
    assert_eq!((code, said.matches("done").count()), (Some(0), 3), "{said}");
}

#[test]
fn a_rank_may_fork_and_its_child_may_leave() {
    for leave in ["exit(0)", "_exit(0)", "execl(\"/bin/true\", \"true\", (char *)0)"] {
        let deed = format!(
            "{EXCHANGE}\nfflush(stdout); pid_t child = fork(); if (child == 0) {{ {leave}; _exit(9); }}\n\
             int how; waitpid(child, &how, 0); if (how != 0 || system(\"true\") != 0) return 3;\n{EXCHANGE}"
        );
        let Some((said, code)) = job_with(Launcher::Ours, &|_| {}, "", &deed) else { return };
        assert_eq!(code, Some(0), "{leave}: {said}");
    }
}

#[test]
fn a_child_of_a_rank_that_calls_mpi_ends_with_the_cause_and_the_job_goes_on() {
    let deed = "fflush(stdout); pid_t child = fork();\n\
        if (child == 0) { MPI_Barrier(MPI_COMM_WORLD); _exit(0); }\n\
        int how; waitpid(child, &how, 0); if (!WIFEXITED(how) || WEXITSTATUS(how) != 1) return 3;\n\
        MPI_Barrier(MPI_COMM_WORLD);";
    let Some((said, code)) = job_with(Launcher::Ours, &|_| {}, "", deed) else { return };
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("MPI_Barrier") && said.contains("child of fork"), "{said}");
}

#[test]
fn statistics_say_what_went_to_each_peer_by_which_protocol() {
    let stats = |command: &mut Command| {
        command.env("VIADUCT_MPI_STATS", "on");
    };
    // Four short messages to the next rank, and one that is longer than the eager limit, out of the kernel's sight.
    let deed = "for (int i = 0; i < 5; i++)\n\
        MPI_Sendrecv(out, i < 4 ? 100 : sizeof out, MPI_BYTE, (rank + 1) % 3, 0, in, sizeof in, MPI_BYTE, (rank + 2) % 3, 0,\n\
        MPI_COMM_WORLD, MPI_STATUS_IGNORE);";
    let Some((said, code)) = job_with(Launcher::Ours, &stats, "", deed) else { return };
    assert_eq!(code, Some(0), "{said}");
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let start = format!("viaduct mpi: rank {from} to {to}: ");
        let line = said.lines().find_map(|line| line.split_once(&start)).expect(&start).1;
        assert!(
            line.starts_with("4 eager, 1 rendezvous (0 for want of room), 0 read here by RDMA"),
            "{line}"
        );
        assert!(line.contains(&format!(" {} bytes, ", 400 + (1 << 20))), "{line}");
    }
}

#[test]
fn a_call_before_init_says_so() {
    let mpi = Mpi::new();
    let source = "#include <mpi.h>\nint main(void) { int r; return MPI_Comm_rank(MPI_COMM_WORLD, &r); }\n";
    let include = format!("-I{}/include", mpi.folder().display());
    let link = format!("-L{}", mpi.lib().display());
    let Some(program) = compile_c(source, &[&include, &link, "-lmpi"]) else { return };
    let mut command = program.command();
    command.env("LD_LIBRARY_PATH", mpi.lib());
    let output = run(&mut command);
    let said = text(&output);
    assert!(
        !output.status.success() && said.contains("MPI_Comm_rank") && said.contains("before MPI_Init"),
        "{said}"
    );
}

#[test]
fn with_all_ranks_on_one_host_no_libfabric_is_loaded() {
    let deed = "FILE *maps = fopen(\"/proc/self/maps\", \"r\"); char line[4096]; int found = 0;\n\
        while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, \"libfabric\") != 0;\n\
        if (found || !maps) return 4;";
    let mpi = Mpi::new();
    let Some(program) = program(&mpi, "", deed) else { return };
    let Some(command) = mpi.launch(Launcher::Ours, 2, program.path()) else { return };
    good(command);
}
