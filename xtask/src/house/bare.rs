//! What may be loaded into a foreign application needs no standard library: `crates/os/src/bare` uses `core` alone.
//!
//! The standard library allocates, and calls names of libc that a preloaded library replaces. The paths are what is checked;
//! what the linker made of it is checked by the tests of `capi/preload`.

use super::source::lines_with_word;
use super::{Finding, TextFile};

const FOLDER: &str = "crates/os/src/bare/";
/// A `thread_local!` of a constant is a word in the image of the thread, and neither allocates nor calls.
const WORDS: [&str; 2] = ["std", "alloc"];
const MEND: &str = "use core, or put it elsewhere in crates/os";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let bare =
        files.iter().filter(|file| file.path.starts_with(FOLDER) || file.path.ends_with("os/src/bare.rs"));
    bare.flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let starts_tests = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let tests = file.text.lines().position(starts_tests).unwrap_or(usize::MAX);
    let lines =
        WORDS.iter().flat_map(|word| lines_with_word(&file.text, word).into_iter().map(move |at| (at, word)));
    let product = lines.filter(|(at, _)| *at <= tests);
    product
        .map(|(at, word)| {
            Finding::error(&file.path, at, format!("uses `{word}` where there may be none of it"), MEND)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    const TEXT: &str = "//! std is not used.\nuse core::ptr;\nfn f() { std::hint::spin_loop() }\n#[cfg(test)]\nmod tests { use std::fs; }\n";

    #[test]
    fn the_standard_library_is_found_where_it_may_not_be_used() {
        let found = |path: &str| check(&[file(path, TEXT)]).iter().map(|f| f.line).collect::<Vec<_>>();
        assert_eq!(found("crates/os/src/bare/lock.rs"), [3]);
        assert_eq!(found("crates/os/src/cpu.rs"), [] as [usize; 0]);
    }
}
