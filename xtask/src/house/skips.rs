//! A test that skips itself says so by name: through the kit, whose log the summary reads. A line on standard error alone
//! counts as passed.

use super::{Finding, TextFile};

const MEND: &str = "viaduct_kit::skip!(...), or packages::skip where the test goes on";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().filter(|file| file.is_rust()).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    // In two pieces, so that this file is in order.
    let silent = concat!("println!(\"", "skipped");
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| line.contains(silent) && !line.trim_start().starts_with("//"))
        .map(|(at, _)| Finding::error(&file.path, at + 1, "a test skips itself without a name".into(), MEND))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_skip_on_standard_error_alone_is_found() {
        let text = concat!(
            "fn t() {\n    e",
            "println!(\"",
            "skipped: no kernel\");\n    viaduct_kit::skip!(\"x\");\n}\n"
        );
        let found: Vec<_> = check(&[file("crates/os/src/cpu.rs", text)]).iter().map(|f| f.line).collect();
        assert_eq!(found, [2]);
    }
}
