//! From what ranks write to what the user sees: whole lines, labelled, folded, raw or as JSON. Pure.
//!
//! Lines of different ranks never mix: a piece of a line waits for its end. With one rank nothing can mix, and nothing
//! waits.

mod files;
mod fold;
mod merge;

pub use files::OutputFiles;
pub use merge::Merger;

/// How output is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Whole lines.
    #[default]
    Plain,
    /// Whole lines with rank and host before each.
    Label,
    /// Equal output once, with the ranks that wrote it, at the end.
    Fold,
    /// Bytes as they come.
    Raw,
    /// An object for each line.
    Json,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// 0 and 1.
    pub fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        }
    }
}

/// What is to be written, to which of ours.
pub type Write<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// Numbers in order, as `0-3,7`.
pub fn ranges(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let show = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(show).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
