//! Addresses of C (`sockaddr_in`, `sockaddr_in6`) and those of streams (`via://host:port`).
//!
//! The host is the address of the node in the network, as with TCP; the loopback and the unspecified address stand for this
//! host.

use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::code::err;

/// Reads an address.
///
/// # Safety
/// `address` points to `len` bytes, or is null.
pub unsafe fn read(address: *const sockaddr, len: socklen_t) -> io::Result<SocketAddr> {
    let family_ends = offset_of!(sockaddr, sa_data);
    if address.is_null() || (len as usize) < family_ends {
        return Err(err(libc::EINVAL));
    }
    // SAFETY: the family is within the bytes.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: so many bytes are there, wherever they lie.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: so many bytes are there, wherever they lie.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok((ip.to_canonical(), u16::from_be(v6.sin6_port)).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(err(libc::EINVAL)),
        _ => Err(err(libc::EAFNOSUPPORT)),
    }
}

/// Writes an address as far as there is room, and how long it is.
///
/// # Safety
/// `len` points to the room at `into`, or one of them is null.
pub unsafe fn write(address: SocketAddr, into: *mut sockaddr, len: *mut socklen_t) {
    if into.is_null() || len.is_null() {
        return;
    }
    // SAFETY: it points to a length.
    let room = unsafe { *len } as usize;
    let put = |bytes: *const u8, whole: usize| {
        // SAFETY: no more than there is room for, from a structure of that length.
        unsafe { std::ptr::copy_nonoverlapping(bytes, into.cast(), whole.min(room)) };
        // SAFETY: it points to a length.
        unsafe { *len = whole as socklen_t };
    };
    match address.ip() {
        IpAddr::V4(ip) => {
            // SAFETY: zeroes are valid for it.
            let mut v4: sockaddr_in = unsafe { std::mem::zeroed() };
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = address.port().to_be();
            v4.sin_addr.s_addr = u32::from(ip).to_be();
            put((&raw const v4).cast(), size_of::<sockaddr_in>());
        }
        IpAddr::V6(ip) => {
            // SAFETY: zeroes are valid for it.
            let mut v6: sockaddr_in6 = unsafe { std::mem::zeroed() };
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = address.port().to_be();
            v6.sin6_addr.s6_addr = ip.octets();
            put((&raw const v6).cast(), size_of::<sockaddr_in6>());
        }
    }
}

/// As streams write it.
pub fn to_via(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    if ip.is_loopback() || ip.is_unspecified() {
        return format!("via://:{port}");
    }
    match ip {
        IpAddr::V4(ip) => format!("via://{ip}:{port}"),
        IpAddr::V6(ip) => format!("via://[{ip}]:{port}"),
    }
}

/// As C programs see it: what has no such form is some port of this host.
pub fn from_via(text: &str) -> SocketAddr {
    let rest = text.strip_prefix("via://").unwrap_or_default();
    let local = || rest.strip_prefix(':').and_then(|port| port.parse().ok());
    let here = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    rest.parse().ok().or_else(|| local().map(here)).unwrap_or_else(|| here(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["10.0.0.7:99", "[fe80::1]:80", "127.0.0.1:7000"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = [0u64; 16];
            let mut len = size_of_val(&raw) as socklen_t;
            // SAFETY: room and its length.
            unsafe { write(address, raw.as_mut_ptr().cast(), &mut len) };
            // SAFETY: what was just written.
            assert_eq!(unsafe { read(raw.as_ptr().cast(), len) }.unwrap(), address);
            assert_eq!(from_via(&to_via(address)), address);
        }
        assert_eq!(to_via("0.0.0.0:5".parse().unwrap()), "via://:5");
        assert_eq!(from_via("another/name").port(), 0);
    }

    #[test]
    fn short_and_strange_ones_are_refused() {
        let raw = [0u64; 16];
        // SAFETY: more than so many bytes are there.
        let refused = |len| unsafe { read(raw.as_ptr().cast(), len) }.unwrap_err().raw_os_error();
        assert_eq!(refused(1), Some(libc::EINVAL));
        assert_eq!(refused(16), Some(libc::EAFNOSUPPORT));
        // SAFETY: null is allowed.
        assert!(unsafe { read(std::ptr::null(), 16) }.is_err());
    }
}
