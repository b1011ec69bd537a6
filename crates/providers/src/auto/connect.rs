//! Which way an address goes: through shared memory, or over the network.
//!
//! A host is one boot and one network namespace, so an address of this namespace is on this host. Where VIADUCT_HOST
//! names the host, that name alone is this host, and its shared memory is kept apart: one machine can play several.

use viaduct_via::{Error, NetAddress};

use crate::here::is_this_host;
use crate::ofi::HostPart;

/// Where the peer of an address is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Whereabouts {
    /// On this host, under this name.
    Here(NetAddress),
    /// Elsewhere, or at a port that the address names.
    There,
}

/// Finds out where an address is. `host` is what this host is called, if anything.
pub(super) fn whereabouts(address: &NetAddress, host: Option<&str>) -> Result<Whereabouts, Error> {
    let here = match HostPart::of(address)? {
        HostPart::Here => true,
        HostPart::There { port: Some(_), .. } => false,
        HostPart::There { host: named, port: None } => match host {
            Some(host) => named == host,
            None => is_this_host(&named),
        },
    };
    if here { Ok(Whereabouts::Here(bare(address)?)) } else { Ok(Whereabouts::There) }
}

/// A name without its host, as shared memory knows it.
pub(super) fn bare(address: &NetAddress) -> Result<NetAddress, Error> {
    NetAddress::new(b"", address.discriminator())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn is_here(text: &str, host: Option<&str>) -> bool {
        match whereabouts(&text.parse().unwrap(), host).unwrap() {
            Whereabouts::Here(name) => {
                assert!(name.host().is_empty());
                true
            }
            Whereabouts::There => false,
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn this_host_has_several_names() {
        for text in ["echo", "localhost/echo", "127.0.0.1/echo", "127.0.0.2/echo"] {
            assert!(is_here(text, None), "{text}");
        }
        // 203.0.113.0/24 is for documents; a port means that it is wanted over the network.
        for text in ["203.0.113.7/echo", "no-such-host.invalid/echo", "127.0.0.1:4711/echo", "0.0.0.0/echo"] {
            assert!(!is_here(text, None), "{text}");
        }
    }

    #[test]
    fn a_host_that_was_named_is_that_name_alone() {
        assert!(is_here("echo", Some("a")) && is_here("a/echo", Some("a")));
        for text in ["b/echo", "127.0.0.1/echo", "localhost/echo", "a:4711/echo"] {
            assert!(!is_here(text, Some("a")), "{text}");
        }
    }
}
