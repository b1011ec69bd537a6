//! One line of PMI-1: words `name=value` between blanks, the first of them `cmd=...` or `mcmd=...`.
//!
//! Lines come from any program that was started, so everything is checked and nothing panics. The order of the words
//! differs between launchers: they are found by name.

use std::fmt::Write as _;

/// Longest line that is taken: a value, a key, a name, and some words around them.
pub const LINE_MAX: usize = 4096;

/// One message: a command and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    command: &'a str,
    words: &'a str,
}

impl<'a> Message<'a> {
    /// The message of a line, without its end. `None` if it is not one.
    pub fn parse(line: &'a str) -> Option<Message<'a>> {
        let line = line.trim_matches([' ', '\r', '\n']);
        let (first, words) = line.split_once(' ').unwrap_or((line, ""));
        let command = first.strip_prefix("cmd=").or_else(|| first.strip_prefix("mcmd="))?;
        (!command.is_empty()).then_some(Message { command, words })
    }

    /// What it asks or answers.
    pub fn command(&self) -> &'a str {
        self.command
    }

    /// The value of a word. A value goes to the next blank; that of `value` and `msg` too, as no launcher sends blanks.
    pub fn word(&self, name: &str) -> Option<&'a str> {
        self.words.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// A word that is a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.word(name)?.parse().ok()
    }

    /// Everything that follows `name=`, blanks included: for texts that people read.
    pub fn rest(&self, name: &str) -> Option<&'a str> {
        let at = self.words.match_indices(name).map(|(at, _)| at).find(|&at| {
            let starts = at == 0 || self.words.as_bytes()[at - 1] == b' ';
            starts && self.words[at + name.len()..].starts_with('=')
        })?;
        Some(&self.words[at + name.len() + 1..])
    }
}

/// A line with its end.
pub fn line(command: &str, words: &[(&str, &str)]) -> String {
    let mut text = format!("cmd={command}");
    for (name, value) in words {
        let _ = write!(text, " {name}={value}");
    }
    text.push('\n');
    text
}

/// Whether a text can be a value or a key of so many characters: no blanks, nothing that ends a line.
pub fn is_word(text: &str, limit: usize) -> bool {
    !text.is_empty() && text.len() < limit && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Cuts what arrives into lines.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

/// A line is longer than any that makes sense, or no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine;

impl Lines {
    /// Takes what arrived and hands every whole line to `each`.
    ///
    /// # Errors
    /// [`BadLine`]; its sender is not worth listening to any longer.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) -> Result<(), BadLine> {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(len) = self.rest[from..].iter().position(|&b| b == b'\n') {
            if len > LINE_MAX {
                return Err(BadLine);
            }
            each(std::str::from_utf8(&self.rest[from..from + len]).map_err(|_| BadLine)?);
            from += len + 1;
        }
        self.rest.drain(..from);
        if self.rest.len() > LINE_MAX { Err(BadLine) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_found_in_any_order() {
        let m = Message::parse("cmd=get_result value=a=b;c rc=0 msg=success").unwrap();
        assert_eq!(m.command(), "get_result");
        assert_eq!((m.word("value"), m.number("rc"), m.word("nothing")), (Some("a=b;c"), Some(0), None));
        assert_eq!(Message::parse("mcmd=spawn").unwrap().command(), "spawn");
        for text in ["", "cmd=", "cmd", "rc=0", "hello world"] {
            assert_eq!(Message::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_text_for_people_keeps_its_blanks() {
        let m = Message::parse("cmd=abort exitcode=3 message=rank 1 gave up").unwrap();
        assert_eq!((m.number("exitcode"), m.rest("message")), (Some(3), Some("rank 1 gave up")));
        assert_eq!(m.rest("code"), None, "the end of another word");
    }

    #[test]
    fn lines_are_cut_wherever_they_arrive() {
        let text = "cmd=init pmi_version=1\ncmd=get_maxes\ncmd=fin";
        for cut in 0..text.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                lines.feed(part.as_bytes(), |line| seen.push(line.to_owned())).unwrap();
            }
            assert_eq!(seen, ["cmd=init pmi_version=1", "cmd=get_maxes"], "{cut}");
        }
    }

    #[test]
    fn long_lines_and_bytes_that_are_no_text_are_refused() {
        assert_eq!(Lines::default().feed(&[b'x'; LINE_MAX + 2], |_| ()), Err(BadLine));
        assert_eq!(Lines::default().feed(b"cmd=\xff\n", |_| ()), Err(BadLine));
        let mut lines = Lines::default();
        lines.feed(&[b'x'; LINE_MAX], |_| ()).unwrap();
        assert_eq!(lines.feed(b"xx\n", |_| ()), Err(BadLine));
    }

    proptest! {
        /// What is written is read again.
        #[test]
        fn there_and_back(command in "[a-z_]{1,12}", words in proptest::collection::vec(("[a-z]{1,8}", "[!-~]{1,40}"), 0..5)) {
            let pairs: Vec<(&str, &str)> = words.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            let text = line(&command, &pairs);
            let message = Message::parse(&text).unwrap();
            prop_assert_eq!(message.command(), command.as_str());
            for (name, value) in &pairs {
                let first = pairs.iter().find(|(other, _)| other == name).unwrap();
                prop_assert_eq!(message.word(name), Some(first.1), "{}={}", name, value);
            }
        }

        /// Nothing that arrives makes it panic.
        #[test]
        fn garbage_is_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Lines::default().feed(&bytes, |line| {
                if let Some(message) = Message::parse(line) {
                    let _ = (message.word("key"), message.number("rc"), message.rest("msg"));
                }
            });
        }
    }
}
