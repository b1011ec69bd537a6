//! The networks that this host is on: its addresses, each with the length of its prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of this host and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that all hosts of the network share.
    pub prefix: u8,
}

impl Network {
    /// Whether `other` is on this network.
    pub fn has(&self, other: IpAddr) -> bool {
        let same = |ours: &[u8], theirs: &[u8]| {
            let whole = usize::from(self.prefix / 8);
            let mask = !(0xFF_u8.checked_shr(u32::from(self.prefix % 8)).unwrap_or(0));
            ours[..whole] == theirs[..whole]
                && (whole == ours.len() || (ours[whole] ^ theirs[whole]) & mask == 0)
        };
        match (self.address, other) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => same(&ours.octets(), &theirs.octets()),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(&ours.octets(), &theirs.octets()),
            _ => false,
        }
    }
}

/// Addresses of the interfaces that are up, without those that reach only this host or only one link. None if the kernel does
/// not tell.
pub fn addresses() -> Vec<Network> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is a local that the call fills; what it gives is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list, which lives until it is freed below.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        let up = entry.ifa_flags & (libc::IFF_UP | libc::IFF_LOOPBACK) as u32 == libc::IFF_UP as u32;
        if !up {
            continue;
        }
        // SAFETY: both are null, or point to addresses of the family that they name, and live as long as the list.
        let (address, mask) = unsafe { (ip(entry.ifa_addr), ip(entry.ifa_netmask)) };
        if let (Some(address), Some(mask)) = (address, mask)
            && !is_of_a_link(address)
        {
            found.push(Network { address, prefix: ones(mask) });
        }
    }
    // SAFETY: the list of the call above, freed once; no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// The address at which a host on `networks` reaches a peer that has told `theirs`: one on a network of both, else the peer's first.
pub fn nearest(networks: &[Network], theirs: &[IpAddr]) -> Option<IpAddr> {
    let near = theirs.iter().find(|address| networks.iter().any(|network| network.has(**address)));
    near.or(theirs.first()).copied()
}

fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn ones(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(mask) => u32::from(mask).count_ones(),
        IpAddr::V6(mask) => u128::from(mask).count_ones(),
    };
    bits as u8
}

/// # Safety
/// `address` is null or points to an address as long as its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so an address by the caller's promise; the family stands first in each kind.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says which kind it is; read without a claim about alignment.
            let of_4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(of_4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let of_6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(of_6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_know_their_hosts() {
        let network = |text: &str, prefix| Network { address: text.parse().unwrap(), prefix };
        let is_on = |network: Network, text: &str| network.has(text.parse().unwrap());
        assert!(is_on(network("10.1.2.3", 24), "10.1.2.200") && !is_on(network("10.1.2.3", 24), "10.1.3.3"));
        assert!(is_on(network("10.1.2.3", 20), "10.1.15.1") && !is_on(network("10.1.2.3", 20), "10.1.16.1"));
        assert!(is_on(network("10.1.2.3", 32), "10.1.2.3") && !is_on(network("10.1.2.3", 32), "10.1.2.4"));
        assert!(is_on(network("10.1.2.3", 0), "1.1.1.1") && !is_on(network("10.1.2.3", 0), "::1"));
        assert!(is_on(network("fd00::1", 64), "fd00::2") && !is_on(network("fd00::1", 64), "fd01::2"));
        assert!(addresses().iter().all(|network| !network.address.is_loopback()));
    }

    #[test]
    fn a_peer_is_reached_on_a_common_network_first() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let networks = [Network { address: ip("10.0.0.1"), prefix: 24 }];
        assert_eq!(nearest(&networks, &[ip("192.168.1.2"), ip("10.0.0.7")]), Some(ip("10.0.0.7")));
        assert_eq!(nearest(&networks, &[ip("192.168.1.2")]), Some(ip("192.168.1.2")));
        assert_eq!(nearest(&networks, &[]), None);
    }
}
