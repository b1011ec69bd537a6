//! Nothing names a folder of one machine.

use super::{Finding, TextFile};

/// Folders at the root under which people and build machines keep their things.
const PRIVATE: [&str; 4] = ["home", "root", "work", "Users"];

const MEND: &str = "use a relative path, a variable or a temporary folder";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let numbered = file.text.lines().enumerate();
    let bad = numbered.filter_map(|(index, line)| Some((index + 1, private_path(line)?)));
    bad.map(|(line, path)| Finding::error(&file.path, line, format!("a path of one machine: {path}"), MEND))
        .collect()
}

/// The first absolute path into such a folder. A slash after a letter, a digit, a dot or another slash belongs to a
/// relative path or an address, and does not count.
fn private_path(line: &str) -> Option<&str> {
    line.match_indices('/').find_map(|(at, _)| {
        let goes_on = |before: char| before.is_alphanumeric() || "./_-~*})>".contains(before);
        let path =
            line[at..].split(|char: char| !(char.is_alphanumeric() || "/._-".contains(char))).next()?;
        let (folder, rest) = path[1..].split_once('/')?;
        (!line[..at].ends_with(goes_on) && PRIVATE.contains(&folder) && !rest.is_empty()).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    /// Put together here, so that this file passes its own check.
    fn path_in(folder: &str) -> String {
        format!("/{folder}/someone/project")
    }

    #[test]
    fn a_private_path_is_found_wherever_it_starts() {
        for folder in PRIVATE {
            let path = path_in(folder);
            for line in
                [path.clone(), format!("let x = \"{path}\";"), format!("cd {path}; ls"), format!("A={path}")]
            {
                assert_eq!(private_path(&line), Some(path.as_str()), "{line}");
            }
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        let lines = [
            "/usr/include/stdio.h",
            "/tmp/work/x",
            "https://example.org/work/x",
            "docs/home/index.md",
            "../work/x",
            "$HOME/work/x",
            "the /home folder",
            "a /work/",
            "read/write/work/x",
        ];
        for line in lines {
            assert_eq!(private_path(line), None, "{line}");
        }
    }

    #[test]
    fn the_line_is_named() {
        let text = format!("fine\n# see {}\n", path_in("home"));
        let found = check(&[file("README.md", &text)]);
        assert_eq!((found.len(), found[0].line), (1, 2));
    }
}
