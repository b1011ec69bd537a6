//! Net addresses of C programs, and what they are to the model.
//!
//! A C address is a host of six bytes (or none, which is this node) and a discriminator. To the model the host is text,
//! empty for this machine, and the node's number goes before the discriminator: so two nodes that one machine plays may
//! use the same discriminators.

use viaduct_via::NetAddress;

use crate::abi::{CNetAddress, Return};
use crate::names::{HOST_LEN, NodeAddress};

/// Marks addresses of this library.
const PREFIX: [u8; 4] = *b"vipl";
/// Longest discriminator.
pub(crate) const MAX_DISCRIMINATOR: usize = 56;

const HEADER: usize = std::mem::offset_of!(CNetAddress, host_address);

/// An address, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) host: NodeAddress,
    pub(crate) discriminator: Vec<u8>,
}

impl Address {
    /// Reads a C address; `own` stands for a host part of no bytes.
    ///
    /// # Safety
    /// `at` is NULL, or as many bytes are readable there as the two lengths say.
    pub(crate) unsafe fn read(at: *const CNetAddress, own: NodeAddress) -> Result<Address, Return> {
        if at.is_null() {
            return Err(Return::InvalidParameter);
        }
        // SAFETY: the lengths are there by the caller's promise; the structure need not be aligned.
        let (host_len, len) = unsafe {
            let lens: [u16; 2] = at.cast::<[u16; 2]>().read_unaligned();
            (usize::from(lens[0]), usize::from(lens[1]))
        };
        if (host_len != 0 && host_len != HOST_LEN) || len > MAX_DISCRIMINATOR {
            return Err(Return::InvalidParameter);
        }
        let bytes = at.cast::<u8>().wrapping_add(HEADER);
        let mut host = own;
        if host_len == HOST_LEN {
            // SAFETY: by the caller's promise.
            host = NodeAddress::from_bytes(unsafe { bytes.cast::<[u8; HOST_LEN]>().read_unaligned() });
        }
        let mut discriminator = vec![0; len];
        // SAFETY: by the caller's promise; the vector has len bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.add(host_len), discriminator.as_mut_ptr(), len) };
        Ok(Address { host, discriminator })
    }

    /// Writes a C address, and not one byte more than it has.
    ///
    /// # Safety
    /// `at` is NULL, or so many bytes are writable there.
    pub(crate) unsafe fn write(&self, at: *mut CNetAddress) {
        if at.is_null() {
            return;
        }
        let lens = [HOST_LEN as u16, self.discriminator.len() as u16];
        let bytes = at.cast::<u8>().wrapping_add(HEADER);
        // SAFETY: by the caller's promise; nothing need be aligned.
        unsafe {
            at.cast::<[u16; 2]>().write_unaligned(lens);
            bytes.cast::<[u8; HOST_LEN]>().write_unaligned(self.host.to_bytes());
            let len = self.discriminator.len();
            std::ptr::copy_nonoverlapping(self.discriminator.as_ptr(), bytes.add(HOST_LEN), len);
        }
    }

    /// As the model has it.
    pub(crate) fn to_model(&self) -> Result<NetAddress, Return> {
        let host = if self.host.is_here() { String::new() } else { self.host.ip.to_string() };
        let mut name = PREFIX.to_vec();
        name.extend(self.host.node.to_be_bytes());
        name.extend(&self.discriminator);
        NetAddress::new(host.as_bytes(), &name).map_err(|_| Return::InvalidParameter)
    }

    /// From the model: `host` is what the other side calls itself. None if it is no address of this library.
    pub(crate) fn from_model(address: &NetAddress, host: &[u8]) -> Option<Address> {
        let (_, discriminator) = address.discriminator().strip_prefix(&PREFIX)?.split_at_checked(2)?;
        let host = NodeAddress::from_bytes(host.try_into().ok()?);
        Some(Address { host, discriminator: discriminator.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const OWN: NodeAddress = NodeAddress { ip: Ipv4Addr::LOCALHOST, node: 3 };

    #[test]
    fn addresses_are_read_and_written_at_any_border() {
        let mut bytes = [0xEEu8; 32];
        let at = bytes.as_mut_ptr().wrapping_add(1).cast::<CNetAddress>();
        let address = Address { host: OWN, discriminator: b"port".to_vec() };
        // SAFETY: 4 + 6 + 4 bytes fit.
        unsafe {
            address.write(at);
            assert_eq!(Address::read(at, OWN), Ok(address));
        }
        assert_eq!(&bytes[..3], [0xEE, 6, 0]);
        assert_eq!(&bytes[11..16], b"port\xEE");
    }

    #[test]
    fn no_host_is_this_node_and_odd_lengths_are_refused() {
        let read = |lens: [u16; 2]| {
            let mut bytes = [0u8; 128];
            bytes[..2].copy_from_slice(&lens[0].to_ne_bytes());
            bytes[2..4].copy_from_slice(&lens[1].to_ne_bytes());
            // SAFETY: the array holds whatever these lengths say, or they are refused.
            unsafe { Address::read(bytes.as_ptr().cast(), OWN) }
        };
        assert_eq!(read([0, 2]).unwrap(), Address { host: OWN, discriminator: vec![0, 0] });
        assert_eq!(read([4, 2]), Err(Return::InvalidParameter));
        assert_eq!(read([6, 57]), Err(Return::InvalidParameter));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { Address::read(std::ptr::null(), OWN) }, Err(Return::InvalidParameter));
    }

    #[test]
    fn nodes_of_one_machine_are_told_apart() {
        let address = Address { host: OWN, discriminator: b"x".to_vec() };
        let other = Address { host: NodeAddress { node: 4, ..OWN }, ..address.clone() };
        let model = address.to_model().unwrap();
        assert!(model.host().is_empty() && model != other.to_model().unwrap());
        assert_eq!(Address::from_model(&model, &OWN.to_bytes()), Some(address));
        let far = NodeAddress { ip: Ipv4Addr::new(203, 0, 113, 9), node: 0 };
        let far = Address { host: far, discriminator: Vec::new() }.to_model().unwrap();
        assert_eq!(far.host(), b"203.0.113.9");
    }
}
