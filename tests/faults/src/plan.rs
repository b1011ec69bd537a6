//! What two processes say to each other: one list of steps for both, so that each knows what comes.

use std::sync::OnceLock;

use crate::node::Mode;

/// Which of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Asks for connections.
    Client,
    /// Answers.
    Server,
}

impl Role {
    /// The name by which a child is told.
    pub fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Role {
        if name == "client" { Role::Client } else { Role::Server }
    }

    /// The other end.
    pub fn other(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// Where the bytes of a message lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Memory from the NIC's allocator.
    Shared,
    /// Heap memory, registered.
    Heap,
    /// Heap memory, registered on demand.
    Implicit,
}

/// One step; its number in the plan decides the bytes.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A message from a buffer of one kind into a buffer of another.
    Message(Role, usize, Kind, Kind),
    /// A few bytes by value.
    Tiny(Role, usize),
    /// Many bytes by value into a buffer of a kind, and a nudge behind them.
    Value(Role, usize, Kind),
    /// RDMA write into the other's window, read back by RDMA; announced by immediate data or not.
    Write(Role, usize, Kind, bool),
    /// Fetch-and-add on the other's window.
    Add(Role, Kind),
    /// A second connection of the same two NICs, over completion queues; one message each way.
    Second,
    /// A request that the server turns down.
    Reject,
    /// Memory comes and goes.
    Memory,
    /// A NIC of the same process comes and goes, and a request is given up; both ends do so by themselves.
    Neighbour,
}

/// Every way a byte can travel, in both directions.
pub fn whole(mode: Mode) -> Vec<Step> {
    use Kind::{Heap, Implicit, Shared};
    use Step::{Add, Memory, Message, Neighbour, Reject, Second, Tiny, Value, Write};
    let mut plan = vec![Neighbour];
    for by in [Role::Client, Role::Server] {
        plan.extend([
            Message(by, 8, Shared, Shared),
            Message(by, 100, Heap, Heap),
            Tiny(by, 24),
            Message(by, 20_000, Shared, Shared),
            Message(by, 20_000, Shared, Heap),
            Message(by, 150_000, Implicit, Heap),
            Value(by, 20_000, Shared),
            Value(by, 100_000, Heap),
            Write(by, 9_000, Shared, false),
            Write(by, 70_000, Heap, true),
            Add(by, Shared),
            Add(by, Heap),
            Memory,
        ]);
        if mode != Mode::Peer {
            plan.extend([Second, Reject]);
        }
    }
    plan
}

/// Enough to see that a connection works.
pub fn short() -> Vec<Step> {
    let both = [Role::Client, Role::Server];
    both.into_iter()
        .flat_map(|by| {
            [
                Step::Message(by, 8, Kind::Shared, Kind::Shared),
                Step::Message(by, 20_000, Kind::Shared, Kind::Heap),
            ]
        })
        .collect()
}

/// Bytes that differ from step to step.
pub fn pattern(step: usize, len: usize) -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let word = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32
        };
        (0..(1 << 18) / 4).map(word).flat_map(u32::to_ne_bytes).collect()
    });
    let start = 1 + step * 977 % 60_000;
    &table[start..start + len]
}
