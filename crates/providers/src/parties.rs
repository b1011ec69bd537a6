//! What a greeting says of the two VIs that are to be connected: addresses, attributes, private data. The same bytes in
//! the greetings of every provider, behind what each of them needs besides.
//!
//! The two ends may be different machines, so numbers are little-endian.

use viaduct_via::handle::RawHandle;
use viaduct_via::{Error, NetAddress, ProtectionTag, Reliability, RemoteAttributes};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What is not supported where the kernel does not let one process look into the other.
pub(crate) const READ_PRIVATE: &str = "reading memory that the peer has not registered";

/// Bytes of private data.
pub(crate) const MAX_PRIVATE: usize = 256;
/// Bytes of each half of an address.
const MAX_PART: usize = 64;

const RDMA_WRITE: u8 = 1;
const RDMA_READ: u8 = 2;

/// Both of them, as one tells the other.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct Parties {
    tag: U64,
    max_transfer: U32,
    qos: U32,
    reliability: u8,
    flags: u8,
    private_len: U16,
    lengths: [u8; 4],
    to_host: [u8; MAX_PART],
    to_discriminator: [u8; MAX_PART],
    from_host: [u8; MAX_PART],
    from_discriminator: [u8; MAX_PART],
    private: [u8; MAX_PRIVATE],
}

impl Parties {
    /// Looks at what came in; nothing else may be asked before.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let parts = self.lengths.iter().all(|len| usize::from(*len) <= MAX_PART);
        if parts && usize::from(self.private_len.get()) <= MAX_PRIVATE {
            return Ok(());
        }
        Err(Error::Protocol("a length is out of range"))
    }

    pub(crate) fn set_attributes(&mut self, a: &RemoteAttributes) {
        self.reliability = a.reliability as u8;
        self.max_transfer = a.max_transfer_size.into();
        self.qos = a.qos.into();
        self.tag = tag_number(a.ptag).into();
        self.flags = if a.rdma_write { RDMA_WRITE } else { 0 } | if a.rdma_read { RDMA_READ } else { 0 };
        self.set_private(&a.private_data);
    }

    pub(crate) fn attributes(&self) -> Result<RemoteAttributes, Error> {
        let reliability =
            Reliability::from_number(self.reliability).ok_or(Error::Protocol("no such reliability level"))?;
        let tag = self.tag.get();
        let raw = RawHandle { index: tag as u32, generation: (tag >> 32) as u32 };
        Ok(RemoteAttributes {
            reliability,
            max_transfer_size: self.max_transfer.get(),
            qos: self.qos.get(),
            rdma_write: self.flags & RDMA_WRITE != 0,
            rdma_read: self.flags & RDMA_READ != 0,
            ptag: ProtectionTag::from_raw(raw),
            private_data: self.private().to_vec(),
        })
    }

    pub(crate) fn set_private(&mut self, data: &[u8]) {
        let n = data.len().min(MAX_PRIVATE);
        self.private[..n].copy_from_slice(&data[..n]);
        self.private_len = (n as u16).into();
    }

    pub(crate) fn private(&self) -> &[u8] {
        &self.private[..usize::from(self.private_len.get()).min(MAX_PRIVATE)]
    }

    pub(crate) fn set_addresses(&mut self, to: &NetAddress, from: &NetAddress) {
        let put = |into: &mut [u8; MAX_PART], from: &[u8]| {
            into[..from.len()].copy_from_slice(from);
            from.len() as u8
        };
        self.lengths = [
            put(&mut self.to_host, to.host()),
            put(&mut self.to_discriminator, to.discriminator()),
            put(&mut self.from_host, from.host()),
            put(&mut self.from_discriminator, from.discriminator()),
        ];
    }

    pub(crate) fn to(&self) -> Result<NetAddress, Error> {
        let [h, d, ..] = self.lengths.map(usize::from);
        NetAddress::new(&self.to_host[..h], &self.to_discriminator[..d])
    }

    pub(crate) fn from(&self) -> Result<NetAddress, Error> {
        let [.., h, d] = self.lengths.map(usize::from);
        NetAddress::new(&self.from_host[..h], &self.from_discriminator[..d])
    }
}

/// Whether two tags go together, by their numbers.
#[inline]
pub(crate) fn tags_go_together(one: u64, other: u64) -> bool {
    one == other || one == u64::MAX || other == u64::MAX
}

/// A protection tag as one number; all ones is the tag that goes with every other.
pub(crate) fn tag_number(tag: ProtectionTag) -> u64 {
    let raw = tag.raw();
    u64::from(raw.generation) << 32 | u64::from(raw.index)
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use zerocopy::FromZeros;

    use super::*;

    /// Two addresses and attributes of which none is a default.
    pub(crate) fn sample() -> (NetAddress, NetAddress, RemoteAttributes) {
        let attributes = RemoteAttributes {
            reliability: Reliability::ReliableReception,
            max_transfer_size: 99,
            qos: 3,
            rdma_write: false,
            rdma_read: true,
            ptag: ProtectionTag::from_raw(RawHandle { index: 5, generation: 0xdead_beef }),
            private_data: b"hello".to_vec(),
        };
        ("node1/echo".parse().unwrap(), "0x0001".parse().unwrap(), attributes)
    }

    #[test]
    fn the_tag_for_all_is_all_ones() {
        assert_eq!(tag_number(ProtectionTag::ANY), u64::MAX);
        assert!(tags_go_together(u64::MAX, 5) && tags_go_together(5, u64::MAX) && !tags_go_together(5, 6));
    }

    #[test]
    fn lengths_are_looked_at() {
        let (to, from, attributes) = sample();
        let mut parties = Parties::new_zeroed();
        parties.set_addresses(&to, &from);
        parties.set_attributes(&attributes);
        assert!(parties.check().is_ok());
        for (address, private) in [(65, 0), (255, 0), (0, 257), (64, u16::MAX)] {
            let mut wrong = parties;
            (wrong.lengths[2], wrong.private_len) = (address, private.into());
            assert!(wrong.check().is_err(), "{address}, {private}");
        }
    }
}
