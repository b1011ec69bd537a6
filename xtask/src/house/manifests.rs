//! Manifests inherit from the workspace what is the same for all; packages come from the public registry.

use super::{Finding, TextFile};
use crate::workspace::Workspace;

/// Keys that every manifest takes from the workspace.
const INHERITED: [&str; 5] = ["version", "edition", "license", "rust-version", "publish"];

/// What a package that is published says instead of taking `publish` from the workspace.
const PUBLISHED: &str = "publish=true";

/// What its documentation on docs.rs needs, to show all features.
const DOCUMENTED: &str = "[package.metadata.docs.rs]";

/// Where the packages of the lock file come from, for everybody.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Finding> {
    let is_member = |file: &&TextFile| {
        let path = workspace.root.join(&file.path);
        workspace.packages.iter().any(|package| package.manifest_path == path)
    };
    let manifests = files.iter().filter(is_member).flat_map(check_manifest);
    let locks = files.iter().filter(|file| file.path.ends_with("Cargo.lock")).flat_map(check_lock);
    manifests.chain(locks).collect()
}

fn check_manifest(file: &TextFile) -> Vec<Finding> {
    let lines: Vec<String> = file.text.lines().map(without_blanks).collect();
    let has = |wanted: &str| lines.iter().any(|line| line == wanted);
    let mend = "write `KEY.workspace = true` in [package]";
    let error =
        |key: &str| Finding::error(&file.path, 1, format!("{key} is not taken from the workspace"), mend);
    let published = has(PUBLISHED);
    let missing = INHERITED.iter().filter(|key| !has(&format!("{key}.workspace=true")));
    let missing = missing.filter(|key| !(published && **key == "publish"));
    let mut findings: Vec<Finding> = missing.map(|key| error(key)).collect();
    if published && !has(DOCUMENTED) {
        let what = "it is published, and its documentation would lack what features add".to_owned();
        let mend = "add [package.metadata.docs.rs] with `all-features = true`";
        findings.push(Finding::error(&file.path, 1, what, mend));
    }
    let section = lines.windows(2).any(|pair| pair[0] == "[lints]" && pair[1] == "workspace=true");
    if !section && !has("lints.workspace=true") {
        let what = "the lints are not taken from the workspace".to_owned();
        findings.push(Finding::error(&file.path, 1, what, "write `workspace = true` in [lints]"));
    }
    findings
}

fn check_lock(file: &TextFile) -> Vec<Finding> {
    let numbered = file.text.lines().enumerate();
    let sources = numbered.filter_map(|(index, line)| Some((index + 1, line.strip_prefix("source = \"")?)));
    let strange = sources.filter(|(_, source)| source.trim_end_matches('"') != REGISTRY);
    let mend = "take the package from crates.io; a mirror is a matter of the machine's own configuration";
    strange
        .map(|(line, source)| Finding::error(&file.path, line, format!("a package from {source}"), mend))
        .collect()
}

fn without_blanks(line: &str) -> String {
    line.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
                        license.workspace = true\nrust-version.workspace = true\npublish.workspace=true\n\
                        [lints]\nworkspace = true\n";

    #[test]
    fn a_manifest_inherits() {
        assert_eq!(check_manifest(&file("crates/x/Cargo.toml", GOOD)), []);
        for key in INHERITED {
            let text = GOOD.replace(&format!("\n{key}.workspace"), "\nother.workspace");
            let found = check_manifest(&file("crates/x/Cargo.toml", &text));
            assert!(found.len() == 1 && found[0].what.starts_with(key), "{key}: {found:?}");
        }
        let text = GOOD.replace("[lints]\nworkspace = true", "");
        assert_eq!(check_manifest(&file("crates/x/Cargo.toml", &text)).len(), 1);
    }

    #[test]
    fn a_published_manifest_says_how_it_is_documented() {
        let published = GOOD.replace("publish.workspace=true", "publish = true");
        assert_eq!(check_manifest(&file("crates/x/Cargo.toml", &published)).len(), 1);
        let whole = format!("{published}[package.metadata.docs.rs]\nall-features = true\n");
        assert_eq!(check_manifest(&file("crates/x/Cargo.toml", &whole)), []);
    }

    #[test]
    fn a_strange_registry_is_found() {
        let good = format!("[[package]]\nname = \"a\"\nsource = \"{REGISTRY}\"\n");
        assert_eq!(check_lock(&file("Cargo.lock", &good)), []);
        let bad = good.replace("github.com", "mirror.example");
        assert_eq!(check_lock(&file("Cargo.lock", &bad))[0].line, 3);
    }
}
