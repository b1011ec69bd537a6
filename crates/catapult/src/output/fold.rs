//! `--fold`: output that several ranks wrote alike is shown once, with the list of them, as `clush -b` does.

use std::collections::BTreeMap;

use super::{Stream, Write};
use crate::complaints::named;

/// Most bytes kept for one rank and stream; what follows is cut off, and that is said.
const MOST: usize = 16 << 20;

/// All that ranks wrote so far.
#[derive(Debug, Default)]
pub(super) struct Fold {
    texts: BTreeMap<(usize, Stream), Vec<u8>>,
}

impl Fold {
    pub(super) fn put(&mut self, rank: usize, stream: Stream, bytes: &[u8]) {
        let text = self.texts.entry((rank, stream)).or_default();
        let room = MOST.saturating_sub(text.len());
        text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room && room > 0 {
            text.extend_from_slice(b"\n... (cut)\n");
        }
    }

    pub(super) fn finish(&mut self, hosts: &[String], write: Write<'_>) {
        let mut groups: Vec<(Stream, Vec<u8>, Vec<usize>)> = Vec::new();
        for ((rank, stream), text) in std::mem::take(&mut self.texts) {
            match groups.iter_mut().find(|(s, t, _)| *s == stream && *t == text) {
                Some((_, _, ranks)) => ranks.push(rank),
                None => groups.push((stream, text, vec![rank])),
            }
        }
        for (stream, mut text, ranks) in groups {
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
            let mut places: Vec<&str> = ranks.iter().map(|&rank| &*hosts[rank]).collect();
            places.dedup();
            let head = format!("---- {} on {} ----\n", named(&ranks), places.join(","));
            write(stream, &[head.as_bytes(), &text].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_output_is_shown_once() {
        let mut fold = Fold::default();
        for rank in [0, 1, 2, 4] {
            fold.put(rank, Stream::Out, if rank == 1 { b"other" } else { b"same\n" });
        }
        let mut text = Vec::new();
        let hosts: Vec<String> = ["a", "a", "b", "b", "b"].map(str::to_owned).to_vec();
        fold.finish(&hosts, &mut |_, bytes| text.extend_from_slice(bytes));
        let wish = "---- ranks 0,2,4 on a,b ----\nsame\n---- rank 1 on a ----\nother\n";
        assert_eq!(String::from_utf8(text).unwrap(), wish);
    }
}
