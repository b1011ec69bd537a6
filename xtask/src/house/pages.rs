//! Documents name source files that exist, and a decision record says when it was made.
//!
//! A path may leave out the folders at its beginning, and `crates` and `src` anywhere: `via/cq.rs` is `crates/via/src/cq.rs`.

use std::path::{Component, Path};

use super::{Finding, TextFile};

/// Where decision records are.
const RECORDS: &str = "docs/adr/";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let sources: Vec<Vec<&str>> =
        files.iter().filter(|file| file.is_rust()).map(|file| shortened(&file.path)).collect();
    let pages = files.iter().filter(|file| file.path.extension().is_some_and(|ending| ending == "md"));
    pages.flat_map(|page| stale_names(page, &sources).into_iter().chain(without_date(page))).collect()
}

/// The names of source files in a page that no file has.
fn stale_names(page: &TextFile, sources: &[Vec<&str>]) -> Vec<Finding> {
    let lines = page.text.lines().enumerate();
    let names = lines.flat_map(|(at, line)| named_files(line).map(move |name| (at + 1, name)));
    let stale =
        names.filter(|(_, name)| !sources.iter().any(|source| source.ends_with(&shortened(Path::new(name)))));
    stale
        .map(|(line, name)| {
            let mend = "name the file that has it now";
            Finding::error(&page.path, line, format!("there is no file {name}"), mend)
        })
        .collect()
}

/// What stands in backquotes and looks like the path of a source file.
fn named_files(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |char: char| char.is_alphanumeric() || "/._-".contains(char);
    quoted.filter(move |word| word.len() > 3 && word.ends_with(".rs") && word.chars().all(is_path))
}

fn shortened(path: &Path) -> Vec<&str> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    parts.filter(|part| !matches!(*part, "crates" | "src")).collect()
}

fn without_date(page: &TextFile) -> Option<Finding> {
    let mut lines = page.text.lines();
    let is_record = page.path.starts_with(RECORDS);
    let dated = lines.nth(2).is_some_and(|line| line.starts_with("20"));
    let mend = "the third line begins with it: 2026-01-31";
    (is_record && !dated).then(|| Finding::error(&page.path, 3, "a record without a date".to_owned(), mend))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_file_that_is_gone_is_found_and_short_names_are_understood() {
        let text = "# Page\n`crates/via/src/cq.rs`, `via/cq.rs`, `cq.rs`, `src/cq.rs`\n`via/queue.rs`\n`a.cq.rs()` and `mpi/cq.rs`\n";
        let files = [file("crates/via/src/cq.rs", "//! A queue.\n"), file("docs/page.md", text)];
        let found = check(&files);
        let lines: Vec<_> = found.iter().map(|found| found.line).collect();
        assert_eq!(lines, [3, 4]);
        assert!(found[0].what.ends_with("via/queue.rs"), "{found:?}");
    }

    #[test]
    fn a_record_has_a_date() {
        let record = |text| check(&[file("docs/adr/0099-x.md", text)]).len();
        assert_eq!(record("# 99. X\n\n2026-11-15. Replaces another.\n"), 0);
        assert_eq!(record("# 99. X\n\n## Context\n"), 1);
        assert_eq!(check(&[file("docs/papers.md", "# X\n")]), []);
    }
}
