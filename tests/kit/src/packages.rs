//! Programs of the system that a test needs, and tests that are skipped, by name.
//!
//! Nothing is installed here: that is `cargo xtask test`'s business. A test that cannot run says so on standard
//! error, and in the file that `VIADUCT_SKIP_LOG` names, from which the closing summary is made.

use std::env;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

/// Names the file to which each skipped test adds a line: test, tab, reason.
pub const SKIP_LOG: &str = "VIADUCT_SKIP_LOG";

/// Tells a child process on behalf of which test it runs.
pub(crate) const TEST_NAME: &str = "VIADUCT_TEST_NAME";

/// Folders in which system programs live that are not always on an ordinary user's path.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The path of a program, or `None` after having logged that this test is skipped for want of it.
///
/// `package` is the Debian package that has it; `cargo xtask test` installs what its table of packages lists.
///
/// ```no_run
/// # fn test() {
/// let Some(strace) = viaduct_kit::packages::need_program("strace", "strace") else { return };
/// # }
/// ```
pub fn need_program(program: &str, package: &str) -> Option<PathBuf> {
    let found = find_program(program);
    if found.is_none() {
        skip(&format!("{program} not found (apt-get install {package})"));
    }
    found
}

/// Whether this process is root; if not, logs that this test is skipped.
pub fn need_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Whether this process may use `count` cores; if not, logs that this test is skipped.
pub fn need_cores(count: usize) -> bool {
    let enough = thread::available_parallelism().is_ok_and(|cores| cores.get() >= count);
    if !enough {
        skip(&format!("needs {count} cores"));
    }
    enough
}

/// Looks for a program on the path and in the system's folders.
pub fn find_program(program: &str) -> Option<PathBuf> {
    find_in(program, env::var_os("PATH").as_deref())
}

/// Logs that the running test is skipped. Tests use [`skip!`](crate::skip!), which also returns.
pub fn skip(reason: &str) {
    let test = test_name();
    eprintln!("SKIP {test}: {reason}");
    if let Some(log) = env::var_os(SKIP_LOG) {
        log_skip(Path::new(&log), &test, reason);
    }
}

/// Leaves the running test, logging its name and the reason: `skip!("needs {} cores", 4)`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::packages::skip(&format!($($reason)+));
        return;
    }};
}

/// The name of the running test, crate included, as the skip log shows it.
///
/// libtest gives each test a thread of that name; a child process is told.
pub fn test_name() -> String {
    if let Ok(name) = env::var(TEST_NAME) {
        return name;
    }
    let current = thread::current();
    let test = match current.name() {
        Some(name) if name != "main" => Some(name.to_owned()),
        _ => exact_argument(env::args()),
    };
    let binary = env::current_exe().ok();
    let binary = binary.as_deref().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or("unknown");
    let owner = owner_of(binary, env::var("CARGO_PKG_NAME").ok());
    match test {
        Some(test) => format!("{owner}::{test}"),
        None => owner,
    }
}

/// With one test on one thread libtest stays on the main thread, and the name is only in the arguments.
fn exact_argument(mut args: impl Iterator<Item = String>) -> Option<String> {
    args.find(|arg| arg == "--exact")?;
    args.find(|arg| !arg.starts_with('-'))
}

/// Most packages have a test binary called `main`, which says nothing: the package is named instead, as Cargo and
/// nextest do in the environment.
fn owner_of(binary: &str, package: Option<String>) -> String {
    match (crate_of(binary), package) {
        ("main", Some(package)) => package,
        (name, _) => name.to_owned(),
    }
}

/// Cargo adds a hash to the names of test binaries: `viaduct_kit-0f3a...` is `viaduct_kit`.
fn crate_of(binary: &str) -> &str {
    match binary.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => binary,
    }
}

fn find_in(program: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let listed = path.into_iter().flat_map(env::split_paths);
    let folders = listed.chain(SYSTEM_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// One write to a file opened for appending, so that lines of parallel tests do not mix.
fn log_skip(log: &Path, test: &str, reason: &str) {
    let line = format!("{test}\t{}\n", reason.replace(['\n', '\t'], " "));
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("{SKIP_LOG}={}: {error}", log.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tempdir::TempDir;
    use std::fs::{self, Permissions};

    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(test_name(), "viaduct_kit::packages::tests::a_test_knows_its_name");
    }

    #[test]
    fn the_name_is_taken_from_the_arguments_of_a_lone_test() {
        let args = ["binary", "--nocapture", "--exact", "a::b"].map(str::to_owned);
        assert_eq!(exact_argument(args.into_iter()), Some("a::b".to_owned()));
        assert_eq!(exact_argument(["binary".to_owned()].into_iter()), None);
    }

    #[test]
    fn the_hash_is_no_part_of_the_name() {
        assert_eq!(crate_of("viaduct_kit-0123456789abcdef"), "viaduct_kit");
        assert_eq!(crate_of("some-tool"), "some-tool");
    }

    #[test]
    fn a_binary_called_main_is_named_by_its_package() {
        let package = || Some("viaduct-kit".to_owned());
        assert_eq!(owner_of("main-0123456789abcdef", package()), "viaduct-kit");
        assert_eq!(owner_of("main-0123456789abcdef", None), "main");
        assert_eq!(owner_of("heap-0123456789abcdef", package()), "heap");
    }

    #[test]
    fn only_executable_files_are_programs() {
        let folder = TempDir::new("path");
        for (name, mode) in [("tool", 0o755), ("text", 0o644)] {
            fs::write(folder.join(name), "").unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).unwrap();
        }
        let path = Some(folder.path().as_os_str());
        assert_eq!(find_in("tool", path), Some(folder.join("tool")));
        assert_eq!(find_in("text", path), None);
        assert_eq!(find_in("no-such-program", path), None);
        assert_eq!(find_in("no-such-program", None), None);
    }

    #[test]
    fn each_skip_is_one_line_of_the_log() {
        let folder = TempDir::new("skip");
        let log = folder.join("log");
        log_skip(&log, "a::one", "first\nreason");
        log_skip(&log, "a::two", "second");
        assert_eq!(fs::read_to_string(log).unwrap(), "a::one\tfirst reason\na::two\tsecond\n");
    }
}
