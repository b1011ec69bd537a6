//! The library that Cargo has just built, as C programs find it: by its name, in a folder of its own.

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::scaled;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_providers::{Config, open};

/// Providers that programs run on.
pub(crate) const PROVIDERS: &[&str] = &["shm", "auto", "ofi:tcp"];

/// All programs that need no argument.
pub(crate) const PROGRAMS: &[&str] = &[
    "layout",
    "codes",
    "pingpong",
    "bandwidth",
    "cqs",
    "manyvi",
    "segments",
    "rdma",
    "peer",
    "callback",
    "threads",
    "notify",
    "names",
    "tags",
    "minimp",
    "overlong",
    "flicker",
    "silent",
    "unhandled",
];

/// The library in a folder with the names that the linker and the loader look for.
pub(crate) struct Library {
    folder: TempDir,
}

impl Library {
    /// The one beside this test.
    pub(crate) fn find() -> Library {
        let test = env::current_exe().expect("a running program has a path");
        let built = test.with_file_name("libvipl.so");
        assert!(built.exists(), "{built:?} is not there");
        let folder = TempDir::new("vipl");
        folder.open_to_all();
        for name in ["libvipl.so", "libvipl.so.1"] {
            symlink(&built, folder.join(name)).expect("the folder is new and ours");
        }
        Library { folder }
    }

    /// Where it is.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("libvipl.so")
    }

    /// What a compiler is told.
    pub(crate) fn flags(&self, more: &[&str]) -> Vec<String> {
        let folder = self.folder.path().display();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let mut flags: Vec<String> = more.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend([format!("-I{}", include.display()), format!("-L{folder}"), "-lvipl".into()]);
        flags.extend([format!("-Wl,-rpath,{folder}"), "-O1".into(), "-pthread".into()]);
        flags
    }

    /// Compiles one of the programs.
    pub(crate) fn compile(&self, name: &str, more: &[&str]) -> Option<Compiled> {
        let flags = self.flags(more);
        compile_c_file(source(name), &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a program to its good end, in a run-time folder of its own. Gives what it wrote.
    pub(crate) fn run(
        &self,
        mut command: Command,
        provider: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Wrote {
        let runtime = TempDir::new("vipl-run");
        let limit = scaled(Duration::from_secs(120)).as_secs().to_string();
        command.args(arguments).env("VIADUCT_RUNTIME_DIR", runtime.path()).env("TEST_SECONDS", limit);
        command.env("VIADUCT_PROVIDER", provider).envs(variables.iter().copied());
        let output = command.output().expect("a program just compiled can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command:?} on {provider}: {}\n{out}{err}", output.status);
        Wrote { out, err }
    }
}

/// What a program wrote to standard output, and it or the library to standard error.
pub(crate) struct Wrote {
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Where a program's source is.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c")
}

/// Whether a provider can be opened here; if not, that part of the test is logged as skipped.
pub(crate) fn is_there(provider: &str) -> bool {
    match open(provider, &Config::default()) {
        Ok(_) => true,
        Err(error) => {
            skip(&format!("{provider}: {error}"));
            false
        }
    }
}
