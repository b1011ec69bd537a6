//! Which host a process is on: two processes with the same identity can reach each other through shared memory.
//!
//! A host is one boot of one machine and one network namespace: containers with a network of their own, and the hosts
//! that tests make out of namespaces, are hosts of their own. VIADUCT_HOST overrides it, for containers that share
//! memory, or for trying out the network on one machine.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;

/// Bytes of an identity.
pub const LEN: usize = 16;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const NETWORK: &str = "/proc/self/ns/net";

/// The identity of a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub [u8; LEN]);

impl HostId {
    /// That of the host this process is on. `name`, if given, stands for it instead.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn of_this(name: Option<&str>) -> Result<HostId, Error> {
        if let Some(name) = name {
            return Ok(HostId::named(name));
        }
        let boot = fs::read_to_string(BOOT).map_err(|why| Error::NoHost { path: BOOT, why })?;
        let network = fs::metadata(NETWORK).map_err(|why| Error::NoHost { path: NETWORK, why })?;
        Ok(HostId::from_parts(boot.trim(), network.dev(), network.ino()))
    }

    /// That of a host with this name.
    pub fn named(name: &str) -> HostId {
        HostId::digest(&[b"name", name.as_bytes()])
    }

    fn from_parts(boot: &str, device: u64, inode: u64) -> HostId {
        HostId::digest(&[b"boot", boot.as_bytes(), &device.to_le_bytes(), &inode.to_le_bytes()])
    }

    /// The length goes before each part, so that no two lists of parts look the same.
    fn digest(parts: &[&[u8]]) -> HostId {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let bytes: [u8; 32] = hash.finalize().into();
        HostId(bytes[..LEN].try_into().expect("16 of 32 bytes"))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_the_same_each_time_unless_it_is_named() {
        let this = HostId::of_this(None).unwrap();
        assert_eq!(HostId::of_this(None).unwrap(), this);
        assert_ne!(HostId::of_this(Some("a")).unwrap(), this);
        assert_eq!(HostId::of_this(Some("a")).unwrap(), HostId::named("a"));
        assert_ne!(HostId::named("a"), HostId::named("b"));
    }

    #[test]
    fn another_boot_or_another_network_is_another_host() {
        let host = HostId::from_parts("0b1e", 4, 4_026_531_840);
        assert_eq!(HostId::from_parts("0b1e", 4, 4_026_531_840), host);
        for other in [("0b1f", 4, 4_026_531_840), ("0b1e", 5, 4_026_531_840), ("0b1e", 4, 4_026_531_841)] {
            assert_ne!(HostId::from_parts(other.0, other.1, other.2), host, "{other:?}");
        }
        assert_ne!(HostId::named("boot"), HostId::from_parts("", 0, 0));
    }
}
