//! Rust source without what is no code: comments, strings, character literals, attributes.
//!
//! Not a parser. It keeps the lines where they are and replaces what is no code by blanks, so that a word found in the
//! rest is a word of the program.

/// Lines, counted from 1, that have `word` in their code.
pub(super) fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let code = code_only(text);
    let has_word = |line: &str| line.split(|char| !is_word(char)).any(|found| found == word);
    code.lines().enumerate().filter(|(_, line)| has_word(line)).map(|(index, _)| index + 1).collect()
}

/// Functions of a module that are called by their path, with their lines, counted from 1.
pub(super) fn calls_into(text: &str, module: &str) -> Vec<(usize, String)> {
    let (code, path) = (code_only(text), format!("{module}::"));
    let called = |line: &str| -> Vec<String> {
        let names = line.split(&path).skip(1).filter_map(|rest| rest.split_once('('));
        names
            .filter(|(name, _)| !name.is_empty() && name.chars().all(is_word))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    code.lines()
        .enumerate()
        .flat_map(|(at, line)| called(line).into_iter().map(move |name| (at + 1, name)))
        .collect()
}

/// Lines, counted from 1, that are in no item for tests alone. It goes by the indentation that rustfmt gives.
pub(super) fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // The indentation of an item for tests, and whether a bracket of it is open.
    let mut skipped: Option<(usize, bool)> = None;
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(move |(_, line)| {
        let code = line.trim();
        if let Some((at, is_open)) = &mut skipped {
            let opens = code.ends_with(['{', '(', '[']);
            let is_edge = indent(line) == *at && !code.is_empty();
            let ends = code.ends_with([';', ',', '}']) && (is_edge || !*is_open) && !opens;
            *is_open |= is_edge && opens;
            if ends {
                skipped = None;
            }
            return false;
        }
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test") {
            skipped = Some((indent(line), false));
        }
        skipped.is_none()
    })
}

/// The source with everything else blanked; same number of lines.
fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    without_attributes(&without_comments_and_literals(&chars)).into_iter().collect()
}

fn without_comments_and_literals(chars: &[char]) -> Vec<char> {
    let mut code = Vec::with_capacity(chars.len());
    while code.len() < chars.len() {
        let at = code.len();
        match no_code_until(chars, at) {
            Some(end) => blank(&mut code, &chars[at..end]),
            None => code.push(chars[at]),
        }
    }
    code
}

/// Where what starts at `at` ends, if it is no code.
fn no_code_until(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|&char| char == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest, '"'),
        ['r', '"' | '#', ..] if starts_literal(chars, at) => raw_string(rest)?,
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
        _ => return None,
    };
    Some((at + length).min(chars.len()))
}

/// Whether the `r` at `at` is the first letter of a word, or the second after the `b` or `c` of a literal.
fn starts_literal(chars: &[char], at: usize) -> bool {
    let is_word_at = |at: Option<usize>| at.is_some_and(|at| is_word(chars[at]));
    if !is_word_at(at.checked_sub(1)) {
        return true;
    }
    matches!(chars[at - 1], 'b' | 'c') && !is_word_at(at.checked_sub(2))
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            char if char == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."` with any number of `#`; `r#name` is a word, not a string.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&char| char == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let start = 2 + hashes;
    let end = rest[start..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| start + end + closing.len()))
}

fn without_attributes(chars: &[char]) -> Vec<char> {
    let mut code = Vec::with_capacity(chars.len());
    while code.len() < chars.len() {
        let rest = &chars[code.len()..];
        match rest {
            ['#', '[', ..] | ['#', '!', '[', ..] => blank(&mut code, &rest[..attribute(rest)]),
            _ => code.push(rest[0]),
        }
    }
    code
}

fn attribute(rest: &[char]) -> usize {
    let mut depth = 0;
    for (at, char) in rest.iter().enumerate() {
        match char {
            '[' => depth += 1,
            ']' if depth == 1 => return at + 1,
            ']' => depth -= 1,
            _ => {}
        }
    }
    rest.len()
}

fn blank(code: &mut Vec<char>, chars: &[char]) {
    code.extend(chars.iter().map(|&char| if char == '\n' { '\n' } else { ' ' }));
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        lines_with_word(text, "danger")
    }

    #[test]
    fn code_is_kept() {
        for text in ["let danger = 1;", "danger { x }", "fn f<'a>(x: &'a danger) {}", "r#danger", "a[danger]"]
        {
            assert_eq!(found(text), [1], "{text}");
        }
    }

    #[test]
    fn comments_are_no_code() {
        for text in ["// danger", "/// danger", "/* danger */", "/* a /* b */ danger */", "x /* danger"] {
            assert!(found(text).is_empty(), "{text}");
        }
        assert_eq!(found("/* a */ danger"), [1]);
        assert_eq!(found("// a\ndanger\n"), [2]);
    }

    #[test]
    fn literals_are_no_code() {
        let texts = [
            r#""danger""#,
            r#""a \" danger""#,
            r###"r#"a " danger"#"###,
            r###"br##"danger"# danger"##"###,
            r#"b"danger""#,
            "\"a\ndanger\"",
            r#"'"' + "danger""#,
            r#"'\'' + "danger""#,
            "\"danger \\",
        ];
        for text in texts {
            assert!(found(text).is_empty(), "{text}");
        }
        assert_eq!(found(r#"'"'; danger; '"'"#), [1]);
        assert_eq!(found(r###"r#"a"# danger"###), [1]);
    }

    #[test]
    fn attributes_are_no_code() {
        assert!(found("#[danger(no_mangle)]").is_empty());
        assert!(found("#![allow(a[danger])]").is_empty());
        assert_eq!(found("#[a] danger"), [1]);
    }

    #[test]
    fn a_longer_word_is_another_word() {
        assert!(found("danger_code dangerous undanger").is_empty());
    }

    #[test]
    fn items_for_tests_are_left_out_and_what_follows_them_is_not() {
        let items = [
            "use a::{\n    b,\n};",
            "const A: &str =\n    \"x\";",
            "mod tests;",
            "mod tests {\n    fn f() {\n    }\n\n    fn g() {}\n}",
            "fn f(\n    a: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n    a;\n}",
            "#[allow(dead_code)]\nstruct A {\n    b: u8,\n}",
        ];
        for item in items {
            for indent in ["", "    "] {
                let item = item.replace('\n', &format!("\n{indent}"));
                let text = format!("before;\n{indent}#[cfg(test)]\n{indent}{item}\nafter\n");
                let last = text.lines().count();
                let left: Vec<_> = without_tests(&text).collect();
                assert_eq!(left, [(1, "before;"), (last, "after")], "{text}");
            }
        }
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n/* b\nc */ d\n\"e\nf\" g\n#[h\n]i\n";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
        assert_eq!(lines_with_word(text, "i"), [7]);
    }
}
