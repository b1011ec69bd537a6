//! No file of tests is forgotten: where Cargo does not look for test targets, each is a module or a target.

use std::path::Path;

use super::{Finding, TextFile};

const MEND: &str = "add `mod NAME;` to tests/main.rs, or a [[test]] of that name to the manifest";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let listed = manifests.filter(|file| file.text.lines().any(|line| line.trim() == "autotests = false"));
    listed.flat_map(|manifest| forgotten(manifest, files)).collect()
}

/// The files in the package's folder of tests that neither the manifest nor `tests/main.rs` names.
fn forgotten(manifest: &TextFile, files: &[TextFile]) -> Vec<Finding> {
    let folder = manifest.path.parent().unwrap_or(Path::new("")).join("tests");
    let root = files.iter().find(|file| file.path == folder.join("main.rs"));
    let modules = root.map_or("", |root| root.text.as_str());
    let is_named = |name: &str| {
        let module = format!("mod {name};");
        let target = format!("name = \"{name}\"");
        modules.lines().any(|line| line.trim() == module)
            || manifest.text.lines().any(|line| line.trim() == target)
    };
    let tests = files.iter().filter(|file| file.is_rust() && file.path.parent() == Some(folder.as_path()));
    let lost = tests.filter(|file| {
        file.path.file_stem().and_then(|name| name.to_str()).is_some_and(|name| !is_named(name))
    });
    lost.map(|file| Finding::error(&file.path, 1, "no test target has this file".to_owned(), MEND)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_file_that_no_target_has_is_found() {
        let files = [
            file(
                "a/Cargo.toml",
                "[package]\nautotests = false\n[[test]]\nname = \"main\"\n[[test]]\nname = \"apart\"\n",
            ),
            file("a/tests/main.rs", "//! All.\n\nmod one;\n"),
            file("a/tests/one.rs", ""),
            file("a/tests/apart.rs", ""),
            file("a/tests/shared/mod.rs", ""),
            file("a/tests/lost.rs", ""),
            file("b/Cargo.toml", "[package]\n"),
            file("b/tests/found_by_cargo.rs", ""),
        ];
        let found = check(&files);
        assert_eq!(
            found.iter().map(|found| found.file.as_path()).collect::<Vec<_>>(),
            [Path::new("a/tests/lost.rs")]
        );
    }
}
