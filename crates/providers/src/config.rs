//! Settings of the providers, each with a name, a default and a line of help: one table for code, `viaduct config`
//! and documents.
//!
//! Nothing here reads the environment; the programs on top do ([`knob::read`]).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use viaduct_job::{Job, Token};
use viaduct_os::knob::{self, BadKnob, Knob, Purpose, bytes, filled, number, number_in, switch};
use viaduct_os::wait::WaitConfig;

/// Settings of all providers.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Of the shared-memory provider.
    pub shm: ShmConfig,
    /// Of the provider between hosts.
    pub ofi: OfiConfig,
    /// How calls wait on a NIC of any provider. The program that opens the NIC hands it over.
    pub wait: WaitConfig,
    /// Peers of other hosts are not waited for: `auto` listens at the network only where an address names a host.
    pub local_only: bool,
    /// The job that this process belongs to, and its rank: shown with its counters.
    pub member: Option<(String, usize)>,
}

impl Config {
    /// Defaults, overridden by variables; `variable` gives the value of one.
    ///
    /// # Errors
    /// For the first value that is not understood.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config, BadKnob> {
        let mut config = Config::default();
        knob::read(KNOBS, &mut config, &variable)?;
        let rank = variable("VIADUCT_RANK").and_then(|rank| rank.parse().ok());
        config.member = variable("VIADUCT_JOB").zip(rank);
        // Launchers say how many ranks of the job share this host.
        config.shm.neighbours = variable("VIADUCT_LOCAL_SIZE").and_then(|n| n.parse().ok()).unwrap_or(1);
        Ok(config)
    }

    /// Takes over what the ranks of a job have in common: their token, and whether they share one host, in which case `auto`
    /// never loads libfabric. All ranks must call it, if it is their first question about hosts.
    ///
    /// # Errors
    /// As [`Job::hosts`].
    pub fn join(&mut self, job: &mut Job) -> Result<(), viaduct_job::Error> {
        self.ofi.token = Some(job.token()?);
        self.local_only = job.is_on_one_host()?;
        if self.member.is_none() && job.size() > 1 {
            self.member = Some((job.name().to_owned(), job.rank()));
        }
        Ok(())
    }

    /// The provider for a program that was not told one and talks to the ranks of its job alone. Where these are on this host
    /// it is `shm`: nothing listens on a network, and no library is loaded for one.
    #[must_use]
    pub fn usual_provider(&self) -> &'static str {
        if self.local_only { "shm" } else { "auto" }
    }
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
    /// Whether peers of the same user are treated as if they were of another one: nothing of ours is shown to them but
    /// what is made for the two.
    pub isolate: bool,
    /// Whether private memory may be reached by the kernel's process_vm calls.
    pub process_vm: bool,
    /// Whether a sender or the process that goes to sleep pays for the fence between the two.
    pub fences: Fences,
    /// Processes of one job on this host, this one included. With more of them than CPUs most messages find a sleeper.
    pub neighbours: usize,
    /// Bytes of shared memory this NIC may make; `None` is the process' budget.
    pub memory_budget: Option<u64>,
    /// Most connections with one peer NIC.
    pub max_connections_per_peer: usize,
    /// The longest sleep without a look around: how long a hostile peer that silences the bell can keep the NIC from
    /// hearing the others. `None` is without limit.
    pub longest_sleep: Option<Duration>,
    /// Users besides our own with whom connections are made, by copying, if both ends have the job's token.
    pub other_users: OtherUsers,
    /// The job's token, for those.
    pub token: Option<Token>,
    /// Those of another host's name are not met, though they share the machine.
    pub host: Option<String>,
}

/// Which side pays for the fence between a message and a sleeper. It is chosen once for a process, by its first NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fences {
    /// The sender in a job with more processes than CPUs, else the sleeper.
    #[default]
    Auto,
    /// The sleeper, by a barrier on all CPUs: sends are cheapest.
    Sleeper,
    /// The sender, with each message: going to sleep is cheapest.
    Sender,
}

/// Users besides our own with whom connections are made through shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OtherUsers {
    /// None but root, which needs no leave.
    #[default]
    Nobody,
    /// Those with these numbers.
    These(Vec<u32>),
    /// Every user that has the job's token.
    Everybody,
}

impl OtherUsers {
    /// Whether the user with this number is among them.
    pub fn has(&self, user: u32) -> bool {
        match self {
            OtherUsers::Nobody => false,
            OtherUsers::These(users) => users.contains(&user),
            OtherUsers::Everybody => true,
        }
    }
}

impl fmt::Display for OtherUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherUsers::Nobody => f.write_str("off"),
            OtherUsers::Everybody => f.write_str("all"),
            OtherUsers::These(users) => {
                let numbers: Vec<String> = users.iter().map(u32::to_string).collect();
                f.write_str(&numbers.join(","))
            }
        }
    }
}

impl FromStr for OtherUsers {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherUsers, String> {
        let number = |user: &str| {
            let known = viaduct_os::process::user_number(user);
            known.ok_or_else(|| {
                format!("off, all, or users by name or number with commas; there is no user `{user}`")
            })
        };
        match text {
            "off" | "no" | "0" => Ok(OtherUsers::Nobody),
            "all" => Ok(OtherUsers::Everybody),
            list => list
                .split(',')
                .map(|user| number(user.trim()))
                .collect::<Result<_, _>>()
                .map(OtherUsers::These),
        }
    }
}

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig {
            runtime_dir: None,
            ring_slots: 64,
            map_cache: 1024,
            direct: true,
            isolate: false,
            process_vm: true,
            fences: Fences::default(),
            neighbours: 1,
            memory_budget: None,
            max_connections_per_peer: 65_536,
            longest_sleep: Some(Duration::from_millis(200)),
            other_users: OtherUsers::Nobody,
            token: None,
            host: None,
        }
    }
}

/// Settings of the provider between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiConfig {
    /// Which provider of libfabric; `None` takes the best there is.
    pub provider: Option<String>,
    /// The file of libfabric.
    pub library: String,
    /// Folder in which the listeners of this host are noted; `None` is the user's run-time folder.
    pub runtime_dir: Option<PathBuf>,
    /// The job's token.
    pub token: Option<Token>,
    /// File with the job's token, if it is not given. Without either, the token of this user on this host.
    pub token_file: Option<PathBuf>,
    /// Stands for the identity of this host.
    pub host: Option<String>,
    /// Where to listen if an address does not say; `None` is everywhere for a job with a token, else this host alone.
    pub bind: Option<IpAddr>,
    /// Signs of life on a connection that says nothing else.
    pub heartbeat: Duration,
    /// Silence after which a connection is taken for lost.
    pub silence: Duration,
    /// Bytes of a frame.
    pub frame: usize,
    /// Frames of each of the two classes that a connection has room for.
    pub window: usize,
}

impl OfiConfig {
    /// Whether the job's token was given.
    pub fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }
}

impl Default for OfiConfig {
    fn default() -> OfiConfig {
        OfiConfig {
            provider: None,
            library: "libfabric.so.1".into(),
            runtime_dir: None,
            token: None,
            token_file: None,
            host: None,
            bind: None,
            heartbeat: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            frame: (64 << 10) + 64,
            window: 8,
        }
    }
}

/// Every setting.
pub const KNOBS: &[Knob<Config>] = &[
    Knob {
        name: "wait.spin",
        env: "VIADUCT_WAIT_SPIN",
        help: "spin budget of a call that waits, before it sleeps: auto (learnt, 50us at most), never, always, or a time",
        purpose: Purpose::Use,
        show: |c| c.wait.spin.to_string(),
        set: |c, text| {
            c.wait.spin = text.parse()?;
            Ok(())
        },
    },
    Knob {
        name: "auto.local-only",
        env: "VIADUCT_AUTO_LOCAL_ONLY",
        help: "whether auto does without the network unless an address names a host; launch sets it for jobs on one host",
        purpose: Purpose::Use,
        show: |c| knob::show_switch(c.local_only),
        set: |c, text| {
            c.local_only = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.runtime-dir",
        env: "VIADUCT_RUNTIME_DIR",
        help: "folder (mode 0700) of the sockets over which connections are set up",
        purpose: Purpose::Use,
        show: |c| c.shm.runtime_dir.as_ref().map_or("automatic".into(), |p| p.display().to_string()),
        set: |c, text| {
            if text.is_empty() {
                return Err("a folder".into());
            }
            c.shm.runtime_dir = Some(text.into());
            c.ofi.runtime_dir = Some(text.into());
            Ok(())
        },
    },
    Knob {
        name: "shm.ring-slots",
        env: "VIADUCT_SHM_RING_SLOTS",
        help: "ring entries of a connection in each direction, 64 bytes each",
        purpose: Purpose::Use,
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
        purpose: Purpose::Figures,
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
        purpose: Purpose::Figures,
        show: |c| knob::show_switch(c.shm.direct),
        set: |c, text| {
            c.shm.direct = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.isolate",
        env: "VIADUCT_SHM_ISOLATE",
        help: "whether peers of the same user are treated like those of other users: everything is copied",
        purpose: Purpose::Figures,
        show: |c| knob::show_switch(c.shm.isolate),
        set: |c, text| {
            c.shm.isolate = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.process-vm",
        env: "VIADUCT_SHM_PROCESS_VM",
        help: "whether RDMA on private memory may use the kernel's process_vm calls",
        purpose: Purpose::Figures,
        show: |c| knob::show_switch(c.shm.process_vm),
        set: |c, text| {
            c.shm.process_vm = switch(text)?;
            Ok(())
        },
    },
    Knob {
        name: "shm.fences",
        env: "VIADUCT_SHM_FENCES",
        help: "whether the sender or the sleeper pays for the fence between them: auto, sender, sleeper",
        purpose: Purpose::Figures,
        show: |c| match c.shm.fences {
            Fences::Auto => "auto".into(),
            Fences::Sleeper => "sleeper".into(),
            Fences::Sender => "sender".into(),
        },
        set: |c, text| {
            c.shm.fences = match text {
                "auto" => Fences::Auto,
                "sleeper" => Fences::Sleeper,
                "sender" => Fences::Sender,
                _ => return Err("auto, sender or sleeper".into()),
            };
            Ok(())
        },
    },
    Knob {
        name: "shm.memory-budget",
        env: "VIADUCT_SHM_MEMORY_BUDGET",
        help: "bytes of shared memory a NIC may make (suffix K, M or G)",
        purpose: Purpose::Use,
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
        purpose: Purpose::Use,
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
        purpose: Purpose::Use,
        show: |c| knob::show_time(c.shm.longest_sleep.unwrap_or_default()),
        set: |c, text| {
            let time = knob::time(text, "ms")?;
            c.shm.longest_sleep = Some(time).filter(|time| !time.is_zero());
            Ok(())
        },
    },
    Knob {
        name: "shm.other-users",
        env: "VIADUCT_SHM_OTHER_USERS",
        help: "users besides our own to connect with, by copying, if both have the job's token: off, all, or a list",
        purpose: Purpose::Use,
        show: |c| c.shm.other_users.to_string(),
        set: |c, text| {
            c.shm.other_users = text.parse()?;
            Ok(())
        },
    },
    Knob {
        name: "ofi.library",
        env: "VIADUCT_OFI_LIBRARY",
        help: "file of libfabric, version 1.17 or newer",
        purpose: Purpose::Use,
        show: |c| c.ofi.library.clone(),
        set: |c, text| {
            c.ofi.library = filled(text, "a file")?;
            Ok(())
        },
    },
    Knob {
        name: "ofi.token",
        env: "VIADUCT_TOKEN",
        help: "token of the job, 64 hexadecimal digits; never shown",
        purpose: Purpose::Secret,
        show: |c| if c.ofi.token.is_some() { "given" } else { "automatic" }.into(),
        set: |c, text| {
            c.ofi.token = Some(text.parse().map_err(|e: viaduct_job::Error| e.to_string())?);
            Ok(())
        },
    },
    Knob {
        name: "ofi.token-file",
        env: "VIADUCT_TOKEN_FILE",
        help: "file (mode 0600) with the token of the job; without one, connections stay on this host",
        purpose: Purpose::Use,
        show: |c| c.ofi.token_file.as_ref().map_or("automatic".into(), |p| p.display().to_string()),
        set: |c, text| {
            c.ofi.token_file = Some(filled(text, "a file")?.into());
            Ok(())
        },
    },
    Knob {
        name: "ofi.host",
        env: "VIADUCT_HOST",
        help: "name that stands for the identity of this host (boot and network namespace)",
        purpose: Purpose::Use,
        show: |c| c.ofi.host.clone().unwrap_or("automatic".into()),
        set: |c, text| {
            c.ofi.host = Some(filled(text, "a name")?);
            Ok(())
        },
    },
    Knob {
        name: "ofi.bind",
        env: "VIADUCT_OFI_BIND",
        help: "address to listen on, where a name has none",
        purpose: Purpose::Use,
        show: |c| c.ofi.bind.map_or("automatic".into(), |ip| ip.to_string()),
        set: |c, text| {
            c.ofi.bind = Some(text.parse().map_err(|_| "an address such as 10.0.0.7 or ::")?);
            Ok(())
        },
    },
    Knob {
        name: "ofi.heartbeat-ms",
        env: "VIADUCT_OFI_HEARTBEAT_MS",
        help: "time between signs of life on a connection that says nothing else",
        purpose: Purpose::Use,
        show: |c| knob::show_time(c.ofi.heartbeat),
        set: |c, text| {
            c.ofi.heartbeat = at_least_a_moment(text)?;
            Ok(())
        },
    },
    Knob {
        name: "ofi.silence-ms",
        env: "VIADUCT_OFI_SILENCE_MS",
        help: "silence after which a connection is taken for lost; three times the heartbeat or more",
        purpose: Purpose::Use,
        show: |c| knob::show_time(c.ofi.silence),
        set: |c, text| {
            c.ofi.silence = at_least_a_moment(text)?;
            Ok(())
        },
    },
    Knob {
        name: "ofi.frame",
        env: "VIADUCT_OFI_FRAME",
        help: "bytes of a frame; longer messages are cut into pieces",
        purpose: Purpose::Use,
        show: |c| c.ofi.frame.to_string(),
        set: |c, text| {
            let n = bytes(text)? as usize;
            if !(2048..=1 << 20).contains(&n) || !n.is_multiple_of(64) {
                return Err("a multiple of 64 from 2K to 1M".into());
            }
            c.ofi.frame = n;
            Ok(())
        },
    },
    Knob {
        name: "ofi.window",
        env: "VIADUCT_OFI_WINDOW",
        help: "frames that a connection has room for, for messages and again for RDMA",
        purpose: Purpose::Use,
        show: |c| c.ofi.window.to_string(),
        set: |c, text| {
            c.ofi.window = number_in(text, 2..=1024)?;
            Ok(())
        },
    },
];

fn at_least_a_moment(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(10)..=Duration::from_secs(3600);
    let says = "from 10ms to 1h; a number alone is in milliseconds";
    knob::time(text, "ms").ok().filter(|time| allowed.contains(time)).ok_or_else(|| says.to_owned())
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
        let slots = KNOBS.iter().find(|knob| knob.name == "shm.ring-slots").unwrap();
        assert!((slots.set)(&mut Config::default(), "48").is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system for its users")]
    fn users_are_named_or_numbered() {
        let users: OtherUsers = "root, 1234".parse().unwrap();
        assert_eq!(users, OtherUsers::These(vec![0, 1234]));
        assert!(users.has(1234) && !users.has(1) && !OtherUsers::default().has(1));
        assert!("no-such-user-here".parse::<OtherUsers>().is_err());
    }
}
