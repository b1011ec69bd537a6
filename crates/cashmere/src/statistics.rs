//! What a node counts in a run (Table IV), what travels between nodes by the areas of Table I, and where the time of its
//! processes goes (figures 2 and 3).

use std::time::Duration;

use crate::clock::Spent;
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
    /// Pages that travelled between nodes.
    PageTransfers,
    /// Faults of stores that asked for the home's place, as its workers did not seem to write the page.
    MigrationAttempts,
    /// Requests of other nodes that a waiting worker answered, or handed to its server.
    ServedByWorkers,
    /// Requests of other nodes that came to a server.
    ServedByServers,
    /// Requests that a worker did not take in time, and that went to its server.
    SentAgain,
    /// Faults that waited for a page which a sibling was fetching, instead of fetching it too.
    Coalesced,
    /// Releases that found the bin of notices at another node full: that node takes every page to be changed.
    Spills,
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 30] = [
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
        Counter::PageTransfers,
        Counter::MigrationAttempts,
        Counter::ServedByWorkers,
        Counter::ServedByServers,
        Counter::SentAgain,
        Counter::Coalesced,
        Counter::Spills,
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
            Counter::PageTransfers => "page transfers",
            Counter::MigrationAttempts => "migration attempts",
            Counter::ServedByWorkers => "requests served by workers",
            Counter::ServedByServers => "requests served by servers",
            Counter::SentAgain => "requests sent again",
            Counter::Coalesced => "coalesced fetches",
            Counter::Spills => "full bins of notices",
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

/// Where a node's counters have the time of its processes, in nanoseconds: behind the counts.
pub(crate) fn time_place(spent: Spent) -> usize {
    Counter::ALL.len() + spent as usize
}

/// The counts of a node, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(Vec<u64>);

impl Statistics {
    pub(crate) fn new(counts: Vec<u64>) -> Statistics {
        Statistics(counts)
    }

    /// The time that all workers, or all servers, spent so.
    pub fn time(&self, spent: Spent) -> Duration {
        Duration::from_nanos(self.0.get(time_place(spent)).copied().unwrap_or(0))
    }

    /// One count.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }

    /// A line for each part of the workers' time, with its share; then one for each count.
    pub fn table(&self) -> String {
        let workers = Spent::ALL.into_iter().filter(|spent| *spent != Spent::Server);
        let all: Duration = workers.map(|spent| self.time(spent)).sum();
        let mut text = String::new();
        for spent in Spent::ALL {
            let time = self.time(spent).as_secs_f64();
            let share = match spent {
                Spent::Server => "beside the workers".to_owned(),
                _ => format!("{:.1} %", 100.0 * time / all.as_secs_f64().max(f64::MIN_POSITIVE)),
            };
            text += &format!("{:>32}  {time:.3} s  {share}\n", format!("time: {}", spent.name()));
        }
        for counter in Counter::ALL {
            text += &format!("{:>32}  {}\n", counter.name(), self.get(counter));
        }
        text
    }

    /// An object of JSON with each part of the time by its name, in seconds: summed up over all workers, or all servers.
    pub fn times_json(&self) -> String {
        let times =
            Spent::ALL.map(|spent| format!("\"{}\":{}", spent.name(), self.time(spent).as_secs_f64()));
        format!("{{{}}}", times.join(","))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_of_nodes_are_summed_up() {
        let mut ours = vec![0; time_place(Spent::Server) + 1];
        ours[Counter::Diffs as usize] = 5;
        ours[time_place(Spent::User)] = 3_000_000_000;
        ours[time_place(Spent::Wait)] = 1_000_000_000;
        let node = Statistics::new(ours);
        let mut sum = Statistics::default();
        (0..2).for_each(|_| sum.add_bytes(&node.to_bytes()));
        assert_eq!((sum.get(Counter::Diffs), sum.time(Spent::User)), (10, Duration::from_secs(6)));
        let table = sum.table();
        assert!(table.contains("time: user  6.000 s  75.0 %") && table.contains("diffs  10"), "{table}");
        assert!(sum.times_json().starts_with("{\"user\":6,\"protocol\":0,"), "{}", sum.times_json());
    }
}
