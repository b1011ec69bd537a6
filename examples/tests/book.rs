//! The book's first program, as two processes and at every size; and the text of the book, which is that program.

use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;

use crate::programs::{LIMIT, Place};

const SHOUT: &str = env!("CARGO_BIN_EXE_shout");
const SOURCE: &str = include_str!("../src/bin/shout.rs");
const CHAPTER: &str = include_str!("../../docs/book/src/getting-started.md");

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
fn the_book_has_the_program_that_is_tested() {
    let code = SOURCE.split_once("\n\n").expect("a head").1;
    let blocks: Vec<&str> = CHAPTER.split("```").collect();
    let same = |block: &&str| block.split_once('\n').is_some_and(|(_, text)| text == code);
    assert!(
        blocks.iter().any(same),
        "docs/book/src/getting-started.md differs from examples/src/bin/shout.rs"
    );
}
