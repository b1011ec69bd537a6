//! Programs of the book, as processes; and the text of the book, which is those programs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;
use viaduct_net::streams::{Config, Sovia};

use crate::programs::{LIMIT, Place};

const SHOUT: &str = env!("CARGO_BIN_EXE_shout");
const ECHO: &str = env!("CARGO_BIN_EXE_echo");
const UPPER: &str = env!("CARGO_BIN_EXE_upper");
const TASKS: &str = env!("CARGO_BIN_EXE_tasks");
const MEET: &str = env!("CARGO_BIN_EXE_meet");

/// A program, the chapter that shows it, and their texts.
const SHOWN: [[&str; 4]; 6] = [
    [
        "shout",
        "getting-started",
        include_str!("../src/bin/shout.rs"),
        include_str!("../../docs/book/src/getting-started.md"),
    ],
    ["echo", "messages", include_str!("../src/bin/echo.rs"), include_str!("../../docs/book/src/messages.md")],
    [
        "meet",
        "several-hosts",
        include_str!("../src/bin/meet.rs"),
        include_str!("../../docs/book/src/several-hosts.md"),
    ],
    ["upper", "sockets", include_str!("../src/bin/upper.rs"), include_str!("../../docs/book/src/sockets.md")],
    ["tasks", "sockets", include_str!("../src/bin/tasks.rs"), include_str!("../../docs/book/src/sockets.md")],
    [
        "ranks",
        "launching",
        include_str!("../src/bin/ranks.rs"),
        include_str!("../../docs/book/src/launching.md"),
    ],
];

/// Programs that the book shows in pieces, and in how many blocks.
const IN_PIECES: [(&str, &str, usize); 1] = [("sockets", include_str!("../src/bin/http.rs"), 2)];

/// Beginnings of blocks that no test compiles, and that no program has: they need a crate that the project does without.
const SHOWN_ALONE: [&str; 1] = ["tracing_subscriber::"];

#[test]
fn the_first_program_is_right_as_two_processes_at_every_size() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the book's first program");
    let place = Place::new();
    for len in [1, 5, 47, 100, 105, 1000, 4000, 4097, 20_000, 100_000] {
        let mut server = place.start(SHOUT, &["server"]);
        let text = "hello ".repeat(len).split_off(5 * len);
        let answer = place.says(SHOUT, &["client", &text]);
        assert_eq!(answer, format!("{}\n", text.to_uppercase()), "{len} bytes");
        assert!(server.wait(LIMIT).success(), "{len} bytes");
    }
}

#[test]
fn a_client_without_a_server_says_so_in_words() {
    let place = Place::new();
    for program in [SHOUT, ECHO, UPPER] {
        let output = place.program(program, &["client", "hello"]).output().expect("a program");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(
            !output.status.success() && said.starts_with("Error: no listener waits at "),
            "{program}: {said}"
        );
    }
}

#[test]
fn the_echo_serves_one_client_after_the_other() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the book's server of many clients");
    let place = Place::new();
    let texts: Vec<String> = [1, 100, 1000, 65_536].iter().map(|len| "x".repeat(*len)).collect();
    let mut server = place.start(ECHO, &["server", "4"]);
    for text in &texts {
        assert_eq!(place.says(ECHO, &["client", text]), format!("{text}\n"));
    }
    assert!(server.wait(LIMIT).success());
}

#[test]
fn the_echo_outlives_clients_that_are_killed_at_any_moment() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the book's server, and clients that are killed");
    let place = Place::new();
    let mut server = place.start(ECHO, &["server", "100000"]);
    assert_eq!(place.says(ECHO, &["client", "first"]), "first\n");
    // Killed while they start, connect, ask or leave: some when the server has their request in hand.
    for round in 0..300 {
        let mut client = place.start(ECHO, &["client", "anything"]);
        std::thread::sleep(Duration::from_micros(2_000 + round * 7_919 % 6_000));
        client.kill();
        client.wait(LIMIT);
        assert!(server.is_running(), "the server ended in round {round}");
    }
    assert_eq!(place.says(ECHO, &["client", "last"]), "last\n");
    server.kill();
}

#[test]
fn two_that_meet_on_one_host_do_so_through_shared_memory() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the book's two hosts");
    let place = Place::of("auto");
    for address in ["meeting", "localhost/meeting", "127.0.0.1/meeting"] {
        let mut server = place.start(MEET, &["server", "meeting"]);
        assert_eq!(place.says(MEET, &["client", address]), "well met, stranger, by shm\n", "{address}");
        assert!(server.wait(LIMIT).success(), "{address}");
    }
}

#[test]
fn streams_carry_every_length_while_another_client_says_nothing() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the book's streams");
    for (program, address) in [(UPPER, "via://localhost:7000"), (TASKS, "via://localhost:7001")] {
        let place = Place::new();
        let mut server = place.start(program, &["server"]);
        assert_eq!(place.says(program, &["client", "first"]), "FIRST\n");
        let silent = Sovia::open(place.nic(), Config::default()).expect("streams");
        let silent = silent.connect(address).expect("a connection");
        for len in [0, 1, 100, 5000, 100_000] {
            let text = "y".repeat(len);
            let answer = place.says(program, &["client", &text]);
            assert_eq!(answer, format!("{}\n", text.to_uppercase()), "{len} bytes");
        }
        drop(silent);
        assert!(server.is_running());
        server.kill();
    }
}

#[test]
fn the_book_has_the_programs_that_are_tested() {
    for [program, chapter, source, text] in SHOWN {
        let code = source.split_once("\n\n").expect("a head").1;
        let same = |block: &str| block.split_once('\n').is_some_and(|(_, text)| text == code);
        assert!(
            text.split("```").any(same),
            "docs/book/src/{chapter}.md differs from examples/src/bin/{program}.rs"
        );
    }
}

#[test]
fn pieces_that_no_test_of_the_book_compiles_stand_in_a_program() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src");
    let mut in_pieces = 0;
    for entry in fs::read_dir(book).expect("the book") {
        let path = entry.expect("a chapter").path();
        let Some(chapter) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".md")) else {
            continue;
        };
        let text = fs::read_to_string(&path).expect("text");
        let blocks: Vec<&str> =
            text.split("```rust,ignore\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        let known = IN_PIECES.iter().find(|(name, ..)| *name == chapter);
        for block in &blocks {
            let stands =
                |part: &str| known.is_some_and(|(_, source, _)| lines(source).contains(&lines(part)));
            let alone = SHOWN_ALONE.iter().any(|begin| block.starts_with(begin));
            assert!(
                alone || block.split("\n\n").all(stands),
                "{chapter}.md shows what no program has:\n{block}"
            );
        }
        if let Some((_, _, count)) = known {
            assert_eq!(blocks.len(), *count, "{chapter}.md");
            in_pieces += 1;
        }
    }
    assert_eq!(in_pieces, IN_PIECES.len(), "a chapter is not there any more");
}

/// The lines of a piece of code, without the white space around them.
fn lines(code: &str) -> String {
    code.lines().map(|line| format!("{}\n", line.trim())).filter(|line| line != "\n").collect()
}
