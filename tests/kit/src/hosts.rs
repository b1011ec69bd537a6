//! Hosts out of network namespaces: each has a network of its own, joined by a bridge; links can be cut and mended, and
//! made to lose or double packets or to be slow.
//!
//! Needs root and the program `ip`, for bad links `nft`; without them a test is skipped by name. The process of the test is a host too: it has
//! an address on the bridge. Everything goes when [`Hosts`] is dropped, and a namespace that is left behind by a killed
//! test holds nothing but its name.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::packages::{need_program, need_root, skip};

/// What is wrong with a link.
#[derive(Clone, Copy, Debug)]
pub enum Bad {
    /// So many packets of a hundred are lost.
    Loses {
        /// How many.
        percent: u8,
    },
    /// So many packets of a hundred come twice.
    Doubles {
        /// How many.
        percent: u8,
    },
    /// What is more than so many kilobytes a second is lost.
    Slow {
        /// How many.
        kbytes: u32,
    },
}

/// Several hosts on one network.
#[derive(Debug)]
pub struct Hosts {
    /// Start of every name.
    stem: String,
    network: u8,
    count: u8,
    /// No other process has this network as long as this is open.
    _claim: UnixListener,
}

impl Hosts {
    /// Makes `count` hosts. `None`, and the test logged as skipped, where that is not possible.
    ///
    /// # Panics
    ///
    /// If there are more than 200.
    pub fn new(count: u8) -> Option<Hosts> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        assert!(count <= 200, "as many as a network has room for");
        if !need_root() || need_program("ip", "iproute2").is_none() {
            return None;
        }
        let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // Names of links have 15 characters at most; networks of tests that run side by side must differ.
        let stem = format!("v{:x}{:x}", pid % 0xff_ffff, number % 16);
        let first = pid.wrapping_mul(31).wrapping_add(number * 7);
        let claimed =
            (0..254).map(|n| (first.wrapping_add(n) % 254) as u8).find_map(|n| Some((n, claim(n)?)));
        let Some((network, claim)) = claimed else {
            skip("all networks for tests are taken");
            return None;
        };
        let hosts = Hosts { stem, network, count, _claim: claim };
        match hosts.make() {
            Ok(()) => Some(hosts),
            Err(why) => {
                skip(&format!("network namespaces cannot be made here: {why}"));
                None
            }
        }
    }

    /// The address of a host, counted from 0.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.network, host + 2)
    }

    /// The address of the process of the test.
    pub fn own_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.network, 1)
    }

    /// An address of the network that no host has.
    pub fn unused_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.network, 250)
    }

    /// Has a command run on a host.
    ///
    /// # Panics
    ///
    /// If the namespace is gone.
    pub fn enter(&self, host: u8, command: &mut Command) {
        let space = File::open(format!("/run/netns/{}{host}", self.stem)).expect("made by us");
        let enter = move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), Some(LinkNameSpaceType::Network))
                .map_err(io::Error::from)
        };
        // SAFETY: the closure makes one system call and allocates nothing, which is allowed between fork and exec.
        unsafe { command.pre_exec(enter) };
    }

    /// Cuts the link of a host: nothing goes or comes, and no process is told.
    pub fn cut(&self, host: u8) {
        self.must(&["link", "set", &self.port(host), "down"]);
    }

    /// Mends it.
    pub fn mend(&self, host: u8) {
        self.must(&["link", "set", &self.port(host), "up"]);
    }

    /// Makes the link of a host a bad one, in both directions; `false`, and the test logged as skipped, where the kernel
    /// or `nft` cannot do it.
    pub fn spoil(&self, host: u8, how: Bad) -> bool {
        if need_program("nft", "nftables").is_none() {
            return false;
        }
        let rule = match how {
            Bad::Loses { percent } => format!("numgen random mod 100 < {percent} counter drop"),
            Bad::Doubles { percent } => format!("numgen random mod 100 < {percent} counter dup to \"DEV\""),
            Bad::Slow { kbytes } => {
                // What a second may carry is let through at once.
                format!("limit rate over {kbytes} kbytes/second burst 8 kbytes counter drop")
            }
        };
        // What leaves the host, and what comes to it: that leaves the other end of its link.
        let (eth, port) = ("eth0".to_owned(), self.port(host));
        for (space, device) in [(Some(self.space(host)), eth), (None, port)] {
            let rule = rule.replace("DEV", &device);
            let table = format!(
                "table netdev {}{host} {{\n chain out {{\n  type filter hook egress device \"{device}\" \
                 priority 0\n  {rule}\n }}\n}}\n",
                self.stem
            );
            if let Err(why) = nft(space.as_deref(), &["-f", "-"], &table) {
                skip(&format!("links cannot be spoilt here: {why}"));
                return false;
            }
        }
        true
    }

    /// Packets that were lost or doubled on the link of a host since it was spoilt.
    ///
    /// # Panics
    ///
    /// If it was not.
    pub fn spoilt_packets(&self, host: u8) -> u64 {
        let table = format!("{}{host}", self.stem);
        let count = |space: Option<&str>| -> u64 {
            let text = nft(space, &["list", "table", "netdev", &table], "").expect("it was spoilt");
            let mut words = text.split_whitespace().skip_while(|word| *word != "packets").skip(1);
            words.next().and_then(|word| word.parse().ok()).expect("a rule that counts")
        };
        count(Some(&self.space(host))) + count(None)
    }

    /// Makes the link of a host a good one again.
    pub fn unspoil(&self, host: u8) {
        let table = format!("{}{host}", self.stem);
        for space in [Some(self.space(host)), None] {
            // One that was never spoilt is as good.
            let _ = nft(space.as_deref(), &["delete", "table", "netdev", &table], "");
        }
    }

    fn make(&self) -> Result<(), String> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", self.own_address()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for host in 0..self.count {
            let (space, port) = (self.space(host), self.port(host));
            ip(&["netns", "add", &space])?;
            ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            ip(&["link", "set", &port, "master", &bridge, "up"])?;
            let address = format!("{}/24", self.address(host));
            ip(&["-n", &space, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn must(&self, args: &[&str]) {
        ip(args).unwrap_or_else(|why| panic!("{why}"));
    }

    fn bridge(&self) -> String {
        format!("{}b", self.stem)
    }

    fn space(&self, host: u8) -> String {
        format!("{}{host}", self.stem)
    }

    fn port(&self, host: u8) -> String {
        format!("{}p{host}", self.stem)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // What was not made cannot be removed, and hearing of it helps no reader.
        for host in 0..self.count {
            let _ = nft(None, &["delete", "table", "netdev", &format!("{}{host}", self.stem)], "");
            let _ = ip(&["link", "del", &self.port(host)]);
            let _ = ip(&["netns", "del", &self.space(host)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

/// Runs `nft` in a namespace, or in the own one, with something to read.
/// A network for tests that run side by side; a name in the kernel goes with the process that has it.
fn claim(network: u8) -> Option<UnixListener> {
    let name = format!("viaduct-kit-network-{network}");
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

fn nft(space: Option<&str>, args: &[&str], input: &str) -> Result<String, String> {
    let mut command = match space {
        Some(space) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", space, "nft"]);
            command
        }
        None => Command::new("nft"),
    };
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("nft: {e}"))?;
    let written = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(|e| format!("nft: {e}"))?;
    if output.status.success() && written.is_ok() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("nft {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
