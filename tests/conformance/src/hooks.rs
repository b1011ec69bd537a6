//! Hooks around a provider: counting, tracing, faults on purpose, delay.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use viaduct_via::Reliability::{self, ReliableDelivery, ReliableReception, Unreliable};
use viaduct_via::hooks::{Action, Count, Delay, Faults, Rule, Step, Trace, TraceEvent};
use viaduct_via::{
    AcceptError, Counter, Descriptor, Error, MemAttributes, NetAddress, Op, Queue, Status, Vi, ViState,
};

use crate::pattern::bytes;
use crate::world::{LONG, Node, World, connect, until};

/// A hooked NIC connected to `b`, which has `receives` of 64 bytes posted.
fn join(w: &mut World, mut node: Node, level: Reliability, receives: u64) -> (Node, Vi, Vi) {
    let (va, vb) = (node.vi(level), w.b.vi(level));
    w.b.post_recvs(vb, receives, 64);
    let address = w.address();
    connect(&mut node, va, &mut w.b, vb, &address);
    (node, va, vb)
}

/// Posts a send and waits for its completion while both sides are kept going.
fn send(w: &mut World, node: &mut Node, vi: Vi, bytes: &[u8]) -> Status {
    node.send(vi, bytes);
    until("the send", || {
        w.pump();
        node.poll_send(vi).unwrap()
    })
    .status
}

fn received(w: &mut World, node: &mut Node, vi: Vi, vb: Vi) -> Vec<u8> {
    until("the message", || {
        drop(node.query_vi(vi));
        w.b.poll_recv(vb).unwrap()
    })
    .data()
}

/// The counting hook counts each message once, and each step.
pub fn counting(mut w: World) {
    let count = Arc::new(Count::default());
    let node = w.hooked(count.clone());
    let (mut node, va, vb) = join(&mut w, node, ReliableDelivery, 8);
    let set_up = count.steps();
    assert!(set_up >= 1, "asking for a connection is a step");
    for n in 0..4u8 {
        assert_eq!(send(&mut w, &mut node, va, &[n; 10]), Status::Success);
    }
    node.send_inline(va, &[9; 10], None).unwrap();
    assert_eq!((count.submitted(), count.bytes(), count.inline()), (4, 40, 1));
    for n in [0u8, 1, 2, 3, 9] {
        assert_eq!(received(&mut w, &mut node, va, vb), [n; 10]);
    }
    node.post_recvs(va, 1, 64);
    w.b.send(vb, b"back");
    let answer = until("the answer", || {
        w.pump();
        node.poll_recv(va).unwrap()
    });
    assert_eq!(answer.data(), b"back");
    assert_eq!(count.received(), 1);
    assert!(count.steps() > set_up, "making memory is a step");
}

/// A NIC counts by itself, too.
pub fn a_nic_keeps_counters(mut w: World) {
    let (va, vb) = w.pair(ReliableDelivery);
    let target = w.b.window(64);
    w.b.post_recvs(vb, 4, 64);
    w.a.send(va, &[1; 30]);
    w.a.send_inline(va, &[1; 5], None).unwrap_or_else(|e| assert!(matches!(e, Error::Busy)));
    drop((w.received(vb), w.sent(va)));
    let (source, into, word) = (w.a.buffer(16), w.a.buffer(8), w.a.buffer(8));
    w.a.post_send(va, Descriptor::rdma_write(source, target.remote(0))).unwrap();
    w.a.post_send(va, Descriptor::rdma_read(into, target.remote(0))).unwrap();
    w.a.post_send(va, Descriptor::fetch_add(word, target.remote(0), 1)).unwrap();
    assert!((0..3).all(|_| w.sent(va).status.is_success()));
    w.a.disconnect(va).unwrap();
    until("the break", || (w.b.state(vb) == ViState::Error).then_some(()));
    let of = |node: &Node, counter| node.counters().read(counter);
    assert_eq!((of(&w.a, Counter::Sends), of(&w.a, Counter::RdmaWrites)), (1, 1));
    assert_eq!((of(&w.a, Counter::RdmaReads), of(&w.a, Counter::Atomics)), (1, 1));
    assert_eq!((of(&w.a, Counter::BytesRead), of(&w.a, Counter::Connects)), (8, 1));
    assert_eq!((of(&w.a, Counter::Disconnects), of(&w.b, Counter::Breaks)), (1, 1));
    assert!(of(&w.b, Counter::Receives) >= 1 && of(&w.b, Counter::Flushed) >= 2);
    let (sent, received) = (of(&w.a, Counter::BytesSent), of(&w.b, Counter::BytesReceived));
    assert!(received == sent || received == 30, "{received} of {sent} bytes");
}

/// The tracing hook tells what passed, in order.
pub fn tracing(mut w: World) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let into = log.clone();
    let node = w.hooked(Arc::new(Trace::new(move |at, event| into.lock().unwrap().push((at, event)))));
    let (mut node, va, _vb) = join(&mut w, node, ReliableDelivery, 4);
    assert_eq!(send(&mut w, &mut node, va, &[1; 10]), Status::Success);
    node.send_inline(va, &[2; 5], None).unwrap();
    let log = log.lock().unwrap();
    assert!(log.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in the order of time");
    let events: Vec<TraceEvent> = log.iter().map(|(_, event)| *event).collect();
    let wanted = [
        TraceEvent::Step(Step::Request),
        TraceEvent::Submit { op: Op::Send, length: 10, segments: 1, index: 0 },
        TraceEvent::Inline { length: 5 },
    ];
    let mut rest = events.iter();
    assert!(wanted.iter().all(|one| rest.any(|event| event == one)), "{events:?}");
}

/// A descriptor that is made to fail fails so; reliable connections break, unreliable ones go on.
pub fn failing(mut w: World) {
    for level in Reliability::ALL {
        let faults = Arc::new(Faults::new(1, [Rule::Nth(1, Action::Fail(Status::TransportError))]));
        let node = w.hooked(faults.clone());
        let (mut node, va, vb) = join(&mut w, node, level, 4);
        assert_eq!(send(&mut w, &mut node, va, b"one"), Status::Success);
        assert_eq!(received(&mut w, &mut node, va, vb), b"one");
        assert_eq!(send(&mut w, &mut node, va, b"two"), Status::TransportError);
        assert_eq!(faults.injected(), 1);
        if level == Unreliable {
            assert_eq!(send(&mut w, &mut node, va, b"three"), Status::Success);
            assert_eq!(received(&mut w, &mut node, va, vb), b"three");
        } else {
            assert_eq!(node.state(va), ViState::Error);
            until("the other end", || (w.b.state(vb) == ViState::Error).then_some(()));
        }
    }
}

/// Losses by chance come back with their seed.
pub fn losing_by_chance_is_repeatable(mut w: World) {
    let mut runs = Vec::new();
    for seed in [11, 11, 12] {
        let faults = Arc::new(Faults::new(seed, [Rule::PerMille(300, Action::Lose)]));
        let node = w.hooked(faults.clone());
        let (mut node, va, vb) = join(&mut w, node, Unreliable, 60);
        let mut arrived = Vec::new();
        for n in 0..60u8 {
            node.send(va, &[n]);
            let sent = until("the send", || {
                arrived.extend(w.b.poll_recv(vb).unwrap().map(|c| c.data()[0]));
                node.poll_send(va).unwrap()
            });
            assert_eq!(sent.status, Status::Success);
        }
        let kept = 60 - faults.injected() as usize;
        until("the rest", || {
            arrived.extend(w.b.poll_recv(vb).unwrap().map(|c| c.data()[0]));
            (arrived.len() == kept).then_some(())
        });
        assert!(kept < 60, "three in ten of sixty is some");
        runs.push(arrived);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

/// A break ends one connection, and not the others of the same NIC, nor the next one.
pub fn breaking_one_connection(mut w: World) {
    let node = w.hooked(Arc::new(Faults::new(1, [Rule::Nth(1, Action::Break)])));
    let (mut node, bystander, other) = join(&mut w, node, ReliableReception, 4);
    let (va, vb) = (node.vi(ReliableReception), w.b.vi(ReliableReception));
    w.b.post_recvs(vb, 4, 64);
    let address = w.address();
    connect(&mut node, va, &mut w.b, vb, &address);
    assert_eq!(send(&mut w, &mut node, va, b"one"), Status::Success);
    assert_eq!(send(&mut w, &mut node, va, b"two"), Status::Flushed);
    assert_eq!(node.state(va), ViState::Error);
    until("the other end", || (w.b.state(vb) == ViState::Error).then_some(()));
    assert_eq!(send(&mut w, &mut node, bystander, b"still here"), Status::Success);
    assert_eq!(received(&mut w, &mut node, bystander, other), b"still here");
    node.disconnect(va).unwrap();
    w.b.disconnect(vb).unwrap();
    let address = w.address();
    drop(w.b.drain(vb, Queue::Receive));
    w.b.post_recvs(vb, 1, 64);
    connect(&mut node, va, &mut w.b, vb, &address);
    assert_eq!(send(&mut w, &mut node, va, b"again"), Status::Success);
    assert_eq!(received(&mut w, &mut node, va, vb), b"again");
}

/// Each step of set-up can be made to fail; nothing is half done, and it works the next time.
pub fn refusing_steps(mut w: World) {
    let refuse = |step| Arc::new(Faults::new(1, [Rule::NthStep(step, 1)]));
    let refused = |e: Error| assert!(matches!(e, Error::Limit { what: "injected fault", .. }), "{e}");
    let mut node = w.hooked(refuse(Step::Allocate));
    let local = MemAttributes::local(node.tag);
    assert!(node.alloc(8, local).is_ok());
    refused(node.alloc(8, local).unwrap_err());
    assert!(node.alloc(8, local).is_ok());

    let mut node = w.hooked(refuse(Step::Register));
    let (local, open) = (MemAttributes::local(node.tag), MemAttributes::remote(node.tag));
    let buffer = node.register(vec![0; 8], local).unwrap();
    refused(node.set_mem_attributes(buffer.handle(), open).unwrap_err());
    assert_eq!(node.query_mem(buffer.handle()).unwrap(), local, "as it was");
    node.set_mem_attributes(buffer.handle(), open).unwrap();
    let mut node = w.hooked(refuse(Step::Register));
    let local = MemAttributes::local(node.tag);
    let first = node.register(vec![0; 8], local).unwrap();
    refused(node.register(vec![0; 8], local).unwrap_err());
    drop(first);
    node.destroy_ptag(local.ptag).expect("the refused region holds nothing");

    let mut node = w.hooked(refuse(Step::Listen));
    let (one, two): (NetAddress, NetAddress) = (w.address(), w.address());
    assert!(node.listen(&one, 1).is_ok());
    refused(node.listen(&two, 1).unwrap_err());
    assert!(node.listen(&two, 1).is_ok());

    let mut node = w.hooked(refuse(Step::Request));
    let address = w.address();
    let vi = node.vi(ReliableDelivery);
    assert!(matches!(node.connect_request(vi, &address, LONG), Err(Error::NoMatch(_))));
    refused(node.connect_request(vi, &address, LONG).unwrap_err());
    assert_eq!(node.state(vi), ViState::Idle);
    assert!(matches!(node.connect_request(vi, &address, LONG), Err(Error::NoMatch(_))));
}

/// An accept that fails leaves the request usable.
pub fn refusing_to_accept(mut w: World) {
    let mut server = w.hooked(Arc::new(Faults::new(1, [Rule::NthStep(Step::Accept, 0)])));
    let address = w.address();
    let listener = server.listen(&address, 1).unwrap();
    let (va, vs) = (w.a.vi(ReliableDelivery), server.vi(ReliableDelivery));
    w.a.connect_start(va, None, &address, &[], LONG).unwrap();
    let request = server.wait_listener(listener, LONG).unwrap();
    let AcceptError { error, request } = server.accept(request, vs).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert_eq!(server.state(vs), ViState::Idle);
    server.accept(request, vs).unwrap();
    w.a.connect_finish(va).unwrap();
}

/// Held messages come late but whole and in order, on several VIs at once, polled or waited for.
pub fn delaying(mut w: World) {
    let mut node = w.hooked(Arc::new(Delay::new(Duration::from_millis(1))));
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let (va, vb) = (node.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
            w.b.post_recvs(vb, 8, 64);
            let address = w.address();
            connect(&mut node, va, &mut w.b, vb, &address);
            (va, vb)
        })
        .collect();
    for n in 0..5u64 {
        for (va, _) in &pairs {
            node.send(*va, &bytes(n, 32));
        }
    }
    for n in 0..5u64 {
        for (va, vb) in &pairs {
            assert_eq!(received(&mut w, &mut node, *va, *vb), bytes(n, 32));
        }
    }
    for (va, _) in &pairs {
        let taken = node.drain(*va, Queue::Send).len();
        (taken..5)
            .for_each(|_| assert_eq!(node.wait_send_outcome(*va, LONG).unwrap().status(), Status::Success));
    }
    // Waiting wakes up when the time is over, although no peer rings.
    let (va, _) = pairs[0];
    node.send(va, b"slow");
    assert_eq!(node.wait_send_outcome(va, LONG).unwrap().status(), Status::Success);
}

/// Answers and short cuts of the provider come through a hook as they are: what is tested under hooks is what runs.
pub fn hooks_pass_everything_on(mut w: World) {
    let count = Arc::new(Count::default());
    let (mut plain, mut hooked) = (w.node(), w.hooked(count.clone()));
    let address = w.address();
    assert_eq!(hooked.reach(&address), plain.reach(&address));
    let mut reaches = Vec::new();
    for server in [&mut plain, &mut hooked] {
        let address = w.address();
        let listener = server.listen(&address, 1).unwrap();
        let asking = w.a.vi(ReliableDelivery);
        w.a.connect_start(asking, None, &address, &[], LONG).unwrap();
        let request = server.wait_listener(listener, LONG).unwrap();
        reaches.push(request.reach());
        server.reject(request).unwrap();
        assert!(w.a.connect_finish(asking).is_err());
    }
    assert_eq!(reaches[0], reaches[1]);
    // By value into the peer's memory, and messages out of the ring.
    let mut written = Vec::new();
    for client in [&mut plain, &mut hooked] {
        let target = w.b.window(64);
        let (va, vb) = (client.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
        let address = w.address();
        connect(client, va, &mut w.b, vb, &address);
        client.post_recvs(va, 50, 64);
        // The peer's memory may have to be mapped first.
        let done = (0..200).any(|_| {
            w.b.query_vi(vb).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            client.write_inline(va, b"by value", target.remote(0), None).is_ok()
        });
        written.push(done);
        for n in 0..50u8 {
            w.b.send(vb, &[n; 8]);
            let got = until("a message", || {
                w.b.query_vi(vb).unwrap();
                client.poll_recv(va).unwrap()
            });
            assert_eq!((got.status, got.data()), (Status::Success, vec![n; 8]));
        }
    }
    assert_eq!(written[0], written[1], "a write by value is carried out, or is not, with or without a hook");
    assert_eq!(count.received(), 50, "those of the fast path are counted, too");
}
