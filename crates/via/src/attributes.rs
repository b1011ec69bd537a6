//! What a NIC can do and what a VI or a region is asked to be (the attribute structures of the VIA interface).

use crate::handle::{Cq, ProtectionTag, Srq};

/// How much a VI promises about its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reliability {
    /// A message arrives once or not at all; a send is complete when its buffer may be reused.
    Unreliable = 1,
    /// Uncorrupted, once, in order; a send is complete when the transport has taken charge of the data.
    ReliableDelivery = 2,
    /// As delivery, but a send is complete only when the data is in the remote memory.
    ReliableReception = 4,
}

impl Reliability {
    /// All three levels.
    pub const ALL: [Reliability; 3] =
        [Reliability::Unreliable, Reliability::ReliableDelivery, Reliability::ReliableReception];

    /// Whether lost data breaks the connection.
    #[inline]
    pub fn is_reliable(self) -> bool {
        self != Reliability::Unreliable
    }

    /// The level with this number, if there is one.
    pub fn from_number(n: u8) -> Option<Reliability> {
        Reliability::ALL.into_iter().find(|r| *r as u8 == n)
    }
}

/// What a NIC offers, as told by its provider.
#[derive(Clone, Debug)]
pub struct NicAttributes {
    /// Name of the provider.
    pub name: String,
    /// Most VIs.
    pub max_vi: usize,
    /// Most descriptors in one work queue.
    pub max_descriptors_per_queue: usize,
    /// Most data segments in one descriptor.
    pub max_segments_per_desc: usize,
    /// Most completion queues.
    pub max_cq: usize,
    /// Most entries in a completion queue.
    pub max_cq_entries: usize,
    /// Longest message.
    pub max_transfer_size: u32,
    /// Longest message that [`send_inline`](crate::Nic::send_inline) takes.
    pub max_inline: usize,
    /// Most bytes of private data in a connection request or its answer.
    pub max_private_data: usize,
    /// Most regions registered at once.
    pub max_register_regions: usize,
    /// Most bytes in one region.
    pub max_register_block_bytes: u64,
    /// Most protection tags.
    pub max_ptags: usize,
    /// Levels offered.
    pub reliability: &'static [Reliability],
    /// Levels at which RDMA read is offered.
    pub rdma_read: &'static [Reliability],
    /// Whether peers on other hosts can be reached. How one peer is reached, its [`Reach`] says.
    pub beyond_host: bool,
}

/// How the ends of a connection reach each other. An answer for the pair of processes: one provider may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Each end maps memory of the other that comes from [`alloc`](crate::Nic::alloc): RDMA there is a copy, done at once.
    Direct,
    /// Both are on one host and map only memory of the connection: messages are copied through it with the receiver's
    /// help, and the target's control thread carries out RDMA.
    Copied,
    /// Messages leave the sender's memory without the receiver's help, as over a network; RDMA is a message too.
    Messages,
}

/// What a VI is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViAttributes {
    /// Reliability level; both ends must agree.
    pub reliability: Reliability,
    /// Longest message; both ends must agree. `u32::MAX` stands for the NIC's limit.
    pub max_transfer_size: u32,
    /// Quality of service, an opaque number; both ends must agree.
    pub qos: u32,
    /// Protection tag; memory used by this VI must carry the same one.
    pub ptag: ProtectionTag,
    /// Whether the peer may RDMA write through this VI.
    pub rdma_write: bool,
    /// Whether the peer may RDMA read (and use atomics) through this VI.
    pub rdma_read: bool,
    /// Descriptors the send queue holds.
    pub send_depth: usize,
    /// Descriptors the receive queue holds.
    pub recv_depth: usize,
    /// Completion queue of the send queue.
    pub send_cq: Option<Cq>,
    /// Completion queue of the receive queue.
    pub recv_cq: Option<Cq>,
    /// Receive from this shared queue instead of an own one.
    pub srq: Option<Srq>,
}

impl ViAttributes {
    /// A reliable-delivery VI with RDMA enabled, queues of 256 descriptors and no completion queue.
    pub fn new(ptag: ProtectionTag) -> ViAttributes {
        ViAttributes {
            reliability: Reliability::ReliableDelivery,
            max_transfer_size: u32::MAX,
            qos: 0,
            ptag,
            rdma_write: true,
            rdma_read: true,
            send_depth: 256,
            recv_depth: 256,
            send_cq: None,
            recv_cq: None,
            srq: None,
        }
    }

    /// Sets the protection tag, for programs that tell some memory from other memory.
    pub fn tag(mut self, ptag: ProtectionTag) -> ViAttributes {
        self.ptag = ptag;
        self
    }

    /// Sets the reliability level; RDMA read goes with a reliable one only.
    pub fn reliability(mut self, level: Reliability) -> ViAttributes {
        self.reliability = level;
        self.rdma_read &= level.is_reliable();
        self
    }

    /// Binds both queues to `cq`.
    pub fn cq(mut self, cq: Cq) -> ViAttributes {
        self.send_cq = Some(cq);
        self.recv_cq = Some(cq);
        self
    }

    /// Gives both queues this depth.
    pub fn depth(mut self, descriptors: usize) -> ViAttributes {
        self.send_depth = descriptors;
        self.recv_depth = descriptors;
        self
    }
}

/// A reliable-delivery VI that uses any memory of its NIC: [`ViAttributes::new`] with [`ProtectionTag::ANY`].
impl Default for ViAttributes {
    fn default() -> ViAttributes {
        ViAttributes::new(ProtectionTag::ANY)
    }
}

/// What the remote VI of a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAttributes {
    /// Its reliability level.
    pub reliability: Reliability,
    /// Its longest message.
    pub max_transfer_size: u32,
    /// Its quality of service.
    pub qos: u32,
    /// Whether we may RDMA write to it.
    pub rdma_write: bool,
    /// Whether we may RDMA read from it.
    pub rdma_read: bool,
    /// Its protection tag, which means something to its own NIC only: regions there must carry it to be reached.
    pub ptag: ProtectionTag,
    /// Private data sent along with the request or the answer.
    pub private_data: Vec<u8>,
}

/// Rights of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemAttributes {
    /// Protection tag; only VIs with the same one reach the region.
    pub ptag: ProtectionTag,
    /// Whether peers may write it.
    pub rdma_write: bool,
    /// Whether peers may read it (and use atomics on it, given both rights).
    pub rdma_read: bool,
    /// What its first address is a multiple of: a power of two, [`MemAttributes::MOST_ALIGNED`] at most. [`Nic::alloc`] sees
    /// to it, and memory of the caller's has to be so. 0 asks for nothing: what is allocated lies at a cache line or a page.
    ///
    /// [`Nic::alloc`]: crate::Nic::alloc
    pub align: usize,
}

impl MemAttributes {
    /// A region without remote access.
    pub fn local(ptag: ProtectionTag) -> MemAttributes {
        MemAttributes { ptag, rdma_write: false, rdma_read: false, align: 0 }
    }

    /// A region that peers may read, write and use atomics on.
    pub fn remote(ptag: ProtectionTag) -> MemAttributes {
        MemAttributes { ptag, rdma_write: true, rdma_read: true, align: 0 }
    }

    /// The largest alignment that can be asked for.
    pub const MOST_ALIGNED: usize = 2 << 20;

    /// Asks for an alignment, such as 4096 for memory that is read from and written to files past the cache (`O_DIRECT`).
    pub fn aligned(mut self, align: usize) -> MemAttributes {
        self.align = align;
        self
    }
}

/// A region without remote access that any VI of its NIC may use.
impl Default for MemAttributes {
    fn default() -> MemAttributes {
        MemAttributes::local(ProtectionTag::ANY)
    }
}
