//! The C programs of `tests/c`, compiled as C and C++ against the header, linked with the library, run over every
//! provider, and under tools that find what goes wrong in silence. Each is a program as users write them.

mod library;

use std::path::Path;
use std::process::Command;

use library::{Library, PROVIDERS, is_there};
use viaduct_kit::cc::{compile_as_cpp, compile_c};
use viaduct_kit::effort::full;
use viaduct_kit::packages::need_program;

/// Compiles a program once and runs it over every provider.
fn run(name: &str, arguments: &[&str]) {
    let library = Library::find();
    let Some(program) = library.compile(name, &[]) else { return };
    for provider in PROVIDERS.iter().copied().filter(|provider| is_there(provider)) {
        library.run(program.command(), provider, arguments, &[]);
    }
}

#[test]
fn every_size_offset_and_value_is_as_it_should_be() {
    run("layout", &[]);
}

#[test]
fn every_case_has_its_code() {
    run("codes", &[]);
}

#[test]
fn messages_go_back_and_forth() {
    run("pingpong", &[]);
}

#[test]
fn streams_keep_their_window() {
    run("bandwidth", &[]);
}

#[test]
fn completion_queues_tell_of_every_completion() {
    run("cqs", &[]);
}

#[test]
fn many_vis_are_many_connections() {
    run("manyvi", &[]);
}

#[test]
fn pieces_are_gathered_and_scattered() {
    run("segments", &[]);
}

#[test]
fn writes_are_seen_by_their_last_word() {
    run("rdma", &[]);
}

#[test]
fn peers_find_each_other() {
    run("peer", &[]);
}

#[test]
fn errors_are_told_and_an_orderly_end_is_not() {
    run("callback", &[]);
}

#[test]
fn threads_share_a_nic() {
    run("threads", &[]);
}

#[test]
fn handlers_run_once_each() {
    run("notify", &[]);
}

#[test]
fn one_machine_plays_several_nodes() {
    run("names", &[]);
}

#[test]
fn tags_are_lax_or_strict() {
    let library = Library::find();
    let Some(program) = library.compile("tags", &[]) else { return };
    for mode in ["lax", "strict"] {
        library.run(program.command(), "shm", &[], &[("VIADUCT_VIPL_TAGS", mode)]);
    }
}

#[test]
fn a_receive_is_judged_by_what_arrives_in_it() {
    run("overlong", &[]);
    let library = Library::find();
    let Some(program) = library.compile("overlong", &[]) else { return };
    library.run(program.command(), "shm", &[], &[("VIADUCT_VIPL_RECEIVES", "strict")]);
}

#[test]
fn an_error_without_a_handler_is_a_line_with_its_vi_and_a_hint() {
    let library = Library::find();
    let Some(program) = library.compile("unhandled", &[]) else { return };
    for provider in PROVIDERS.iter().copied().filter(|provider| is_there(provider)) {
        let wrote = library.run(program.command(), provider, &[], &[]);
        let (_, vi) = wrote.out.trim().split_once("too long at ").expect("the server says so");
        assert!(vi.starts_with("0x") && vi.len() > 4, "{vi}");
        let lines: Vec<&str> =
            wrote.err.lines().filter(|line| line.contains(&format!("VI {vi}: "))).collect();
        let told = |line: &&str| {
            line.starts_with("vipl: VI 0x") && line.ends_with("; post longer receives, or send less")
        };
        assert!(lines.iter().any(told), "{provider}: nothing of VI {vi} in\n{}", wrote.err);
        assert!(!wrote.err.contains("VI 0x0:"), "{provider}: {}", wrote.err);
    }
}

#[test]
fn a_descriptor_that_changes_while_it_is_posted_is_read_once() {
    run("flicker", &[]);
}

#[test]
fn posted_sends_leave_without_further_calls() {
    run("silent", &[]);
}

#[test]
fn a_message_passing_library_of_that_age_works() {
    let library = Library::find();
    let Some(program) = library.compile("minimp", &[]) else { return };
    let sizes: &[&str] = if full() { &["2", "3", "4", "5", "6", "7", "8"] } else { &["2", "5", "8"] };
    for size in sizes {
        library.run(program.command(), "shm", &[size], &[]);
    }
    for provider in ["ofi:tcp", "auto"].into_iter().filter(|provider| is_there(provider)) {
        library.run(program.command(), provider, &["3"], &[]);
    }
}

#[test]
fn the_programs_are_cpp_too() {
    let library = Library::find();
    let some: &[&str] = if full() { library::PROGRAMS } else { &["layout", "codes", "rdma"] };
    for name in some {
        let flags = library.flags(&[]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let Some(program) = compile_as_cpp(library::source(name), &flags) else { return };
        library.run(program.command(), "shm", &[], &[]);
    }
}

/// Programs and providers for the tools that find what goes wrong in silence: all in a full run, else a choice.
fn watched(
    choice: &'static [(&'static str, &'static str)],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = library::PROGRAMS.iter().flat_map(|name| PROVIDERS.iter().map(move |on| (*name, *on)));
    let wanted: Vec<_> = if full() { all.collect() } else { choice.to_vec() };
    wanted.into_iter().filter(|(_, provider)| is_there(provider))
}

#[test]
fn valgrind_finds_nothing() {
    let Some(valgrind) = need_program("valgrind", "valgrind") else { return };
    let library = Library::find();
    for (name, provider) in watched(&[("codes", "shm")]) {
        let Some(program) = library.compile(name, &[]) else { return };
        let mut command = Command::new(&valgrind);
        command.args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        command.arg(program.path());
        library.run(command, provider, &[], &[]);
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    let library = Library::find();
    for (name, provider) in watched(&[("segments", "auto"), ("threads", "shm"), ("rdma", "ofi:tcp")]) {
        let Some(program) = library.compile(name, &["-fsanitize=address"]) else { return };
        library.run(program.command(), provider, &[], &[]);
    }
}

/// The program of the book, as it stands there.
#[test]
fn the_program_of_the_book_works() {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/c.md");
    let chapter = std::fs::read_to_string(chapter).unwrap();
    let program = chapter.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let library = Library::find();
    let flags = library.flags(&[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(program) = compile_c(program, &flags) else { return };
    library.run(program.command(), "shm", &[], &[]);
}

/// Every function is declared, and is in the library with its version; nothing else is.
#[test]
fn the_library_exports_what_the_header_declares() {
    let library = Library::find();
    let names = vipl::export::NAMES;
    assert_eq!(names.len(), 41 + 5);
    let table: String = names.iter().map(|name| format!("    (function){name},\n")).collect();
    let text = format!(
        "#include <vipl.h>\ntypedef void (*function)(void);\nfunction all[] = {{\n{table}}};\nint main(void) {{ return !all[0]; }}\n"
    );
    let flags = library.flags(&["-Wno-cast-function-type"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(program) = compile_c(&text, &flags) else { return };
    library.run(program.command(), "shm", &[], &[]);
    let Some(nm) = need_program("nm", "binutils") else { return };
    let listed = Command::new(nm).args(["-D", "--defined-only"]).arg(library.file()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut exported: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.retain(|name| *name != "VIPL_1.0");
    exported.sort_unstable();
    let mut wanted: Vec<String> = names.iter().map(|name| format!("{name}@@VIPL_1.0")).collect();
    wanted.sort_unstable();
    assert_eq!(exported, wanted);
}

/// What the library has to say of itself reaches standard error, unless it is switched off.
#[test]
fn warnings_of_the_library_reach_standard_error() {
    let text = "#include <vipl.h>\nint main(void) {\n\tVIP_NIC_HANDLE nic;\n\
                \treturn VipOpenNic(\"via_lo\", &nic) == VIP_SUCCESS ? (int)VipCloseNic(nic) : 1;\n}\n";
    let library = Library::find();
    let flags = library.flags(&[]);
    let Some(program) = compile_c(text, &flags.iter().map(String::as_str).collect::<Vec<_>>()) else {
        return;
    };
    let folder = viaduct_kit::tempdir::TempDir::new("vipl-log");
    let said = |filter: &str| {
        let mut command = program.command();
        command.env("VIADUCT_RUNTIME_DIR", folder.path()).env("VIADUCT_LOG", filter);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{filter}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let loud = said("loud");
    assert!(loud.contains("libvipl: warn: VIADUCT_LOG=loud is not understood"), "{loud}");
    assert_eq!(said("off"), "");
}
