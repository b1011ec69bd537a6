//! What C programs see: the structures and values of `vipl.h`, field by field.
//!
//! Facts of the interface of VIA 1.0; a C test compares every offset, size and value with the header.

use std::ffi::{c_char, c_int, c_uchar, c_ulong, c_void};

use crate::handle::Handle;

/// What a call returns (VIP_RETURN).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Return {
    /// Done.
    Success = 0,
    /// Nothing has completed yet.
    NotDone = 1,
    /// An argument makes no sense, or names nothing.
    InvalidParameter = 2,
    /// Something is used up, or in use.
    ErrorResource = 3,
    /// The time is over.
    Timeout = 4,
    /// The remote side said no.
    Reject = 5,
    /// No such level of reliability, or the two sides differ.
    InvalidReliabilityLevel = 6,
    /// No such transfer size, or the two sides differ.
    InvalidMtu = 7,
    /// The two sides differ in quality of service.
    InvalidQos = 8,
    /// No such protection tag.
    InvalidPtag = 9,
    /// RDMA read is not offered at this level of reliability.
    InvalidRdmaRead = 10,
    /// A descriptor completed with an error, or the queue is empty.
    DescriptorError = 11,
    /// Not in this state of the VI.
    InvalidState = 12,
    /// The name service does not know.
    ErrorNameService = 13,
    /// No listener waits at the remote address.
    NoMatch = 14,
    /// The remote address cannot be reached.
    NotReachable = 15,
    /// Not offered.
    ErrorNotSupported = 16,
}

/// Endless, as a number of milliseconds; anything larger is endless, too.
pub const INFINITE: c_ulong = 0xFFFF_FFFF;
/// Descriptors begin at multiples of this.
pub const DESCRIPTOR_ALIGNMENT: usize = 64;

/// Bits of the control word.
pub mod control {
    /// Which operation.
    pub const OP_MASK: u16 = 0x3;
    /// Write to remote memory.
    pub const OP_RDMAWRITE: u16 = 1;
    /// Read from remote memory.
    pub const OP_RDMAREAD: u16 = 2;
    /// Immediate data goes along.
    pub const IMMEDIATE: u16 = 0x4;
    /// Wait for earlier reads.
    pub const QFENCE: u16 = 0x8;
    /// Must be zero.
    pub const RESERVED: u16 = 0xFFF0;
}

/// Bits of the status word.
pub mod status {
    /// Completed.
    pub const DONE: u32 = 0x1;
    /// The operation is at this position.
    pub const OP_SHIFT: u32 = 16;
    /// Immediate data came along.
    pub const IMMEDIATE: u32 = 0x8_0000;
}

/// The first 32 bytes of a descriptor (VIP_CONTROL_SEGMENT).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ControlSegment {
    /// The program's own while the descriptor is not posted; not touched here.
    pub next: u64,
    /// As above.
    pub next_handle: u32,
    /// Segments that follow, of both kinds.
    pub seg_count: u16,
    /// See [`control`].
    pub control: u16,
    /// Must be zero.
    pub reserved: u32,
    /// Data that goes along.
    pub immediate_data: u32,
    /// Bytes, of all data segments before, moved afterwards.
    pub length: u32,
    /// See [`status`].
    pub status: u32,
}

/// A segment of either kind: remote place, or local memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Segment {
    /// Address.
    pub data: u64,
    /// Memory handle.
    pub handle: u32,
    /// Bytes; nothing in an address segment.
    pub length: u32,
}

/// A descriptor with two segments (VIP_DESCRIPTOR); more may follow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct CDescriptor {
    /// Control segment.
    pub cs: ControlSegment,
    /// Data segments.
    pub ds: [Segment; 2],
}

/// What a NIC offers (VIP_NIC_ATTRIBUTES).
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CNicAttributes {
    pub name: [c_char; 64],
    pub hardware_version: c_ulong,
    pub provider_version: c_ulong,
    pub nic_address_len: u16,
    pub local_nic_address: *const c_uchar,
    pub thread_safe: c_int,
    pub max_discriminator_len: u16,
    pub max_register_bytes: c_ulong,
    pub max_register_regions: c_ulong,
    pub max_register_block_bytes: c_ulong,
    pub max_vi: c_ulong,
    pub max_descriptors_per_queue: c_ulong,
    pub max_segments_per_desc: c_ulong,
    pub max_cq: c_ulong,
    pub max_cq_entries: c_ulong,
    pub max_transfer_size: c_ulong,
    pub native_mtu: c_ulong,
    pub max_ptags: c_ulong,
    pub reliability_level_support: u16,
    pub rdma_read_support: u16,
}

/// What a VI is (VIP_VI_ATTRIBUTES).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CViAttributes {
    pub reliability_level: u16,
    pub max_transfer_size: c_ulong,
    pub qos: *mut c_void,
    pub ptag: Handle,
    pub enable_rdma_write: c_int,
    pub enable_rdma_read: c_int,
}

/// Rights of a region (VIP_MEM_ATTRIBUTES).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CMemAttributes {
    pub ptag: Handle,
    pub enable_rdma_write: c_int,
    pub enable_rdma_read: c_int,
}

/// An asynchronous error (VIP_ERROR_DESCRIPTOR).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CErrorDescriptor {
    pub nic_handle: Handle,
    pub vi_handle: Handle,
    pub cq_handle: Handle,
    pub descriptor: *mut CDescriptor,
    pub op_code: c_ulong,
    pub resource_code: c_int,
    pub error_code: c_int,
}

/// An address (VIP_NET_ADDRESS): the discriminator follows the host part at once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CNetAddress {
    pub host_address_len: u16,
    pub discriminator_len: u16,
    pub host_address: [u8; 1],
}

/// The list of nodes (VIP_AUTODISCOVERY_LIST).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CAutodiscoveryList {
    pub number_of_hops: c_ulong,
    pub addresses: *mut *mut CNetAddress,
    pub count: c_ulong,
}
