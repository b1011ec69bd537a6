//! The house rules that no compiler checks, each in a file of its own, each able to fail.
//!
//! ```text
//!  layers      dependencies point downward, siblings do not use each other
//!  files       sizes, module docs
//!  unsafety    the word unsafe only where the house allows it
//!  targets     no file of tests is left out of the test targets
//!  words       no paths of one machine
//!  reach       names of providers only where one is picked
//!  bare        no standard library in what is loaded into applications
//!  skips       tests that skip themselves say so by name
//!  pages       documents name files that exist; decision records have a date
//!  prose       comments that name the actor
//!  names       no package has two types of one common name
//!  commits     first lines of new commits
//!  manifests   what is inherited from the workspace, and where packages come from
//! ```

mod bare;
mod commits;
mod files;
mod layers;
mod manifests;
mod names;
mod pages;
mod prose;
mod reach;
mod skips;
mod source;
mod targets;
mod unsafety;
mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::progress::say;
use crate::workspace::Workspace;

/// Endings of files that people write; others are not looked at.
const TEXT: [&str; 11] = ["rs", "toml", "lock", "md", "sh", "c", "h", "py", "yml", "json", "html"];

/// Something against the rules, and how to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) mend: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

/// A text file of the workspace, its path relative to the root.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn error(file: &Path, line: usize, what: String, mend: &'static str) -> Self {
        Self { severity: Severity::Error, file: file.to_owned(), line, what, mend }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let warning = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(
            formatter,
            "{}:{}: {warning}{} (mend: {})",
            self.file.display(),
            self.line,
            self.what,
            self.mend
        )
    }
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// Checks everything and prints what was found; whether the house is in order.
pub(crate) fn check_and_report(workspace: &Workspace) -> Result<bool> {
    let files = text_files(&workspace.root)?;
    let mut findings = layers::check(workspace);
    findings.extend(files::check(&files));
    findings.extend(unsafety::check(&files));
    findings.extend(targets::check(&files));
    findings.extend(words::check(&files));
    findings.extend(reach::check(&files));
    findings.extend(bare::check(&files));
    findings.extend(skips::check(&files));
    findings.extend(pages::check(&files));
    findings.extend(prose::check(&files));
    findings.extend(names::check(&files));
    findings.extend(commits::check(&workspace.root));
    findings.extend(manifests::check(workspace, &files));
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let warnings = findings.len() - errors;
    say(format_args!("house: {} files, {errors} against the rules, {warnings} warnings", files.len()));
    Ok(errors == 0)
}

/// Every text file below the root that is not made by a tool.
fn text_files(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    files.sort_by(|one, two| one.path.cmp(&two.path));
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<TextFile>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("folder {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() && !is_made_by_a_tool(root, &path) {
            collect(root, &path, files)?;
        } else if kind.is_file() && is_text(&path) && entry.file_name() != ".git" {
            // (In a second worktree of a repository `.git` is a file of git's.)
            // What is not UTF-8 is no text of ours.
            let Ok(text) = fs::read_to_string(&path) else { continue };
            files.push(TextFile { path: path.strip_prefix(root).unwrap_or(&path).to_owned(), text });
        }
    }
    Ok(())
}

/// `target` and `results` at the root, which `crates/results` is not; Cargo marks its other target folders with a file.
fn is_made_by_a_tool(root: &Path, folder: &Path) -> bool {
    let made = [".git", "target", "results"].iter().any(|name| folder == root.join(name));
    made || folder.join("CACHEDIR.TAG").exists()
}

/// By its ending; what has none, such as `.ci/run`, is a script or a page.
fn is_text(file: &Path) -> bool {
    file.extension().is_none_or(|extension| TEXT.iter().any(|known| extension == *known))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    pub(crate) fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.to_owned() }
    }

    /// Only folders at the root are a tool's by their name.
    const FOUND: [&str; 5] =
        [".ci/file.rs", ".ci/run", "crates/results/file.rs", "crates/target/file.rs", "src/file.rs"];

    #[test]
    fn text_is_found_and_what_tools_make_is_not() {
        let root = TempDir::new("house");
        for folder in ["src", "target", "results", ".git", "built", ".ci", "crates/results", "crates/target"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("file.rs"), "").unwrap();
        }
        fs::write(root.join("built/CACHEDIR.TAG"), "").unwrap();
        fs::write(root.join(".ci/run"), "").unwrap();
        fs::write(root.join("src/picture.png"), "").unwrap();
        fs::write(root.join("src/bytes.md"), [0xff, 0xfe]).unwrap();
        let paths: Vec<_> = text_files(root.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, FOUND.map(PathBuf::from));
    }

    #[test]
    fn a_finding_says_where_what_and_how_to_mend() {
        let finding = Finding::error(Path::new("a.rs"), 7, "bad".to_owned(), "do better");
        assert_eq!(finding.to_string(), "a.rs:7: bad (mend: do better)");
    }
}
