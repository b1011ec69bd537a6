//! Where an address is: from a name a person can type to a port of a host.
//!
//! ```text
//!   echo                 on this host: where it listens is in a file of the run-time folder
//!   node3/echo           the job decides: one of a few ports, tried in turn
//!   node3:4711/echo      this port and no other
//! ```
//!
//! A listener holds a lock on its file as long as it lives, so that an address is used once on a host and the file of a
//! dead process is known for what it is. A NIC has one port for all its names: the first free one of those that the job
//! gives, or any. A client from elsewhere knocks at the same ones, and the NIC of the job that is there reads the file
//! and sends it on.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_job::{HostId, Token};
use viaduct_os::error::OsError;
use viaduct_os::fork::{self, Registration};
use viaduct_via::{Error, NetAddress};

/// Ports below those that the kernel hands out by itself.
const FIRST_PORT: u64 = 20_000;
const PORTS: u64 = 12_000;
/// How often a name that is locked is looked at again.
const LOOKS: u32 = 5;
/// Ports at which a job is looked for.
const TRIES: u64 = 8;

/// A host part, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HostPart {
    /// This host.
    Here,
    /// A host, by name or number, with a port if the address has one.
    There { host: String, port: Option<u16> },
}

impl HostPart {
    pub(crate) fn of(address: &NetAddress) -> Result<HostPart, Error> {
        if address.host().is_empty() {
            return Ok(HostPart::Here);
        }
        let bad =
            Error::InvalidParameter("a host is a name or a number, with a port behind a colon: node3:4711");
        let Ok(text) = std::str::from_utf8(address.host()) else { return Err(bad) };
        // Numbers of IPv6 have colons of their own, and stand in brackets if a port follows.
        if let Some(rest) = text.strip_prefix('[') {
            let Some((host, after)) = rest.split_once(']') else { return Err(bad) };
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port.parse().map_err(|_| bad)?),
                None if after.is_empty() => None,
                None => return Err(bad),
            };
            return Ok(HostPart::There { host: host.into(), port });
        }
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => Ok(HostPart::There { host: text.into(), port: None }),
            Some(("", _)) => Err(bad),
            Some((host, port)) => {
                Ok(HostPart::There { host: host.into(), port: Some(port.parse().map_err(|_| bad)?) })
            }
            None => Ok(HostPart::There { host: text.into(), port: None }),
        }
    }
}

/// Finds and claims names.
#[derive(Clone)]
pub(crate) struct Names {
    folder: PathBuf,
    job: u64,
    host: HostId,
}

/// A name that is ours on this host until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    /// A forked child does not have it: the name is free when this process ends. Before the file, which goes after it.
    _fork: Registration,
    file: File,
}

impl Names {
    pub(crate) fn new(folder: PathBuf, token: &Token, host: HostId) -> Names {
        Names { folder, job: token.name(), host }
    }

    /// Takes a name, unless another process on this host has it.
    pub(crate) fn claim(&self, address: &NetAddress) -> Result<Claim, Error> {
        let path = self.path(address);
        let mut tries = 0;
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(|e| OsError::sys("open", e))?;
            match file.try_lock() {
                Ok(()) => {}
                // Another process may just be finding out whether a dead one left it.
                Err(TryLockError::WouldBlock) if tries < LOOKS => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(Error::AddressInUse(address.to_string())),
                Err(TryLockError::Error(e)) => return Err(OsError::sys("flock", e).into()),
            }
            // Its last owner may have removed the file between our opening and our locking it.
            if is_at(&file, &path) {
                file.set_len(0).map_err(|e| OsError::sys("ftruncate", e))?;
                return Ok(Claim { path, _fork: fork::close_in_child(file.as_raw_fd()), file });
            }
        }
    }

    /// Removes the files that dead processes left behind; the next NIC of the user tidies up.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("ofi-") {
                continue;
            }
            // A process that claims a name at this very moment tries again.
            let path = entry.path();
            if let Ok(file) = File::open(&path)
                && file.try_lock().is_ok()
                && is_at(&file, &path)
            {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Where a name of this host is, if a process has it.
    pub(crate) fn find(&self, address: &NetAddress) -> Option<SocketAddr> {
        let path = self.path(address);
        let mut file = File::open(&path).ok()?;
        let mut text = String::new();
        (&mut file).take(64).read_to_string(&mut text).ok()?;
        // Without an address it is being claimed, and must be left alone.
        let place: SocketAddr = text.trim().parse().ok()?;
        if file.try_lock_shared().is_ok() {
            // It is not held: a dead process left it behind.
            if is_at(&file, &path) {
                let _ = fs::remove_file(&path);
            }
            return None;
        }
        Some(place)
    }

    /// The ports of this job where an address has none.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        let seed = digest(self.job, b"ports");
        (0..TRIES).map(move |n| (FIRST_PORT + mix(seed.wrapping_add(n)) % PORTS) as u16)
    }

    /// Where to knock, in turn. May ask a name server, so not to be called under a lock.
    pub(crate) fn places(&self, address: &NetAddress) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = match HostPart::of(address)? {
            HostPart::Here => {
                let place = self.find(address).ok_or_else(|| Error::NoMatch(address.to_string()))?;
                return Ok(vec![place]);
            }
            HostPart::There { host, port } => (host, port),
        };
        let ips: Vec<IpAddr> = match host.parse() {
            Ok(ip) => vec![ip],
            Err(_) => {
                let unknown = |e: std::io::Error| Error::NotReachable(format!("{host}: {e}"));
                (host.as_str(), 0).to_socket_addrs().map_err(unknown)?.map(|a| a.ip()).take(2).collect()
            }
        };
        let ports: Vec<u16> = match port {
            Some(port) => vec![port],
            None => self.ports().collect(),
        };
        Ok(ips.iter().flat_map(|ip| ports.iter().map(|port| SocketAddr::new(*ip, *port))).collect())
    }

    fn path(&self, address: &NetAddress) -> PathBuf {
        let host = u64::from_le_bytes(self.host.0[..8].try_into().expect("eight of 16 bytes"));
        let name = digest(self.job ^ host, address.discriminator());
        self.folder.join(format!("ofi-{name:016x}"))
    }
}

/// An address of our own to listen at: its host as a number, and its port, where it has them. May ask a name server, so
/// not to be called under a lock.
pub(crate) fn own(address: &NetAddress) -> Result<(Option<IpAddr>, Option<u16>), Error> {
    let HostPart::There { host, port } = HostPart::of(address)? else { return Ok((None, None)) };
    let ip = match host.parse() {
        Ok(ip) => ip,
        Err(_) => {
            let unknown = |e: std::io::Error| Error::NotReachable(format!("{host}: {e}"));
            let mut found = (host.as_str(), 0).to_socket_addrs().map_err(unknown)?.map(|a| a.ip());
            found.next().unwrap_or(Ipv4Addr::UNSPECIFIED.into())
        }
    };
    Ok((Some(ip), port))
}

/// Whether an address can be used without asking a name server.
pub(crate) fn is_plain(address: &NetAddress) -> bool {
    match HostPart::of(address) {
        Ok(HostPart::There { host, .. }) => host.parse::<IpAddr>().is_ok(),
        Ok(HostPart::Here) | Err(_) => true,
    }
}

impl Claim {
    /// Tells others on this host where it is.
    pub(crate) fn announce(&mut self, ip: IpAddr, port: u16) -> Result<(), Error> {
        // A NIC that listens everywhere is found at the loopback interface, too.
        let ip = match ip {
            IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let mut write = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(format!("{}\n", SocketAddr::new(ip, port)).as_bytes())
        };
        write().map_err(|e| OsError::sys("write", e).into())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before the lock goes with the file, so that no process takes the name and loses its file to us.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Numbers that both ends compute: they must never change (FNV-1a, then the finish of SplitMix64).
fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step))
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    fn place(text: &str) -> Result<HostPart, Error> {
        HostPart::of(&text.parse().unwrap())
    }

    fn there(host: &str, port: Option<u16>) -> HostPart {
        HostPart::There { host: host.into(), port }
    }

    #[test]
    fn hosts_are_taken_apart() {
        assert_eq!(place("echo").unwrap(), HostPart::Here);
        assert_eq!(place("node3/echo").unwrap(), there("node3", None));
        assert_eq!(place("node3:4711/echo").unwrap(), there("node3", Some(4711)));
        assert_eq!(place("10.0.0.7:80/echo").unwrap(), there("10.0.0.7", Some(80)));
        assert_eq!(place("::1/echo").unwrap(), there("::1", None));
        assert_eq!(place("[fe80::1]:99/echo").unwrap(), there("fe80::1", Some(99)));
        assert_eq!(place("[::1]/echo").unwrap(), there("::1", None));
        for text in ["node:/x", "node:70000/x", ":80/x", "[::1/x", "[::1]80/x", "a:b/x"] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn both_ends_find_the_same_ports() {
        let token: Token = "5".repeat(64).parse().unwrap();
        let at = |token: &Token, host| Names::new(PathBuf::from("nowhere"), token, HostId::named(host));
        let ports: Vec<u16> = at(&token, "a").ports().collect();
        assert_eq!(ports, at(&token, "b").ports().collect::<Vec<_>>());
        assert_ne!(ports, at(&Token::random(), "a").ports().collect::<Vec<_>>());
        let places = at(&token, "a").places(&"10.0.0.7/echo".parse().unwrap()).unwrap();
        assert_eq!(places.iter().map(SocketAddr::port).collect::<Vec<_>>(), ports);
        let places = at(&token, "a").places(&"10.0.0.7:99/echo".parse().unwrap()).unwrap();
        assert_eq!(places, ["10.0.0.7:99".parse().unwrap()]);
        assert!(ports.iter().all(|p| (20_000..32_000).contains(p)));
        // They may never change: the other end may be another build.
        assert_eq!(ports[0], PINNED);
    }

    const PINNED: u16 = 22321;

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_name_is_taken_once_and_found_while_it_is_held() {
        let folder = TempDir::new("names");
        let token = Token::random();
        let names = Names::new(folder.path().to_owned(), &token, HostId::named("here"));
        let echo: NetAddress = "echo".parse().unwrap();
        assert_eq!(names.find(&echo), None);
        let mut claim = names.claim(&echo).unwrap();
        assert_eq!(names.find(&echo), None, "no port yet");
        for (ip, found) in
            [("10.0.0.7", "10.0.0.7:4711"), ("0.0.0.0", "127.0.0.1:4711"), ("::", "[::1]:4711")]
        {
            claim.file.set_len(0).unwrap();
            claim.announce(ip.parse().unwrap(), 4711).unwrap();
            assert_eq!(names.find(&echo), Some(found.parse().unwrap()));
        }
        assert!(matches!(names.claim(&echo), Err(Error::AddressInUse(_))));
        let elsewhere = Names::new(folder.path().to_owned(), &token, HostId::named("there"));
        assert_eq!(elsewhere.find(&echo), None, "another host, though it shares the folder");
        drop(elsewhere.claim(&echo).unwrap());
        drop(claim);
        assert_eq!(names.find(&echo), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn names_of_dead_processes_are_free() {
        let folder = TempDir::new("names");
        let names = Names::new(folder.path().to_owned(), &Token::random(), HostId::named("here"));
        let echo: NetAddress = "echo".parse().unwrap();
        fs::write(names.path(&echo), "127.0.0.1:4711\n").unwrap();
        assert_eq!(names.find(&echo), None);
        assert!(!names.path(&echo).exists(), "tidied up");
        fs::write(names.path(&echo), "127.0.0.1:4711\n").unwrap();
        drop(names.claim(&echo).unwrap());
        fs::write(names.path(&echo), "127.0.0.1:4711\n").unwrap();
        fs::write(folder.path().join("else"), "").unwrap();
        let held = names.claim(&"held".parse().unwrap()).unwrap();
        names.sweep();
        assert!(!names.path(&echo).exists() && held.path.exists() && folder.path().join("else").exists());
    }
}
