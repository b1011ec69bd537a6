//! The C programs of `tests/c`, compiled against the header, linked with the library, and run.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use viaduct_kit::cc::{Compiled, compile_as_cpp, compile_c, compile_c_file};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::tempdir::TempDir;

/// The library in a folder with the names that the linker and the loader look for.
struct Library(TempDir);

impl Library {
    /// The one beside this test.
    fn find() -> Library {
        let built = env::current_exe().unwrap().with_file_name("libsovia.so");
        assert!(built.exists(), "{built:?} is not there");
        let folder = TempDir::new("sovia-c");
        folder.open_to_all();
        for name in ["libsovia.so", "libsovia.so.1"] {
            symlink(&built, folder.join(name)).unwrap();
        }
        Library(folder)
    }

    fn flags(&self, more: &[String]) -> Vec<String> {
        let folder = self.0.path().display();
        let mut flags = vec![format!("-I{}", package("include").display())];
        flags.extend_from_slice(more);
        flags.extend([format!("-L{folder}"), "-lsovia".into(), format!("-Wl,-rpath,{folder}"), "-O1".into()]);
        flags
    }

    fn compile(&self, name: &str, more: &[String]) -> Option<Compiled> {
        let flags = self.flags(more);
        compile_c_file(package("tests/c").join(name), &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn package(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Runs a program to its good end, in a run-time folder of its own.
fn run(mut command: Command, arguments: &[&str]) -> Output {
    let folder = TempDir::new("sovia-run");
    command.args(arguments).env("VIADUCT_RUNTIME_DIR", folder.path()).env("VIADUCT_PROVIDER", "shm");
    let output = command.output().unwrap();
    let both = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {}\n{both}", output.status);
    output
}

#[test]
fn one_program_has_sockets_of_both_kinds() {
    let library = Library::find();
    let Some(program) = library.compile("both.c", &[]) else { return };
    run(program.command(), &[]);
}

#[test]
fn a_burst_of_processes_gets_through_a_small_backlog() {
    let library = Library::find();
    let Some(program) = library.compile("burst.c", &[]) else { return };
    run(program.command(), &[]);
}

/// Also where every call looks all the time, and so is inside of the library most of the time.
#[test]
fn exit_in_a_signal_handler_gives_its_status() {
    let library = Library::find();
    let Some(program) = library.compile("alarm.c", &[]) else { return };
    for waiting in ["polling", "blocking"] {
        run(program.command(), &["200", waiting]);
    }
}

#[test]
fn the_header_is_cpp_too() {
    let library = Library::find();
    let flags = library.flags(&[]);
    let folder = TempDir::new("sovia-cpp");
    let source = folder.join("header.c");
    let text = "#include <sovia.h>\nint main(void) { return sov_close(sov_socket(AF_INET, SOCK_VIA, 0)); }\n";
    fs::write(&source, text).unwrap();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(program) = compile_as_cpp(source, &flags) else { return };
    run(program.command(), &[]);
}

#[test]
fn sunrpc_gives_the_same_over_via_as_over_tcp() {
    let Some((_library, program)) = rpc_program(&[]) else { return };
    let [tcp, via] = ["tcp", "via"].map(|name| run(program.command(), &[name]).stdout);
    assert_eq!(String::from_utf8_lossy(&tcp), String::from_utf8_lossy(&via));
    assert!(String::from_utf8_lossy(&via).contains("add: 42"));
}

/// `rpc.c` with the transport, and the library that it is linked with; `flags` are for the compiler.
fn rpc_program(flags: &[&str]) -> Option<(Library, Compiled)> {
    if !Path::new("/usr/include/tirpc/rpc/rpc.h").exists() {
        skip("needs libtirpc-dev");
        return None;
    }
    let library = Library::find();
    let more = [
        package("rpc/sovia_rpc.c").display().to_string(),
        // Its own headers are not as strict as we are.
        "-isystem".into(),
        "/usr/include/tirpc".into(),
        "-Wno-cast-function-type".into(),
        "-ltirpc".into(),
    ];
    let more: Vec<String> = more.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
    let program = library.compile("rpc.c", &more)?;
    Some((library, program))
}

#[test]
fn an_rpc_client_that_stops_in_the_middle_of_a_record_keeps_no_other_waiting() {
    let Some((_library, program)) = rpc_program(&[]) else { return };
    run(program.command(), &["via", "stall"]);
}

#[test]
fn an_rpc_client_that_does_not_read_its_reply_keeps_no_other_waiting() {
    // Programs wait 35 seconds: the test has not got so long.
    let Some((_library, program)) = rpc_program(&["-DREPLY_SECONDS=1"]) else { return };
    run(program.command(), &["via", "unread"]);
}

/// Every function of the header is in the library with its version, and nothing else is. What `sovia_rpc.h` declares is
/// compiled into the programs.
#[test]
fn the_library_exports_what_the_header_declares() {
    let header = fs::read_to_string(package("include/sovia.h")).unwrap();
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut declared: Vec<&str> = words.filter(|word| word.starts_with("sov_") && word.len() > 4).collect();
    declared.sort_unstable();
    declared.dedup();
    let mut named = sovia::export::NAMES.to_vec();
    named.sort_unstable();
    assert_eq!(named, declared);
    let Some(nm) = need_program("nm", "binutils") else { return };
    let library = Library::find();
    let listed = Command::new(nm).args(["-D", "--defined-only"]).arg(library.0.join("libsovia.so")).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let mut exported: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.retain(|name| *name != "SOVIA_1.0");
    exported.sort_unstable();
    let mut wanted: Vec<String> = declared.iter().map(|name| format!("{name}@@SOVIA_1.0")).collect();
    wanted.sort_unstable();
    assert_eq!(exported, wanted);
}

/// The program of the book, as it stands there.
#[test]
fn the_program_of_the_book_works() {
    let chapter = fs::read_to_string(package("../../docs/book/src/sockets.md")).unwrap();
    let program = chapter.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let library = Library::find();
    let flags = library.flags(&[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(program) = compile_c(program, &flags) else { return };
    assert_eq!(run(program.command(), &[]).stdout, b"hello over VIA\n");
}

/// A listener that cannot be reached from other hosts, because libfabric is not there: the library says so.
#[test]
fn warnings_of_the_library_reach_standard_error() {
    let text = "#include <sovia.h>\nint main(void) {\n\tint s = sov_socket(AF_INET, SOCK_VIA, 0);\n\
                \treturn s < 0 || sov_listen(s, 1) != 0 || sov_close(s) != 0;\n}\n";
    let library = Library::find();
    let flags = library.flags(&[]);
    let Some(program) = compile_c(text, &flags.iter().map(String::as_str).collect::<Vec<_>>()) else {
        return;
    };
    let said = |filter: Option<&str>| {
        let folder = TempDir::new("sovia-log");
        let mut command = program.command();
        command
            .env("VIADUCT_RUNTIME_DIR", folder.path())
            .env_remove("VIADUCT_LOG")
            .env_remove("VIADUCT_PROVIDER");
        command.env("VIADUCT_TOKEN", "c5".repeat(32)).env("VIADUCT_OFI_LIBRARY", "/no/such/library.so");
        command.envs(filter.map(|filter| ("VIADUCT_LOG", filter)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{filter:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warned = said(None);
    assert!(
        warned.contains("libsovia: warn: ") && warned.contains("is reached on this host alone"),
        "{warned}"
    );
    assert_eq!(said(Some("off")), "");
}
