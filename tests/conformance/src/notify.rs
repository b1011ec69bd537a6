//! A NIC shared by threads: notify handlers and error callbacks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use viaduct_kit::tempdir::TempDir;
use viaduct_via::Reliability::{self, ReliableDelivery, Unreliable};
use viaduct_via::hooks::{Action, Faults, Rule};
use viaduct_via::{
    Descriptor, Ended, Error, ErrorCode, ErrorEvent, NotifyHandler, Queue, SharedNic, Status, Vi, ViState,
};

use crate::pattern::block_on;
use crate::world::{LONG, Node, World, connect, until};

/// What handlers report: the thread they ran on and what they were given.
type Report = (ThreadId, Ended);

fn reporter() -> (Sender<Report>, Receiver<Report>) {
    channel()
}

fn tell(to: &Sender<Report>) -> NotifyHandler {
    let to = to.clone();
    Box::new(move |_, done| drop(to.send((thread::current().id(), done))))
}

fn hear(from: &Receiver<Report>) -> Report {
    from.recv_timeout(LONG.unwrap()).expect("a handler runs")
}

/// `b` shared, with a VI connected to one of `a`.
pub(crate) fn share(mut w: World, level: Reliability) -> (Node, Vi, SharedNic, Vi, Option<TempDir>) {
    let (va, vb) = w.pair(level);
    w.b.post_recvs(vb, 8, 16);
    let World { a, b, folder, .. } = w;
    (a, va, SharedNic::new(b.into_nic()), vb, folder)
}

/// One handler for one completion, on a thread of the NIC's.
pub fn a_handler_runs_once(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    let (to, from) = reporter();
    b.notify(vb, Queue::Receive, tell(&to)).unwrap();
    a.send(va, b"first");
    drop(until("the send", || a.poll_send(va).unwrap()));
    a.send(va, b"second");
    drop(until("the send", || a.poll_send(va).unwrap()));
    let (thread, done) = hear(&from);
    assert_ne!(thread, thread::current().id());
    assert_eq!((done.vi(), done.0.data()), (vb, b"first".to_vec()));
    // The second message has no handler: it is still there for a call that asks.
    assert_eq!(b.wait(vb, Queue::Receive, LONG).unwrap().0.data(), b"second");
    assert!(from.try_recv().is_err());
}

/// Handlers armed for one queue fire in the order they were armed, on one thread.
pub fn handlers_fire_in_order(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    let (to, from) = channel();
    for n in 0..5u8 {
        let to = to.clone();
        let report: NotifyHandler =
            Box::new(move |_, done| drop(to.send((n, done.0.data(), thread::current().id()))));
        b.notify(vb, Queue::Receive, report).unwrap();
    }
    for n in 0..5u8 {
        a.send(va, &[n]);
        drop(until("the send", || a.poll_send(va).unwrap()));
    }
    let heard: Vec<_> = (0..5).map(|_| from.recv_timeout(LONG.unwrap()).unwrap()).collect();
    for (n, (handler, data, thread)) in heard.iter().enumerate() {
        assert_eq!((*handler, data.as_slice()), (n as u8, [n as u8].as_slice()));
        assert_eq!(*thread, heard[0].2);
    }
}

/// What is complete already fires at once.
pub fn a_handler_comes_late(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    a.send(va, b"early");
    drop(until("the send", || a.poll_send(va).unwrap()));
    until("the message", || {
        let info = b.lock().query_vi(vb).unwrap();
        (info.state == ViState::Connected).then_some(())
    });
    let (to, from) = reporter();
    b.notify(vb, Queue::Receive, tell(&to)).unwrap();
    assert_eq!(hear(&from).1.0.data(), b"early");
}

/// A handler may use the NIC, post, and arm the next one.
pub fn a_handler_posts_and_arms_again(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    a.post_recvs(va, 4, 16);
    fn echo(nic: &SharedNic, Ended(got): Ended) {
        let vi = got.vi;
        let mut reply = got.descriptor.into_buffer();
        let mut first = [0];
        reply.read(0, &mut first);
        reply.write(0, &[first[0] + 100]);
        nic.lock().post_send(vi, Descriptor::send(reply)).unwrap();
        nic.notify(vi, Queue::Receive, Box::new(echo)).unwrap();
    }
    b.notify(vb, Queue::Receive, Box::new(echo)).unwrap();
    for n in 0..4u8 {
        a.send(va, &[n]);
        let reply = until("the echo", || {
            drop(a.poll_send(va));
            a.poll_recv(va).unwrap()
        });
        assert_eq!(reply.data()[0], n + 100);
    }
}

/// Send queues and completion queues notify as well; what is flushed counts.
pub fn every_queue_notifies(mut w: World) {
    let cq = w.b.create_cq(16).unwrap();
    let attributes = w.b.vi_attributes(ReliableDelivery).cq(cq);
    let (va, vb, vc) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes), w.b.vi(ReliableDelivery));
    w.connect(va, vb);
    w.b.post_recvs(vb, 2, 16);
    let World { mut a, b, folder: _folder, .. } = w;
    let b = SharedNic::new(b.into_nic());
    let (to, from) = reporter();
    b.notify_cq(cq, tell(&to)).unwrap();
    a.send(va, b"through the queue");
    drop(until("the send", || a.poll_send(va).unwrap()));
    assert_eq!(hear(&from).1.status(), Status::LengthError, "17 bytes for 16");
    b.notify_cq(cq, tell(&to)).unwrap();
    assert_eq!(hear(&from).1.status(), Status::Flushed);
    b.notify(vc, Queue::Send, tell(&to)).unwrap();
    b.lock().post_send(vc, Descriptor::send_empty()).unwrap();
    let (_, done) = hear(&from);
    assert_eq!((done.vi(), done.status()), (vc, Status::Flushed));
}

/// Destroying an object cancels its handlers, as does asking for it.
pub fn handlers_are_cancelled(mut w: World) {
    let (one, two) = (w.b.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let cq = w.b.create_cq(1).unwrap();
    let World { b, folder: _folder, .. } = w;
    let b = SharedNic::new(b.into_nic());
    let (to, from) = reporter();
    b.notify(one, Queue::Send, tell(&to)).unwrap();
    b.notify(two, Queue::Receive, tell(&to)).unwrap();
    b.notify_cq(cq, tell(&to)).unwrap();
    b.cancel_notify(one);
    b.lock().post_send(one, Descriptor::send_empty()).unwrap();
    assert_eq!(b.wait(one, Queue::Send, LONG).unwrap().status(), Status::Flushed, "no handler took it");
    b.lock().destroy_vi(two).unwrap();
    b.lock().destroy_cq(cq).unwrap();
    assert!(matches!(b.notify(two, Queue::Receive, tell(&to)), Err(Error::InvalidHandle(_))));
    assert!(matches!(b.notify_cq(cq, tell(&to)), Err(Error::InvalidHandle(_))));
    drop(to);
    // Every handler is dropped without having run.
    assert!(from.recv_timeout(LONG.unwrap()).is_err(), "a cancelled handler ran");
}

/// Asynchronous errors reach the handler, on the service thread, one for each.
pub fn errors_are_called_back(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, Unreliable);
    let (to, from) = channel();
    let report = move |_: &SharedNic, e: &ErrorEvent| assert!(to.send((thread::current().id(), *e)).is_ok());
    b.on_error(Some(Arc::new(report))).unwrap();
    // Eight receives were posted. The program polls; the handler runs elsewhere.
    let mut received = 0;
    for n in 0..11u8 {
        a.send(va, &[n]);
        drop(until("the send", || {
            received += usize::from(b.lock().poll_recv(vb).unwrap().is_some());
            a.poll_send(va).unwrap()
        }));
    }
    until("everything to arrive", || {
        received += usize::from(b.lock().poll_recv(vb).unwrap().is_some());
        let dropped = b.lock().counters().read(viaduct_via::Counter::Dropped);
        (received == 8 && dropped == 3).then_some(())
    });
    for _ in 0..3 {
        let (thread, event) = from.recv_timeout(LONG.unwrap()).unwrap();
        assert_ne!(thread, thread::current().id());
        assert_eq!((event.vi, event.code), (vb, ErrorCode::ReceiveQueueEmpty));
    }
    assert!(b.lock().take_error().is_none(), "told once");
}

/// A lost connection is told once for each VI, without anybody polling for it.
pub fn a_lost_connection_is_called_back(mut w: World) {
    let mut third = w.hooked(Arc::new(Faults::new(3, [Rule::Nth(0, Action::Break)])));
    let (vc, vb) = (third.vi(ReliableDelivery), w.b.vi(ReliableDelivery));
    let address = w.address();
    connect(&mut third, vc, &mut w.b, vb, &address);
    let third = SharedNic::new(third.into_nic());
    let (to, from) = channel();
    third
        .on_error(Some(Arc::new(move |_: &SharedNic, e: &ErrorEvent| assert!(to.send(*e).is_ok()))))
        .unwrap();
    third.lock().post_send(vc, Descriptor::send_empty()).unwrap();
    assert_eq!(third.wait(vc, Queue::Send, LONG).unwrap().status(), Status::Flushed);
    let event = from.recv_timeout(LONG.unwrap()).unwrap();
    assert_eq!((event.vi, event.code), (vc, ErrorCode::ConnectionLost));
    drop(third);
    assert!(from.recv_timeout(Duration::from_millis(50)).is_err(), "once");
}

/// An orderly end raises nothing, on either side: programs abort in their handlers.
pub fn a_clean_end_raises_nothing(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    let (to, from) = channel();
    b.on_error(Some(Arc::new(move |_: &SharedNic, e: &ErrorEvent| assert!(to.send(*e).is_ok())))).unwrap();
    a.send(va, b"bye");
    drop(until("the send", || a.poll_send(va).unwrap()));
    a.disconnect(va).unwrap();
    assert_eq!(b.wait(vb, Queue::Receive, LONG).unwrap().0.data(), b"bye");
    until("the end", || (b.lock().query_vi(vb).unwrap().state == ViState::Error).then_some(()));
    assert!(a.take_error().is_none());
    drop(b);
    assert!(from.recv().is_err(), "an error was raised");
}

/// On a NIC that is not shared the handler runs inside the call that met the error; `None` goes back to keeping them.
pub fn a_plain_nic_calls_back_in_place(mut w: World) {
    let (va, vb) = w.pair(Unreliable);
    let (to, from) = channel();
    w.b.on_error(Some(Box::new(move |e| assert!(to.send((thread::current().id(), *e)).is_ok()))));
    w.a.send(va, b"lost");
    let (thread, event) = w.until("the error", |w| {
        drop(w.b.poll_recv(vb));
        from.try_recv().ok()
    });
    assert_eq!((thread, event.vi), (thread::current().id(), vb));
    assert!(w.b.take_error().is_none());
    w.b.on_error(None);
    w.a.send(va, b"lost");
    let kept = w.until("the error", |w| w.b.take_error());
    assert_eq!(kept.code, ErrorCode::ReceiveQueueEmpty);
}

/// Recalled: A queue that reports to a completion queue is neither waited on nor notified of by itself.
pub fn a_bound_queue_notifies_through_its_completion_queue(mut w: World) {
    let cq = w.b.create_cq(4).unwrap();
    let mut attributes = w.b.vi_attributes(ReliableDelivery);
    attributes.send_cq = Some(cq);
    let vi = w.b.vi_with(attributes);
    let World { b, folder: _folder, .. } = w;
    let b = SharedNic::new(b.into_nic());
    let (to, from) = reporter();
    assert!(matches!(b.notify(vi, Queue::Send, tell(&to)), Err(Error::BoundToCq)));
    assert!(matches!(b.wait(vi, Queue::Send, LONG), Err(Error::BoundToCq)));
    assert!(matches!(block_on(b.next(vi, Queue::Send)), Err(Error::BoundToCq)));
    b.notify(vi, Queue::Receive, tell(&to)).unwrap();
    b.notify_cq(cq, tell(&to)).unwrap();
    b.lock().post_send(vi, Descriptor::send_empty()).unwrap();
    assert_eq!(hear(&from).1.queue(), Queue::Send);
}

/// A call that removes a handler returns when the handler is not running, and the handler is not called afterwards.
pub fn a_removed_handler_has_returned(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, Unreliable);
    let returned = Arc::new(AtomicBool::new(false));
    let (begun, begins) = channel();
    let (go, goes) = channel::<()>();
    let slow = returned.clone();
    let handler: NotifyHandler = Box::new(move |_, _| {
        begun.send(()).unwrap();
        goes.recv().unwrap();
        slow.store(true, Ordering::SeqCst);
    });
    b.notify(vb, Queue::Receive, handler).unwrap();
    a.send(va, b"x");
    drop(until("the send", || a.poll_send(va).unwrap()));
    begins.recv_timeout(LONG.unwrap()).expect("the handler runs");
    thread::scope(|scope| {
        let removed = scope.spawn(|| {
            b.cancel_notify(vb);
            returned.load(Ordering::SeqCst)
        });
        thread::sleep(Duration::from_millis(20));
        go.send(()).unwrap();
        assert!(removed.join().unwrap(), "removed while it ran");
    });
    // The handler of errors: a message that meets no receive is one.
    let (begun, begins) = channel();
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let inside = Arc::new(AtomicBool::new(false));
    let slow = inside.clone();
    b.on_error(Some(Arc::new(move |_, _| {
        slow.store(true, Ordering::SeqCst);
        begun.send(()).unwrap();
        let _ = goes.lock().unwrap().recv_timeout(LONG.unwrap());
        slow.store(false, Ordering::SeqCst);
    })))
    .unwrap();
    // Seven receives are left, and there are errors for several calls.
    for _ in 0..20 {
        a.send(va, b"x");
        drop(until("the send", || {
            b.lock().query_vi(vb).unwrap();
            a.poll_send(va).unwrap()
        }));
    }
    until("the handler", || {
        b.lock().query_vi(vb).unwrap();
        begins.try_recv().ok()
    });
    thread::scope(|scope| {
        let removed = scope.spawn(|| {
            b.on_error(None).unwrap();
            inside.load(Ordering::SeqCst)
        });
        thread::sleep(Duration::from_millis(20));
        go.send(()).unwrap();
        drop(go);
        assert!(!removed.join().unwrap(), "removed while it ran");
    });
    let calls = begins.try_iter().count();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(begins.try_iter().count(), 0, "called after it was removed ({calls} calls before)");
}

/// A handler may remove itself: the call does not wait for the handler that makes it.
pub fn a_handler_removes_itself(w: World) {
    let (mut a, va, b, vb, _folder) = share(w, ReliableDelivery);
    let (to, from) = channel();
    let handler: NotifyHandler = Box::new(move |nic, done| {
        nic.cancel_notify(done.vi());
        nic.on_error(None).unwrap();
        to.send(()).unwrap();
    });
    b.notify(vb, Queue::Receive, handler).unwrap();
    a.send(va, b"x");
    drop(until("the send", || a.poll_send(va).unwrap()));
    from.recv_timeout(LONG.unwrap()).expect("the handler returns");
}
