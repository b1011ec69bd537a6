//! Hosts out of network namespaces: each has a network of its own, joined by a bridge; links can be cut and mended.
//!
//! Needs root and the program `ip`; without them a test is skipped by name. The process of the test is a host too: it has
//! an address on the bridge. Everything goes when [`Hosts`] is dropped, and a namespace that is left behind by a killed
//! test holds nothing but its name.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::packages::{need_program, need_root, skip};

/// Several hosts on one network.
#[derive(Debug)]
pub struct Hosts {
    /// Start of every name.
    stem: String,
    network: u8,
    count: u8,
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
        let network = (pid.wrapping_mul(31).wrapping_add(number * 7) % 254) as u8;
        let hosts = Hosts { stem, network, count };
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

    /// An address of the network that nobody has.
    pub fn nobodys_address(&self) -> Ipv4Addr {
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

    /// Cuts the link of a host: nothing goes or comes, and nobody is told.
    pub fn cut(&self, host: u8) {
        self.must(&["link", "set", &self.port(host), "down"]);
    }

    /// Mends it.
    pub fn mend(&self, host: u8) {
        self.must(&["link", "set", &self.port(host), "up"]);
    }

    fn make(&self) -> Result<(), String> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", self.own_address()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for host in 0..self.count {
            let (space, port) = (format!("{}{host}", self.stem), self.port(host));
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

    fn port(&self, host: u8) -> String {
        format!("{}p{host}", self.stem)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // What was not made cannot be removed, and nobody is helped by hearing of it.
        for host in 0..self.count {
            let _ = ip(&["link", "del", &self.port(host)]);
            let _ = ip(&["netns", "del", &format!("{}{host}", self.stem)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
