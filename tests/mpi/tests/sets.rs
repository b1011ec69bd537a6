//! The sets of our own: C programs compiled with MPICH's headers, and Fortran programs with MPICH's and ours, with several numbers of
//! ranks.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use viaduct_kit::cc::compile_as_cpp;
use viaduct_kit::effort::full;
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::tempdir::TempDir;
use viaduct_mpi::table;
use viaduct_mpi_tests::{Launcher, MPICH_HEADERS, Mpi, good};

/// Programs of the C set.
const PROGRAMS: [&str; 7] = ["p2p", "collectives", "types", "comms", "objects", "older", "threads"];

/// Numbers of ranks: odd ones, and more than there are cores.
fn ranks() -> &'static [usize] {
    if full() { &[1, 2, 3, 4, 5, 8, 16] } else { &[1, 4] }
}

fn run_set(name: &str) {
    let mpi = Mpi::new();
    let Some(program) = mpi.compile(name) else { return };
    for &ranks in ranks() {
        let Some(command) = mpi.launch(Launcher::Ours, ranks, program.path()) else { return };
        let said = good(command);
        assert!(said.contains(&format!("{name}: good with {ranks}")), "{said}");
    }
}

#[test]
fn messages_of_every_mode_arrive() {
    run_set("p2p");
}

#[test]
fn collectives_put_every_part_in_its_place() {
    run_set("collectives");
}

#[test]
fn datatypes_move_their_bytes_and_no_others() {
    run_set("types");
}

#[test]
fn communicators_groups_and_topologies_are_as_the_standard_says() {
    run_set("comms");
}

#[test]
fn errors_attributes_hints_and_refusals_are_as_the_standard_says() {
    run_set("objects");
}

#[test]
fn names_of_older_versions_and_handles_of_fortran_work_in_c() {
    run_set("older");
}

#[test]
fn threads_of_every_rank_call_at_the_same_time() {
    run_set("threads");
}

#[test]
fn programs_without_a_launcher_are_alone() {
    let mpi = Mpi::new();
    let Some(program) = mpi.compile("p2p") else { return };
    let mut command = program.command();
    command.env("LD_LIBRARY_PATH", mpi.lib());
    assert!(good(command).contains("p2p: good with 1"));
}

#[test]
fn the_launcher_of_mpich_starts_our_programs() {
    let mpi = Mpi::new();
    let Some(program) = mpi.compile("p2p") else { return };
    let Some(command) = mpi.launch(Launcher::Hydra, 3, program.path()) else { return };
    assert!(good(command).contains("p2p: good with 3"));
}

#[test]
fn our_headers_compile_the_same_programs() {
    let mpi = Mpi::new();
    for name in PROGRAMS {
        let Some(program) = mpi.compile_with_our_headers(name) else { return };
        if name == "types" {
            let Some(command) = mpi.launch(Launcher::Ours, 2, program.path()) else { return };
            good(command);
        }
    }
}

/// Whose `mpif.h` a Fortran program is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Ours, by our own compiler script.
    Ours,
    /// Ours, with names that end with two underscores.
    TwoUnderscores,
    /// That of Debian's MPICH, by gfortran itself.
    Mpich,
}

/// Compiles a Fortran program.
pub(crate) fn fortran(mpi: &Mpi, name: &str, headers: Headers) -> Option<(TempDir, PathBuf)> {
    let gfortran = need_program("gfortran", "gfortran")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fortran").join(name);
    let folder = TempDir::new("fortran");
    folder.open_to_all();
    let program = folder.join("program");
    let mut command = match headers {
        Headers::Ours | Headers::TwoUnderscores => {
            let mut command = Command::new(mpi.folder().join("bin/mpif77"));
            command.args(["-Wall", "-Wno-unused-dummy-argument"]).arg(source);
            if headers == Headers::TwoUnderscores {
                command.arg("-fsecond-underscore");
            }
            command
        }
        Headers::Mpich => {
            if !Path::new(MPICH_HEADERS).join("mpif.h").exists() {
                skip("no mpif.h of MPICH here (apt-get install libmpich-dev)");
                return None;
            }
            let mut command = Command::new(gfortran);
            command
                .arg(format!("-I{MPICH_HEADERS}"))
                .args(["-DMPIF_OF_MPICH", "-fallow-argument-mismatch"])
                .arg(source);
            command.arg(format!("-L{}", mpi.lib().display())).args(["-lmpifort", "-lmpi"]);
            command
        }
    };
    command.args(["-cpp", "-fcray-pointer", "-o"]).arg(&program);
    good(command);
    Some((folder, program))
}

/// Runs a Fortran program of the set with our header and with MPICH's.
fn run_fortran(name: &str, sign: &str) {
    let mpi = Mpi::new();
    for headers in [Headers::Ours, Headers::Mpich] {
        let Some((_folder, program)) = fortran(&mpi, name, headers) else { return };
        for &ranks in ranks() {
            let Some(command) = mpi.launch(Launcher::Ours, ranks, &program) else { return };
            assert!(good(command).contains(sign), "{headers:?} {ranks}");
        }
    }
}

#[test]
fn fortran_programs_see_marks_text_and_callbacks_as_they_should() {
    run_fortran("set.f", "fortran: good");
}

#[test]
fn messages_and_collectives_of_fortran_programs_arrive() {
    run_fortran("messages.f", "messages: good");
}

#[test]
fn objects_of_fortran_programs_are_as_the_standard_says() {
    run_fortran("objects.f", "objects: good");
}

#[test]
fn fortran_programs_whose_names_end_with_two_underscores_run() {
    let mpi = Mpi::new();
    for (name, sign) in [("set.f", "fortran: good"), ("objects.f", "objects: good")] {
        let Some((_folder, program)) = fortran(&mpi, name, Headers::TwoUnderscores) else { return };
        let Some(command) = mpi.launch(Launcher::Ours, 2, &program) else { return };
        assert!(good(command).contains(sign));
    }
}

#[test]
fn cpp_programs_compile_with_our_header_and_run() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp/set.cc");
    let mpi = Mpi::new();
    let (include, link) =
        (format!("-I{}/include", mpi.folder().display()), format!("-L{}", mpi.lib().display()));
    let Some(program) = compile_as_cpp(source, &["-std=c++17", &include, &link, "-lmpi"]) else { return };
    for &ranks in ranks() {
        let Some(command) = mpi.launch(Launcher::Ours, ranks, program.path()) else { return };
        assert!(good(command).contains("c++: good"), "{ranks}");
    }
}

/// The words of the sources in a folder.
fn words(folder: &str) -> HashSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let text: String = files.collect();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.map(str::to_owned).collect()
}

#[test]
fn the_table_names_exactly_what_the_sets_call() {
    let (c, fortran) = (words("c"), words("fortran"));
    let fortran: HashSet<String> = fortran.iter().map(|word| word.to_ascii_lowercase()).collect();
    for entry in table::entries() {
        assert_eq!(entry.evidence.contains('c'), c.contains(entry.name), "{}", entry.name);
        let called = fortran.contains(&entry.name.to_ascii_lowercase());
        assert_eq!(entry.evidence.contains('f'), called, "{} in Fortran", entry.name);
    }
}
