//! How packets go out: by value, written into the peer's ring, or from buffers registered beforehand.
//!
//! SOVIA, section 3.1.3. What fits into a ring entry of the provider is sent by value. Longer packets for a ring are
//! written there straight from the application's memory, where the provider can do that at once. What is above the paper's
//! threshold leaves from memory that was lent (`lending.rs`). Anything else is copied into a registered buffer.

use viaduct_via::{
    Buffer, Descriptor, Error as ViaError, MemAttributes, MemHandle, Nic, Op, ProtectionTag, RemoteAddress,
};

use crate::config::Config;
use crate::lending::Loan;
use crate::protocol::Way;
use crate::socket::Socket;
use crate::wire::Packet;

/// Most send buffers of one socket; they are made when first needed.
const SEND_BUFFERS: usize = 8;

/// Sends that may be in the queue at once: the buffers, and packets without bytes.
pub(crate) fn send_depth(config: &Config) -> usize {
    SEND_BUFFERS + config.window as usize + 8
}

/// What a socket has for sending.
pub(crate) struct Outbound {
    mtu: usize,
    /// Longest request that is copied where it could be lent.
    copy_max: usize,
    /// The request that is lent, and packets that left from such memory.
    pub(crate) loan: Option<Loan>,
    pub(crate) lent: u64,
    /// Longest packet that goes by value.
    inline: usize,
    /// Whether messages may be longer than what goes by value, so that they need registered memory.
    buffered: bool,
    /// The peer's ring.
    pub(crate) ring: RemoteAddress,
    /// What is held, where it need not be in registered memory.
    small: Vec<u8>,
    /// What is held otherwise.
    staged: Option<Descriptor>,
    pub(crate) held: usize,
    free: Vec<Descriptor>,
    made: usize,
    controls: Vec<Descriptor>,
}

impl Outbound {
    pub(crate) fn new(config: &Config, nic: &Nic) -> Outbound {
        Outbound {
            mtu: config.mtu,
            copy_max: config.copy_max,
            loan: None,
            lent: 0,
            inline: nic.attributes().max_inline.min(config.mtu),
            buffered: true,
            ring: RemoteAddress { addr: 0, handle: MemHandle::NONE },
            small: Vec::new(),
            staged: None,
            held: 0,
            free: Vec::new(),
            made: 0,
            controls: Vec::new(),
        }
    }

    /// The longest message that the peer takes is known; what is longer is written into its ring.
    pub(crate) fn set_longest_message(&mut self, small: usize) {
        self.buffered = small > self.inline;
    }

    /// Longest packet that goes by value.
    pub(crate) fn by_value(&self) -> usize {
        self.inline
    }

    /// Whether a packet of `len` bytes goes by value, if nothing is in its way.
    #[inline]
    pub(crate) fn goes_by_value(&self, len: usize) -> bool {
        len <= self.inline
    }

    /// Whether a request of `len` bytes may need a buffer.
    #[inline]
    pub(crate) fn needs_buffer(&self, len: usize) -> bool {
        self.buffered && self.held + len > self.inline
    }

    /// Whether what is held can take so many bytes more without further ado.
    #[inline]
    pub(crate) fn has_space(&self, len: usize) -> bool {
        !self.buffered && self.small.capacity() - self.small.len() >= len
    }

    /// Takes a request into what is held.
    #[inline]
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        let after = self.held + bytes.len();
        if self.staged.is_none() && (after <= self.inline || !self.buffered) {
            if self.small.capacity() < after {
                self.small.reserve(if after <= self.inline { self.inline } else { self.mtu });
            }
            self.small.extend_from_slice(bytes);
        } else {
            self.stage(bytes);
        }
        self.held = after;
    }

    /// Small bytes move over when they no longer fit.
    fn stage(&mut self, bytes: &[u8]) {
        let mut staged =
            self.staged.take().or_else(|| self.free.pop()).expect("the caller has made sure of one");
        if !self.small.is_empty() {
            staged.write(0, 0, &self.small);
            self.small.clear();
        }
        staged.write(0, self.held, bytes);
        self.staged = Some(staged);
    }

    pub(crate) fn drop_held(&mut self) {
        self.held = 0;
        self.small.clear();
        self.staged = None;
    }

    /// A descriptor is done.
    pub(crate) fn came_back(&mut self, descriptor: Descriptor) {
        if Loan::is_of_one(&descriptor) {
            if let Some(loan) = self.loan.as_mut() {
                loan.under_way -= 1;
            }
        } else if !descriptor.buffers().is_empty() {
            let context = descriptor.work().context;
            self.free.push(match descriptor.work().op {
                Op::Send => descriptor,
                _ => Descriptor::send(descriptor.into_buffer()).context(context),
            });
        }
    }

    /// These bytes where they lie, if they are long enough and lent.
    fn lent(&mut self, bytes: &[u8]) -> Option<Buffer> {
        let loan = self.loan.as_mut().filter(|_| bytes.len() > self.copy_max)?;
        let part = loan.part(bytes)?;
        self.lent += 1;
        Some(part)
    }

    fn make(&mut self, nic: &mut Nic, tag: ProtectionTag, context: u64) -> Option<Descriptor> {
        let buffer = nic.alloc(self.mtu, MemAttributes::local(tag)).ok()?;
        self.made += 1;
        Some(Descriptor::send(buffer).context(context))
    }
}

impl Socket {
    #[inline]
    pub(crate) fn send_held(&mut self, nic: &mut Nic, packet: Packet, len: usize, way: Way) {
        debug_assert_eq!(len, self.out.held);
        (self.out.held, self.held_at) = (0, None);
        match self.out.staged.take() {
            // It was staged before the ring was there.
            Some(staged) if way != Way::Message => {
                let bytes = staged.buffers()[0].to_vec(len);
                self.out.free.push(staged);
                self.send_data(nic, packet, &bytes, way);
            }
            Some(staged) => self.post(nic, packet, staged, len),
            None => {
                let small = std::mem::take(&mut self.out.small);
                self.send_data(nic, packet, &small, way);
                self.out.small = small;
                self.out.small.clear();
            }
        }
    }

    #[inline]
    pub(crate) fn send_data(&mut self, nic: &mut Nic, packet: Packet, bytes: &[u8], way: Way) {
        match way {
            Way::Message => self.send(nic, packet, bytes),
            Way::Ring(offset) => self.write_ring(nic, packet, bytes, offset),
        }
    }

    /// Writes bytes into the peer's ring, and tells it.
    fn write_ring(&mut self, nic: &mut Nic, packet: Packet, bytes: &[u8], offset: usize) {
        let to = self.out.ring.offset(offset as u64);
        match nic.write_inline(self.vi, bytes, to, Some(packet.encode())) {
            Ok(()) => return,
            Err(ViaError::Busy) => {}
            Err(_) => return self.broke(),
        }
        self.reap(nic);
        // By a descriptor, which keeps its turn. Out of a buffer: an RDMA write is done when the peer has said so, and
        // a writer that lends its memory would wait for that.
        let Some(free) = self.free_buffer(nic) else { return self.broke() };
        let mut write = Descriptor::rdma_write(free.into_buffer(), to).context(self.id.0);
        write.write(0, 0, bytes);
        self.post(nic, packet, write, bytes.len());
    }

    /// A descriptor to copy into. The window may let more packets go than there are buffers: then one more is made.
    fn free_buffer(&mut self, nic: &mut Nic) -> Option<Descriptor> {
        self.out.free.pop().or_else(|| self.out.make(nic, self.tag, self.id.0))
    }

    /// Sends bytes in a message: by value if they are few and nothing is in the way, else from a buffer.
    #[inline]
    pub(crate) fn send(&mut self, nic: &mut Nic, packet: Packet, bytes: &[u8]) {
        if self.out.goes_by_value(bytes.len()) {
            match nic.send_inline(self.vi, bytes, Some(packet.encode())) {
                Ok(()) => return,
                Err(ViaError::Busy) => {}
                Err(_) => return self.broke(),
            }
        }
        self.reap(nic);
        if let Some(buffer) = self.out.lent(bytes) {
            let send = Descriptor::send(buffer).context(self.id.0);
            return self.post(nic, packet, send, bytes.len());
        }
        let Some(mut descriptor) = self.free_buffer(nic) else { return self.broke() };
        descriptor.write(0, 0, bytes);
        self.post(nic, packet, descriptor, bytes.len());
    }

    pub(crate) fn send_control(&mut self, nic: &mut Nic, packet: Packet) {
        let word = Some(packet.encode());
        match nic.send_inline(self.vi, &[], word) {
            Ok(()) => return,
            Err(ViaError::Busy) => {}
            Err(_) => return self.broke(),
        }
        self.reap(nic);
        let new = || Descriptor::send_empty().unsignalled().context(self.id.0);
        let mut descriptor = self.out.controls.pop().unwrap_or_else(new);
        descriptor.set_immediate(word);
        self.hand_over(nic, descriptor);
    }

    fn post(&mut self, nic: &mut Nic, packet: Packet, mut descriptor: Descriptor, len: usize) {
        descriptor.set_len(len);
        descriptor.set_immediate(Some(packet.encode()));
        self.hand_over(nic, descriptor);
    }

    /// Posts a send. If it has to wait, for a mapping or for room, the driver moves it while no call does.
    fn hand_over(&mut self, nic: &mut Nic, descriptor: Descriptor) {
        if nic.post_send(self.vi, descriptor).is_err() {
            self.broke();
        }
    }

    /// Whether there is a buffer to send from.
    pub(crate) fn ensure_buffer(&mut self, nic: &mut Nic) -> bool {
        if self.out.staged.is_some() && !self.out.free.is_empty() {
            return true;
        }
        if self.out.free.is_empty() {
            self.reap(nic);
        }
        // What is staged may have to go before what comes.
        if self.out.free.is_empty()
            && self.out.made < SEND_BUFFERS
            && let Some(buffer) = self.out.make(nic, self.tag, self.id.0)
        {
            self.out.free.push(buffer);
        }
        !self.out.free.is_empty()
    }

    /// Fetches sends that are done.
    pub(crate) fn reap(&mut self, nic: &mut Nic) {
        while let Ok(Some(completion)) = nic.poll_send(self.vi) {
            self.sent(completion);
        }
        while let Some(descriptor) = nic.reclaim(self.vi) {
            self.out.controls.push(descriptor);
        }
    }
}
