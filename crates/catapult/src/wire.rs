//! What a launcher and its nodes say to each other once a job runs. The same values go to a node in this process and,
//! as bytes, to one behind a connection. See `docs/protocols/catapult.md`.

use serde::{Deserialize, Serialize};
use viaduct_job::pmi::server::Pair;

use crate::output::Stream;
use crate::plan::NodePlan;

/// Version of the messages; the two ends must agree.
pub const VERSION: u32 = 3;

/// The first message to a node: everything it needs but the files it has not got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// [`VERSION`].
    pub version: u32,
    /// What to do.
    pub plan: NodePlan,
    /// Files that go there.
    pub put: Vec<FileHead>,
    /// Files that come back.
    pub get: Vec<String>,
    /// Where the launcher runs: ranks run in the same folder if it is there, too.
    pub folder: String,
    /// How long the node waits for a sign of life, in milliseconds.
    pub lease: u64,
    /// How long it may take to reach those below, in milliseconds.
    pub limit: u64,
    /// Whether agents may be started below even as root.
    pub allow_root: bool,
    /// Hosts that this one starts, and passes everything on to and from.
    pub below: Vec<Branch>,
}

impl Start {
    /// This node and all behind it, each with its ranks.
    pub fn nodes(&self) -> Vec<(u32, Vec<u32>)> {
        let own = (self.plan.node.0, self.plan.ranks.iter().map(|rank| rank.rank).collect());
        let below = self.below.iter().filter_map(Branch::read).flat_map(|start| start.nodes());
        [own].into_iter().chain(below).collect()
    }
}

/// A host further down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// How the user calls it.
    pub host: String,
    /// Its agent, if the launcher knows one: address, key, and a ticket for the agent that is to call it.
    pub agent: Option<(String, [u8; 32], Vec<u8>)>,
    /// The key of the launcher, for an agent that is brought up from here.
    pub launcher: [u8; 32],
    /// Its [`Start`], as bytes: agents pass it on unchanged.
    pub start: Vec<u8>,
}

impl Branch {
    /// What it is to start with.
    pub fn read(&self) -> Option<Start> {
        postcard::from_bytes(&self.start).ok()
    }
}

/// A file that goes to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Where it goes; none for a program, which goes where its hash says.
    pub path: Option<String>,
    /// Permissions.
    pub mode: u32,
    /// Its content, as SHA-256.
    pub hash: String,
}

/// What the launcher tells a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Bytes for standard input.
    Input(Vec<u8>),
    /// No more of them will come.
    InputEnd,
    /// A signal for every rank.
    Signal(i32),
    /// Output is read from these ranks only; from all if there are none.
    Hold(Vec<u32>),
    /// All nodes are in the barrier; what is new.
    Release(Vec<Pair>),
    /// A piece of a file that the node has not got, and whether it was the last.
    File(u32, Vec<u8>, bool),
    /// The launcher lives.
    Alive,
}

/// What a node tells. It travels with the number of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A rank runs as this process.
    Started(u32, i32),
    /// A rank runs on these CPUs only; told if the user wants to know.
    Bound(u32, Vec<u32>),
    /// A rank wrote something.
    Output(u32, Stream, Vec<u8>),
    /// A rank will write nothing more there.
    OutputEnd(u32, Stream),
    /// A rank has ended, so many microseconds after its start.
    Exited(u32, End, u64),
    /// So many more bytes of input were taken.
    Took(u64),
    /// All ranks of these nodes, the one that tells it and those behind it, are in the barrier; what is new.
    Arrive(Vec<u32>, Vec<Pair>),
    /// A rank has begun to speak PMI: from now on ranks may wait for each other.
    Wired,
    /// A rank wants the job to end.
    Abort(u32, i32, String),
    /// The node has not got these files.
    Need(Vec<u32>),
    /// A piece of a file that the launcher wants, and whether it was the last.
    File(u32, Vec<u8>, bool),
    /// The node will not do it.
    Refused(String),
    /// An agent was brought up for this node: its address and its key.
    Brought(String, [u8; 32]),
    /// The node could not be reached from where it was to be; these nodes are behind it, itself among them.
    Unreached(String, Vec<u32>),
    /// The node lives.
    Alive,
    /// All ranks have ended and nothing is left of them.
    Done,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It never began; why, and the status that a shell would give (126 or 127).
    NotStarted(String, u8),
    /// Its host was lost.
    Lost(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_and_back() {
        let events = [
            Event::Output(3, Stream::Err, b"x\n".to_vec()),
            Event::Exited(1, End::Signal(9), 77),
            Event::Arrive(vec![3, 4], vec![("k".into(), "v".into())]),
        ];
        for event in events {
            let bytes = postcard::to_stdvec(&event).unwrap();
            assert_eq!(postcard::from_bytes::<Event>(&bytes).unwrap(), event);
        }
    }

    proptest! {
        /// Whatever arrives, reading it gives a message or an error.
        #[test]
        fn garbage_is_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = postcard::from_bytes::<Order>(&bytes);
            let _ = postcard::from_bytes::<Event>(&bytes);
            let _ = postcard::from_bytes::<Start>(&bytes).map(|start| start.nodes());
        }
    }
}
