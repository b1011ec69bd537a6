//! Names of hosts: those that the environment lists, made-up ones among them, and those that the name server knows.
//!
//! An address of a host has six bytes, as real programs expect: an IPv4 address and a number. Number 0 is the host
//! itself; the others are nodes that one machine plays. A name listed without an address is such a node on this machine;
//! its number is its position in the list, so all processes have to have the same list.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::sync::{Mutex, OnceLock};

/// Bytes of a host's address.
pub(crate) const HOST_LEN: usize = 6;

/// A host, or a node that it plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeAddress {
    pub(crate) ip: Ipv4Addr,
    pub(crate) node: u16,
}

impl NodeAddress {
    pub(crate) fn from_bytes(bytes: [u8; HOST_LEN]) -> NodeAddress {
        let [a, b, c, d, high, low] = bytes;
        NodeAddress { ip: Ipv4Addr::new(a, b, c, d), node: u16::from_be_bytes([high, low]) }
    }

    pub(crate) fn to_bytes(self) -> [u8; HOST_LEN] {
        let ([a, b, c, d], [high, low]) = (self.ip.octets(), self.node.to_be_bytes());
        [a, b, c, d, high, low]
    }

    /// Whether it is on this machine.
    pub(crate) fn is_here(self) -> bool {
        static KNOWN: OnceLock<Mutex<HashMap<Ipv4Addr, bool>>> = OnceLock::new();
        if self.ip.is_loopback() || self.ip.is_unspecified() {
            return true;
        }
        let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
        // Only an address of this network namespace can be bound to.
        *known.entry(self.ip).or_insert_with(|| UdpSocket::bind((self.ip, 0)).is_ok())
    }
}

/// The hosts that were listed, and which of them this process is on.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    listed: Vec<(String, NodeAddress)>,
    own: Option<usize>,
}

impl Nodes {
    /// `a, b, far=10.0.0.7, far2=10.0.0.7/2`.
    pub(crate) fn add_list(&mut self, text: &str) -> Result<(), String> {
        text.split([',', ' '])
            .filter(|entry| !entry.is_empty())
            .try_for_each(|entry| self.add(entry, &['=', '/']))
    }

    /// Lines `name [address [number]]`; `#` begins a comment.
    pub(crate) fn add_file(&mut self, text: &str) -> Result<(), String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        lines.filter(|line| !line.is_empty()).try_for_each(|line| self.add(line, &[' ', '\t']))
    }

    fn add(&mut self, entry: &str, between: &[char]) -> Result<(), String> {
        let mut words = entry.split(between).filter(|word| !word.is_empty());
        let bad = || format!("{entry}: a name, perhaps with an IPv4 address and a number");
        let name = words.next().ok_or_else(bad)?;
        let position = u16::try_from(self.listed.len() + 1).map_err(|_| "too many hosts".to_owned())?;
        let address = match (words.next(), words.next(), words.next()) {
            (None, ..) => NodeAddress { ip: Ipv4Addr::LOCALHOST, node: position },
            (Some(ip), number, None) => NodeAddress {
                ip: ip.parse().map_err(|_| bad())?,
                node: number.map_or(Ok(0), str::parse).map_err(|_| bad())?,
            },
            _ => return Err(bad()),
        };
        self.listed.push((name.to_owned(), address));
        Ok(())
    }

    pub(crate) fn set_own(&mut self, name: &str) -> Result<(), String> {
        let at = self.listed.iter().position(|(known, _)| known == name);
        self.own = Some(at.ok_or("no such host is listed")?);
        Ok(())
    }

    /// Where this process is. `network`: as others see it.
    pub(crate) fn own(&self, network: bool) -> NodeAddress {
        if let Some(own) = self.own {
            return self.listed[own].1;
        }
        let ip = if network { outward_ip().unwrap_or(Ipv4Addr::LOCALHOST) } else { Ipv4Addr::LOCALHOST };
        NodeAddress { ip, node: 0 }
    }

    /// The `index`th address of a name.
    pub(crate) fn resolve(&self, name: &str, index: usize) -> Option<NodeAddress> {
        let short = name.split('.').next().unwrap_or(name);
        let is_it = |known: &str| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(short);
        let mut listed =
            self.listed.iter().filter(|(known, _)| is_it(known)).map(|(_, address)| *address).peekable();
        if listed.peek().is_some() {
            return listed.nth(index);
        }
        if let Some(own) = self.own
            && is_it(&host_name())
        {
            // The program asks for the machine, and means the node that it is on.
            return (index == 0).then(|| self.listed[own].1);
        }
        let found = (name, 0).to_socket_addrs().ok()?;
        let mut ips: Vec<Ipv4Addr> = Vec::new();
        for address in found {
            if let IpAddr::V4(ip) = address.ip()
                && !ips.contains(&ip)
            {
                ips.push(ip);
            }
        }
        ips.get(index).map(|ip| NodeAddress { ip: *ip, node: 0 })
    }

    /// The name of an address.
    pub(crate) fn name_of(&self, address: NodeAddress) -> Option<String> {
        if let Some((name, _)) = self.listed.iter().find(|(_, known)| *known == address) {
            return Some(name.clone());
        }
        if address.node != 0 {
            return None;
        }
        if address.is_here() {
            return Some(host_name()).filter(|name| !name.is_empty());
        }
        reverse(address.ip)
    }

    /// The addresses of all nodes that were listed.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = NodeAddress> {
        self.listed.iter().map(|(_, address)| *address)
    }
}

/// The address by which this machine speaks to others: that of its default route. Nothing is sent.
fn outward_ip() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address that no host has (TEST-NET-1).
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
        _ => None,
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Asks the name server.
fn reverse(ip: Ipv4Addr) -> Option<String> {
    // SAFETY: an all-zero sockaddr_in is valid.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
    let mut name = [0u8; 1025];
    // SAFETY: address and name are valid for the lengths given.
    let failed = unsafe {
        libc::getnameinfo(
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if failed != 0 {
        return None;
    }
    CStr::from_bytes_until_nul(&name).ok().map(CString::from).and_then(|name| name.into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_files_say_the_same() {
        let (mut list, mut file) = (Nodes::default(), Nodes::default());
        list.add_list("a, b far=10.0.0.7,far2=10.0.0.7/2").unwrap();
        file.add_file("# ours\na\nb # two\n\nfar 10.0.0.7\nfar2\t10.0.0.7 2\n").unwrap();
        assert_eq!(list.listed, file.listed);
        let here = |node| Some(NodeAddress { ip: Ipv4Addr::LOCALHOST, node });
        assert_eq!(list.resolve("a", 0), here(1));
        assert_eq!(list.resolve("B.example.org", 0), here(2));
        assert_eq!(list.resolve("a", 1), None);
        let far = NodeAddress { ip: Ipv4Addr::new(10, 0, 0, 7), node: 2 };
        assert_eq!((list.resolve("far2", 0), list.name_of(far)), (Some(far), Some("far2".to_owned())));
        assert_eq!(NodeAddress::from_bytes(far.to_bytes()), far);
        assert_eq!(list.own(false), NodeAddress { ip: Ipv4Addr::LOCALHOST, node: 0 });
        list.set_own("b").unwrap();
        assert_eq!(Some(list.own(true)), here(2));
        assert_eq!(list.resolve(&host_name(), 0), here(2), "the machine is the node we are on");
        assert!(list.set_own("c").is_err());
        for bad in ["a=b", "a=10.0.0.7/x", "a=1.2.3.4/5/6", "="] {
            assert!(Nodes::default().add_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machine_has_its_addresses() {
        let localhost = Nodes::default().resolve("localhost", 0).unwrap();
        assert!(localhost.is_here());
        assert!(!NodeAddress { ip: Ipv4Addr::new(203, 0, 113, 9), node: 0 }.is_here());
        assert_eq!(Nodes::default().name_of(localhost), Some(host_name()));
        assert_eq!(Nodes::default().resolve("no-such-host.invalid", 0), None);
    }
}
