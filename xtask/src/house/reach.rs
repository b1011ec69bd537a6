//! Names of providers occur where providers are made and where the top picks one. A layer in between asks how a peer is
//! reached (`Reach`), so that it behaves alike over a provider that it has never heard of.
//!
//! Not looked at: tests, comments, and the word `auto`, which many settings have as a value.

use std::path::Path;

use super::{Finding, TextFile};

/// What makes providers, what picks one, and `crates/results`, which only shows result lines: these name layers, some of
/// which are called as the provider below them.
const MAY_NAME: &[&str] = &[
    "crates/providers/",
    "crates/bench/",
    "crates/viaduct/",
    "crates/results/",
    "capi/",
    "tests/",
    "xtask/",
    "fuzz/",
];

/// Beginnings of literals: a name alone, or one with the fabric behind it.
const NAMES: &[&str] = &["\"shm\"", "\"loopback\"", "\"ofi\"", "\"ofi:"];

const MEND: &str = "ask for the Reach of the peer, the request or the VI, or let the top decide";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().filter(|file| file.is_rust() && is_below_the_top(&file.path)).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let product = file.text.lines().take_while(|line| *line != "#[cfg(test)]").enumerate();
    let code = product.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = code.filter_map(|(at, line)| Some((at, NAMES.iter().find(|name| line.contains(**name))?)));
    found
        .map(|(at, name)| {
            let what = format!("names a provider below the top: {}", name.trim_matches('"'));
            Finding::error(&file.path, at + 1, what, MEND)
        })
        .collect()
}

/// Whether it is product code of a layer that takes an opened NIC, or of what is below.
fn is_below_the_top(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let inside = path.components().any(|part| part.as_os_str() == "src");
    let tests = path.file_name().is_some_and(|name| name == "tests.rs");
    inside && !tests && !MAY_NAME.iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&[file(path, text)]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_layer_that_compares_names_is_found() {
        for literal in ["\"shm\"", "\"loopback\"", "\"ofi\"", "\"ofi:tcp\""] {
            let text = format!("fn f() {{\n    if nic.provider() == {literal} {{}}\n}}\n");
            assert_eq!(lines("crates/sovia/src/lending.rs", &text), [2], "{literal}");
            assert_eq!(lines("apps/nas/src/main.rs", &text), [2], "{literal}");
            for top in
                ["crates/providers/src/lib.rs", "crates/viaduct/src/cmd/dsm.rs", "capi/mpi/src/state.rs"]
            {
                assert_eq!(lines(top, &text), [] as [usize; 0], "{top}");
            }
        }
    }

    #[test]
    fn tests_comments_and_other_words_may_say_what_they_like() {
        let text =
            "//! As \"shm\".\n    // \"shm\"\nlet x = \"auto\";\nlet y = \"shmem\";\n#[cfg(test)]\n\"shm\"\n";
        assert_eq!(lines("crates/job/src/card.rs", text), [] as [usize; 0]);
        assert_eq!(lines("crates/mpi/examples/mpi_pingpong.rs", "\"shm\""), [] as [usize; 0]);
        assert_eq!(lines("crates/mpi/tests/ranks.rs", "\"shm\""), [] as [usize; 0]);
    }
}
