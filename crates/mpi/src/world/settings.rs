//! Settings of MPI, each with a variable and a line of help.

use viaduct_os::copy;
use viaduct_os::knob::{self, Knob, Purpose, bytes, number_in, switch};

use crate::protocol::Limits;

/// How the engine behaves. All ranks of a job have the same, but for `private` and the statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest message in bytes that is sent without being asked for.
    pub eager: usize,
    /// Most bytes of a message in one packet.
    pub fragment: usize,
    /// Shortest message in bytes that its receiver reads out of the sender's ordinary memory, where the kernel lets it. None: by
    /// what the CPU copies faster.
    pub private: Option<usize>,
    /// Receives posted for each peer. None: by the number of ranks.
    pub credits: Option<u16>,
    /// Bytes of early messages that are kept for each peer.
    pub room: usize,
    /// Ranks up to which all pairs of a host are connected when the program starts.
    pub connect_all: usize,
    /// Whether ranks of one host do short collective operations in shared memory.
    pub board: bool,
    /// Whether the process says at its end what it sent to each peer by which protocol.
    pub stats: bool,
}

/// Where copies go through the caches: longest piece of a message, and half of the shortest message that the kernel copies.
const CACHED: usize = 8 << 10;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            eager: 64 << 10,
            fragment: 16 << 10,
            private: None,
            credits: None,
            room: 1 << 20,
            connect_all: 16,
            board: true,
            stats: false,
        }
    }
}

impl Settings {
    /// Defaults, overridden by variables.
    ///
    /// # Errors
    /// For the first value that is not understood.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<Settings, knob::BadKnob> {
        let mut settings = Settings::default();
        knob::read(KNOBS, &mut settings, variable)?;
        Ok(settings)
    }

    /// The shortest message that the kernel copies.
    pub(super) fn private(&self) -> usize {
        self.private.unwrap_or(if copy::goes_past_caches() { usize::MAX } else { 2 * CACHED })
    }

    /// The bounds of the protocol in a job of this size.
    pub(super) fn limits(&self, size: usize) -> Limits {
        let credits = self.credits.unwrap_or(match size {
            0..=8 => 32,
            9..=16 => 16,
            _ => 8,
        });
        let (fragment, room) = (self.fragment, self.room as u32);
        let piece = if copy::goes_past_caches() { fragment } else { fragment.min(CACHED) };
        Limits { eager: self.eager, fragment, piece, credits, room }
    }
}

/// All of them.
pub const KNOBS: &[Knob<Settings>] = &[
    Knob {
        name: "mpi.eager",
        env: "VIADUCT_MPI_EAGER",
        help: "longest message, in bytes, that MPI sends without being asked for",
        purpose: Purpose::Use,
        show: |c| c.eager.to_string(),
        set: |c, text| within(text, 256, 1 << 20).map(|n| c.eager = n),
    },
    Knob {
        name: "mpi.fragment",
        env: "VIADUCT_MPI_FRAGMENT",
        help: "most bytes of a message in one packet, and so the length of the receives that a rank posts for each peer; longer messages go in fragments",
        purpose: Purpose::Use,
        show: |c| c.fragment.to_string(),
        set: |c, text| within(text, 256, 1 << 20).map(|n| c.fragment = n),
    },
    Knob {
        name: "mpi.private",
        env: "VIADUCT_MPI_PRIVATE",
        help: "shortest message, in bytes and longer than a fragment, that its receiver has the kernel copy out of the sender's memory, where that is allowed; not of MPI_Alloc_mem, which needs no kernel; automatic: 16K, but none on AMD's CPUs, where two copies past the caches are faster",
        purpose: Purpose::Use,
        show: |c| c.private.map_or("automatic".into(), |n| n.to_string()),
        set: |c, text| within(text, 0, 1 << 40).map(|n| c.private = Some(n)),
    },
    Knob {
        name: "mpi.credits",
        env: "VIADUCT_MPI_CREDITS",
        help: "receives that a rank posts for each peer; automatic: 32 up to 8 ranks, 16 up to 16, then 8",
        purpose: Purpose::Use,
        show: |c| c.credits.map_or("automatic".into(), |n| n.to_string()),
        set: |c, text| number_in(text, 4..=60).map(|n| c.credits = u16::try_from(n).ok()),
    },
    Knob {
        name: "mpi.room",
        env: "VIADUCT_MPI_ROOM",
        help: "bytes of messages without a receive that a rank keeps for each peer; senders wait then",
        purpose: Purpose::Use,
        show: |c| c.room.to_string(),
        set: |c, text| within(text, 1 << 10, 1 << 30).map(|n| c.room = n),
    },
    Knob {
        name: "mpi.connect-all",
        env: "VIADUCT_MPI_CONNECT_ALL",
        help: "ranks up to which all pairs are connected in MPI_Init; beyond, on first use",
        purpose: Purpose::Use,
        show: |c| c.connect_all.to_string(),
        set: |c, text| number_in(text, 0..=1024).map(|n| c.connect_all = n),
    },
    Knob {
        name: "mpi.board",
        env: "VIADUCT_MPI_BOARD",
        help: "whether ranks of one host, up to VIADUCT_MPI_CONNECT_ALL, do short collective operations in shared memory: on or off",
        purpose: Purpose::Use,
        show: |c| if c.board { "on" } else { "off" }.into(),
        set: |c, text| switch(text).map(|on| c.board = on),
    },
    Knob {
        name: "mpi.stats",
        env: "VIADUCT_MPI_STATS",
        help: "whether each rank prints in MPI_Finalize what it sent to each peer by which protocol: on or off",
        purpose: Purpose::Use,
        show: |c| if c.stats { "on" } else { "off" }.into(),
        set: |c, text| switch(text).map(|on| c.stats = on),
    },
];

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let allowed = || format!("a number of bytes from {least} to {most}");
    let given = bytes(text).map_err(|_| allowed())? as usize;
    if (least..=most).contains(&given) { Ok(given) } else { Err(allowed()) }
}
