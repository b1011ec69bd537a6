//! Words of comments and documentation: they name who acts, and a first sentence stands by itself.
//!
//! A comment that says "who" or "nobody" leaves the reader to find out whether it is the sender, the owner thread or the
//! caller; such words are looked for in every text file. A documentation comment that begins with "The same" is shown alone
//! in lists, where it says nothing; this and the names of functions, tests above all, are looked at in every Rust file.

use std::path::Path;

use super::{Finding, TextFile};

/// Words that hide an actor.
const VAGUE: [&str; 4] = ["who", "whoever", "nobody", "somebody"];

/// Lines with such a word that are accepted: names of variants, the user called nobody, and sentences in which the actor is
/// named beside it.
const MOST: usize = 30;

/// Files that may say such words: this one, and what was said of versions that are out.
const EXEMPT: [&str; 2] = ["CHANGELOG.md", "xtask/src/house/prose.rs"];

/// First words of a function's name that leave out who acts. A test is a sentence: "a receiver takes what was sent".
const VAGUE_NAMES: [&str; 8] =
    ["what_", "whatever_", "who_", "whoever_", "whose_", "nobody_", "somebody_", "anybody_"];

/// Words that leave out who acts wherever they stand in a function's name.
const VAGUE_PARTS: [&str; 6] = ["who", "whoever", "nobody", "nobodys", "somebody", "somebodys"];

const MEND: &str = "name the actor: sender, receiver, owner thread, control thread, peer, caller";

const MEND_NAME: &str = "name the thing that acts or that something is done to, first of all";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let rust: Vec<&TextFile> = files.iter().filter(|file| file.is_rust()).collect();
    let all: Vec<&TextFile> =
        files.iter().filter(|file| !EXEMPT.iter().any(|exempt| file.path == Path::new(exempt))).collect();
    let vague = places(&all, is_vague);
    let same = places(&rust, begins_with_the_same);
    let names = places(&rust, names_no_actor);
    let mut findings = Vec::new();
    if let Some((file, line)) = vague.get(MOST) {
        let what = format!("{} lines say who, whoever, nobody or somebody; {MOST} is the most", vague.len());
        findings.push(Finding::error(file, *line, what, MEND));
    }
    if let Some((file, line)) = same.first() {
        let what = format!("{} documentation comments begin with \"The same\"", same.len());
        let mend = "say what it is in a sentence that can stand alone";
        findings.push(Finding::error(file, *line, what, mend));
    }
    findings.extend(names.into_iter().map(|(file, line)| {
        Finding::error(file, line, "a function's name leaves out an actor".to_owned(), MEND_NAME)
    }));
    findings
}

/// Every line for which `is` holds.
fn places<'a>(files: &[&'a TextFile], is: fn(&str) -> bool) -> Vec<(&'a Path, usize)> {
    let lines = files.iter().flat_map(|file| {
        file.text.lines().enumerate().map(move |(index, line)| (file.path.as_path(), index + 1, line))
    });
    lines.filter(|(_, _, line)| is(line)).map(|(path, number, _)| (path, number)).collect()
}

/// Whether a line has such a word. `"nobody"` is a user, and so is `NOBODY`.
fn is_vague(line: &str) -> bool {
    let mut at = 0;
    line.split(|char: char| !(char.is_alphanumeric() || char == '_')).any(|word| {
        let (start, end) = (at, at + word.len());
        at = end + line[end..].chars().next().map_or(0, char::len_utf8);
        let quoted = line[..start].ends_with('"') && line[end..].starts_with('"');
        let constant = word.chars().all(|char| char.is_uppercase());
        !quoted && !constant && VAGUE.iter().any(|vague| word.eq_ignore_ascii_case(vague))
    })
}

/// Whether a function is declared here whose name begins so, or has such a word.
fn names_no_actor(line: &str) -> bool {
    let declared = line.trim_start();
    let before =
        |word: &str| matches!(word, "pub" | "pub(crate)" | "pub(super)" | "async" | "const" | "unsafe");
    let mut words = declared.split(' ').skip_while(|word| before(word));
    let Some(rest) = words.next().filter(|word| *word == "fn").and_then(|_| words.next()) else {
        return false;
    };
    let name = rest.split(['(', '<']).next().unwrap_or(rest);
    VAGUE_NAMES.iter().any(|vague| name.starts_with(vague))
        || name.split('_').any(|part| VAGUE_PARTS.contains(&part))
}

fn begins_with_the_same(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("/// The same") || line.starts_with("//! The same")
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::tests::file;
    use super::*;

    #[test]
    fn an_actor_without_a_name_is_found() {
        for line in ["// Who waits here", "/// whoever", "//! for nobody.", "let x; // (somebody)"] {
            assert!(is_vague(line), "{line}");
        }
        for line in ["command.user(\"nobody\")", "const NOBODY: u32 = 1;", "// the whole", "fn who_am_i() {}"]
        {
            assert!(!is_vague(line), "{line}");
        }
    }

    #[test]
    fn a_few_are_accepted_and_more_are_not() {
        let lines = |count: usize| file("crates/a/src/lib.rs", &"// who\n".repeat(count));
        assert_eq!(check(&[lines(MOST)]), []);
        let found = check(&[lines(MOST + 1)]);
        assert_eq!((found.len(), found[0].line, found[0].severity), (1, MOST + 1, Severity::Error));
        for elsewhere in
            ["tests/a/tests/b.rs", "xtask/src/a.rs", "capi/a/tests/c/a.c", "docs/a.md", "Cargo.toml"]
        {
            let all = [file(elsewhere, &"# who\n".repeat(MOST)), lines(1)];
            assert_eq!(check(&all).len(), 1, "{elsewhere}");
        }
        let exempt = EXEMPT.map(|path| file(path, &"// who\n".repeat(MOST + 1)));
        assert_eq!(check(&exempt), []);
    }

    #[test]
    fn a_first_sentence_that_leans_on_another_is_an_error() {
        let found = check(&[file("capi/a/src/lib.rs", "//! What it is.\n    /// The same, but longer.\n")]);
        assert_eq!((found.len(), found[0].line, found[0].severity), (1, 2, Severity::Error));
        for elsewhere in
            ["tests/a/tests/b.rs", "xtask/src/a.rs", "fuzz/fuzz_targets/a.rs", "apps/nas/src/a.rs"]
        {
            assert_eq!(check(&[file(elsewhere, "//! The same twice.\n")]).len(), 1, "{elsewhere}");
        }
    }

    #[test]
    fn a_name_without_an_actor_is_an_error_in_every_file() {
        let text = [
            "//! Tests.",
            "fn what_is_sent_arrives() {}",
            "    pub async fn nobody_waits(w: World) {",
            "fn a_peer_takes_nobodys_place() {}",
            "fn of_many_who_ask_one_goes<T>() {}",
            "fn it_harms_nobody() {}",
        ]
        .join("\n");
        let lines: Vec<_> =
            check(&[file("tests/a/tests/b.rs", &text)]).iter().map(|found| found.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6]);
        for line in [
            "fn whatsoever() {}",
            "fn a_message_whose_sender_died_arrives() {}",
            "fn the_whole(who: &str) {}",
            "let what_is = 1;",
            "call(fn who_am_i",
        ] {
            assert!(!names_no_actor(line), "{line}");
        }
    }
}
