//! The folder of MPI below the prefix of `cargo xtask install`: compilers, launchers, CMake and pkg-config work from there, and
//! an MPI that is installed elsewhere keeps its names.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use viaduct_kit::packages::{find_program, need_program};
use viaduct_kit::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_mpi::prefix::{LIBRARY, NAMES};
use viaduct_mpi_tests::{beside, good};

/// A prefix with the program and the library, as `cargo xtask install` lays them down; its last step makes the folder.
struct Prefix {
    folder: TempDir,
    runtime: TempDir,
}

impl Prefix {
    /// `None`, and the test logged as skipped, where the program was not built.
    fn new() -> Option<Prefix> {
        let program = beside("../viaduct");
        if !program.exists() {
            viaduct_kit::packages::skip("no program viaduct beside the tests (cargo build)");
            return None;
        }
        let prefix = Prefix { folder: TempDir::new("prefix"), runtime: TempDir::new("prefix-run") };
        prefix.folder.open_to_all();
        for (from, to) in [(program, "bin/viaduct"), (beside(LIBRARY), "lib/viaduct/libvmpi.so")] {
            let to = prefix.folder.join(to);
            fs::create_dir_all(to.parent().expect("it lies in a folder")).unwrap();
            // The program finds its prefix from its own place, so a symbolic link would not do.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).unwrap();
            }
        }
        let said = good(prefix.command("bin/viaduct", &["mpi", "path"]));
        assert_eq!(Path::new(said.trim()), prefix.mpi().canonicalize().unwrap());
        Some(prefix)
    }

    fn mpi(&self) -> PathBuf {
        self.folder.join("lib/viaduct/mpi")
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.args(words).env("VIADUCT_RUNTIME_DIR", self.runtime.path());
        command
    }

    /// A command with the variables of `viaduct mpi env`.
    fn user(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "eval \"$(\"$0\" mpi env)\"; exec \"$@\""]).arg(self.folder.join("bin/viaduct"));
        command.arg(program).env("VIADUCT_RUNTIME_DIR", self.runtime.path());
        command
    }
}

/// What names a file of the prefix has outside of the private folder.
fn outside(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if !path.ends_with("lib/viaduct/mpi") {
                outside(&path, found);
            }
        } else {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
}

#[test]
fn nothing_of_it_lies_where_another_mpi_would() {
    let Some(prefix) = Prefix::new() else { return };
    let mut names = Vec::new();
    outside(prefix.folder.path(), &mut names);
    names.sort();
    assert_eq!(names, [LIBRARY, "viaduct"]);
    for name in NAMES {
        assert!(prefix.mpi().join("lib").join(name).exists(), "{name}");
    }
    // A program that the loader path does not lead here takes the MPI of the system.
    let Some(ldd) = find_program("ldd") else { skip!("no ldd here (apt-get install libc-bin)") };
    let Some(netpipe) = need_program("NPmpich2", "netpipe-mpich2") else { return };
    let taken = |command: &mut Command| {
        let said = good(std::mem::replace(command, Command::new("true")));
        said.lines().find(|line| line.contains("libmpich.so.12 =>")).expect("it needs MPI").to_owned()
    };
    let mut plain = Command::new(&ldd);
    plain.arg(&netpipe).env_remove("LD_LIBRARY_PATH").env("PATH", with_bin(prefix.folder.path()));
    let mut user = prefix.user(&ldd);
    user.arg(&netpipe);
    assert!(!taken(&mut plain).contains("viaduct"));
    assert!(taken(&mut user).contains("lib/viaduct/mpi/lib/libmpich.so.12"));
}

/// The path with the ordinary folder of programs of a prefix in front.
fn with_bin(prefix: &Path) -> String {
    format!("{}/bin:{}", prefix.display(), env::var("PATH").unwrap_or_default())
}

const C: &str = "#include <mpi.h>\n#include <stdio.h>\nint main(int n, char **w) { int r, s; MPI_Init(&n, &w);\n\
    MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n\
    if (r == 0) printf(\"c %d\\n\", s); return MPI_Finalize(); }\n";

const CXX: &str = "#include <mpi.h>\n#include <iostream>\n#include <vector>\nint main(int n, char **w) { MPI_Init(&n, &w);\n\
    int r, s; MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &s); std::vector<int> all(s);\n\
    MPI_Allgather(&r, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);\n\
    if (r == 0) std::cout << \"c++ \" << all.back() << std::endl; MPI_Finalize(); }\n";

const FORTRAN: &str = "      program x\n      include 'mpif.h'\n      integer r, s, e\n      call mpi_init(e)\n\
    \u{20}     call mpi_comm_rank(mpi_comm_world, r, e)\n\
    \u{20}     call mpi_allreduce(r, s, 1, mpi_integer, mpi_max,\n     & mpi_comm_world, e)\n\
    \u{20}     if (r .eq. 0) print *, 'fortran', s\n      call mpi_finalize(e)\n      end\n";

/// Writes the three programs to a folder.
fn sources() -> TempDir {
    let folder = TempDir::new("sources");
    folder.open_to_all();
    for (name, text) in [("x.c", C), ("x.cc", CXX), ("x.f", FORTRAN)] {
        fs::write(folder.join(name), text).unwrap();
    }
    folder
}

#[test]
fn its_compilers_and_launchers_make_and_run_programs() {
    let Some(prefix) = Prefix::new() else { return };
    let folder = sources();
    for (compiler, real, package, source, sign) in [
        ("mpicc", "gcc", "gcc", "x.c", "c 3"),
        ("mpicxx", "g++", "g++", "x.cc", "c++ 2"),
        ("mpif77", "gfortran", "gfortran", "x.f", "fortran           2"),
        ("mpif90", "gfortran", "gfortran", "x.f", "fortran           2"),
    ] {
        if need_program(real, package).is_none() {
            continue;
        }
        let program = folder.join(compiler);
        let mut compile = prefix.user(Path::new(compiler));
        good({
            compile.arg("-o").arg(&program).arg(folder.join(source));
            compile
        });
        let mut run = prefix.user(Path::new("mpiexec"));
        run.args(["-n", "3"]).arg(&program);
        let said = good(run);
        assert!(said.contains(sign), "{compiler}: {said}");
        // What it has built needs no variables.
        let alone = prefix.command("lib/viaduct/mpi/bin/mpirun", &["-n", "2", program.to_str().unwrap()]);
        good(alone);
    }
}

#[test]
fn cmake_finds_it_for_three_languages() {
    for (program, package) in [("cmake", "cmake"), ("g++", "g++"), ("gfortran", "gfortran"), ("make", "make")]
    {
        if need_program(program, package).is_none() {
            return;
        }
    }
    let Some(prefix) = Prefix::new() else { return };
    let folder = sources();
    let lists = "cmake_minimum_required(VERSION 3.10)\nproject(x C CXX Fortran)\n\
        find_package(MPI REQUIRED COMPONENTS C CXX Fortran)\n\
        message(\"found ${MPI_C_VERSION} ${MPI_CXX_VERSION} ${MPI_Fortran_VERSION} ${MPIEXEC_EXECUTABLE}\")\n\
        add_executable(x-c x.c)\ntarget_link_libraries(x-c MPI::MPI_C)\n\
        add_executable(x-cxx x.cc)\ntarget_link_libraries(x-cxx MPI::MPI_CXX)\n\
        add_executable(x-fortran x.f)\ntarget_link_libraries(x-fortran MPI::MPI_Fortran)\n";
    fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
    let mut configure = prefix.user(Path::new("cmake"));
    configure.args(["-S", ".", "-B", "build"]).current_dir(folder.path());
    let said = good(configure);
    let launcher = prefix.mpi().canonicalize().unwrap().join("bin/mpiexec");
    assert!(said.contains(&format!("found 3.1 3.1 3.1 {}", launcher.display())), "{said}");
    let mut build = prefix.user(Path::new("cmake"));
    build.args(["--build", "build"]).current_dir(folder.path());
    good(build);
    for (program, sign) in [("x-c", "c 3"), ("x-cxx", "c++ 2"), ("x-fortran", "2")] {
        let mut run = prefix.user(Path::new("mpiexec"));
        run.args(["-n", "3"]).arg(folder.join("build").join(program));
        let said = good(run);
        assert!(said.contains(sign), "{program}: {said}");
    }
}

#[test]
fn pkg_config_names_its_headers_and_its_library() {
    let Some(tool) = find_program("pkg-config").or_else(|| find_program("pkgconf")) else {
        skip!("no pkg-config here (apt-get install pkgconf)")
    };
    let Some(gcc) = need_program("gcc", "gcc") else { return };
    let Some(prefix) = Prefix::new() else { return };
    let folder = sources();
    let mut ask = prefix.user(&tool);
    ask.args(["--cflags", "--libs", "mpi"]);
    let flags = good(ask);
    let program = folder.join("x");
    let mut compile = Command::new(gcc);
    compile.arg(folder.join("x.c")).arg("-o").arg(&program).args(flags.split_whitespace());
    good(compile);
    let mut alone = Command::new(&program);
    alone.env("VIADUCT_RUNTIME_DIR", prefix.runtime.path());
    assert!(good(alone).contains("c 0"));
}

#[test]
fn a_tree_of_another_user_leaves_it_to_the_cache() {
    let Some(prefix) = Prefix::new() else { return };
    let home = prefix.folder.join("lib/viaduct");
    fs::remove_dir_all(prefix.mpi()).unwrap();
    let closed = |mode| fs::set_permissions(&home, fs::Permissions::from_mode(mode)).unwrap();
    closed(0o555);
    if fs::create_dir(home.join("probe")).is_ok() {
        fs::remove_dir(home.join("probe")).unwrap();
        closed(0o755);
        skip!("root may write everywhere");
    }
    let cache = TempDir::new("cache");
    let mut path = prefix.command("bin/viaduct", &["mpi", "path"]);
    let said = path.env("XDG_CACHE_HOME", cache.path()).output().unwrap();
    let mut lost = prefix.command("bin/viaduct", &["mpi", "path"]);
    let refused = lost.env_remove("XDG_CACHE_HOME").env_remove("HOME").output().unwrap();
    closed(0o755);
    let made = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
    assert!(made.starts_with(cache.path().join("viaduct")), "{}", made.display());
    assert!(made.join("lib").join(NAMES[0]).exists());
    let mut ranks = Command::new(made.join("bin/mpiexec"));
    ranks.args(["-n", "2", "true"]).env("VIADUCT_RUNTIME_DIR", prefix.runtime.path());
    good(ranks);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("XDG_CACHE_HOME"), "{words}");
}
