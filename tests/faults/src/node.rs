//! An opened NIC of the shared-memory provider, in the run-time folder of a test.

use std::path::Path;

use viaduct_providers::config::Config;
use viaduct_via::{Error, Nic, WaitConfig};

/// Shared memory a NIC of these tests may make: what leaks runs out of it soon.
pub const BUDGET: u64 = 96 << 20;

/// How two NICs work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Straight into each other's memory, mapped or through the kernel; done when handed over.
    Direct,
    /// Everything through bounce buffers and the peer's control thread; done when received.
    Copy,
    /// As direct, but connected peer to peer.
    Peer,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Direct, Mode::Copy, Mode::Peer];

    /// The name by which a child is told.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Direct => "direct",
            Mode::Copy => "copy",
            Mode::Peer => "peer",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Mode {
        Mode::ALL.into_iter().find(|mode| mode.name() == name).expect("a known mode")
    }
}

/// The settings of a NIC in this folder.
pub fn config(folder: &Path, mode: Mode) -> Config {
    let mut config = Config::default();
    config.shm.runtime_dir = Some(folder.to_owned());
    config.shm.memory_budget = Some(BUDGET);
    // Whoever sleeps is woken, or sleeps for ever: a lost wake-up shows as a hang.
    config.shm.longest_sleep = None;
    (config.shm.direct, config.shm.process_vm) = (mode != Mode::Copy, mode != Mode::Copy);
    config
}

/// Where NICs of a test meet, and how.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Their run-time folder.
    pub folder: &'a Path,
    /// How they work together.
    pub mode: Mode,
}

impl Place<'_> {
    /// Opens a NIC here.
    pub fn open(self) -> Nic {
        try_open(&config(self.folder, self.mode)).expect("a NIC")
    }

    /// Opens a NIC here that looks around now and then, as NICs do unless told otherwise.
    pub fn open_wary(self) -> Nic {
        let mut config = config(self.folder, self.mode);
        config.shm.longest_sleep = Config::default().shm.longest_sleep;
        try_open(&config).expect("a NIC")
    }
}

/// Opens a NIC, or says why not.
pub fn try_open(config: &Config) -> Result<Nic, Error> {
    Nic::open_with(viaduct_providers::open("shm", config)?, WaitConfig::default())
}
