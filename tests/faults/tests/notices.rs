//! However a program waits, the death of its peer ends the wait: by call, completion queue, descriptor, handler, future.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{
    Completion, Cq, Descriptor, Ended, Error, ErrorCode, MemAttributes, Nic, Queue, SharedNic, Spin, Status,
    Vi, ViAttributes, ViState, WaitConfig,
};

const LIMIT: Duration = Duration::from_secs(30);

// Connects and says so; then it only waits to be killed.
viaduct_kit::child!(MORTAL, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    nic.connect_start(vi, None, &"notices".parse().unwrap(), &[], None).unwrap();
    nic.connect_finish(vi).unwrap();
    say("connected");
    hear();
});

struct Setting {
    nic: Nic,
    vi: Vi,
    cq: Option<Cq>,
    peer: Child,
    _folder: TempDir,
    _watchdog: Watchdog,
}

/// A NIC with one receive posted and a peer that can be killed; a thread that waits sleeps at once.
fn setting(what: &str, bound: bool) -> Setting {
    let watchdog = Watchdog::arm(LIMIT, what);
    let folder = TempDir::new("notices");
    let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
    nic.set_wait(WaitConfig { spin: Spin::Never });
    let tag = nic.create_ptag().unwrap();
    let cq = bound.then(|| nic.create_cq(8).unwrap());
    let attributes = ViAttributes::new(tag);
    let vi = nic.create_vi(cq.map_or(attributes.clone(), |cq| attributes.cq(cq))).unwrap();
    let buffer = nic.alloc(64, MemAttributes::local(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    let listener = nic.listen(&"notices".parse().unwrap(), 1).unwrap();
    let mut peer = MORTAL.spawn(&[folder.path().to_str().unwrap()]);
    let request = nic.wait_listener(listener, None).unwrap();
    nic.accept(request, vi).unwrap();
    peer.expect_line("connected", LIMIT);
    Setting { nic, vi, cq, peer, _folder: folder, _watchdog: watchdog }
}

/// Kills the peer while `wait` is under way, most likely asleep.
fn killed_during<R>(peer: &mut Child, wait: impl FnOnce() -> R) -> R {
    let pid = rustix::process::Pid::from_raw(peer.pid() as i32).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    let found = wait();
    killer.join().unwrap();
    found
}

fn flushed(completion: &Completion) {
    assert_eq!((completion.status, completion.queue), (Status::Flushed, Queue::Receive));
}

#[test]
fn a_wait_on_a_queue_ends() {
    let Setting { mut nic, vi, mut peer, .. } = setting("a wait on a queue", false);
    flushed(&killed_during(&mut peer, || nic.wait_recv_outcome(vi, None)).unwrap().0);
    assert_eq!(nic.query_vi(vi).unwrap().state, ViState::Error);
    assert_eq!(nic.take_error().map(|event| event.code), Some(ErrorCode::ConnectionLost));
}

#[test]
fn a_wait_on_a_completion_queue_ends() {
    let Setting { mut nic, cq, mut peer, .. } = setting("a wait on a completion queue", true);
    flushed(&killed_during(&mut peer, || nic.wait_cq(cq.unwrap(), None)).unwrap().0);
}

#[test]
fn the_descriptor_becomes_readable() {
    let Setting { mut nic, vi, mut peer, _watchdog, _folder, .. } = setting("a program in poll", false);
    let came = killed_during(&mut peer, || {
        loop {
            nic.arm().unwrap();
            if let Some(came) = nic.poll_recv(vi).unwrap() {
                return came;
            }
            poll(&mut [PollFd::from_borrowed_fd(nic.fd().unwrap().as_fd(), PollFlags::IN)], None).unwrap();
            nic.disarm();
        }
    });
    flushed(&came);
}

#[test]
fn handlers_are_called() {
    let Setting { nic, vi, mut peer, _watchdog, _folder, .. } = setting("handlers", false);
    let shared = SharedNic::new(nic);
    let (said, heard) = mpsc::channel();
    let errors = said.clone();
    shared.on_error(Some(Arc::new(move |_, event| errors.send(event.code.to_string()).unwrap()))).unwrap();
    let handler = move |_: &SharedNic, completion: Ended| said.send(completion.status().to_string()).unwrap();
    shared.notify(vi, Queue::Receive, Box::new(handler)).unwrap();
    let mut words = killed_during(&mut peer, || [heard.recv().unwrap(), heard.recv().unwrap()]);
    words.sort();
    assert!(words[0].starts_with("connection lost") && words[1].starts_with("flushed"), "{words:?}");
}

#[test]
fn a_shared_wait_ends() {
    let Setting { nic, vi, mut peer, _watchdog, _folder, .. } = setting("a shared wait", false);
    let shared = SharedNic::new(nic);
    flushed(&killed_during(&mut peer, || shared.wait(vi, Queue::Receive, None)).unwrap().0);
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_future_is_woken() {
    let Setting { nic, vi, mut peer, _watchdog, _folder, .. } = setting("a future", false);
    let shared = SharedNic::new(nic);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let came = killed_during(&mut peer, || {
        let mut next = pin!(shared.next(vi, Queue::Receive));
        loop {
            match next.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(came) => return came,
                Poll::Pending => std::thread::park(),
            }
        }
    });
    flushed(&came.unwrap().0);
}

#[test]
fn a_send_after_the_death_comes_back() {
    let Setting { mut nic, vi, mut peer, _watchdog, _folder, .. } = setting("sends after the death", false);
    peer.kill();
    peer.wait(LIMIT);
    // More than the ring holds: some may have gone into it before the death was noticed, the rest is flushed.
    let mut posted = 0;
    for _ in 0..200 {
        match nic.post_send(vi, Descriptor::send(vec![1; 8].into())) {
            Ok(()) => posted += 1,
            Err(refused) => assert!(matches!(refused.error, Error::QueueFull { .. }), "{}", refused.error),
        }
    }
    let mut back = 0;
    while back < posted {
        let done = nic.wait_send_outcome(vi, None).unwrap().0;
        assert!(matches!(done.status, Status::Success | Status::Flushed), "{}", done.status);
        back += 1;
    }
    flushed(&nic.wait_recv_outcome(vi, None).unwrap().0);
    assert_eq!(nic.query_vi(vi).unwrap().state, ViState::Error);
    assert!(matches!(nic.send_inline(vi, b"x", None), Err(Error::InvalidState { .. })));
}
