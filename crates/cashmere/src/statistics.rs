//! What a node counts in a run (Table IV), and what travels between nodes by the areas of Table I.

use crate::world::Request;

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
    /// Messages for data: fetches, breaks, diffs, and their answers.
    DataMessages,
    /// Messages for metadata: claims, leaves, notices, and their answers.
    MetaMessages,
    /// Messages for locks, barriers and flags, and their answers.
    SyncMessages,
    /// Remote writes of data.
    DataWrites,
    /// Remote writes of metadata.
    MetaWrites,
    /// Remote writes of words of locks, barriers and flags.
    SyncWrites,
    /// Bytes of pages and diffs that travelled, by message or remote write.
    DataBytes,
    /// Bytes of metadata that travelled beside the heads of messages.
    MetaBytes,
    /// Bytes of synchronisation that travelled beside the heads of messages.
    SyncBytes,
    /// Messages for diffs, with their answers: a part of those for data.
    DiffMessages,
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 23] = [
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
        Counter::DataMessages,
        Counter::MetaMessages,
        Counter::SyncMessages,
        Counter::DataWrites,
        Counter::MetaWrites,
        Counter::SyncWrites,
        Counter::DataBytes,
        Counter::MetaBytes,
        Counter::SyncBytes,
        Counter::DiffMessages,
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
            Counter::DataMessages => "messages of data",
            Counter::MetaMessages => "messages of metadata",
            Counter::SyncMessages => "messages of synchronisation",
            Counter::DataWrites => "remote writes of data",
            Counter::MetaWrites => "remote writes of metadata",
            Counter::SyncWrites => "remote writes of synchronisation",
            Counter::DataBytes => "bytes of data",
            Counter::MetaBytes => "bytes of metadata",
            Counter::SyncBytes => "bytes of synchronisation",
            Counter::DiffMessages => "messages of diffs",
        }
    }
}

/// The areas of communication of Table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Metadata,
    Synchronisation,
}

impl Kind {
    /// What a request and its answer are for.
    pub(crate) fn of(request: Request) -> Kind {
        match request {
            Request::Fetch(..) | Request::Break(_) | Request::Settled(_) | Request::Diff(_) => Kind::Data,
            Request::Claim(_) | Request::Leave(_) | Request::Notices => Kind::Metadata,
            Request::Lock(_)
            | Request::Forward(..)
            | Request::Grant(_)
            | Request::Arrive(_)
            | Request::Flag(_) => Kind::Synchronisation,
        }
    }

    pub(crate) fn messages(self) -> Counter {
        match self {
            Kind::Data => Counter::DataMessages,
            Kind::Metadata => Counter::MetaMessages,
            Kind::Synchronisation => Counter::SyncMessages,
        }
    }

    pub(crate) fn writes(self) -> Counter {
        match self {
            Kind::Data => Counter::DataWrites,
            Kind::Metadata => Counter::MetaWrites,
            Kind::Synchronisation => Counter::SyncWrites,
        }
    }

    pub(crate) fn bytes(self) -> Counter {
        match self {
            Kind::Data => Counter::DataBytes,
            Kind::Metadata => Counter::MetaBytes,
            Kind::Synchronisation => Counter::SyncBytes,
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

    /// A line for each count, with its name.
    pub fn table(&self) -> String {
        Counter::ALL
            .iter()
            .map(|&counter| format!("{:>32}  {}\n", counter.name(), self.get(counter)))
            .collect()
    }

    /// An object of JSON with each count by its name.
    pub fn json(&self) -> String {
        let name = |counter: &Counter| counter.name().replace(' ', "_");
        let counts =
            Counter::ALL.iter().map(|counter| format!("\"{}\":{}", name(counter), self.get(*counter)));
        format!("{{{}}}", counts.collect::<Vec<_>>().join(","))
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
