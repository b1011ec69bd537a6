//! The rounds by the functions of the C library.

use std::ptr;

use vipl::abi::{CDescriptor, CMemAttributes, CNetAddress, CViAttributes, ControlSegment, Return, Segment};
use vipl::connect::{vip_connect_accept, vip_connect_request, vip_connect_wait};
use vipl::handle::Handle;
use vipl::mem::{vip_create_ptag, vip_register_mem};
use vipl::nic::vip_open_nic;
use vipl::transfer::{vip_post_recv, vip_post_send, vip_recv_done, vip_send_done};
use vipl::vi::vip_create_vi;

use crate::{BATCH, BYTES, Call, Rounds};

/// Descriptors and buffer of one end, in one region.
#[repr(C, align(64))]
struct Memory {
    descriptors: [CDescriptor; BATCH],
    bytes: [u8; 64],
}

struct End {
    nic: Handle,
    vi: Handle,
    memory: Box<Memory>,
    handle: u32,
}

struct Pair {
    a: End,
    b: End,
}

/// An address without host part, and four bytes of discriminator.
#[repr(C)]
struct Address {
    lens: [u16; 2],
    port: [u8; 4],
    room: [u8; 64],
}

fn must(code: Return) {
    assert_eq!(code, Return::Success);
}

fn end() -> End {
    let (mut nic, mut tag, mut vi, mut handle) = (Handle::NULL, Handle::NULL, Handle::NULL, 0);
    let mut memory = Box::new(Memory { descriptors: [CDescriptor::default(); BATCH], bytes: [0; 64] });
    // SAFETY: every pointer is to something of the right kind, and the memory lives as long as the program.
    unsafe {
        must(vip_open_nic(c"shm".as_ptr(), &mut nic));
        must(vip_create_ptag(nic, &mut tag));
        let rights = CMemAttributes { ptag: tag, enable_rdma_write: 0, enable_rdma_read: 0 };
        let at = ptr::from_mut(&mut *memory).cast();
        must(vip_register_mem(nic, at, size_of::<Memory>() as u64, &rights, &mut handle));
        let attributes = CViAttributes {
            reliability_level: 2,
            max_transfer_size: 0,
            qos: ptr::null_mut(),
            ptag: tag,
            enable_rdma_write: 1,
            enable_rdma_read: 1,
        };
        must(vip_create_vi(nic, &attributes, Handle::NULL, Handle::NULL, &mut vi));
    }
    let cs = ControlSegment { seg_count: 1, length: BYTES as u32, ..Default::default() };
    let segment = Segment { data: memory.bytes.as_ptr() as u64, handle, length: BYTES as u32 };
    memory.descriptors = [CDescriptor { cs, ds: [segment; 2] }; BATCH];
    End { nic, vi, memory, handle }
}

pub(crate) fn pair() -> Box<dyn Rounds> {
    let (a, b) = (end(), end());
    let port = std::process::id().to_ne_bytes();
    let address = move || Address { lens: [0, 4], port, room: [0; 64] };
    let vi = a.vi;
    let client = std::thread::spawn(move || {
        let to = address();
        let to = (&raw const to).cast::<CNetAddress>();
        // SAFETY: an address, and the rest is not looked at.
        while unsafe { vip_connect_request(vi, ptr::null(), to, 60_000, ptr::null_mut()) } != Return::Success
        {
            std::thread::yield_now();
        }
    });
    let (here, mut from, mut conn) = (address(), address(), Handle::NULL);
    // SAFETY: addresses with room, and a place for the handle.
    unsafe {
        let (at, into) = ((&raw const here).cast(), (&raw mut from).cast());
        must(vip_connect_wait(b.nic, at, u64::MAX, into, ptr::null_mut(), &mut conn));
    }
    must(vip_connect_accept(conn, b.vi));
    client.join().expect("connected");
    // The receive says how long it may be each time it is posted.
    Box::new(Pair { a, b })
}

impl End {
    fn descriptor(&mut self, number: usize) -> *mut CDescriptor {
        &raw mut self.memory.descriptors[number]
    }
}

impl Rounds for Pair {
    fn batch(&mut self, call: Call) {
        let mut done = ptr::null_mut();
        for number in 0..BATCH {
            let (recv, send) = (self.b.descriptor(number), self.a.descriptor(number));
            // SAFETY: descriptors and buffers live in the pair.
            must(unsafe {
                match call {
                    Call::PostRecv => vip_post_recv(self.b.vi, recv, self.b.handle),
                    Call::PostSend => vip_post_send(self.a.vi, send, self.a.handle),
                    Call::RecvDone => vip_recv_done(self.b.vi, &mut done),
                    Call::SendDone => vip_send_done(self.a.vi, &mut done),
                    Call::RecvNotDone => {
                        assert_eq!(vip_recv_done(self.b.vi, &mut done), Return::NotDone);
                        Return::Success
                    }
                    Call::Nothing => Return::Success,
                }
            });
        }
    }

    fn round(&mut self, counted: Call) {
        let (recv, send) = (self.b.descriptor(0), self.a.descriptor(0));
        must(match counted {
            Call::PostRecv => count_this_post_recv(self.b.vi, recv, self.b.handle),
            // SAFETY: descriptor and buffer live in the pair.
            _ => unsafe { vip_post_recv(self.b.vi, recv, self.b.handle) },
        });
        let mut done = ptr::null_mut();
        let nothing = match counted {
            Call::RecvNotDone => count_this_recv_done(self.b.vi, &mut done),
            // SAFETY: as above.
            _ => unsafe { vip_recv_done(self.b.vi, &mut done) },
        };
        assert_eq!(nothing, Return::NotDone);
        must(match counted {
            Call::PostSend => count_this_post_send(self.a.vi, send, self.a.handle),
            // SAFETY: as above.
            _ => unsafe { vip_post_send(self.a.vi, send, self.a.handle) },
        });
        must(match counted {
            Call::SendDone => count_this_send_done(self.a.vi, &mut done),
            // SAFETY: as above.
            _ => unsafe { vip_send_done(self.a.vi, &mut done) },
        });
        must(match counted {
            Call::RecvDone => count_this_recv_done(self.b.vi, &mut done),
            // SAFETY: as above.
            _ => unsafe { vip_recv_done(self.b.vi, &mut done) },
        });
    }
}

#[inline(never)]
fn count_this_post_recv(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: descriptor and buffer live in the pair.
    unsafe { vip_post_recv(vi, at, memory) }
}

#[inline(never)]
fn count_this_post_send(vi: Handle, at: *mut CDescriptor, memory: u32) -> Return {
    // SAFETY: as above.
    unsafe { vip_post_send(vi, at, memory) }
}

#[inline(never)]
fn count_this_recv_done(vi: Handle, out: &mut *mut CDescriptor) -> Return {
    // SAFETY: as above.
    unsafe { vip_recv_done(vi, out) }
}

#[inline(never)]
fn count_this_send_done(vi: Handle, out: &mut *mut CDescriptor) -> Return {
    // SAFETY: as above.
    unsafe { vip_send_done(vi, out) }
}
