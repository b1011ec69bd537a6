//! An opened NIC in the run-time folder of a test: of the shared-memory provider, or of those that reach further.

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
    /// As direct, by the provider that takes whatever reaches the peer.
    Auto,
    /// Over libfabric's TCP.
    Network,
}

impl Mode {
    /// Every mode of shared memory.
    pub const ALL: [Mode; 3] = [Mode::Direct, Mode::Copy, Mode::Peer];

    /// The provider.
    pub fn provider(self) -> &'static str {
        match self {
            Mode::Direct | Mode::Copy | Mode::Peer => "shm",
            Mode::Auto => "auto",
            Mode::Network => "ofi:tcp",
        }
    }

    /// The name by which a child is told.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Direct => "direct",
            Mode::Copy => "copy",
            Mode::Peer => "peer",
            Mode::Auto => "auto",
            Mode::Network => "network",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Mode {
        Mode::ALL
            .into_iter()
            .chain([Mode::Auto, Mode::Network])
            .find(|mode| mode.name() == name)
            .expect("a known mode")
    }
}

/// The settings of a NIC in this folder.
pub fn config(folder: &Path, mode: Mode) -> Config {
    let mut config = Config::default();
    config.shm.runtime_dir = Some(folder.to_owned());
    config.ofi.runtime_dir = Some(folder.to_owned());
    config.shm.memory_budget = Some(BUDGET);
    // A thread that sleeps is woken, or sleeps for ever: a lost wake-up shows as a hang.
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
        self.try_open().expect("a NIC")
    }

    /// Opens a NIC here, or says why not.
    pub fn try_open(self) -> Result<Nic, Error> {
        let provider = viaduct_providers::open(self.mode.provider(), &config(self.folder, self.mode))?;
        Nic::open_with(provider, WaitConfig::default())
    }

    /// Opens a NIC here that looks around now and then, as NICs do unless told otherwise.
    pub fn open_wary(self) -> Nic {
        let mut config = config(self.folder, self.mode);
        config.shm.longest_sleep = Config::default().shm.longest_sleep;
        try_open(&config).expect("a NIC")
    }
}

/// Opens a NIC of shared memory, or says why not.
pub fn try_open(config: &Config) -> Result<Nic, Error> {
    Nic::open_with(viaduct_providers::open("shm", config)?, WaitConfig::default())
}
