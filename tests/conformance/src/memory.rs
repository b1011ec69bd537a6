//! Memory: made by the NIC, registered from the heap, used without telling it, in any number, and given back.

use std::sync::Arc;

use viaduct_os::budget::Budget;
use viaduct_os::segment::{Access, Segment};
use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::{Buffer, Counter, Descriptor, Error, MemAttributes, MemHandle, Reach, Status};

use crate::pattern::{assert_same, bytes};
use crate::world::World;

/// Every kind of memory sends and receives, at sizes around all limits and at odd addresses.
pub fn every_kind_of_memory_works(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let kinds = 3;
    for len in [1usize, 49, 105, 4097, 70_001] {
        for from in 0..kinds {
            for to in 0..kinds {
                let make = |node: &mut crate::world::Node, kind| -> Buffer {
                    let attributes = MemAttributes::local(node.tag);
                    match kind {
                        0 => node.alloc(len + 1, attributes).unwrap(),
                        1 => node.register(vec![0; len + 1], attributes).unwrap(),
                        _ => Buffer::from(vec![0; len + 1]),
                    }
                };
                let (mut source, target) = (make(&mut w.a, from), make(&mut w.b, to));
                let message = bytes((len + from * 3 + to) as u64, len);
                source.write(1, &message);
                w.b.post_recv(
                    vb,
                    Descriptor::new(viaduct_via::Op::Receive).segment_range(target, 1..len + 1),
                )
                .unwrap();
                w.a.post_send(va, Descriptor::new(viaduct_via::Op::Send).segment_range(source, 1..len + 1))
                    .unwrap();
                let got = w.received(vb);
                assert_eq!((got.status, got.length as usize), (Status::Success, len), "{from} to {to}");
                assert_same(&got.descriptor.into_buffer().to_vec(len + 1)[1..], &message);
                assert_eq!(w.sent(va).status, Status::Success);
            }
        }
    }
    assert!(w.a.counters().read(Counter::ImplicitRegistrations) > 0);
}

/// Heap memory comes back as it is, with what was received in it; made memory does not.
pub fn heap_memory_comes_back(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let attributes = MemAttributes::local(w.b.tag);
    let registered = w.b.register(vec![0; 5], attributes).unwrap();
    let handle = registered.handle();
    assert_ne!(handle.number(), 0, "programs take 0 for failure");
    assert_eq!(w.b.query_mem(handle).unwrap(), attributes);
    w.b.post_recv(vb, Descriptor::recv(registered)).unwrap();
    w.b.post_recv(vb, Descriptor::recv(Buffer::from(vec![0; 5]))).unwrap();
    w.a.send(va, b"first");
    w.a.send(va, b"other");
    let buffer = w.received(vb).descriptor.into_buffer();
    assert_eq!(w.b.deregister(buffer).unwrap().unwrap(), b"first");
    assert!(matches!(w.b.query_mem(handle), Err(Error::InvalidHandle(_))));
    let implicit = w.received(vb).descriptor.into_buffer();
    assert_eq!(implicit.handle(), MemHandle::NONE);
    assert_eq!(implicit.into_vec().unwrap(), b"other");
    let made = w.b.buffer(64);
    assert!(w.b.deregister(made).unwrap().is_none());
}

/// Made memory is zeroed, aligned for atomics, and apart from all other.
pub fn made_memory_is_fresh(mut w: World) {
    let mut all: Vec<Buffer> = Vec::new();
    for len in [1usize, 8, 100, 4096, 100_000, 1 << 20] {
        for _ in 0..3 {
            let mut buffer = w.a.buffer(len);
            assert!(buffer.to_vec(len).iter().all(|b| *b == 0), "zeroed, {len}");
            assert!(buffer.remote(0).addr.is_multiple_of(8), "aligned, {len}");
            buffer.write(0, &vec![all.len() as u8 + 1; len]);
            all.push(buffer);
        }
    }
    for (n, buffer) in all.iter().enumerate() {
        assert!(buffer.to_vec(buffer.len()).iter().all(|b| *b == n as u8 + 1), "overlaps another");
    }
    // What was used before is zeroed again.
    drop(all);
    for len in [1usize, 8, 100, 4096, 100_000] {
        let again = w.a.buffer(len);
        assert!(again.to_vec(len).iter().all(|b| *b == 0), "used memory is zeroed, {len}");
    }
}

/// Pieces of one region are used apart and at the same time.
pub fn pieces_of_a_region(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let region = w.b.buffer(100);
    let handle = region.handle();
    let (head, tail) = region.split_at(30);
    let pieces = tail.chunks(20);
    assert_eq!(pieces.len(), 3, "the rest of 10 bytes is dropped");
    for piece in pieces {
        assert_eq!(piece.handle(), handle);
        w.b.post_recv(vb, Descriptor::recv(piece)).unwrap();
    }
    assert!(matches!(w.b.deregister(head), Err(Error::InUse(_))));
    let mut back = Vec::new();
    for n in 1..4u8 {
        w.a.send(va, &[n; 20]);
        let got = w.received(vb);
        assert_eq!(got.data(), [n; 20]);
        back.push(got.descriptor.into_buffer());
    }
    let last = back.pop().unwrap();
    drop(back);
    w.b.deregister(last).unwrap();
    assert!(w.b.query_mem(handle).is_err(), "the last piece takes the region with it");
}

/// Thousands of regions at once, all reachable; then none.
pub fn thousands_of_regions(mut w: World) {
    let count = 5000;
    let attributes = MemAttributes::remote(w.b.tag);
    let mut regions: Vec<Buffer> = (0..count)
        .map(|n| {
            if n % 2 == 0 { w.b.alloc(64, attributes) } else { w.b.register(vec![0; 64], attributes) }
                .unwrap()
        })
        .collect();
    let mut handles: Vec<u32> = regions.iter().map(|b| b.handle().number()).collect();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), count, "every region has its own handle");
    let (va, _vb) = w.pair(ReliableDelivery);
    for n in (0..count).step_by(97).chain([count - 1]) {
        let source = w.a.message(&(n as u64).to_le_bytes());
        w.a.post_send(va, Descriptor::rdma_write(source, regions[n].remote(56))).unwrap();
        assert_eq!(w.sent(va).status, Status::Success, "region {n}");
        assert_eq!(regions[n].to_vec(64)[56..], (n as u64).to_le_bytes());
    }
    let place = regions[count / 2].remote(0);
    regions.truncate(10);
    drop(w.b.buffer(1));
    assert!(w.b.query_mem(place.handle).is_err());
    assert!(w.b.query_mem(regions[3].handle()).is_ok());
}

/// Registering and letting go, over and over, costs neither memory nor handles.
pub fn regions_come_and_go(mut w: World) {
    let attributes = MemAttributes::remote(w.a.tag);
    for n in 0..20_000usize {
        let buffer = if n % 3 == 0 {
            w.a.register(vec![0; 100], attributes).unwrap()
        } else {
            w.a.alloc(1 + n % 5000, attributes).unwrap()
        };
        if n % 2 == 0 {
            w.a.deregister(buffer).unwrap();
        }
    }
    w.a.destroy_ptag(attributes.ptag).expect("nothing is left that uses the tag");
}

/// A region dropped while a peer writes to it is withdrawn first; the peer gets an error or is done before.
pub fn dropping_while_a_peer_writes(mut w: World) {
    for round in 0..10 {
        let (va, vb) = w.pair(ReliableDelivery);
        let attributes = MemAttributes::remote(w.b.tag);
        let target = if round % 2 == 0 {
            w.b.register(vec![0; 200_000], attributes).unwrap()
        } else {
            w.b.alloc(200_000, attributes).unwrap()
        };
        let place = target.remote(0);
        let (a, b) = (&mut w.a, &mut w.b);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut source = Some(a.buffer(200_000));
                while let Some(buffer) = source.take() {
                    a.post_send(va, Descriptor::rdma_write(buffer, place)).unwrap();
                    let done = crate::world::until("the write", || a.poll_send(va).unwrap());
                    match done.status {
                        Status::Success => source = Some(done.descriptor.into_buffer()),
                        Status::RdmaProtectionError | Status::Flushed => {}
                        other => panic!("{other}"),
                    }
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(2));
            if round % 3 == 0 {
                drop(target);
                drop(b.buffer(8)); // collects what was dropped
            } else {
                drop(b.deregister(target).unwrap());
            }
            crate::world::until("the end", || (b.state(vb) == viaduct_via::ViState::Error).then_some(()));
        });
        w.a.retire(va);
        w.b.retire(vb);
    }
}

/// Buffers outlive their NIC.
pub fn buffers_outlive_their_nic(mut w: World) {
    let attributes = MemAttributes::remote(w.a.tag);
    let (mut made, mut heap) = (w.a.buffer(4096), w.a.register(vec![3; 4096], attributes).unwrap());
    drop(w);
    made.write(100, &[1; 50]);
    heap.write(100, &[1; 50]);
    assert_eq!((made.to_vec(200)[100..150].to_vec(), heap.to_vec(200)[99]), (vec![1; 50], 3));
}

/// What no region can be, and a NIC without room.
pub fn regions_have_limits(mut w: World) {
    let attributes = MemAttributes::local(w.a.tag);
    assert!(matches!(w.a.alloc(0, attributes), Err(Error::InvalidParameter(_))));
    assert!(matches!(w.a.register(Vec::new(), attributes), Err(Error::InvalidParameter(_))));
    let most = w.a.attributes().max_register_block_bytes;
    if let Ok(beyond) = usize::try_from(most + 1) {
        assert!(matches!(w.a.alloc(beyond, attributes), Err(Error::Limit { .. } | Error::Os(_))));
    }
    let gone = w.a.create_ptag().unwrap();
    w.a.destroy_ptag(gone).unwrap();
    assert!(matches!(w.a.alloc(8, MemAttributes::local(gone)), Err(Error::InvalidPtag)));
    assert!(matches!(w.a.register(vec![1], MemAttributes::local(gone)), Err(Error::InvalidPtag)));
}

/// Bytes of a segment, past the NIC.
fn seen(segment: &Segment, at: usize, len: usize) -> Vec<u8> {
    assert!(at + len <= segment.len());
    // SAFETY: inside the mapping, and no write is under way.
    (0..len).map(|n| unsafe { segment.as_ptr().add(at + n).read_volatile() }).collect()
}

/// A part of a segment, full or sparse and wherever it is mapped, is memory that peers write, read and change in place.
pub fn a_segment_of_the_program_is_reached_by_peers(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let direct = w.a.query_vi(va).unwrap().reach == Some(Reach::Direct);
    let elsewhere =
        |c: &viaduct_via::CounterSlot| c.read(Counter::KernelCopies) + c.read(Counter::HelperCopies);
    let full = Segment::create("test", 1 << 20, &Budget::new(4 << 20)).unwrap();
    let sparse = Segment::create_sparse("test", 1 << 36).unwrap();
    for segment in [full, sparse] {
        // Registered is a second mapping, at an address that this test chooses; looked at is the first.
        let placed = (0..100).find_map(|_| {
            let free = segment.map_again(Access::ReadWrite).unwrap().as_ptr() as usize;
            segment.map_at(free, Access::ReadWrite).ok()
        });
        let placed = Arc::new(placed.expect("one of a hundred free ranges"));
        let start = segment.len() - 300_000;
        let range = start..segment.len() - 40_000;
        let len = range.len();
        let remote = MemAttributes::remote(w.b.tag);
        let region = w.b.register_segment(&placed, range, remote).unwrap();
        assert_eq!((region.len(), region.remote(0).addr), (len, placed.as_ptr() as u64 + start as u64));
        let message = bytes(segment.len() as u64, 100_000);
        let before = elsewhere(w.a.counters());
        let source = w.a.message(&message);
        w.a.post_send(va, Descriptor::rdma_write(source, region.remote(50_001))).unwrap();
        assert_eq!(w.sent(va).status, Status::Success);
        assert_same(&seen(&segment, start + 50_001, message.len()), &message);
        let target = w.a.buffer(message.len());
        w.a.post_send(va, Descriptor::rdma_read(target, region.remote(50_001))).unwrap();
        let read = w.sent(va);
        assert_eq!(read.status, Status::Success);
        assert_same(&read.descriptor.into_buffer().to_vec(message.len()), &message);
        let old = w.a.buffer(8);
        w.a.post_send(va, Descriptor::fetch_add(old, region.remote(8), 5)).unwrap();
        assert_eq!(w.sent(va).status, Status::Success);
        assert_eq!(seen(&segment, start + 8, 8), 5u64.to_ne_bytes());
        assert!(!direct || elsewhere(w.a.counters()) == before, "the peer's memory is mapped");
        // Received into, and sent from.
        let (head, tail) = region.split_at(200_000);
        w.b.post_recv(vb, Descriptor::recv(head)).unwrap();
        w.a.send(va, &message);
        assert_eq!(w.received(vb).status, Status::Success);
        assert_eq!(w.sent(va).status, Status::Success);
        assert_same(&seen(&segment, start, message.len()), &message);
        w.a.post_recvs(va, 1, tail.len());
        let expected = tail.to_vec(tail.len());
        w.b.post_send(vb, Descriptor::send(tail)).unwrap();
        let got = w.next(crate::world::Side::A, va, viaduct_via::Queue::Receive);
        assert_same(&got.data(), &expected);
        drop(w.next(crate::world::Side::B, vb, viaduct_via::Queue::Send));
    }
}

/// Several NICs register the same bytes, and ranges that overlap: each writes into the memory of all.
pub fn one_segment_of_several_nics(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let segment = Arc::new(Segment::create("test", 64 << 10, &Budget::new(1 << 20)).unwrap());
    let attributes = MemAttributes::local(w.a.tag);
    let ours = w.a.register_segment(&segment, 0..64 << 10, attributes).unwrap();
    let (local, remote) = (MemAttributes::local(w.b.tag), MemAttributes::remote(w.b.tag));
    let theirs = w.b.register_segment(&segment, 4096..32 << 10, remote).unwrap();
    let inner = w.b.register_segment(&segment, 8192..8200, local).unwrap();
    assert_ne!(theirs.handle(), inner.handle());
    let (mut low, high) = ours.split_at(32 << 10);
    low.write(4096, b"shared by all");
    assert_eq!(theirs.to_vec(13), b"shared by all");
    // From one part of the memory to another.
    w.a.post_send(va, Descriptor::rdma_write(low, theirs.remote(0))).unwrap();
    let failed = w.sent(va);
    assert_eq!(failed.status, Status::RdmaProtectionError, "longer than the region");
    w.until("the end", |w| (w.b.state(vb) == viaduct_via::ViState::Error).then_some(()));
    w.a.retire(va);
    w.b.retire(vb);
    let (va, _vb) = w.pair(ReliableDelivery);
    let (mut word, _) = high.split_at(8);
    word.write(0, &7u64.to_ne_bytes());
    w.a.post_send(va, Descriptor::rdma_write(word, theirs.remote(4096))).unwrap();
    assert_eq!(w.sent(va).status, Status::Success);
    assert_eq!(inner.to_vec(8), 7u64.to_ne_bytes());
}

/// A segment is kept by its regions, and is the program's again when they are gone.
pub fn a_segment_goes_with_its_last_region(mut w: World) {
    let segment = Arc::new(Segment::create_sparse("test", 1 << 20).unwrap());
    let before = Arc::strong_count(&segment);
    for round in 0..50 {
        let remote = MemAttributes::remote(w.a.tag);
        let first = w.a.register_segment(&segment, 0..4096, remote).unwrap();
        let mut second = w.a.register_segment(&segment, 100..200, remote).unwrap();
        second.write(0, &[round; 100]);
        assert!(Arc::strong_count(&segment) > before);
        assert!(w.a.deregister(first).unwrap().is_none());
        assert_eq!(second.to_vec(100), [round; 100]);
        drop(second);
        drop(w.a.buffer(8)); // collects what was dropped
    }
    assert_eq!(Arc::strong_count(&segment), before);
    // Also one that outlives its NIC.
    let local = MemAttributes::local(w.a.tag);
    let kept = w.a.register_segment(&segment, 0..10, local).unwrap();
    drop(w);
    assert_eq!(kept.to_vec(1), [0]);
    drop(kept);
    assert_eq!(Arc::strong_count(&segment), before);
}

/// Memory lies at a multiple of what was asked for; memory of the program's has to.
pub fn memory_is_aligned_as_asked(mut w: World) {
    let local = MemAttributes::local(w.a.tag);
    let mut all = Vec::new();
    for align in [1usize, 8, 512, 4096, 65_536, 2 << 20] {
        for len in [1usize, 100, 4096, 70_000] {
            let buffer = w.a.alloc(len, local.aligned(align)).unwrap();
            assert!(buffer.remote(0).addr.is_multiple_of(align as u64), "{len} bytes at {align}");
            assert_eq!(w.a.query_mem(buffer.handle()).unwrap().align, align);
            all.push(buffer);
        }
    }
    let heap = |w: &mut World, align| w.a.register(vec![1; 3 << 20], local.aligned(align));
    assert!(heap(&mut w, 1).is_ok());
    let segment = Arc::new(Segment::create_sparse("test", 1 << 20).unwrap());
    assert!(w.a.register_segment(&segment, 4096..5000, local.aligned(4096)).is_ok());
    let odd = w.a.register_segment(&segment, 512..5000, local.aligned(4096));
    assert!(matches!(odd, Err(Error::InvalidParameter(_))));
    let fine = w.a.register_segment(&segment, 512..5000, local).unwrap();
    assert!(w.a.set_mem_attributes(fine.handle(), local.aligned(512)).is_ok());
    let refused = w.a.set_mem_attributes(fine.handle(), local.aligned(1024));
    assert!(matches!(refused, Err(Error::InvalidParameter(_))));
    for wrong in [3, 4095, 4 << 20, usize::MAX] {
        assert!(matches!(w.a.alloc(8, local.aligned(wrong)), Err(Error::InvalidParameter(_))), "{wrong}");
    }
}

/// Memory that the peer never registered is read by its address, where the kernel allows it; else the call says so.
pub fn memory_that_was_not_registered_is_read(mut w: World) {
    let idle = w.a.vi(ReliableDelivery);
    let mut into = vec![0; 300_000];
    assert!(!w.a.can_read_private(idle));
    assert!(matches!(w.a.read_private(idle, 0, &mut into), Err(Error::InvalidState { .. })));
    let (va, vb) = w.pair(ReliableDelivery);
    let theirs = bytes(9, into.len());
    let address = theirs.as_ptr() as u64;
    if !w.a.can_read_private(va) {
        assert!(matches!(w.a.read_private(va, address, &mut into), Err(Error::NotSupported(_))));
        return;
    }
    assert!(w.b.can_read_private(vb), "both are of one user");
    w.a.read_private(va, address, &mut into).unwrap();
    assert_same(&into, &theirs);
    w.a.read_private(va, address + 77, &mut into[..5]).unwrap();
    assert_eq!(into[..5], theirs[77..82]);
    w.a.read_private(va, 0, &mut []).unwrap();
    for nowhere in [0, 8, u64::MAX, u64::MAX - 8] {
        let refused = w.a.read_private(va, nowhere, &mut into);
        assert!(matches!(refused, Err(Error::InvalidParameter(_))), "{nowhere:#x}");
    }
    // Memory that ends in the middle of what is wanted.
    let segment = Segment::create_sparse("test", 8192).unwrap();
    let (start, len) = (segment.as_ptr() as u64, segment.len());
    assert!(w.a.read_private(va, start, &mut into[..len]).is_ok());
    drop(segment);
    assert!(w.a.read_private(va, start, &mut into[..len]).is_err());
    assert_eq!(w.a.state(va), viaduct_via::ViState::Connected, "a refusal breaks nothing");
    w.b.disconnect(vb).unwrap();
    w.reaches(crate::world::Side::A, va, viaduct_via::ViState::Error);
    assert!(!w.a.can_read_private(va));
}
