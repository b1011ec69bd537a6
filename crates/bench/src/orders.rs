//! What the first process tells the second one to do, and what it hears back.

use serde::{Deserialize, Serialize};

use crate::plan::{Run, Tally, Variant};

/// One order; the peer carries them out one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Open the answering side of a layer; the answer is its address.
    Listen(Variant),
    /// Wait until the first process has connected to the layer opened last.
    Accept,
    /// Answer one slice on layer number `.0`.
    Run(usize, Run),
    /// Answer so many bare ping-pongs, the first of which carries the number `first`.
    Probe {
        /// Number of the first one.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Sleep for so many microseconds.
    Rest(u64),
    /// Start the server of a tool of other people; it is gone with the next one, or with this process.
    Serve(Served),
    /// End.
    Quit,
}

/// The answer to one order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Done, nothing to say.
    Done,
    /// Where the layer can be reached.
    Address(String),
    /// What was seen in a slice.
    Tally(Tally),
    /// It went wrong.
    Failed {
        /// Why.
        message: String,
        /// What to do, or empty.
        hint: String,
    },
}

/// The server of a tool that the first process wants: never a command, only what the second one makes one of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Name of the rival.
    pub(crate) rival: String,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// How many messages.
    pub(crate) count: u64,
    /// Where to listen.
    pub(crate) port: u16,
}

/// First letter to another host: what the second process is to be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// Its core.
    pub(crate) cpu: usize,
}

/// Says between hosts that an order was read and is being carried out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Started;
