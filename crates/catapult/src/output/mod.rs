//! From what ranks write to what the user sees: whole lines, labelled, folded, raw or as JSON. Pure.
//!
//! Lines of different ranks never mix: a piece of a line waits for its end. With one rank nothing can mix, and nothing
//! waits.

mod fold;

use serde_json::json;

use fold::Fold;

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

/// Longest piece of a line that is kept back; longer ones are shown in pieces.
const LONGEST: usize = 1 << 20;

/// Merges the output of all ranks.
#[derive(Debug)]
pub struct Merger {
    mode: Mode,
    hosts: Vec<String>,
    rests: Vec<[Vec<u8>; 2]>,
    fold: Fold,
}

/// What is to be written, to which of ours.
pub type Write<'a> = &'a mut dyn FnMut(Stream, &[u8]);

impl Merger {
    /// For ranks on these hosts.
    pub fn new(mode: Mode, hosts: Vec<String>) -> Merger {
        let rests = vec![[Vec::new(), Vec::new()]; hosts.len()];
        // With one rank there is nothing to keep apart.
        let mode = if hosts.len() == 1 && mode == Mode::Plain { Mode::Raw } else { mode };
        Merger { mode, hosts, rests, fold: Fold::default() }
    }

    /// A rank wrote something.
    pub fn put(&mut self, rank: u32, stream: Stream, bytes: &[u8], write: Write<'_>) {
        let rank = rank as usize;
        if rank >= self.rests.len() {
            return;
        }
        match self.mode {
            Mode::Raw => return write(stream, bytes),
            Mode::Fold => return self.fold.put(rank, stream, bytes),
            Mode::Plain | Mode::Label | Mode::Json => {}
        }
        let mut rest = std::mem::take(&mut self.rests[rank][stream.index()]);
        let Some(end) = bytes.iter().rposition(|&b| b == b'\n') else {
            rest.extend_from_slice(bytes);
            if rest.len() > LONGEST {
                self.show(rank, stream, &rest, false, write);
                rest.clear();
            }
            self.rests[rank][stream.index()] = rest;
            return;
        };
        let (whole, after) = bytes.split_at(end + 1);
        if rest.is_empty() {
            self.show(rank, stream, whole, true, write);
        } else {
            rest.extend_from_slice(whole);
            self.show(rank, stream, &rest, true, write);
            rest.clear();
        }
        rest.extend_from_slice(after);
        self.rests[rank][stream.index()] = rest;
    }

    /// A rank will write nothing more there: what is left of a line is shown.
    pub fn end(&mut self, rank: u32, stream: Stream, write: Write<'_>) {
        let rank = rank as usize;
        let Some(rest) = self.rests.get_mut(rank).map(|both| std::mem::take(&mut both[stream.index()]))
        else {
            return;
        };
        if !rest.is_empty() {
            self.show(rank, stream, &rest, false, write);
        }
    }

    /// All ranks are done: what was kept for folding is shown.
    pub fn finish(&mut self, write: Write<'_>) {
        for rank in 0..self.rests.len() {
            for stream in [Stream::Out, Stream::Err] {
                self.end(rank as u32, stream, write);
            }
        }
        if self.mode == Mode::Fold {
            self.fold.finish(&self.hosts, write);
        }
    }

    /// Whole lines, or the last piece of one.
    fn show(&self, rank: usize, stream: Stream, lines: &[u8], ended: bool, write: Write<'_>) {
        match self.mode {
            Mode::Plain if ended => write(stream, lines),
            Mode::Plain => write(stream, &[lines, b"\n"].concat()),
            Mode::Label => {
                let label = format!("[{rank} {}] ", self.hosts[rank]);
                let mut text = Vec::with_capacity(lines.len() + 64);
                for line in lines.strip_suffix(b"\n").unwrap_or(lines).split(|&b| b == b'\n') {
                    text.extend_from_slice(label.as_bytes());
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
                write(stream, &text);
            }
            Mode::Json => {
                for line in lines.strip_suffix(b"\n").unwrap_or(lines).split(|&b| b == b'\n') {
                    let host = &self.hosts[rank];
                    let mut object =
                        json!({ "type": "output", "rank": rank, "host": host, "stream": stream.name() });
                    match std::str::from_utf8(line) {
                        Ok(text) => object["text"] = text.into(),
                        Err(_) => {
                            object["bytes"] =
                                line.iter().map(|b| format!("{b:02x}")).collect::<String>().into()
                        }
                    }
                    // All of it is data, and goes to standard output.
                    write(Stream::Out, format!("{object}\n").as_bytes());
                }
            }
            Mode::Raw | Mode::Fold => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merge(mode: Mode, ranks: usize, pieces: &[(u32, &[u8])]) -> String {
        let mut merger = Merger::new(mode, (0..ranks).map(|n| format!("h{n}")).collect());
        let mut text = Vec::new();
        for (rank, bytes) in pieces {
            merger.put(*rank, Stream::Out, bytes, &mut |_, bytes| text.extend_from_slice(bytes));
        }
        merger.finish(&mut |_, bytes| text.extend_from_slice(bytes));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_do_not_mix() {
        let pieces: [(u32, &[u8]); 4] = [(0, b"on"), (1, b"two\nthr"), (0, b"e\n"), (1, b"ee")];
        assert_eq!(merge(Mode::Plain, 2, &pieces), "two\none\nthree\n");
        assert_eq!(merge(Mode::Label, 2, &pieces), "[1 h1] two\n[0 h0] one\n[1 h1] three\n");
        assert_eq!(merge(Mode::Raw, 2, &pieces), "ontwo\nthre\nee");
    }

    #[test]
    fn one_rank_alone_is_not_kept_waiting() {
        let mut merger = Merger::new(Mode::Plain, vec!["h".to_owned()]);
        let mut text = Vec::new();
        merger.put(0, Stream::Out, b"name? ", &mut |_, bytes| text.extend_from_slice(bytes));
        assert_eq!(text, b"name? ");
    }

    #[test]
    fn objects_hold_any_bytes() {
        let text = merge(Mode::Json, 2, &[(1, b"a \"b\"\n\xff\n")]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines[0]["text"].as_str(), lines[0]["rank"].as_u64()), (Some("a \"b\""), Some(1)));
        assert_eq!(lines[1]["bytes"], "ff");
    }

    #[test]
    fn an_endless_line_does_not_fill_the_memory() {
        let mut merger = Merger::new(Mode::Plain, vec![String::new(); 2]);
        let mut shown = 0;
        for _ in 0..40 {
            merger.put(0, Stream::Out, &[b'x'; 65_536], &mut |_, bytes| shown += bytes.len());
        }
        assert!(shown > LONGEST);
    }

    proptest! {
        /// However output is cut, every line of every rank comes out whole and in its rank's order.
        #[test]
        fn every_line_arrives(cuts in proptest::collection::vec((0u32..3, 1usize..9), 0..60)) {
            let text: Vec<String> = (0..3).map(|r| (0..20).map(|n| format!("r{r} line {n}\n")).collect()).collect();
            let (mut at, mut pieces) = ([0; 3], Vec::new());
            for (rank, len) in cuts {
                let rest = &text[rank as usize].as_bytes()[at[rank as usize]..];
                let len = len.min(rest.len());
                pieces.push((rank, &rest[..len]));
                at[rank as usize] += len;
            }
            for (rank, from) in at.into_iter().enumerate() {
                pieces.push((rank as u32, &text[rank].as_bytes()[from..]));
            }
            let merged = merge(Mode::Plain, 3, &pieces);
            for (rank, lines) in text.iter().enumerate() {
                let mine: String = merged.lines().filter(|l| l.starts_with(&format!("r{rank}"))).map(|l| format!("{l}\n")).collect();
                prop_assert_eq!(&mine, lines);
            }
            prop_assert_eq!(merged.lines().count(), 60);
        }
    }
}
