//! One name, one thing: a package declares none of these types twice.
//!
//! They are words that fit nearly everything, so they were taken again and again, until a search for one found five types. One
//! of each in a package is enough; the next one says whose it is (`ConnectedVi`, `WaitingFrame`). Not looked at: tests and
//! examples, and types that a trait's implementation names.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::without_tests;
use super::{Finding, TextFile};

/// Names that were taken several times in one package.
const SCARCE: [&str; 14] = [
    "Held",
    "Incoming",
    "Line",
    "Listening",
    "Outcome",
    "Outgoing",
    "Place",
    "Pool",
    "State",
    "Step",
    "Straight",
    "Verdict",
    "Watch",
    "Way",
];

const MEND: &str = "say whose it is in the name, as ConnectedVi and WaitingFrame do";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut declared: BTreeMap<(&str, &str), (&Path, usize)> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(package) = package(&file.path) else { continue };
        for (line, text) in without_tests(&file.text) {
            let Some(name) = declares(text) else { continue };
            if let Some((first, at)) = declared.get(&(package, name)) {
                let what =
                    format!("the package has two types `{name}`; the first is at {}:{at}", first.display());
                findings.push(Finding::error(&file.path, line, what, MEND));
            } else {
                declared.insert((package, name), (&file.path, line));
            }
        }
    }
    findings
}

/// The folder of the package whose source a file is: `crates/NAME` for `crates/NAME/src/...`.
fn package(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (package, _) = text.split_once("/src/")?;
    ["crates/", "capi/", "apps/"].iter().any(|above| text.starts_with(above)).then_some(package)
}

/// The scarce name of which this line begins a type. A type inside an `impl` is the trait's.
fn declares(line: &str) -> Option<&'static str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    let inside = line.starts_with(' ');
    match words.next()? {
        "struct" | "enum" | "trait" | "union" => {}
        "type" if !inside => {}
        _ => return None,
    }
    let name = words.next()?.split(|char: char| !char.is_alphanumeric()).next()?;
    SCARCE.into_iter().find(|scarce| *scarce == name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_package_has_one_type_of_a_name() {
        let one = file("crates/a/src/lib.rs", "pub(crate) struct Held<'a> {\n");
        let two = file("crates/a/src/sub/other.rs", "use b;\npub enum Held {\n");
        let found = check(&[one, two]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].file.as_path(), found[0].line), (Path::new("crates/a/src/sub/other.rs"), 2));
        assert!(found[0].what.contains("crates/a/src/lib.rs:1"), "{}", found[0].what);
    }

    #[test]
    fn tests_and_other_packages_may_have_the_name_too() {
        let text = "struct Place;\n";
        let places =
            ["crates/a/src/x.rs", "crates/b/src/x.rs", "crates/a/tests/x.rs", "crates/a/examples/x.rs"];
        assert_eq!(check(&places.map(|path| file(path, text))), []);
        let twice = "struct Place;\n#[cfg(test)]\nmod tests {\n    struct Place;\n}\n";
        assert_eq!(check(&[file("crates/a/src/x.rs", twice)]), []);
    }

    #[test]
    fn only_declarations_of_these_names_count() {
        assert_eq!(declares("pub struct Line(usize);"), Some("Line"));
        assert_eq!(declares("type Way = (u8, u8);"), Some("Way"));
        assert_eq!(declares("    pub unsafe trait Step {"), Some("Step"));
        for other in
            ["struct Lines;", "    type State = u8;", "impl Line {", "let struct_Line = 1;", "use a::Line;"]
        {
            assert_eq!(declares(other), None, "{other}");
        }
    }
}
