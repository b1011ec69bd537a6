//! Settings of the providers, each with a name, a default and a line of help: one table for code, `viaduct config`
//! and documents.
//!
//! Nothing here reads the environment; the programs on top do, by [`Knob::env`].

use std::path::PathBuf;
use std::time::Duration;

/// Settings of all providers.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Of the shared-memory provider.
    pub shm: ShmConfig,
}

/// Settings of the shared-memory provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Folder of the sockets over which connections are set up; `None` is the user's run-time folder.
    pub runtime_dir: Option<PathBuf>,
    /// Entries of a connection's ring in each direction, a power of two.
    pub ring_slots: usize,
    /// Peers' segments kept mapped.
    pub map_cache: usize,
    /// Whether peers of the same user reach each other's memory directly.
    pub direct: bool,
    /// Whether private memory may be reached by the kernel's process_vm calls.
    pub process_vm: bool,
    /// Bytes of shared memory this NIC may make; `None` is the process' budget.
    pub memory_budget: Option<u64>,
    /// Most connections with one peer NIC.
    pub max_connections_per_peer: usize,
    /// The longest sleep without a look around: how long a hostile peer that silences the bell can keep the NIC from
    /// hearing the others. `None` is for ever.
    pub longest_sleep: Option<Duration>,
}

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig {
            runtime_dir: None,
            ring_slots: 64,
            map_cache: 1024,
            direct: true,
            process_vm: true,
            memory_budget: None,
            max_connections_per_peer: 65_536,
            longest_sleep: Some(Duration::from_millis(200)),
        }
    }
}

/// One setting.
pub struct Knob {
    /// Name in configuration files and on the command line.
    pub name: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Shows its value.
    pub show: fn(&Config) -> String,
    /// Sets it from text; the error says what is allowed.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Every setting.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "shm.runtime-dir",
        env: "VIADUCT_RUNTIME_DIR",
        help: "folder (mode 0700) of the sockets over which connections are set up",
        show: |c| c.shm.runtime_dir.as_ref().map_or("automatic".into(), |p| p.display().to_string()),
        set: |c, text| {
            if text.is_empty() {
                return Err("a folder".into());
            }
            c.shm.runtime_dir = Some(text.into());
            Ok(())
        },
    },
    Knob {
        name: "shm.ring-slots",
        env: "VIADUCT_SHM_RING_SLOTS",
        help: "ring entries of a connection in each direction, 64 bytes each",
        show: |c| c.shm.ring_slots.to_string(),
        set: |c, text| {
            let n: usize = number(text)?;
            if !n.is_power_of_two() || !(8..=65_536).contains(&n) {
                return Err("a power of two from 8 to 65536".into());
            }
            c.shm.ring_slots = n;
            Ok(())
        },
    },
    Knob {
        name: "shm.map-cache",
        env: "VIADUCT_SHM_MAP_CACHE",
        help: "peers' segments kept mapped; more are mapped again when they are used again",
        show: |c| c.shm.map_cache.to_string(),
        set: |c, text| {
            let n: usize = number(text)?;
            if n == 0 {
                return Err("at least 1".into());
            }
            c.shm.map_cache = n;
            Ok(())
        },
    },
    Knob {
        name: "shm.direct",
        env: "VIADUCT_SHM_DIRECT",
        help: "whether peers of the same user copy straight into and out of each other's buffers",
        show: |c| c.shm.direct.to_string(),
        set: |c, text| {
            c.shm.direct = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.process-vm",
        env: "VIADUCT_SHM_PROCESS_VM",
        help: "whether RDMA on private memory may use the kernel's process_vm calls",
        show: |c| c.shm.process_vm.to_string(),
        set: |c, text| {
            c.shm.process_vm = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.memory-budget",
        env: "VIADUCT_SHM_MEMORY_BUDGET",
        help: "bytes of shared memory a NIC may make (suffix K, M or G)",
        show: |c| c.shm.memory_budget.map_or("automatic".into(), |b| b.to_string()),
        set: |c, text| {
            c.shm.memory_budget = Some(bytes(text)?);
            Ok(())
        },
    },
    Knob {
        name: "shm.max-connections-per-peer",
        env: "VIADUCT_SHM_MAX_CONNECTIONS",
        help: "most connections with one peer NIC",
        show: |c| c.shm.max_connections_per_peer.to_string(),
        set: |c, text| {
            c.shm.max_connections_per_peer = number(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.longest-sleep-ms",
        env: "VIADUCT_SHM_LONGEST_SLEEP_MS",
        help: "longest sleep without a look around, against peers that silence the bell; 0 is for ever",
        show: |c| c.shm.longest_sleep.map_or(0, |time| time.as_millis()).to_string(),
        set: |c, text| {
            let time = Duration::from_millis(number(text)? as u64);
            c.shm.longest_sleep = Some(time).filter(|time| !time.is_zero());
            Ok(())
        },
    },
];

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number".to_string())
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

/// A number of bytes with an optional suffix K, M or G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bad = || "a number of bytes, such as 65536, 64K, 16M or 2G".to_string();
    let upper = text.trim().to_ascii_uppercase();
    let (digits, shift) = match upper.as_bytes().last() {
        Some(b'K') => (&upper[..upper.len() - 1], 10),
        Some(b'M') => (&upper[..upper.len() - 1], 20),
        Some(b'G') => (&upper[..upper.len() - 1], 30),
        _ => (&upper[..], 0),
    };
    let n: u64 = digits.parse().map_err(|_| bad())?;
    n.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_takes_what_it_shows() {
        for knob in KNOBS {
            let mut config = Config::default();
            let shown = (knob.show)(&config);
            if shown != "automatic" {
                (knob.set)(&mut config, &shown).unwrap();
                assert_eq!((knob.show)(&config), shown, "{}", knob.name);
            }
            assert!((knob.set)(&mut config, "").is_err(), "{} takes nothing", knob.name);
        }
        assert_eq!(bytes("16m"), Ok(16 << 20));
        assert!(bytes("99999999999G").is_err());
        assert!((KNOBS[1].set)(&mut Config::default(), "48").is_err());
    }
}
