//! The library as linkers and tools see it.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use viaduct_kit::packages::{find_program, need_program};
use viaduct_kit::tempdir::TempDir;
use viaduct_mpi::table::{self, Fortran};
use viaduct_mpi_tests::{Launcher, Mpi, good};

/// The names that a library defines.
fn defined(file: &Path) -> Option<HashSet<String>> {
    let nm = need_program("nm", "binutils")?;
    let mut command = Command::new(nm);
    command.args(["-D", "--defined-only"]).arg(file);
    let listed = good(command);
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned);
    Some(names.collect())
}

#[test]
fn every_entry_point_of_the_table_is_exported_under_all_its_names() {
    let mpi = Mpi::new();
    let Some(names) = defined(&mpi.lib().join("libmpi.so")) else { return };
    for entry in table::entries() {
        let plain = &entry.name["MPI_".len()..];
        assert!(names.contains(entry.name) && names.contains(&format!("PMPI_{plain}")), "{}", entry.name);
        let lower = plain.to_ascii_lowercase();
        let ends = ["_", "__"].into_iter().flat_map(|end| ["mpi", "pmpi"].map(|begin| (begin, end)));
        for name in ends.map(|(begin, end)| format!("{begin}_{lower}{end}")) {
            assert_eq!(names.contains(&name), entry.fortran != Fortran::None, "{name}");
        }
    }
    for data in [
        "MPI_UNWEIGHTED",
        "MPI_WEIGHTS_EMPTY",
        "MPI_F_STATUS_IGNORE",
        "mpipriv1_",
        "mpi_dup_fn__",
        "MPIR_Dup_fn",
    ] {
        assert!(names.contains(data), "{data}");
    }
}

#[test]
fn nothing_but_mpi_is_exported() {
    let mpi = Mpi::new();
    let Some(names) = defined(&mpi.lib().join("libmpi.so")) else { return };
    let strange: Vec<_> = names.iter().filter(|name| !name.to_ascii_lowercase().contains("mpi")).collect();
    assert_eq!(strange, Vec::<&String>::new());
}

#[test]
fn a_tool_between_program_and_library_sees_the_program_alone() {
    let mpi = Mpi::new();
    let text = "#include <mpi.h>\n#include <stdio.h>\nstatic int sends;\n\
        int MPI_Send(const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm c)\n\
        { sends++; return PMPI_Send(b, n, t, d, g, c); }\n\
        int main(int argc, char **argv) {\n\
        int out = 7, in = 0, sum;\n\
        MPI_Init(&argc, &argv);\n\
        MPI_Request r; MPI_Irecv(&in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &r);\n\
        MPI_Send(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF);\n\
        MPI_Wait(&r, MPI_STATUS_IGNORE);\n\
        MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n\
        MPI_Finalize();\n\
        printf(\"sends %d\\n\", sends); return in != 7; }\n";
    let include = format!("-I{}/include", mpi.folder().display());
    let link = format!("-L{}", mpi.lib().display());
    let Some(program) = viaduct_kit::cc::compile_c(text, &[&include, &link, "-lmpi"]) else { return };
    let Some(command) = mpi.launch(Launcher::Ours, 2, program.path()) else { return };
    let said = good(command);
    assert_eq!(said.matches("sends 1").count(), 2, "{said}");
}

#[test]
fn warnings_of_the_library_reach_standard_error() {
    let mpi = Mpi::new();
    let text = "#include <mpi.h>\nint main(int argc, char **argv) { MPI_Init(&argc, &argv); return MPI_Finalize(); }\n";
    let include = format!("-I{}/include", mpi.folder().display());
    let link = format!("-L{}", mpi.lib().display());
    let Some(program) = viaduct_kit::cc::compile_c(text, &[&include, &link, "-lmpi"]) else { return };
    let said = |filter: &str| {
        let mut command = program.command();
        mpi.dress(&mut command);
        command.env("VIADUCT_LOG", filter);
        good(command)
    };
    let loud = said("loud");
    assert!(loud.contains("libmpi: warn: VIADUCT_LOG=loud is not understood"), "{loud}");
    assert_eq!(said("off"), "");
}

#[test]
fn cmake_finds_it() {
    let Some(cmake) = find_program("cmake") else {
        viaduct_kit::skip!("no cmake here (apt-get install cmake)");
    };
    let Some(_) = need_program("gcc", "gcc") else { return };
    let mpi = Mpi::new();
    let folder = TempDir::new("cmake");
    let lists = "cmake_minimum_required(VERSION 3.10)\nproject(x C)\nfind_package(MPI REQUIRED COMPONENTS C)\n\
        message(\"found ${MPI_C_LIBRARIES} ${MPI_C_VERSION}\")\n";
    std::fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
    let mut command = Command::new(cmake);
    let compiler = mpi.folder().join("bin/mpicc");
    command.arg(format!("-DMPI_C_COMPILER={}", compiler.display()));
    command.args(["-S", ".", "-B", "build"]).current_dir(folder.path());
    let said = good(command);
    let library = mpi.lib().join("libmpi.so");
    assert!(said.contains(&format!("found {} 3.1", library.display())), "{said}");
}
