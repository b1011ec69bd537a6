//! What may be loaded into a foreign application needs no standard library: `crates/os/src/bare` uses `core` alone, and calls nothing of
//! libc by name.
//!
//! The standard library allocates, and calls names of libc that a preloaded library replaces. The paths are what is checked;
//! what the linker made of it is checked by the tests of `capi/preload`.

use super::source::{calls_into, lines_with_word};
use super::{Finding, TextFile};

const FOLDER: &str = "crates/os/src/bare/";
/// The libraries, and what their prelude gives without a path. A `thread_local!` of a constant is a word in the image of the
/// thread, and neither allocates nor calls.
const WORDS: [&str; 13] = [
    "std", "alloc", "Box", "String", "ToOwned", "ToString", "Vec", "dbg", "eprintln", "format", "print",
    "println", "vec",
];
const MEND: &str = "use core, or put it elsewhere in crates/os";
/// Functions of libc that answer from memory which the kernel shares (vDSO). A system call would take many times as long.
const BY_NAME: [&str; 2] = ["clock_gettime", "sched_getcpu"];
const MEND_CALL: &str = "enter the kernel with `call` of calls.rs";

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
    let words = lines.map(|(at, word)| (at, format!("uses `{word}` where there may be none of it"), MEND));
    // What begins with a capital is a macro of C's, and no name for the linker.
    let by_name =
        |name: &str| name.starts_with(|first: char| first.is_lowercase()) && !BY_NAME.contains(&name);
    let calls = calls_into(&file.text, "libc").into_iter().filter(|(_, name)| by_name(name));
    let calls = calls.map(|(at, name)| {
        (at, format!("calls `{name}` by a name that a preloaded library may replace"), MEND_CALL)
    });
    let product = words.chain(calls).filter(|(at, ..)| *at <= tests);
    product.map(|(at, message, mend)| Finding::error(&file.path, at, message, mend)).collect()
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

    #[test]
    fn names_of_the_prelude_are_found_without_a_path() {
        let text = "//! A Vec, a Box.\nfn f() -> Vec<u8> {\n    vec![0]\n}\nfn g(b: Box<u8>) {}\nfn h() { format!(\"{b}\"); }\n    \
                    println!();\nfn i(formatted: &Vector) {}\n";
        let found = check(&[file("crates/os/src/bare/calls.rs", text)]);
        let mut lines: Vec<_> = found.iter().map(|f| f.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 3, 5, 6, 7], "{found:?}");
    }

    #[test]
    fn calls_of_libc_by_name_are_found() {
        let text = "//! libc::read(0)\nfn f() { libc::clock_gettime(1) }\nfn g() { libc::CMSG_LEN(8) }\n\
                    fn h() -> libc::c_int { libc::close(libc::AT_FDCWD) }\n#[cfg(test)]\nfn i() { libc::fork() }\n";
        let found = check(&[file("crates/os/src/bare/calls.rs", text)]);
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [4], "{found:?}");
    }
}
