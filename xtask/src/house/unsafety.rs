//! The word unsafe stands only where the house allows it, so that reviewers have one short list of files.

use std::path::Path;

use super::source::lines_with_word;
use super::{Finding, TextFile};

/// Packages that are made of it: the door to Linux, the providers, the C libraries, and everything that only tests.
const FOLDERS: [&str; 4] = ["crates/os/", "crates/providers/", "capi/", "tests/"];

const MEND: &str = "call crates/os, or move it to this crate's raw.rs behind a safe function";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let strict = files.iter().filter(|file| file.is_rust() && !is_allowed(&file.path));
    strict.flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let lines = lines_with_word(&file.text, "unsafe").into_iter();
    lines.map(|line| Finding::error(&file.path, line, "unsafe outside its places".to_owned(), MEND)).collect()
}

fn is_allowed(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let is_raw = path.file_name().is_some_and(|name| name == "raw.rs");
    // The tests of a package, which play hostile peers, call C and count allocations.
    let is_test = text.contains("/tests/");
    is_raw || is_test || FOLDERS.iter().any(|folder| text.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn findings(path: &str) -> usize {
        check(&[file(path, "//! Doc.\nfn f() { unsafe { g() } }\n")]).len()
    }

    #[test]
    fn it_is_found_where_it_must_not_be() {
        for path in ["crates/via/src/vi.rs", "crates/viaduct/src/main.rs", "xtask/src/main.rs"] {
            assert_eq!(findings(path), 1, "{path}");
        }
        for path in
            ["crates/mpi/src/rawer.rs", "crates/mpi/src/fault.rs", "crates/cashmere/src/protocol/fault.rs"]
        {
            assert_eq!(findings(path), 1, "{path}");
        }
    }

    #[test]
    fn it_may_stand_in_its_places() {
        let places = [
            "crates/os/src/futex.rs",
            "crates/providers/src/shm/vi.rs",
            "capi/vipl/src/lib.rs",
            "crates/via/src/raw.rs",
            "crates/via/tests/heap.rs",
            "tests/kit/src/alloc.rs",
        ];
        for path in places {
            assert_eq!(findings(path), 0, "{path}");
        }
    }

    #[test]
    fn the_line_is_named_and_comments_do_not_count() {
        let text = "//! Nothing unsafe.\n#![forbid(unsafe_code)]\n// unsafe\nunsafe impl Send for X {}\n";
        let found = check(&[file("crates/via/src/vi.rs", text)]);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }
}
