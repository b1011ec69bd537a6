//! The bad twin of every call: handles that were destroyed, belong to another NIC or were made up; wrong states, wrong
//! queues, wrong numbers. Each is refused by an error, and nothing has changed afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use viaduct_os::segment::{Access, Segment};
use viaduct_via::Reliability::{ReliableDelivery, Unreliable};
use viaduct_via::handle::RawHandle;
use viaduct_via::{
    AcceptError, BatchError, Buffer, Cq, Descriptor, Error, Listener, MemAttributes, MemHandle, NetAddress,
    Nic, Op, PostError, ProtectionTag, Queue, Reach, Reliability, RemoteAddress, Srq, Status, Vi,
    ViAttributes, ViState,
};

use crate::world::{LONG, SHORT, Side, World};

const NOWHERE: RemoteAddress = RemoteAddress { addr: 0, handle: MemHandle::NONE };
const MADE_UP: RawHandle = RawHandle { index: 3, generation: 0x1234_5678 };

fn unknown<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::InvalidHandle(_) | Error::InvalidPtag))
}

fn unposted(result: Result<(), PostError>) -> bool {
    matches!(result, Err(PostError { error: Error::InvalidHandle(_), descriptor }) if descriptor.work().context == 1)
}

/// Every call that takes a VI, with one that is not there.
fn try_vi(nic: &mut Nic, vi: Vi, tag: ProtectionTag, address: &NetAddress, other: &NetAddress) {
    assert!(unknown(nic.destroy_vi(vi)));
    assert!(unknown(nic.query_vi(vi)));
    assert!(unknown(nic.set_vi_attributes(vi, ViAttributes::new(tag))));
    assert!(unknown(nic.connect_request(vi, address, LONG)));
    assert!(unknown(nic.connect_start(vi, None, address, &[], LONG)));
    assert!(unknown(nic.connect_peer_request(vi, address, other, LONG)));
    assert!(unknown(nic.connect(vi, address).wait()));
    assert!(unknown(nic.connect_poll(vi)));
    assert!(unknown(nic.connect_finish(vi)));
    assert!(unknown(nic.disconnect(vi)));
    assert!(unposted(nic.post_send(vi, Descriptor::send_empty().context(1))));
    assert!(unposted(nic.post_recv(vi, Descriptor::recv_empty().context(1))));
    assert!(unknown(nic.send_inline(vi, b"x", None)));
    assert!(unknown(nic.send_value(vi, &[b"x"], None)));
    assert!(unknown(nic.send(vi, &[b"x"], None)));
    assert!(unknown(nic.nudge(vi)));
    assert!(unknown(nic.read_private(vi, 0, &mut [0])));
    assert!(!nic.can_read_private(vi));
    assert!(unknown(nic.write_inline(vi, b"x", NOWHERE, None)));
    let refused = nic.post_send_batch(vi, [Descriptor::send_empty(), Descriptor::send_empty()]);
    assert!(matches!(
        refused,
        Err(BatchError { posted: 0, refused: PostError { error: Error::InvalidHandle(_), .. } })
    ));
    let refused = nic.post_recv_batch(vi, [Descriptor::recv_empty(), Descriptor::recv_empty()]);
    assert!(matches!(
        refused,
        Err(BatchError { posted: 0, refused: PostError { error: Error::InvalidHandle(_), .. } })
    ));
    assert!(unknown(nic.poll_recv_batch(vi, &mut Vec::new(), 4)));
    assert!(unknown(nic.poll_send(vi)));
    assert!(unknown(nic.poll_recv(vi)));
    assert!(unknown(nic.wait_send(vi, LONG)));
    assert!(unknown(nic.wait_recv(vi, LONG)));
    assert!(unknown(nic.wait_send_outcome(vi, LONG)));
    assert!(unknown(nic.wait_recv_outcome(vi, LONG)));
    assert!(unknown(nic.vi(vi)));
    assert!(unknown(nic.retire(vi)));
    assert!(nic.reclaim(vi).is_none());
}

/// VIs that are not there.
pub fn unknown_vis(mut w: World) {
    let gone = w.a.vi(ReliableDelivery);
    w.a.destroy_vi(gone).unwrap();
    let theirs = w.b.vi(ReliableDelivery);
    let (tag, address, other) = (w.a.tag, w.address(), w.address());
    for vi in [gone, theirs, Vi::from_raw(MADE_UP)] {
        try_vi(&mut w.a, vi, tag, &address, &other);
    }
    // A new VI in the old one's place does not bring its handle back to life.
    let fresh = w.a.vi(ReliableDelivery);
    assert_eq!(fresh.raw().index, gone.raw().index);
    try_vi(&mut w.a, gone, tag, &address, &other);
    assert_eq!(w.a.state(fresh), ViState::Idle);
    assert_eq!(w.b.state(theirs), ViState::Idle);
    assert_eq!(Vi::from_raw(fresh.raw()), fresh);
}

/// Completion queues and shared receive queues that are not there.
pub fn unknown_queues(mut w: World) {
    let (gone, store) = (w.a.create_cq(4).unwrap(), w.a.create_srq(4).unwrap());
    w.a.destroy_cq(gone).unwrap();
    w.a.destroy_srq(store).unwrap();
    let (their_cq, their_srq) = (w.b.create_cq(4).unwrap(), w.b.create_srq(4).unwrap());
    let address = w.address();
    let listener = w.a.listen(&address, 1).unwrap();
    for cq in [gone, their_cq, Cq::from_raw(MADE_UP)] {
        assert!(unknown(w.a.destroy_cq(cq)));
        assert!(unknown(w.a.resize_cq(cq, 8)));
        assert!(unknown(w.a.poll_cq(cq)));
        assert!(unknown(w.a.poll_cq_entry(cq)));
        assert!(unknown(w.a.poll_cq_batch(cq, &mut Vec::new(), 4)));
        assert!(unknown(w.a.wait_cq(cq, LONG)));
        assert!(unknown(w.a.cq(cq)));
        assert!(unknown(w.a.poll_any(cq, listener)));
        assert!(unknown(w.a.wait_any(cq, listener, LONG)));
        let attributes = w.a.vi_attributes(ReliableDelivery).cq(cq);
        assert!(unknown(w.a.create_vi(attributes)));
    }
    for srq in [store, their_srq, Srq::from_raw(MADE_UP)] {
        assert!(unknown(w.a.destroy_srq(srq)));
        assert!(unposted(w.a.post_srq(srq, Descriptor::recv_empty().context(1))));
        let mut attributes = w.a.vi_attributes(ReliableDelivery);
        attributes.srq = Some(srq);
        assert!(unknown(w.a.create_vi(attributes)));
    }
}

/// Tags and regions that are not there.
pub fn unknown_tags_and_regions(mut w: World) {
    let gone = w.a.create_ptag().unwrap();
    w.a.destroy_ptag(gone).unwrap();
    let (theirs, own) = (w.b.tag, w.a.buffer(8));
    let vi = w.a.vi(ReliableDelivery);
    let segment = Arc::new(Segment::create_sparse("test", 4096).unwrap());
    for tag in [gone, theirs, ProtectionTag::from_raw(MADE_UP)] {
        assert!(unknown(w.a.destroy_ptag(tag)));
        assert!(unknown(w.a.alloc(8, MemAttributes::local(tag))));
        assert!(unknown(w.a.register(vec![0; 8], MemAttributes::local(tag))));
        let raw = viaduct_via::raw::RawMemory::from_heap(vec![0; 8]);
        assert!(unknown(w.a.register_raw(raw, MemAttributes::local(tag))));
        assert!(unknown(w.a.register_segment(&segment, 0..8, MemAttributes::local(tag))));
        assert!(unknown(w.a.set_mem_attributes(own.handle(), MemAttributes::local(tag))));
        assert!(unknown(w.a.create_vi(ViAttributes::new(tag))));
        assert!(unknown(w.a.set_vi_attributes(vi, ViAttributes::new(tag))));
    }
    assert_eq!(w.a.query_mem(own.handle()).unwrap(), MemAttributes::local(w.a.tag), "nothing changed");
    assert_eq!(w.a.query_vi(vi).unwrap().attributes.ptag, w.a.tag);
    let (old, their) = (w.a.buffer(8).handle(), w.b.buffer(8));
    drop(w.a.buffer(8));
    let good = MemAttributes::local(w.a.tag);
    for handle in [old, their.handle(), MemHandle::NONE, MemHandle::from_number(u32::MAX)] {
        assert!(unknown(w.a.query_mem(handle)), "{handle:?}");
        assert!(w.a.region(handle).is_none(), "{handle:?}");
        assert!(unknown(w.a.set_mem_attributes(handle, good)), "{handle:?}");
    }
    assert!(unknown(w.a.deregister(their)));
    assert!(unknown(w.a.deregister(Buffer::from(vec![0; 8]))));
}

/// Segments and ranges that cannot be registered.
pub fn wrong_segments(mut w: World) {
    let good = MemAttributes::local(w.a.tag);
    let segment = Arc::new(Segment::create_sparse("test", 8192).unwrap());
    let invalid = |r: Result<Buffer, Error>| matches!(r, Err(Error::InvalidParameter(_)));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tried")]
    for range in [0..8193, 8193..8194, 5..5, 9000..100, usize::MAX..3] {
        assert!(invalid(w.a.register_segment(&segment, range.clone(), good)), "{range:?}");
    }
    let read_only = Arc::new(segment.map_again(Access::ReadOnly).unwrap());
    assert!(invalid(w.a.register_segment(&read_only, 0..8, good)));
    let mut without = segment.map_again(Access::ReadWrite).unwrap();
    without.drop_fd();
    assert!(invalid(w.a.register_segment(&Arc::new(without), 0..8, good)));
    assert!(w.a.register_segment(&segment, 8191..8192, good).is_ok());
    assert_eq!(Arc::strong_count(&read_only), 1, "what was refused is not kept");
}

/// Listeners that are not there, and requests that belong to another NIC.
pub fn unknown_listeners_and_requests(mut w: World) {
    let address = w.address();
    let gone = w.b.listen(&address, 1).unwrap();
    w.b.unlisten(gone).unwrap();
    let theirs = w.a.listen(&address, 1).unwrap();
    for listener in [gone, theirs, Listener::from_raw(MADE_UP)] {
        assert!(unknown(w.b.unlisten(listener)));
        assert!(unknown(w.b.poll_listener(listener)));
        assert!(unknown(w.b.wait_listener(listener, LONG)));
        let cq = w.b.create_cq(1).unwrap();
        assert!(unknown(w.b.poll_any(cq, listener)));
        assert!(unknown(w.b.wait_any(cq, listener, LONG)));
    }
    let (asking, answering) = (w.b.vi(ReliableDelivery), w.a.vi(ReliableDelivery));
    w.b.connect_start(asking, None, &address, &[], LONG).unwrap();
    let request = w.a.wait_listener(theirs, LONG).unwrap();
    let mut third = w.node();
    // Both ends know beforehand what they get. An address without a listener is never direct.
    let reach = request.reach();
    assert_eq!(reach, w.b.reach(&address));
    let none: NetAddress = "203.0.113.7/absent".parse().unwrap();
    assert_ne!(w.b.reach(&none), Reach::Direct);
    let vi = third.vi(ReliableDelivery);
    let AcceptError { error, request } = third.accept(request, vi).unwrap_err();
    assert!(matches!(error, Error::InvalidHandle(_)), "{error}");
    let AcceptError { error, request } = w.a.accept_with(request, vi, &[]).unwrap_err();
    assert!(matches!(error, Error::InvalidHandle(_)), "{error}");
    w.a.accept(request, answering).unwrap();
    w.b.connect_finish(asking).unwrap();
    for (node, vi) in [(&mut w.a, answering), (&mut w.b, asking)] {
        assert_eq!(node.query_vi(vi).unwrap().reach, Some(reach));
    }
    // A rejection by the wrong NIC is none; the right one does it when it looks.
    let (asking, address) = (w.b.vi(ReliableDelivery), w.address());
    let listener = w.a.listen(&address, 1).unwrap();
    for plain in [true, false] {
        w.b.connect_start(asking, None, &address, &[], LONG).unwrap();
        let request = w.a.wait_listener(listener, LONG).unwrap();
        let refused = if plain { third.reject(request) } else { third.reject_with(request, b"no") };
        assert!(matches!(refused, Err(Error::InvalidHandle(_))));
        drop(w.a.poll_listener(listener).unwrap());
        assert!(matches!(w.b.connect_finish(asking), Err(Error::Rejected(data)) if data.is_empty()));
    }
}

/// Calls in a state in which they make no sense.
pub fn wrong_states(mut w: World) {
    let idle = w.a.vi(ReliableDelivery);
    let (connected, _) = w.pair(ReliableDelivery);
    let (broken, other) = w.pair(ReliableDelivery);
    w.b.disconnect(other).unwrap();
    w.reaches(Side::A, broken, ViState::Error);
    let (address, elsewhere, here) = (w.address(), w.address(), w.address());
    let _listener = w.b.listen(&address, 4).unwrap();
    let pending = w.a.vi(ReliableDelivery);
    w.a.connect_start(pending, None, &address, &[], LONG).unwrap();
    let is = |e: Error, state| matches!(e, Error::InvalidState { found, .. } if found == state);
    assert!(is(w.a.disconnect(idle).unwrap_err(), ViState::Idle));
    for (vi, state) in
        [(connected, ViState::Connected), (broken, ViState::Error), (pending, ViState::ConnectPending)]
    {
        assert!(is(w.a.connect_start(vi, None, &address, &[], LONG).unwrap_err(), state));
        assert!(is(w.a.connect_request(vi, &address, LONG).unwrap_err(), state));
        assert!(is(w.a.connect_peer_request(vi, &elsewhere, &here, LONG).unwrap_err(), state));
        assert!(is(w.a.destroy_vi(vi).unwrap_err(), state));
        let attributes = w.a.vi_attributes(ReliableDelivery);
        assert!(is(w.a.set_vi_attributes(vi, attributes).unwrap_err(), state));
    }
    for (vi, state) in [(idle, ViState::Idle), (connected, ViState::Connected), (broken, ViState::Error)] {
        assert!(is(w.a.connect_poll(vi).unwrap_err(), state));
        assert!(is(w.a.connect_finish(vi).unwrap_err(), state));
    }
    for (vi, state) in [(idle, ViState::Idle), (broken, ViState::Error), (pending, ViState::ConnectPending)] {
        assert!(is(w.a.send_inline(vi, b"x", None).unwrap_err(), state));
        assert!(is(w.a.send_value(vi, &[b"x"], None).unwrap_err(), state));
        assert!(is(w.a.nudge(vi).unwrap_err(), state));
        assert!(is(w.a.read_private(vi, 0, &mut [0]).unwrap_err(), state));
        assert!(is(w.a.write_inline(vi, b"x", NOWHERE, None).unwrap_err(), state));
    }
    let states = [idle, connected, broken, pending].map(|vi| w.a.state(vi));
    assert_eq!(states, [ViState::Idle, ViState::Connected, ViState::Error, ViState::ConnectPending]);
}

/// Descriptors on the wrong queue, or with more segments than a descriptor may have.
pub fn wrong_descriptors(mut w: World) {
    let vi = w.a.vi(ReliableDelivery);
    let srq = w.a.create_srq(4).unwrap();
    let bad = |r: Result<(), PostError>| matches!(r, Err(e) if matches!(e.error, Error::InvalidParameter(_)));
    for op in [Op::Receive, Op::RemoteRdmaWrite] {
        assert!(bad(w.a.post_send(vi, Descriptor::new(op))), "{op:?}");
    }
    for op in [Op::Send, Op::RdmaWrite, Op::RdmaRead, Op::CompareSwap, Op::FetchAdd, Op::RemoteRdmaWrite] {
        assert!(bad(w.a.post_recv(vi, Descriptor::new(op))), "{op:?}");
        assert!(bad(w.a.post_srq(srq, Descriptor::new(op))), "{op:?}");
    }
    assert!(bad(w.a.post_recv(vi, Descriptor::recv_empty().unsignalled())), "it would vanish");
    assert!(bad(w.a.post_srq(srq, Descriptor::recv_empty().unsignalled())), "it would vanish");
    assert_eq!((w.a.query_vi(vi).unwrap().sends, w.a.query_vi(vi).unwrap().receives), (0, 0));
    let most = w.a.attributes().max_segments_per_desc;
    let many = |op, count| (0..count).fold(Descriptor::new(op), |d, _| d.segment(Buffer::from(vec![1])));
    for level in [Unreliable, ReliableDelivery] {
        let (va, vb) = w.pair(level);
        w.b.post_recv(vb, many(Op::Receive, most)).unwrap();
        w.a.post_send(va, many(Op::Send, most)).unwrap();
        let got = w.received(vb);
        assert_eq!((got.status, got.length as usize), (Status::Success, most), "as many as allowed");
        assert_eq!(w.sent(va).status, Status::Success);
        w.b.post_recv(vb, many(Op::Receive, most + 1)).unwrap();
        w.a.send(va, b"x");
        assert_eq!(w.received(vb).status, Status::FormatError, "one more, received into");
        let (va, _vb) = w.pair(level);
        w.a.post_send(va, many(Op::Send, most + 1)).unwrap();
        assert_eq!(w.sent(va).status, Status::FormatError, "one more, sent");
    }
}

/// Numbers outside the NIC's limits.
pub fn wrong_numbers(mut w: World) {
    let limits = w.a.attributes().clone();
    let good = w.a.vi_attributes(ReliableDelivery);
    for depth in [0, limits.max_descriptors_per_queue + 1] {
        let mut odd = good.clone();
        odd.send_depth = depth;
        assert!(matches!(w.a.create_vi(odd), Err(Error::InvalidParameter(_))));
        assert!(matches!(w.a.create_vi(good.clone().depth(depth)), Err(Error::InvalidParameter(_))));
        assert!(matches!(w.a.create_srq(depth), Err(Error::InvalidParameter(_))));
    }
    let mut odd = good.clone();
    odd.max_transfer_size = limits.max_transfer_size + 1;
    assert!(matches!(w.a.create_vi(odd), Err(Error::Limit { .. })));
    let mut odd = good.clone().reliability(Unreliable);
    odd.rdma_read = true;
    assert!(matches!(w.a.create_vi(odd), Err(Error::InvalidRdmaRead)), "reads need a reliable VI");
    assert!(matches!(w.a.create_cq(0), Err(Error::InvalidParameter(_))));
    assert!(matches!(w.a.create_cq(limits.max_cq_entries + 1), Err(Error::Limit { .. })));
    assert_eq!(limits.reliability, Reliability::ALL);
    assert!(limits.max_transfer_size >= 32 * 1024 && limits.max_segments_per_desc >= 252, "VIA's least");
    assert!(limits.max_vi >= 1024 && limits.max_descriptors_per_queue >= 1024, "VIA's least");
    assert!(matches!(w.a.listen(&"x".parse().unwrap(), 0), Err(Error::InvalidParameter(_))));
    assert!(matches!(w.a.connect_wait(&"x".parse().unwrap(), SHORT), Err(Error::Timeout)));
}

/// What a panic is for: ranges outside a buffer.
pub fn ranges_outside_buffers_panic(mut w: World) {
    let panics: [fn(&mut World) -> u64; 9] = [
        |w| w.a.buffer(8).remote(9).addr,
        |w| {
            w.a.buffer(8).read(4, &mut [0; 5]);
            0
        },
        |w| {
            w.a.buffer(8).write(usize::MAX, &[0]);
            0
        },
        |w| u64::from(Descriptor::new(Op::Send).segment_range(w.a.buffer(8), 4..9).work().total),
        |w| {
            Descriptor::send(w.a.buffer(8)).set_len(9);
            0
        },
        |w| w.a.buffer(16).word(9).load(Ordering::Relaxed),
        |w| w.a.buffer(16).word(4).load(Ordering::Relaxed),
        |w| w.a.buffer(8).split_at(9).0.len() as u64,
        |w| w.a.buffer(8).chunks(0).len() as u64,
    ];
    for (n, body) in panics.into_iter().enumerate() {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut w)));
        assert!(outcome.is_err(), "number {n}");
    }
    drop(w.a.buffer(8));
}

/// In a forked child every call says that the NIC is the parent's, and the parent's goes on.
pub fn a_forked_child_is_refused(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 2, 8);
    let cq = w.a.create_cq(1).unwrap();
    let (address, other) = (w.address(), w.address());
    let code = in_child(|| forked_calls(&mut w.a, va, cq, &address, &other));
    assert_eq!(code, 0, "the call of this number was not refused");
    w.a.send(va, b"alive");
    assert_eq!(w.received(vb).data(), b"alive");
}

/// 0 if every call is refused, else the number of the first that was not.
fn forked_calls(nic: &mut Nic, vi: Vi, cq: Cq, address: &NetAddress, other: &NetAddress) -> i32 {
    let forked = |e: Error| matches!(e, Error::Forked);
    let posted = |r: Result<(), PostError>| r.is_err_and(|e| matches!(e.error, Error::Forked));
    let refused = [
        nic.create_ptag().is_err_and(forked),
        nic.create_cq(1).is_err_and(forked),
        nic.create_srq(1).is_err_and(forked),
        nic.query_vi(vi).is_err_and(forked),
        nic.disconnect(vi).is_err_and(forked),
        nic.destroy_vi(vi).is_err_and(forked),
        nic.poll_send(vi).is_err_and(forked),
        nic.poll_recv(vi).is_err_and(forked),
        nic.wait_recv(vi, LONG).is_err_and(forked),
        nic.vi(vi).is_err_and(forked),
        nic.cq(cq).is_err_and(forked),
        nic.retire(vi).is_err_and(forked),
        nic.buffer(8).is_err_and(forked),
        nic.poll_cq(cq).is_err_and(forked),
        nic.wait_cq(cq, LONG).is_err_and(forked),
        posted(nic.post_send(vi, Descriptor::send_empty())),
        posted(nic.post_recv(vi, Descriptor::recv_empty())),
        nic.send_inline(vi, b"x", None).is_err_and(forked),
        nic.send_value(vi, &[b"x"], None).is_err_and(forked),
        nic.send(vi, &[b"x"], None).is_err_and(forked),
        nic.nudge(vi).is_err_and(forked),
        nic.read_private(vi, 0, &mut [0]).is_err_and(forked),
        nic.wait_for(LONG, |_| Some(())).is_err_and(forked),
        nic.write_inline(vi, b"x", NOWHERE, None).is_err_and(forked),
        nic.listen(address, 1).is_err_and(forked),
        nic.connect_wait(address, LONG).is_err_and(forked),
        nic.connect_start(vi, None, address, &[], LONG).is_err_and(forked),
        nic.connect_peer_request(vi, address, other, LONG).is_err_and(forked),
        nic.connect_poll(vi).is_err_and(forked),
        nic.arm().is_err_and(forked),
        nic.fd().is_err_and(forked),
    ];
    refused.iter().position(|r| !r).map_or(0, |at| at as i32 + 1)
}

/// A view that was made before a fork is the parent's, like its NIC.
pub fn a_forked_childs_views_are_refused(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.post_recvs(vb, 1, 8);
    let cq = w.a.create_cq(1).unwrap();
    let address = w.address();
    let code = forked_views(&mut w.a, va, cq, &address);
    assert_eq!(code, [0; 2], "the call of this number was not refused");
    w.a.send(va, b"alive");
    assert_eq!(w.received(vb).data(), b"alive");
}

/// For the view of a VI and that of a completion queue: 0 if every call is refused, else the number of the first that
/// was not.
fn forked_views(nic: &mut Nic, vi: Vi, cq: Cq, address: &NetAddress) -> [i32; 2] {
    let forked = |e: Error| matches!(e, Error::Forked);
    let posted = |r: Result<(), PostError>| r.is_err_and(|e| matches!(e.error, Error::Forked));
    let first = |refused: &[bool]| refused.iter().position(|r| !r).map_or(0, |at| at as i32 + 1);
    let mut view = nic.vi(vi).unwrap();
    let of_vi = in_child(|| {
        first(&[
            view.info().is_err_and(forked),
            view.connect(address).wait().is_err_and(forked),
            view.connect(address).start().is_err_and(forked),
            posted(view.post_send(Descriptor::send_empty())),
            posted(view.post_recv(Descriptor::recv_empty())),
            view.post_receives(1, 8).is_err_and(forked),
            view.send_inline(b"x", None).is_err_and(forked),
            view.send_value(&[b"x"], None).is_err_and(forked),
            view.send(&[b"x"], None).is_err_and(forked),
            view.poll_send().is_err_and(forked),
            view.poll_recv().is_err_and(forked),
            view.wait_send(LONG).is_err_and(forked),
            view.wait_recv(LONG).is_err_and(forked),
            view.nudge().is_err_and(forked),
            view.disconnect().is_err_and(forked),
            view.retire().is_err_and(forked),
        ])
    });
    let mut view = nic.cq(cq).unwrap();
    let of_cq = in_child(|| {
        first(&[
            view.poll().is_err_and(forked),
            view.poll_batch(&mut Vec::new(), 4).is_err_and(forked),
            view.wait(LONG).is_err_and(forked),
            view.resize(8).is_err_and(forked),
        ])
    });
    [of_vi, of_cq]
}

fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs only calls that are refused at once, then ends without any destructor.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let code = body();
        // SAFETY: always allowed.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: status is valid for writes, and pid is our child.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// The pollable descriptor can be armed and disarmed at any time, in any number.
pub fn arming_out_of_turn(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    w.b.disarm();
    for _ in 0..3 {
        w.b.arm().unwrap();
    }
    assert!(w.b.fd().is_ok());
    w.b.disarm();
    w.b.disarm();
    w.b.post_recvs(vb, 1, 8);
    w.a.send(va, b"still");
    assert_eq!(w.received(vb).data(), b"still");
    assert!(w.b.drain(vb, Queue::Send).is_empty());
}
