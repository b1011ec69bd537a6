//! Which host parts of addresses mean this host, as far as that is known without asking a name server, which may take its time.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use viaduct_via::{Error, NetAddress};

/// Whether a host, without a port, is this one.
pub(crate) fn is_this_host(name: &str) -> bool {
    match name.parse::<IpAddr>() {
        // Only an address of this network namespace can be bound to.
        Ok(ip) => !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok(),
        Err(_) => {
            let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            name == "localhost" || (!own.trim().is_empty() && name == own.trim())
        }
    }
}

/// Refuses an address at which a provider of one host cannot listen: that of another host, or a port of the network.
pub(crate) fn check_listens_here(address: &NetAddress) -> Result<(), Error> {
    let host = String::from_utf8_lossy(address.host());
    if host.is_empty() || is_this_host(&host) {
        return Ok(());
    }
    Err(Error::NotReachable(format!(
        "{address} is not of this host, and a listener is; leave out {host}/, or take a provider of the network"
    )))
}
