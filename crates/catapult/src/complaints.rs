//! What the launcher has to say of ranks: equal words of many ranks are one line.

use crate::output::ranges;

/// What was not said yet.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    list: Vec<(String, Vec<usize>)>,
}

impl Complaints {
    /// A rank failed, on this host, for this reason.
    pub(crate) fn add(&mut self, rank: u32, host: &str, why: &str) {
        let why =
            if why.starts_with(&format!("{host}:")) { why.to_owned() } else { format!("{host}: {why}") };
        match self.list.iter_mut().find(|(other, _)| *other == why) {
            Some((_, ranks)) => ranks.push(rank as usize),
            None => self.list.push((why, vec![rank as usize])),
        }
    }

    /// The lines, each once.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let line = |(why, ranks): (String, Vec<usize>)| format!("{}: {why}", named(&ranks));
        std::mem::take(&mut self.list).into_iter().map(line).collect()
    }
}

/// `rank 3`, `ranks 0-3,7`.
pub(crate) fn named(ranks: &[usize]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranges(ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_of_many_ranks_are_one_line() {
        let mut complaints = Complaints::default();
        for rank in [0, 1, 2, 5] {
            complaints.add(rank, "a", "a: x: not found");
        }
        complaints.add(7, "b", "it is gone");
        assert_eq!(complaints.take(), ["ranks 0-2,5: a: x: not found", "rank 7: b: it is gone"]);
        assert!(complaints.take().is_empty());
    }
}
