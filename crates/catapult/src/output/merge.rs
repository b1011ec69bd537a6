//! Whole lines out of the pieces that ranks write. Pure.
//!
//! A line longer than [`LONGEST`] is not kept back: it goes out as it comes, and until it ends the lines of other ranks
//! wait. The owner of the merger asks [`Merger::owners`] from which ranks alone it should read meanwhile, so that what waits
//! stays small. If such a line does not go on, [`Merger::relax`] lets the others through: the next line of another rank
//! ends it early, and [`Merger::broken`] says so.

use serde_json::json;

use super::fold::Fold;
use super::{Mode, Stream, Write};

/// Longest piece of a line that is kept back.
const LONGEST: usize = 1 << 20;

/// Merges the output of all ranks.
#[derive(Debug)]
pub struct Merger {
    mode: Mode,
    hosts: Vec<String>,
    rests: Vec<[Vec<u8>; 2]>,
    /// The rank whose long line is being written to each of our streams.
    owners: [Option<usize>; 2],
    relaxed: bool,
    broken: Option<usize>,
    fold: Fold,
}

impl Merger {
    /// For ranks on these hosts.
    pub fn new(mode: Mode, hosts: Vec<String>) -> Merger {
        let rests = vec![[Vec::new(), Vec::new()]; hosts.len()];
        // With one rank there is nothing to keep apart.
        let mode = if hosts.len() == 1 && mode == Mode::Plain { Mode::Raw } else { mode };
        Merger { mode, hosts, rests, owners: [None; 2], relaxed: false, broken: None, fold: Fold::default() }
    }

    /// A rank wrote something.
    pub fn put(&mut self, rank: u32, stream: Stream, bytes: &[u8], write: Write<'_>) {
        let (rank, at) = (rank as usize, stream.index());
        if rank >= self.rests.len() {
            return;
        }
        match self.mode {
            Mode::Raw => return write(stream, bytes),
            Mode::Fold => return self.fold.put(rank, stream, bytes),
            Mode::Plain | Mode::Label | Mode::Json => {}
        }
        // Whole lines and nothing before them: the usual case.
        if self.owners[at].is_none() && self.rests[rank][at].is_empty() && bytes.ends_with(b"\n") {
            return self.show(rank, stream, bytes, write);
        }
        if self.owners[at] == Some(rank) {
            self.relaxed = false;
            let Some(end) = bytes.iter().position(|&b| b == b'\n') else { return write(stream, bytes) };
            write(stream, &bytes[..=end]);
            self.rests[rank][at].extend_from_slice(&bytes[end + 1..]);
            return self.release(stream, write);
        }
        self.rests[rank][at].extend_from_slice(bytes);
        self.settle(rank, stream, write);
    }

    /// A rank will write nothing more there: what is left of a line is shown.
    pub fn end(&mut self, rank: u32, stream: Stream, write: Write<'_>) {
        let (rank, at) = (rank as usize, stream.index());
        if rank >= self.rests.len() {
            return;
        }
        if self.owners[at] == Some(rank) {
            write(stream, b"\n");
            return self.release(stream, write);
        }
        // It may be called again while the rest waits.
        if self.rests[rank][at].last().is_some_and(|&last| last != b'\n') {
            self.rests[rank][at].push(b'\n');
        }
        self.settle(rank, stream, write);
    }

    /// All ranks are done: what was kept is shown.
    pub fn finish(&mut self, write: Write<'_>) {
        for stream in [Stream::Out, Stream::Err] {
            while let Some(owner) = self.owners[stream.index()] {
                self.end(owner as u32, stream, write);
            }
            for rank in 0..self.rests.len() {
                self.end(rank as u32, stream, write);
            }
        }
        if self.mode == Mode::Fold {
            self.fold.finish(&self.hosts, write);
        }
    }

    /// The ranks in the middle of long lines: only their output should be read for now. None if all should be.
    pub fn owners(&self) -> Vec<u32> {
        let mut owners: Vec<u32> = self.owners.iter().flatten().map(|&rank| rank as u32).collect();
        owners.sort_unstable();
        owners.dedup();
        if self.relaxed { Vec::new() } else { owners }
    }

    /// A long line does not go on: the next line of another rank ends it.
    pub fn relax(&mut self, write: Write<'_>) {
        self.relaxed = true;
        for rank in 0..self.rests.len() {
            for stream in [Stream::Out, Stream::Err] {
                self.settle(rank, stream, write);
            }
        }
    }

    /// The rank whose line was ended early since the last time.
    pub fn broken(&mut self) -> Option<usize> {
        self.broken.take()
    }

    /// Shows what is whole, unless another rank is in the middle of a long line.
    fn settle(&mut self, rank: usize, stream: Stream, write: Write<'_>) {
        let at = stream.index();
        if self.owners[at].is_some_and(|owner| !self.relaxed || owner == rank) {
            return;
        }
        let lines = self.rests[rank][at].iter().rposition(|&b| b == b'\n').map(|end| end + 1);
        if let Some(owner) = self.owners[at] {
            if lines.is_none() {
                return;
            }
            write(stream, b"\n");
            (self.owners[at], self.broken) = (None, Some(owner));
        }
        let mut rest = std::mem::take(&mut self.rests[rank][at]);
        if let Some(end) = lines {
            self.show(rank, stream, &rest[..end], write);
            rest.drain(..end);
        }
        if rest.len() > LONGEST {
            self.begin_long(rank, stream, &rest, write);
            rest.clear();
        }
        self.rests[rank][at] = rest;
    }

    fn begin_long(&mut self, rank: usize, stream: Stream, piece: &[u8], write: Write<'_>) {
        match self.mode {
            // Objects are lines of their own: the pieces of a long line are several.
            Mode::Json => return self.object(rank, stream, piece, true, write),
            Mode::Label => write(stream, &[self.label(rank).as_bytes(), piece].concat()),
            _ => write(stream, piece),
        }
        (self.owners[stream.index()], self.relaxed) = (Some(rank), false);
    }

    /// A long line has ended: what waited for it is shown, until another one begins.
    fn release(&mut self, stream: Stream, write: Write<'_>) {
        self.owners[stream.index()] = None;
        for rank in 0..self.rests.len() {
            if self.owners[stream.index()].is_none() {
                self.settle(rank, stream, write);
            }
        }
    }

    fn label(&self, rank: usize) -> String {
        format!("[{rank} {}] ", self.hosts[rank])
    }

    /// Whole lines.
    fn show(&self, rank: usize, stream: Stream, lines: &[u8], write: Write<'_>) {
        let each = || lines.strip_suffix(b"\n").unwrap_or(lines).split(|&b| b == b'\n');
        match self.mode {
            Mode::Plain => write(stream, lines),
            Mode::Label => {
                let label = self.label(rank);
                let mut text = Vec::with_capacity(lines.len() + 64);
                for line in each() {
                    text.extend_from_slice(label.as_bytes());
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
                write(stream, &text);
            }
            Mode::Json => each().for_each(|line| self.object(rank, stream, line, false, write)),
            Mode::Raw | Mode::Fold => {}
        }
    }

    fn object(&self, rank: usize, stream: Stream, line: &[u8], continues: bool, write: Write<'_>) {
        let mut object =
            json!({ "type": "output", "rank": rank, "host": self.hosts[rank], "stream": stream.name() });
        match std::str::from_utf8(line) {
            Ok(text) => object["text"] = text.into(),
            Err(_) => object["bytes"] = line.iter().map(|b| format!("{b:02x}")).collect::<String>().into(),
        }
        if continues {
            object["continues"] = true.into();
        }
        // All of it is data, and goes to standard output.
        write(Stream::Out, format!("{object}\n").as_bytes());
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
        let mut written = 0;
        for _ in 0..100 {
            merger.put(0, Stream::Out, &[b'x'; 1 << 17], &mut |_, bytes| written += bytes.len());
        }
        assert!(written > 90 << 17 && merger.rests[0][0].len() <= LONGEST);
    }

    /// Nothing is put into it, and nothing of others gets between.
    #[test]
    fn a_long_line_stays_one_line() {
        let long = |letter: u8| [vec![letter; 3 << 20], b"\n".to_vec()].concat();
        let mut merger = Merger::new(Mode::Label, vec!["h".to_owned(); 3]);
        let mut text = Vec::new();
        let mut write = |_: Stream, bytes: &[u8]| text.extend_from_slice(bytes);
        let (a, b) = (long(b'a'), long(b'b'));
        for (one, two) in a.chunks(100_000).zip(b.chunks(100_000)) {
            merger.put(0, Stream::Out, one, &mut write);
            merger.put(1, Stream::Out, two, &mut write);
            merger.put(2, Stream::Out, b"short\n", &mut write);
        }
        assert_eq!(merger.owners(), [] as [u32; 0], "all lines have ended");
        merger.finish(&mut write);
        let mut lines: Vec<usize> = text.split(|&b| b == b'\n').map(<[u8]>::len).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines, [0, "[2 h] short".len(), (3 << 20) + "[0 h] ".len()]);
    }

    #[test]
    fn only_the_rank_in_a_long_line_is_read_until_it_stops() {
        let mut merger = Merger::new(Mode::Plain, vec![String::new(); 2]);
        let mut text = Vec::new();
        let mut write = |_: Stream, bytes: &[u8]| text.extend_from_slice(bytes);
        merger.put(0, Stream::Out, &vec![b'x'; LONGEST + 1], &mut write);
        assert_eq!(merger.owners(), [0]);
        merger.put(1, Stream::Out, b"waits\n", &mut write);
        merger.relax(&mut write);
        assert_eq!((merger.owners().len(), merger.broken()), (0, Some(0)));
        merger.put(0, Stream::Out, b"rest\n", &mut write);
        assert!(text.ends_with(b"x\nwaits\nrest\n"));
    }

    #[test]
    fn a_long_line_is_several_objects() {
        let text = merge(Mode::Json, 2, &[(0, &[b'x'; LONGEST + 1]), (0, b"end\n")]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["continues"], &lines[1]["text"]), (&true.into(), &"end".into()));
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
