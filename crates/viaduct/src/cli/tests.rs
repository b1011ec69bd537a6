//! The arguments fit together, and what help and documents tell people to type is understood.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use viaduct_catapult::words::translate;

use super::*;

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

/// Reads a command as typed, its first word left out.
fn understood(command: &str) {
    let mut words: Vec<OsString> =
        command.split_whitespace().map(|word| word.trim_matches('"').into()).collect();
    if words[0] == "launch" {
        let rest = words.split_off(1);
        words.extend(translate(&rest, &launch::options(), None).expect(command));
    }
    let parsed = Cli::try_parse_from(std::iter::once("viaduct".into()).chain(words));
    assert!(parsed.is_ok(), "`viaduct {command}`: {}", parsed.unwrap_err());
}

#[test]
fn every_question_is_answered_by_a_command_that_is_understood() {
    let (mut before, mut count) = (String::new(), 0);
    for line in QUESTIONS.lines().filter_map(|line| line.strip_prefix("  ")) {
        let (question, answer) = line.split_once("  ").expect("a question and its answer");
        assert!(question.ends_with('?'), "{question}");
        for command in answer.trim().split("; ") {
            let command = match command.strip_prefix("the same with ") {
                Some(more) => format!("{before} {more}"),
                None => command.to_owned(),
            };
            understood(&command);
            (before, count) = (command, count + 1);
        }
    }
    assert!(count > 16, "{count} commands");
}

#[test]
fn commands_of_the_book_and_the_readme_are_understood() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let chapters = fs::read_dir(top.join("docs/book/src")).expect("the book");
    let chapters = chapters.map(|entry| entry.expect("a chapter").path());
    let mut count = 0;
    for path in
        chapters.chain([top.join("README.md")]).filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        let text = fs::read_to_string(&path).expect("text");
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        for line in blocks.flat_map(str::lines) {
            let line = line.split(" #").next().unwrap_or_default().replace('&', " ; ");
            for command in line.split(" ; ").filter_map(typed) {
                understood(command);
                count += 1;
            }
        }
    }
    assert!(count > 60, "{count} commands");
}

/// What stands behind `viaduct` in a line that runs it, whatever stands before.
fn typed(line: &str) -> Option<&str> {
    let before = ["ip netns exec a ", "ip netns exec b ", "salloc -N 4 ", "export "];
    let mut line = line.trim();
    while let Some(rest) = before.iter().find_map(|word| line.strip_prefix(word)).or_else(|| variable(line)) {
        line = rest.trim_start();
    }
    let rest = line.strip_prefix("viaduct ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    Some(rest.split('|').next().unwrap_or(rest).trim())
}

/// What stands behind `NAME=VALUE`.
fn variable(line: &str) -> Option<&str> {
    let (first, rest) = line.split_once(' ')?;
    let (name, _) = first.split_once('=')?;
    name.chars().all(|c| c.is_ascii_uppercase() || c == '_').then_some(rest)
}
