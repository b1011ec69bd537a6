//! Which peer may touch which memory: tags, rights, bounds, handles that were guessed, taken back or belong to others.

use viaduct_via::Reliability::{self, ReliableDelivery, Unreliable};
use viaduct_via::raw::RawMemory;
use viaduct_via::{
    Buffer, Descriptor, Error, ErrorCode, MemAttributes, MemHandle, Op, Queue, RemoteAddress, Status, Vi,
    ViAttributes, ViState,
};

use crate::pattern::Rng;
use crate::world::{Side, World};

/// Reads, writes and an atomic at a remote place, each on a connection of its own: how they end.
fn attempts(w: &mut World, place: RemoteAddress, len: usize) -> Vec<Status> {
    let make: [fn(Buffer, RemoteAddress) -> Descriptor; 3] =
        [Descriptor::rdma_write, Descriptor::rdma_read, |b, at| Descriptor::fetch_add(b, at, 1)];
    let mut statuses = Vec::new();
    for (n, make) in make.into_iter().enumerate() {
        let (va, vb) = w.pair(ReliableDelivery);
        let buffer = w.a.buffer(if n == 2 { 8 } else { len });
        statuses.push(attempt(w, va, vb, make(buffer, place)));
    }
    statuses
}

fn attempt(w: &mut World, va: Vi, vb: Vi, descriptor: Descriptor) -> Status {
    w.a.post_send(va, descriptor).unwrap();
    let status = w.sent(va).status;
    if status != Status::Success {
        w.reaches(Side::A, va, ViState::Error);
        w.reaches(Side::B, vb, ViState::Error);
    }
    w.a.retire(va);
    w.b.retire(vb);
    status
}

const OK: Status = Status::Success;
const NO: Status = Status::RdmaProtectionError;

/// The rights of the region decide, each for its own operations.
pub fn a_region_grants_rights(mut w: World) {
    for (write, read) in [(false, false), (true, false), (false, true), (true, true)] {
        let attributes =
            MemAttributes { rdma_write: write, rdma_read: read, ..MemAttributes::local(w.b.tag) };
        for heap in [false, true] {
            let region =
                if heap { w.b.register(vec![0; 64], attributes) } else { w.b.alloc(64, attributes) }.unwrap();
            let start = region.remote(0);
            let place = start.offset(start.addr.next_multiple_of(8) - start.addr);
            let wanted = [write, read, write && read].map(|may| if may { OK } else { NO });
            assert_eq!(attempts(&mut w, place, 8), wanted, "write {write}, read {read}, heap {heap}");
        }
    }
}

/// The rights of the target VI decide, too.
pub fn a_vi_grants_rights(mut w: World) {
    let target = w.b.window(64);
    for (write, read) in [(false, false), (true, false), (false, true)] {
        for op in [Op::RdmaWrite, Op::RdmaRead, Op::FetchAdd] {
            let mut attributes = w.b.vi_attributes(ReliableDelivery);
            (attributes.rdma_write, attributes.rdma_read) = (write, read);
            let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes));
            w.connect(va, vb);
            let buffer = w.a.buffer(8);
            let descriptor = Descriptor::new(op).remote(target.remote(0)).segment(buffer);
            let may = match op {
                Op::RdmaWrite => write,
                Op::RdmaRead => read,
                _ => false,
            };
            let status = attempt(&mut w, va, vb, descriptor);
            assert_eq!(status, if may { OK } else { NO }, "{op:?} with write {write}, read {read}");
        }
    }
}

/// Recalled: Region and target VI carry the same tag, or it is not reached.
pub fn remote_tags_must_match(mut w: World) {
    let other = w.b.create_ptag().unwrap();
    let foreign = w.b.alloc(64, MemAttributes::remote(other)).unwrap();
    assert_eq!(attempts(&mut w, foreign.remote(0), 8), [NO, NO, NO]);
    // A VI of that tag reaches it, and nothing else.
    let target = w.b.window(64);
    for (place, wanted) in [(foreign.remote(0), OK), (target.remote(0), NO)] {
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(ViAttributes::new(other)));
        w.connect(va, vb);
        let buffer = w.a.buffer(8);
        assert_eq!(attempt(&mut w, va, vb, Descriptor::rdma_write(buffer, place)), wanted);
    }
}

/// Recalled: Local segments carry the tag of their VI, or the descriptor fails: for sends at once, for receives when used.
pub fn local_tags_must_match(mut w: World) {
    let (other, theirs) = (w.a.create_ptag().unwrap(), w.b.create_ptag().unwrap());
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 1, 8);
        let foreign = w.a.alloc(8, MemAttributes::remote(other)).unwrap();
        w.a.post_send(va, Descriptor::send(foreign)).unwrap();
        assert_eq!(w.sent(va).status, Status::ProtectionError, "{level:?}");
        w.reaches(Side::A, va, if level == Unreliable { ViState::Connected } else { ViState::Error });
        let (va, vb) = w.pair(level);
        let foreign = w.b.alloc(8, MemAttributes::remote(theirs)).unwrap();
        w.b.post_recv(vb, Descriptor::recv(foreign)).unwrap();
        w.b.post_recvs(vb, 1, 8);
        w.a.send(va, b"x");
        assert_eq!(w.received(vb).status, Status::ProtectionError, "{level:?}");
        if level == Unreliable {
            w.a.send(va, b"y");
            assert_eq!(w.received(vb).data(), b"y", "only that message was lost");
        } else {
            w.reaches(Side::A, va, ViState::Error);
        }
    }
}

/// A descriptor that was good is looked at again when it is posted elsewhere, or when rights have changed.
pub fn an_old_check_does_not_count(mut w: World) {
    let other = w.a.create_ptag().unwrap();
    let (va, vb) = w.pair(Unreliable);
    w.b.post_recvs(vb, 8, 8);
    let buffer = w.a.buffer(8);
    let handle = buffer.handle();
    w.a.post_send(va, Descriptor::send(buffer)).unwrap();
    let done = w.sent(va);
    assert_eq!(done.status, OK);
    // Another VI of the same NIC, with another tag.
    let mut attributes = ViAttributes::new(other).reliability(Unreliable);
    attributes.rdma_write = false;
    let (vo, vp) = (w.a.vi_with(attributes), w.b.vi(Unreliable));
    w.connect(vo, vp);
    w.b.post_recvs(vp, 8, 8);
    w.a.post_send(vo, done.descriptor).unwrap();
    let done = w.sent(vo);
    assert_eq!(done.status, Status::ProtectionError);
    // The region gets the other tag: now that one may, and the first may not.
    w.a.set_mem_attributes(handle, MemAttributes::local(other)).unwrap();
    w.a.post_send(vo, done.descriptor).unwrap();
    let done = w.sent(vo);
    assert_eq!(done.status, OK);
    w.a.post_send(va, done.descriptor).unwrap();
    let done = w.sent(va);
    assert_eq!(done.status, Status::ProtectionError);
    let own = MemAttributes::local(w.a.tag);
    w.a.set_mem_attributes(handle, own).unwrap();
    w.a.post_send(va, done.descriptor).unwrap();
    let done = w.sent(va);
    assert_eq!(done.status, OK);
    // Another NIC altogether, for which the memory means nothing.
    let (back, front) = (w.b.vi(Unreliable), w.a.vi(Unreliable));
    w.connect(front, back);
    w.a.post_recvs(front, 1, 8);
    w.b.post_send(back, done.descriptor).unwrap();
    assert_eq!(w.next(Side::B, back, Queue::Send).status, Status::ProtectionError);
    assert!(w.b.query_mem(handle).is_err());
}

/// Not a byte outside the region, at either end, whatever the arithmetic.
pub fn bounds_hold(mut w: World) {
    let target = w.b.window(4096);
    let start = target.remote(0);
    let outside = [
        (start.addr.wrapping_sub(8), 8),
        (start.addr + 4096, 8),
        (start.addr + 4089, 8),
        (start.addr, 4097),
        (start.addr + 4096, 1),
        (u64::MAX - 7, 8),
        (u64::MAX, 8),
        (0, 8),
    ];
    for (addr, len) in outside {
        for make in [Descriptor::rdma_write as fn(_, _) -> _, Descriptor::rdma_read] {
            let (va, vb) = w.pair(ReliableDelivery);
            let buffer = w.a.buffer(len);
            let place = RemoteAddress { addr, handle: start.handle };
            assert_eq!(attempt(&mut w, va, vb, make(buffer, place)), NO, "{addr:#x} {len}");
        }
    }
    // Up to the very last byte is fine, and nothing at all at the end, too.
    for (offset, len) in [(0, 4096), (4095, 1), (4096, 0)] {
        let (va, vb) = w.pair(ReliableDelivery);
        let buffer = w.a.buffer(len.max(1));
        let write = Descriptor::new(Op::RdmaWrite).remote(start.offset(offset)).segment_range(buffer, 0..len);
        assert_eq!(attempt(&mut w, va, vb, write), OK, "{offset} {len}");
    }
}

/// Handles that were never given out are refused, every one of them, and each costs the guesser its connection.
pub fn guessed_handles_are_refused(mut w: World) {
    let target = w.b.window(64);
    let place = target.remote(0);
    let mut rng = Rng::new(0x6a55);
    let near = [1, 2, 1 << 20, 1 << 21, u32::MAX, 0x8000_0000];
    let rounds = viaduct_kit::effort::rounds(60, 2000);
    for n in 0..rounds {
        let number = match near.get(n as usize) {
            Some(step) => place.handle.number() ^ step,
            None => rng.next() as u32,
        };
        if number == place.handle.number() || number == 0 {
            continue;
        }
        let guess = RemoteAddress { handle: MemHandle::from_number(number), ..place };
        let (va, vb) = w.pair(ReliableDelivery);
        let buffer = w.a.buffer(8);
        let make = [Descriptor::rdma_write as fn(_, _) -> _, Descriptor::rdma_read][rng.below(2)];
        w.trying(format!("handle {number:#x}, where {:#x} is right", place.handle.number()));
        assert_eq!(attempt(&mut w, va, vb, make(buffer, guess)), NO, "handle {number:#x}");
    }
    assert_eq!(target.to_vec(64), [0; 64]);
}

/// A region that was taken back is out of reach, and so is its handle for ever.
pub fn a_withdrawn_region_is_out_of_reach(mut w: World) {
    let attributes = MemAttributes::remote(w.b.tag);
    let alloc = w.b.alloc(64, attributes).unwrap();
    let heap = w.b.register(vec![7; 64], attributes).unwrap();
    let places = [alloc.remote(0), heap.remote(0)];
    assert_eq!(w.b.deregister(alloc).unwrap(), None);
    assert_eq!(w.b.deregister(heap).unwrap(), Some(vec![7; 64]));
    for place in places {
        assert_eq!(attempts(&mut w, place, 8)[..2], [NO, NO]);
        assert!(matches!(w.b.query_mem(place.handle), Err(Error::InvalidHandle(_))));
    }
    // Dropped buffers are withdrawn at the latest when something else is registered.
    let dropped = w.b.alloc(64, attributes).unwrap();
    let place = dropped.remote(0);
    drop(dropped);
    let again: Vec<Buffer> = (0..50).map(|_| w.b.alloc(64, attributes).unwrap()).collect();
    assert!(again.iter().all(|b| b.handle() != place.handle), "a handle is never used twice");
    assert_eq!(attempts(&mut w, place, 8)[..2], [NO, NO]);
}

/// Rights can be changed while registered.
pub fn rights_change(mut w: World) {
    let target = w.b.window(64);
    let place = target.remote(0);
    assert_eq!(attempts(&mut w, place, 8), [OK, OK, OK]);
    let closed = MemAttributes::local(w.b.tag);
    w.b.set_mem_attributes(place.handle, closed).unwrap();
    assert_eq!(w.b.query_mem(place.handle).unwrap(), closed);
    assert_eq!(attempts(&mut w, place, 8), [NO, NO, NO]);
    let read_only = MemAttributes { rdma_read: true, ..MemAttributes::local(w.b.tag) };
    w.b.set_mem_attributes(place.handle, read_only).unwrap();
    assert_eq!(attempts(&mut w, place, 8), [NO, OK, NO]);
    let other = w.b.create_ptag().unwrap();
    w.b.set_mem_attributes(place.handle, MemAttributes::remote(other)).unwrap();
    assert_eq!(attempts(&mut w, place, 8), [NO, NO, NO]);
    assert!(matches!(w.b.destroy_ptag(other), Err(Error::InUse(_))));
}

/// A handle means something to the NIC that gave it out, and to no other.
pub fn handles_belong_to_one_nic(mut w: World) {
    let mine = w.a.window(64);
    assert_eq!(attempts(&mut w, mine.remote(0), 8)[..2], [NO, NO], "a's memory is not b's");
    // A generation has 12 bits: a number of one NIC may by chance be one of the other's, two of eight are not.
    let mut theirs: Vec<_> = (0..8).map(|_| w.b.window(64)).collect();
    theirs.retain(|theirs| matches!(w.a.query_mem(theirs.remote(0).handle), Err(Error::InvalidHandle(_))));
    assert!(theirs.len() >= 7, "{} of eight regions of b's are not a's", theirs.len());
    let theirs = theirs.remove(0);
    let place = theirs.remote(0);
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 1, 64);
    w.a.post_send(va, Descriptor::send(theirs)).unwrap();
    assert_eq!(w.sent(va).status, Status::ProtectionError, "nor does a send from b's");
    let back = w.a.window(64);
    assert!(matches!(w.b.deregister(back), Err(Error::InvalidHandle(_))));
    let own = MemAttributes::local(w.a.tag);
    assert!(matches!(w.a.set_mem_attributes(place.handle, own), Err(Error::InvalidHandle(_))));
}

/// Memory registered twice has two handles with their own rights.
pub fn one_memory_two_handles(mut w: World) {
    let mut words = vec![0u64; 16];
    let pointer = words.as_mut_ptr().cast::<u8>();
    // SAFETY: `words` outlives both registrations and is not used while they stand.
    let (one, two) = unsafe { (RawMemory::borrowed(pointer, 128), RawMemory::borrowed(pointer, 128)) };
    let tag = w.b.tag;
    let open = w.b.register_raw(one, MemAttributes::remote(tag)).unwrap();
    let closed = w.b.register_raw(two, MemAttributes::local(tag)).unwrap();
    let (open_place, closed_place) = (open.remote(0), closed.remote(0));
    assert_eq!(open_place.addr, closed_place.addr);
    assert_ne!(open_place.handle, closed_place.handle);
    assert_eq!(attempts(&mut w, open_place, 8), [OK, OK, OK]);
    assert_eq!(attempts(&mut w, closed_place, 8), [NO, NO, NO]);
    // Taking one back leaves the other.
    w.b.deregister(closed).unwrap();
    assert_eq!(attempts(&mut w, open_place, 8), [OK, OK, OK]);
    w.b.deregister(open).unwrap();
    assert_eq!(attempts(&mut w, open_place, 8)[..2], [NO, NO]);
    drop(words);
}

/// A refused operation of the peer may be told to the target; a refusal of its own making is the initiator's alone.
pub fn a_refusal_is_told_to_the_initiator(mut w: World) {
    let closed = w.b.buffer(64);
    let place = closed.remote(0);
    let (va, vb) = w.pair(ReliableDelivery);
    w.a.post_recvs(va, 2, 8);
    let buffer = w.a.buffer(8);
    w.a.post_send(va, Descriptor::rdma_write(buffer, place).context(3)).unwrap();
    let next = w.a.buffer(8);
    w.a.post_send(va, Descriptor::send(next).context(4)).unwrap();
    let (first, second) = (w.sent(va), w.sent(va));
    assert_eq!((first.status, first.length, first.descriptor.work().context), (NO, 0, 3));
    assert_eq!((second.status, second.descriptor.work().context), (Status::Flushed, 4));
    w.reaches(Side::B, vb, ViState::Error);
    let told: Vec<ErrorCode> = std::iter::from_fn(|| w.b.take_error()).map(|e| e.code).collect();
    assert!(told.iter().all(|code| *code == ErrorCode::RdmaWriteProtection), "{told:?}");
    assert_eq!(closed.to_vec(64), [0; 64]);
}

/// A receive of `len` bytes from `start` on in memory of which the region is the first part only.
fn overlong(memory: &Overlong, start: usize, len: u32) -> Descriptor {
    let addr = memory.region.remote(start).addr as *mut u8;
    // SAFETY: all of the memory outlives the test's NICs.
    unsafe { Descriptor::new(Op::Receive).raw_segment(addr, len, memory.region.handle()) }
}

const REGION: usize = 8192;
const BEYOND: u8 = 0xEE;

/// A region, and what lies beyond its end.
struct Overlong {
    region: Buffer,
    beyond: Buffer,
}

impl Overlong {
    /// Shareable memory, so that senders may write into it, has other shareable memory behind it.
    fn new(w: &mut World, shareable: bool) -> Overlong {
        let attributes = MemAttributes::local(w.b.tag);
        let len = 2 * 65_536;
        if shareable {
            let region = w.b.alloc(REGION, attributes).unwrap();
            let mut beyond = w.b.alloc(len, attributes).unwrap();
            beyond.write(0, &vec![BEYOND; len]);
            return Overlong { region, beyond };
        }
        let whole = w.b.register(vec![BEYOND; REGION + len], attributes).unwrap();
        let base = whole.remote(0).addr as *mut u8;
        let (inside, beyond) = whole.split_at(REGION);
        std::mem::forget(inside);
        // SAFETY: the memory is never freed, since a part of its region is never dropped.
        let region = w.b.register_raw(unsafe { RawMemory::borrowed(base, REGION) }, attributes).unwrap();
        Overlong { region, beyond }
    }

    fn is_untouched_beyond(&self) -> bool {
        self.beyond.to_vec(self.beyond.len()).iter().all(|byte| *byte == BEYOND)
    }
}

/// Programs of the time post receives that end beyond their region, and get messages there that fit.
pub fn a_receive_may_end_beyond_its_region(mut w: World) {
    for level in Reliability::ALL {
        for shareable in [false, true] {
            let memory = Overlong::new(&mut w, shareable);
            let start = 4096;
            let room = REGION - start;
            // What fits, up to the last byte of the region: inline, in one piece, from heap memory.
            let (va, vb) = w.pair(level);
            for len in [0, 1, 8, 100, 1000, room] {
                w.trying(format!("{level:?}, {len} bytes, shareable {shareable}"));
                for heap in [false, true] {
                    w.b.post_recv(vb, overlong(&memory, start, 65_472)).unwrap();
                    let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5A).collect();
                    let attributes = MemAttributes::local(w.a.tag);
                    let buffer = match heap && len > 0 {
                        true => w.a.register(bytes.clone(), attributes).unwrap(),
                        false => w.a.message(if len == 0 { &[0] } else { &bytes }),
                    };
                    let descriptor = match len {
                        0 => Descriptor::send_empty(),
                        _ => Descriptor::send(buffer),
                    };
                    w.a.post_send(va, descriptor).unwrap();
                    let got = w.received(vb);
                    assert_eq!((got.status, got.length as usize), (OK, len), "{level:?} {len}");
                    assert_eq!(w.sent(va).status, OK);
                    assert_eq!(memory.region.to_vec(start + len)[start..], bytes);
                }
            }
            assert!(memory.is_untouched_beyond());
            // One byte more than there is, and nearly as long as the receive says: a protection error; longer than that: a
            // length error. Nothing is written beyond the region either way.
            let wrong = [
                (room + 1, Status::ProtectionError),
                (65_472, Status::ProtectionError),
                (65_473, Status::LengthError),
            ];
            for (len, wanted) in wrong {
                for heap in [false, true] {
                    w.trying(format!("{level:?}, {len} bytes, shareable {shareable}, heap {heap}"));
                    let (va, vb) = w.pair(level);
                    w.b.post_recv(vb, overlong(&memory, start, 65_472)).unwrap();
                    let bytes = vec![7; len];
                    let attributes = MemAttributes::local(w.a.tag);
                    let buffer = match heap {
                        true => w.a.register(bytes, attributes).unwrap(),
                        false => w.a.message(&bytes),
                    };
                    w.a.post_send(va, Descriptor::send(buffer)).unwrap();
                    let got = w.received(vb);
                    // A long message may come in pieces, of which the first that does not fit decides.
                    let decided = [wanted, Status::ProtectionError].contains(&got.status);
                    assert!(decided && got.length == 0, "{level:?} {len}: {:?}", got.status);
                    if level != Unreliable {
                        w.reaches(Side::B, vb, ViState::Error);
                        w.reaches(Side::A, va, ViState::Error);
                        let code = w.b.take_error().expect("told").code;
                        assert!(
                            [ErrorCode::ReceiveProtection, ErrorCode::TooLong].contains(&code),
                            "{code:?}"
                        );
                        if got.status == Status::ProtectionError {
                            assert_eq!(code, ErrorCode::ReceiveProtection);
                        }
                    }
                    assert!(memory.is_untouched_beyond(), "{level:?} {len}");
                    w.a.retire(va);
                    w.b.retire(vb);
                }
            }
            // Where a receive begins is checked when it is posted, whatever comes.
            for (start, handle) in
                [(REGION, memory.region.handle()), (0, MemHandle::from_number(0x1234_5678))]
            {
                let (va, vb) = w.pair(level);
                let addr = memory.region.remote(0).addr as *mut u8;
                // SAFETY: all of the memory outlives the test's NICs.
                let descriptor =
                    unsafe { Descriptor::new(Op::Receive).raw_segment(addr.wrapping_add(start), 64, handle) };
                w.b.post_recv(vb, descriptor).unwrap();
                w.a.send(va, b"x");
                assert_eq!(w.received(vb).status, Status::ProtectionError);
                w.a.retire(va);
                w.b.retire(vb);
                while w.b.take_error().is_some() {}
            }
        }
    }
}

/// A program may ask for the whole receive to be judged when it is posted.
pub fn strict_receives_end_inside(mut w: World) {
    let memory = Overlong::new(&mut w, false);
    let (va, vb) = w.pair(Unreliable);
    // A check that was passed under the other rule does not count.
    let mut descriptor = overlong(&memory, REGION - 8, 16);
    for (strict, wanted) in [(false, OK), (true, Status::ProtectionError), (false, OK)] {
        w.b.set_strict_receives(strict);
        w.b.post_recv(vb, descriptor).unwrap();
        w.a.send(va, b"8 bytes.");
        let got = w.received(vb);
        assert_eq!(got.status, wanted, "strict {strict}");
        descriptor = got.descriptor;
    }
    // In pieces: what follows the piece that is cut off cannot be used.
    let addr = memory.region.remote(REGION - 4).addr as *mut u8;
    // SAFETY: all of the memory outlives the test's NICs.
    let pieces = unsafe {
        let cut = Descriptor::new(Op::Receive).raw_segment(addr, 8, memory.region.handle());
        cut.raw_segment(addr.wrapping_sub(100), 50, memory.region.handle())
    };
    w.b.post_recv(vb, pieces).unwrap();
    w.a.send(va, b"four");
    assert_eq!(w.received(vb).status, OK);
    assert!(memory.is_untouched_beyond());
}
