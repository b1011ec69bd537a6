//! mpi4py, as its wheel was built for MPICH.

use viaduct_kit::wheels::need_wheel;
use viaduct_mpi_tests::{Launcher, Mpi, good};

#[test]
fn its_benchmarks_run() {
    let Some(python) = need_wheel("mpi4py") else { return };
    let mpi = Mpi::new();
    for (ranks, words, sign) in [
        (3, &["helloworld"][..], "I am process 2 of 3"),
        (3, &["ringtest"], "3 processes"),
        (2, &["pingpong", "--max-size", "20000", "--loop", "20"], "16384"),
    ] {
        let Some(mut command) = mpi.launch(Launcher::Ours, ranks, &python) else { return };
        command.args(["-m", "mpi4py.bench"]).args(words);
        let said = good(command);
        assert!(said.contains(sign), "{said}");
    }
}
