//! Ranks that are killed, give up or leave early: the job ends with a message, and nothing stays behind.

use viaduct_kit::cc::compile_c;
use viaduct_mpi_tests::{Launcher, Mpi, run, text};

/// A job of three ranks whose middle one runs `deed`, while the others wait for it; what was said, and whether it ended well.
fn job(deed: &str) -> Option<(String, Option<i32>)> {
    let mpi = Mpi::new();
    let source = format!(
        "#include <mpi.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         int main(int argc, char **argv) {{\n\
         int rank, in = 0;\n(void)in;\n\
         MPI_Init(&argc, &argv);\nMPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
         if (rank == 1) {{ {deed} }}\n\
         MPI_Recv(&in, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n\
         MPI_Finalize();\nreturn 0; }}\n"
    );
    let include = format!("-I{}/include", mpi.folder().display());
    let link = format!("-L{}", mpi.lib().display());
    let program = compile_c(&source, &[&include, &link, "-lmpi"])?;
    let mut command = mpi.launch(Launcher::Ours, 3, program.path())?;
    let output = run(&mut command);
    Some((text(&output), output.status.code()))
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
fn an_error_without_a_handler_names_the_call_and_the_rank() {
    let Some((said, code)) = job("MPI_Send(&in, 1, MPI_INT, 77, 0, MPI_COMM_WORLD);") else { return };
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("rank 1") && said.contains("MPI_Send") && said.contains("77"), "{said}");
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
