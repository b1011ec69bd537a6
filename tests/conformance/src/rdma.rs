//! RDMA write and RDMA read, and what the target sees of them.

use std::sync::atomic::Ordering;
use std::thread;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::{Buffer, Completion, Descriptor, ErrorCode, MemAttributes, Op, Queue, Status, ViState};

use crate::pattern::{assert_same, bytes};
use crate::world::{Side, World, until};

/// Sizes at which transports change their ways.
pub const SIZES: [usize; 9] = [1, 8, 48, 49, 104, 105, 4096, 65_537, 1 << 20];

pub(crate) const RELIABLE: [Reliability; 2] = [ReliableDelivery, ReliableReception];

pub(crate) fn finish(w: &mut World, va: viaduct_via::Vi, descriptor: Descriptor) -> Completion {
    w.trying(format!("{descriptor:?}"));
    w.a.post_send(va, descriptor).unwrap();
    w.sent(va)
}

/// Written bytes are there when the write is complete, at every level; nothing else of the region is touched, and the
/// peer is not told.
pub fn a_write_lands_unseen(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        w.b.post_recvs(vb, 1, 8);
        for len in SIZES {
            let mut target = w.b.window(len + 32);
            target.write(0, &vec![0xee; len + 32]);
            let message = bytes(len as u64, len);
            let source = w.a.message(&message);
            let done = finish(&mut w, va, Descriptor::rdma_write(source, target.remote(16)));
            assert_eq!((done.op, done.status, done.length as usize), (Op::RdmaWrite, Status::Success, len));
            let now = target.to_vec(len + 32);
            assert_same(&now[16..16 + len], &message);
            assert!(now[..16].iter().chain(&now[16 + len..]).all(|b| *b == 0xee), "{level:?} {len}");
        }
        w.idle();
        assert!(w.b.poll_recv(vb).unwrap().is_none(), "no receive was used");
        assert_eq!(w.b.query_vi(vb).unwrap().receives, 1);
    }
}

/// Read bytes are there when the read is complete.
pub fn a_read_brings_the_bytes(mut w: World) {
    for level in RELIABLE {
        let (va, vb) = w.pair(level);
        for len in SIZES {
            let mut target = w.b.window(len + 5);
            let message = bytes(len as u64, len);
            target.write(5, &message);
            let into = w.a.buffer(len);
            let done = finish(&mut w, va, Descriptor::rdma_read(into, target.remote(5)));
            assert_eq!((done.op, done.status, done.length as usize), (Op::RdmaRead, Status::Success, len));
            assert_same(&done.data(), &message);
        }
        assert_eq!(w.b.query_vi(vb).unwrap().receives, 0);
    }
}

/// Registered heap memory is a target like any other.
pub fn heap_memory_is_a_target(mut w: World) {
    let (va, _vb) = w.pair(ReliableDelivery);
    for len in SIZES {
        let attributes = MemAttributes::remote(w.b.tag);
        let target = w.b.register(vec![0; len + 3], attributes).unwrap();
        let message = bytes(len as u64, len);
        let local = MemAttributes::local(w.a.tag);
        let source = w.a.register(message.clone(), local).unwrap();
        let done = finish(&mut w, va, Descriptor::rdma_write(source, target.remote(3)));
        assert_eq!(done.status, Status::Success, "{len}");
        assert_same(&target.to_vec(len + 3)[3..], &message);
        let into = Buffer::from(vec![0; len]);
        let done = finish(&mut w, va, Descriptor::rdma_read(into, target.remote(3)));
        assert_eq!(done.status, Status::Success, "{len}");
        assert_same(&done.data(), &message);
    }
}

/// Recalled: With immediate data a write uses up one receive, whose segments it leaves alone; the length is what was written.
pub fn a_write_with_immediate_data_is_seen(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        let mut target = w.b.window(5000);
        for (n, len) in [0usize, 4, 100, 5000].into_iter().enumerate() {
            let mut inbox = w.b.buffer(64);
            inbox.write(0, &[0xee; 64]);
            w.b.post_recv(vb, Descriptor::recv(inbox).context(n as u64)).unwrap();
            target.write(0, &vec![0; 5000]);
            let message = bytes(n as u64, len);
            let mut source = w.a.buffer(len.max(1));
            source.write(0, &message);
            let write = Descriptor::new(Op::RdmaWrite).remote(target.remote(0)).segment_range(source, 0..len);
            w.a.post_send(va, write.immediate(n as u32 + 1)).unwrap();
            let got = w.received(vb);
            assert_eq!((got.op, got.status), (Op::RemoteRdmaWrite, Status::Success), "{level:?} {len}");
            assert_eq!((got.immediate, got.length as usize), (Some(n as u32 + 1), len));
            assert_eq!(got.descriptor.work().context, n as u64);
            assert_same(&target.to_vec(len), &message);
            assert!(got.descriptor.into_buffer().to_vec(64).iter().all(|b| *b == 0xee), "segments untouched");
            let sent = w.sent(va);
            assert_eq!((sent.op, sent.status, sent.length as usize), (Op::RdmaWrite, Status::Success, len));
        }
    }
}

/// A write with immediate data that meets no receive is like a message that meets none.
pub fn immediate_data_needs_a_receive(mut w: World) {
    for level in Reliability::ALL {
        let (va, vb) = w.pair(level);
        let target = w.b.window(8);
        let source = w.a.message(b"x");
        w.a.post_send(va, Descriptor::rdma_write(source, target.remote(0)).immediate(1)).unwrap();
        let error = w.until("the error", |w| w.b.take_error());
        assert_eq!((error.vi, error.code), (vb, ErrorCode::ReceiveQueueEmpty), "{level:?}");
        let state = if level == Unreliable { ViState::Connected } else { ViState::Error };
        w.reaches(Side::A, va, state);
        w.reaches(Side::B, vb, state);
    }
}

/// Gathered on the way out, scattered on the way in; the remote side is one range.
pub fn pieces_on_the_local_side(mut w: World) {
    let (va, _vb) = w.pair(ReliableDelivery);
    let message = bytes(3, 9000);
    let mut target = w.b.window(9000);
    let cuts = [0usize, 1, 1, 60, 4100, 9000];
    let pieces = |d: Descriptor, w: &mut World, fill: bool| {
        cuts.windows(2).fold(d, |d, cut| {
            let len = cut[1] - cut[0];
            let mut piece = w.a.buffer(len + 1);
            if fill {
                piece.write(1, &message[cut[0]..cut[1]]);
            }
            d.segment_range(piece, 1..len + 1)
        })
    };
    let write = pieces(Descriptor::new(Op::RdmaWrite).remote(target.remote(0)), &mut w, true);
    assert_eq!(finish(&mut w, va, write).status, Status::Success);
    assert_same(&target.to_vec(9000), &message);
    target.write(0, &message);
    let read = pieces(Descriptor::new(Op::RdmaRead).remote(target.remote(0)), &mut w, false);
    let done = finish(&mut w, va, read);
    assert_eq!((done.status, done.length), (Status::Success, 9000));
    let back: Vec<u8> =
        done.descriptor.into_buffers().iter().flat_map(|b| b.to_vec(b.len()).split_off(1)).collect();
    assert_same(&back, &message);
}

/// Bytes are placed in ascending order: a reader that sees the last word sees everything before it. Programs spin on it.
pub fn the_last_word_comes_last(mut w: World) {
    let (va, _vb) = w.pair(ReliableDelivery);
    for heap in [false, true] {
        for len in [64usize, 256, 4096, 65_536, 300_000] {
            let len = len & !7;
            let attributes = MemAttributes::remote(w.b.tag);
            let target = if heap {
                let vec = vec![0; len + 8];
                w.b.register(vec, attributes).unwrap()
            } else {
                w.b.alloc(len + 8, attributes).unwrap()
            };
            // Heap memory may start anywhere; the flag must be aligned to be one.
            let start = target.remote(0).addr.next_multiple_of(8) - target.remote(0).addr;
            let start = start as usize;
            let place = target.remote(start);
            let rounds = 20u64;
            let a = &mut w.a;
            let target = &target;
            thread::scope(|scope| {
                let (go, gone) = std::sync::mpsc::channel::<()>();
                scope.spawn(move || {
                    for round in 1..=rounds {
                        let mut message = vec![round as u8; len];
                        message[len - 8..].copy_from_slice(&round.to_ne_bytes());
                        let source = a.message(&message);
                        a.post_send(va, Descriptor::rdma_write(source, place)).unwrap();
                        let done = until("the write", || a.poll_send(va).unwrap());
                        assert_eq!(done.status, Status::Success);
                        gone.recv_timeout(std::time::Duration::from_secs(30)).expect("the reader goes on");
                    }
                });
                for round in 1..=rounds {
                    let flag = target.word(start + len - 8);
                    until(&format!("the flag of {len} bytes, round {round}, heap {heap}"), || {
                        (flag.load(Ordering::Acquire) == round).then_some(())
                    });
                    let mut seen = vec![0; len - 8];
                    target.read(start, &mut seen);
                    let stale = seen.iter().position(|b| *b != round as u8);
                    assert_eq!(stale, None, "byte behind the flag, {len} bytes, round {round}, heap {heap}");
                    go.send(()).unwrap();
                }
            });
        }
    }
}

/// Everything on a VI keeps its order: write, message, write, read.
pub fn operations_keep_their_order(mut w: World) {
    for level in RELIABLE {
        let (va, vb) = w.pair(level);
        let target = w.b.window(70_000);
        for n in 0..30u64 {
            w.b.post_recvs(vb, 1, 16);
            let len = [8usize, 5000, 70_000][n as usize % 3];
            let (first, second) = (w.a.message(&bytes(n, len)), w.a.message(&bytes(n + 1000, len)));
            let note = w.a.message(&n.to_le_bytes());
            let into = w.a.buffer(len);
            w.a.post_send(va, Descriptor::rdma_write(first, target.remote(0)).context(0)).unwrap();
            w.a.post_send(va, Descriptor::send(note).context(1)).unwrap();
            let got = w.received(vb);
            assert_eq!(got.data(), n.to_le_bytes());
            assert_same(&target.to_vec(len), &bytes(n, len));
            w.a.post_send(va, Descriptor::rdma_write(second, target.remote(0)).context(2)).unwrap();
            w.a.post_send(va, Descriptor::rdma_read(into, target.remote(0)).context(3)).unwrap();
            for context in 0..4 {
                let done = w.sent(va);
                assert_eq!(
                    (done.status, done.descriptor.work().context),
                    (Status::Success, context),
                    "{level:?}"
                );
                if context == 3 {
                    assert_same(&done.data(), &bytes(n + 1000, len));
                }
            }
        }
    }
}

/// A fenced descriptor is carried out after every read before it: what was read may be sent on.
pub fn a_fence_waits_for_reads(mut w: World) {
    for level in RELIABLE {
        let (va, vb) = w.pair(level);
        for len in [8usize, 5000, 200_000] {
            let mut target = w.b.window(len);
            let message = bytes(len as u64, len);
            target.write(0, &message);
            w.b.post_recvs(vb, 1, len);
            // The same memory is filled by the read and sent by the fenced send.
            let attributes = MemAttributes::local(w.a.tag);
            let shared = w.a.register(vec![0; len], attributes).unwrap();
            let place = shared.remote(0);
            // SAFETY: `shared` is kept, unused, until both descriptors are back.
            let (read, send) = unsafe {
                let pointer = place.addr as *mut u8;
                let read = Descriptor::new(Op::RdmaRead).remote(target.remote(0));
                let read = read.raw_segment(pointer, len as u32, place.handle);
                (read, Descriptor::new(Op::Send).raw_segment(pointer, len as u32, place.handle).fence())
            };
            w.a.post_send(va, read).unwrap();
            w.a.post_send(va, send).unwrap();
            w.trying(format!("{len} bytes at {level:?}"));
            assert_same(&w.received(vb).data(), &message);
            assert!((0..2).all(|_| w.sent(va).status.is_success()));
            drop(shared);
        }
    }
}

/// Recalled: What contradicts itself: reads with immediate data or on an unreliable VI, crooked atomics, no remote place.
pub fn contradictions_are_format_errors(mut w: World) {
    let mut odd = Vec::new();
    for level in Reliability::ALL {
        let target = w.b.window(64);
        let at = target.remote(0);
        let b = |w: &mut World, len| w.a.buffer(len);
        if level == Unreliable {
            odd.push((level, Descriptor::rdma_read(b(&mut w, 8), at)));
            odd.push((level, Descriptor::fetch_add(b(&mut w, 8), at, 1)));
        } else {
            odd.push((level, Descriptor::rdma_read(b(&mut w, 8), at).immediate(1)));
            odd.push((level, Descriptor::fetch_add(b(&mut w, 8), at.offset(4), 1)));
            odd.push((level, Descriptor::fetch_add(b(&mut w, 4), at, 1)));
            odd.push((level, Descriptor::compare_swap(b(&mut w, 16), at, 1, 2)));
            odd.push((level, Descriptor::compare_swap(b(&mut w, 8), at, 1, 2).immediate(9)));
        }
        odd.push((level, Descriptor::new(Op::RdmaWrite).segment(b(&mut w, 8))));
        odd.push((level, Descriptor::new(Op::RdmaWrite).segment(b(&mut w, 8)).immediate(1)));
        drop(target);
    }
    for (level, descriptor) in odd {
        let (va, vb) = w.pair(level);
        let what = format!("{descriptor:?} at {level:?}");
        w.b.post_recvs(vb, 1, 8);
        let done = finish(&mut w, va, descriptor);
        assert_eq!((done.status, done.length), (Status::FormatError, 0), "{what}");
        let state = if level == Unreliable { ViState::Connected } else { ViState::Error };
        w.reaches(Side::A, va, state);
        assert!(w.b.drain(vb, Queue::Receive).iter().all(|c| c.status == Status::Flushed), "{what}");
    }
}
