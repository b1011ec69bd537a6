//! What a node counts in a run (Table IV).

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Faults of loads.
    ReadFaults,
    /// Faults of stores.
    WriteFaults,
    /// Pages fetched for a load.
    ReadFetches,
    /// Pages fetched for a store.
    WriteFetches,
    /// Twins made.
    Twins,
    /// Diffs sent to a home.
    Diffs,
    /// Bytes of diffs, with their heads.
    DiffBytes,
    /// Pages that came in as a difference to the twin.
    IncomingDiffs,
    /// Notices sent.
    Notices,
    /// Homes that moved to this node.
    Migrations,
    /// Pages that this node got alone.
    Exclusive,
    /// Barriers that workers went through.
    Barriers,
    /// Locks that workers took.
    Locks,
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 13] = [
        Counter::ReadFaults,
        Counter::WriteFaults,
        Counter::ReadFetches,
        Counter::WriteFetches,
        Counter::Twins,
        Counter::Diffs,
        Counter::DiffBytes,
        Counter::IncomingDiffs,
        Counter::Notices,
        Counter::Migrations,
        Counter::Exclusive,
        Counter::Barriers,
        Counter::Locks,
    ];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Counter::ReadFaults => "read faults",
            Counter::WriteFaults => "write faults",
            Counter::ReadFetches => "pages fetched for loads",
            Counter::WriteFetches => "pages fetched for stores",
            Counter::Twins => "twins",
            Counter::Diffs => "diffs",
            Counter::DiffBytes => "bytes of diffs",
            Counter::IncomingDiffs => "incoming diffs",
            Counter::Notices => "notices",
            Counter::Migrations => "migrations",
            Counter::Exclusive => "exclusive pages",
            Counter::Barriers => "barriers",
            Counter::Locks => "locks",
        }
    }
}

/// The counts of a node, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(Vec<u64>);

impl Statistics {
    pub(crate) fn new(counts: Vec<u64>) -> Statistics {
        Statistics(counts)
    }

    /// One count.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }

    /// As bytes, for an exchange between ranks.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|count| count.to_le_bytes()).collect()
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        for (index, count) in bytes.chunks_exact(8).enumerate() {
            if self.0.len() <= index {
                self.0.push(0);
            }
            let count: [u8; 8] = count.try_into().unwrap_or_default();
            self.0[index] += u64::from_le_bytes(count);
        }
    }
}
