//! Random sequences of calls: bytes say which function is called with which handles, old, wrong and right ones. Nothing may
//! crash, and what is no handle is told so. Used by a property test and by the fuzz target.

use std::ffi::c_int;
use std::ptr;

use vipl::abi::{CDescriptor, CMemAttributes, CNetAddress, CViAttributes, ControlSegment, Return, Segment};
use vipl::handle::{Handle, Kind};
use vipl::{clan, connect, cq, errors, mem, naming, nic, transfer, vi};

const ROOM: usize = 8192;

#[repr(C, align(4096))]
struct Memory([u8; ROOM]);

/// What the calls so far have made.
struct State<'a> {
    input: &'a [u8],
    handles: Vec<Handle>,
    memory: Box<Memory>,
    regions: Vec<u32>,
}

/// Carries out what the bytes say.
pub(crate) fn run(device: &std::ffi::CStr, input: &[u8]) {
    let handles = vec![Handle::NULL, Handle::from_bits(0x1234_5678_9ABC_DEF0), Handle::from_bits(u64::MAX)];
    let memory = Box::new(Memory([0; ROOM]));
    let mut state = State { input, handles, memory, regions: vec![0, 77] };
    // Something to begin with, or most sequences would be about nothing.
    for prelude in [0, 0, 1, 2, 3, 3, 4, 4] {
        state.call(device, prelude);
    }
    while let Some(what) = state.byte() {
        state.call(device, what % 30);
    }
    for handle in state.handles {
        nic::vip_close_nic(handle);
    }
}

impl State<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*first)
    }

    fn number(&mut self, below: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) % below
    }

    /// Any handle, mostly one of the right kind.
    fn handle(&mut self, kind: Kind) -> Handle {
        let right: Vec<Handle> = self.handles.iter().copied().filter(|h| h.open(kind).is_some()).collect();
        let at = self.number(256);
        if at % 8 == 7 || right.is_empty() {
            self.handles[at % self.handles.len()]
        } else {
            right[at % right.len()]
        }
    }

    fn region(&mut self) -> u32 {
        let at = self.number(self.regions.len());
        self.regions[at]
    }

    fn place(&mut self, border: usize) -> *mut u8 {
        let at = self.number(ROOM / border) * border;
        self.memory.0.as_mut_ptr().wrapping_add(at)
    }

    /// An address of this node, with a port.
    fn address(&mut self) -> [u8; 16] {
        let mut address = [0; 16];
        // A host part of no bytes, or an impossible one; a discriminator of one byte.
        address[0] = if self.number(16) == 15 { 3 } else { 0 };
        address[2] = 1;
        address[4] = self.number(3) as u8;
        address
    }

    /// A descriptor somewhere, at a border or not, which asks for something that may make sense.
    fn descriptor(&mut self) -> *mut CDescriptor {
        let border = if self.number(8) == 7 { 16 } else { 64 };
        let at = self.place(border);
        let count = self.number(4) as u16;
        let length = self.number(200) as u32;
        let cs = ControlSegment {
            seg_count: if self.number(32) == 31 { 5000 } else { count },
            control: self.number(20) as u16,
            length,
            ..Default::default()
        };
        let room = self.memory.0.as_ptr() as usize + ROOM - at as usize;
        if room < 96 {
            return at.cast();
        }
        let wild = self.number(16) == 15;
        let mut segments = [Segment::default(); 4];
        for segment in &mut segments {
            let data = if wild { 8 } else { self.place(1) as u64 };
            *segment = Segment { data, handle: self.region(), length };
        }
        // SAFETY: 96 bytes of our own memory.
        unsafe {
            at.cast::<ControlSegment>().write_unaligned(cs);
            at.add(32).cast::<[Segment; 4]>().write_unaligned(segments);
        }
        at.cast()
    }

    fn keep(&mut self, handle: Handle) {
        if !handle.is_null() && self.handles.len() < 200 {
            self.handles.push(handle);
        }
    }

    fn call(&mut self, device: &std::ffi::CStr, what: u8) {
        let (mut out, mut number, mut flag) = (Handle::NULL, 0u32, 0 as c_int);
        let mut done: *mut CDescriptor = ptr::null_mut();
        let (the_nic, the_vi) = (self.handle(Kind::Nic), self.handle(Kind::Vi));
        // SAFETY: every pointer is NULL or to memory of ours, and that memory lives until all NICs are closed.
        let code = unsafe {
            match what {
                0 if self.handles.len() < 20 => nic::vip_open_nic(device.as_ptr(), &mut out),
                1 => mem::vip_create_ptag(the_nic, &mut out),
                2 => cq::vip_create_cq(the_nic, self.number(64) as u64, &mut out),
                3 => {
                    let ptag = self.handle(Kind::Ptag);
                    let rights = CMemAttributes { ptag, enable_rdma_write: 1, enable_rdma_read: 1 };
                    let at = if self.number(16) == 15 { 64 as *mut u8 } else { self.memory.0.as_mut_ptr() };
                    let code = mem::vip_register_mem(the_nic, at.cast(), ROOM as u64, &rights, &mut number);
                    if code == Return::Success {
                        self.regions.push(number);
                    }
                    code
                }
                4 => {
                    let attributes = CViAttributes {
                        reliability_level: [1, 2, 4, 2, 2, 9][self.number(6)],
                        max_transfer_size: 0,
                        qos: ptr::null_mut(),
                        ptag: self.handle(Kind::Ptag),
                        enable_rdma_write: 1,
                        enable_rdma_read: 0,
                    };
                    let with = |cq: Handle, yes: usize| if yes == 0 { Handle::NULL } else { cq };
                    let (send, recv) = (self.handle(Kind::Cq), self.handle(Kind::Cq));
                    let (send, recv) = (with(send, self.number(2)), with(recv, self.number(2)));
                    vi::vip_create_vi(the_nic, &attributes, send, recv, &mut out)
                }
                5 => vi::vip_destroy_vi(the_vi),
                6 => cq::vip_destroy_cq(self.handle(Kind::Cq)),
                7 => mem::vip_destroy_ptag(the_nic, self.handle(Kind::Ptag)),
                8 => mem::vip_deregister_mem(the_nic, self.memory.0.as_mut_ptr().cast(), self.region()),
                9..=11 => transfer::vip_post_recv(the_vi, self.descriptor(), self.region()),
                12..=14 => transfer::vip_post_send(the_vi, self.descriptor(), self.region()),
                15 => transfer::vip_send_done(the_vi, &mut done),
                16 => transfer::vip_recv_done(the_vi, &mut done),
                17 => transfer::vip_send_wait(the_vi, self.number(2) as u64, &mut done),
                18 => transfer::vip_recv_wait(the_vi, self.number(2) as u64, &mut done),
                19 => cq::vip_cq_done(self.handle(Kind::Cq), &mut out, &mut flag),
                20 => cq::vip_resize_cq(self.handle(Kind::Cq), self.number(80) as u64),
                21..=23 => {
                    let (from, to) = (self.address(), self.address());
                    let (from, to) = (from.as_ptr().cast::<CNetAddress>(), to.as_ptr().cast());
                    connect::vip_connect_peer_request(the_vi, from, to, self.number(5) as u64)
                }
                24 => connect::vip_connect_peer_done(the_vi, ptr::null_mut()),
                25 => connect::vip_disconnect(the_vi),
                26 => vi::vip_query_vi(the_vi, &mut flag, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()),
                27 => {
                    let (from, to) = (self.address(), self.address());
                    let to = to.as_ptr().cast::<CNetAddress>();
                    connect::vip_connect_request(the_vi, from.as_ptr().cast(), to, 1, ptr::null_mut())
                }
                28 => match self.number(8) {
                    0 => nic::vip_close_nic(the_nic),
                    1 => clan::vip_post_deferred_sends(the_vi, 0, ptr::null_mut()),
                    2 => naming::vip_ns_init(the_nic, ptr::null_mut()),
                    3 => errors::vip_error_callback(the_nic, ptr::null_mut(), None),
                    4 => connect::vip_connect_reject(self.handle(Kind::Conn)),
                    _ => connect::vip_connect_accept(self.handle(Kind::Conn), the_vi),
                },
                _ => connect::vip_connect_peer_wait(the_vi, ptr::null_mut()),
            }
        };
        self.keep(out);
        let of_vi = matches!(what, 5 | 9..=18 | 21..=27);
        if of_vi && the_vi.open(Kind::Vi).is_none() {
            assert_eq!(code, Return::InvalidParameter, "call {what} took {the_vi:?} for a VI");
        }
    }
}
