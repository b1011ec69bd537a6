//! Names of providers occur where providers are made and where the top picks one. A layer in between asks how a peer is
//! reached (`Reach`), so that it behaves alike over a provider that it has never heard of.
//!
//! The names are those in the list of the providers. Not looked at: tests, comments, the word `auto`, which many
//! settings have as a value, and those places of `bench` and `results` where such a name is that of a measured layer.

use std::path::Path;

use super::source::without_tests;
use super::{Finding, TextFile};

/// Where the providers are listed.
const LIST: &str = "crates/providers/src/lib.rs";

/// Chooses among providers, as many settings choose by themselves.
const CHOOSES: &str = "auto";

/// What makes providers, what picks one, and what shows result lines by the names of layers, some of which are called as
/// the provider below them.
const MAY_NAME: &[&str] = &[
    "crates/providers/",
    // Layers that are measured, and programs that are started with `--transport` or a variable.
    "crates/bench/src/layers/",
    "crates/bench/src/mpi/",
    "crates/bench/src/sorting/",
    "crates/bench/src/rivals/tools.rs",
    // Colours and figures of layers, and a sample of a line.
    "crates/results/src/report/",
    "crates/results/src/schema.rs",
    "crates/viaduct/src/cmd/",
    // Devices of programs are names of providers.
    "capi/vipl/src/settings.rs",
    "tests/",
    "xtask/",
    "fuzz/",
];

const MEND: &str = "ask for the Reach of the peer, the request or the VI, or let the top decide";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let names = files.iter().find(|file| file.path == Path::new(LIST)).map(names).unwrap_or_default();
    if names.is_empty() {
        let what = "the list of providers is not found".to_owned();
        return vec![Finding::error(Path::new(LIST), 1, what, "tell xtask/src/house/reach.rs where it is")];
    }
    let below = files.iter().filter(|file| file.is_rust() && is_below_the_top(&file.path));
    below.flat_map(|file| check_file(file, &names)).collect()
}

/// Beginnings of literals, from lines `name: "NAME",`: a name alone, or one with the fabric behind it.
fn names(list: &TextFile) -> Vec<String> {
    let named = |line: &str| line.trim().strip_prefix("name: \"")?.strip_suffix("\",").map(str::to_owned);
    let names = list.text.lines().filter_map(named).filter(|name| name != CHOOSES);
    names.flat_map(|name| [format!("\"{name}\""), format!("\"{name}:")]).collect()
}

fn check_file(file: &TextFile, names: &[String]) -> Vec<Finding> {
    let code = without_tests(&file.text).filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = code.filter_map(|(at, line)| Some((at, names.iter().find(|name| line.contains(*name))?)));
    found
        .map(|(at, name)| {
            let what = format!("names a provider below the top: {}", name.trim_matches('"'));
            Finding::error(&file.path, at, what, MEND)
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
        let list = file(
            LIST,
            "    Known {\n        name: \"shm\",\n    },\n    Known {\n        name: \"auto\",\n    },\n    Known {\n        name: \"ofi\",\n    },\n",
        );
        check(&[list, file(path, text)]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_layer_that_compares_names_is_found() {
        for literal in ["\"shm\"", "\"ofi\"", "\"ofi:tcp\""] {
            let text = format!("fn f() {{\n    if nic.provider() == {literal} {{}}\n}}\n");
            assert_eq!(lines("crates/sovia/src/lending.rs", &text), [2], "{literal}");
            assert_eq!(lines("apps/nas/src/main.rs", &text), [2], "{literal}");
            assert_eq!(lines("capi/mpi/src/state.rs", &text), [2], "{literal}");
            assert_eq!(lines("crates/results/src/stats.rs", &text), [2], "{literal}");
            for top in [
                "crates/providers/src/auto/mod.rs",
                "crates/viaduct/src/cmd/dsm.rs",
                "capi/vipl/src/settings.rs",
            ] {
                assert_eq!(lines(top, &text), [] as [usize; 0], "{top}");
            }
        }
    }

    #[test]
    fn tests_comments_and_other_words_may_say_what_they_like() {
        let text = "//! As \"shm\".\n    // \"shm\"\nlet x = \"auto\";\nlet y = \"shmem\";\n#[cfg(test)]\nmod tests {\n    \"shm\"\n}\n";
        assert_eq!(lines("crates/job/src/card.rs", text), [] as [usize; 0]);
        assert_eq!(lines("crates/mpi/examples/mpi_pingpong.rs", "\"shm\""), [] as [usize; 0]);
        assert_eq!(lines("crates/mpi/tests/ranks.rs", "\"shm\""), [] as [usize; 0]);
    }

    #[test]
    fn code_behind_tests_is_looked_at() {
        let text = "#[cfg(test)]\nuse x::y;\n\nfn f() { \"shm\"; }\n\n    #[cfg(test)]\n    fn g() {\n        \"shm\"\n    }\n\"ofi\"\n";
        assert_eq!(lines("crates/job/src/card.rs", text), [4, 10]);
    }

    #[test]
    fn without_the_list_the_check_fails() {
        assert_eq!(check(&[file("crates/job/src/card.rs", "")]).len(), 1);
    }
}
