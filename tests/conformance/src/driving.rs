//! A layer under a driver, whatever carries its bytes: turns, waits and their limits, wakers of single objects, timers, the
//! service thread, the descriptor of event loops, and the end of a peer.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use viaduct_kit::tempdir::TempDir;
use viaduct_os::clock;
use viaduct_os::wait::WaitPolicy;
use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::{
    Completion, Cq, Descriptor, Driver, Error, Layer, Listener, News, Nic, Rest, Spin, Status, Vi,
    ViAttributes, WaitConfig,
};

use crate::world::{LONG, Node, SHORT, World, until};

/// A layer that sorts what arrives by VI, for tasks and threads that wait for one of them.
struct Desk {
    nic: Nic,
    news: News,
    cq: Cq,
    came: HashMap<Vi, VecDeque<Completion>>,
    tasks: HashMap<Vi, Waker>,
    /// Accepts what asks here.
    door: Option<(Listener, ViAttributes)>,
    /// Has its service thread take messages in.
    serves: bool,
    /// Ticks again after this time.
    every: Option<Duration>,
    ticks: Option<Sender<Option<Vi>>>,
}

impl Layer for Desk {
    const THREAD: &'static str = "desk-service";

    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    fn news(&mut self) -> &mut News {
        &mut self.news
    }

    fn take_in(&mut self) {
        Desk::take_in(self);
    }

    fn tick(&mut self, now: u64) -> Rest {
        let accepted = self.accept();
        if self.serves {
            self.take_in();
        }
        if let Some(ticks) = &self.ticks {
            let _ = ticks.send(accepted);
        }
        let rest = if self.serves { Rest::on_bell() } else { Rest::parked() };
        rest.until(self.every.map(|time| now + time.as_nanos() as u64))
    }
}

impl Desk {
    fn accept(&mut self) -> Option<Vi> {
        let (listener, attributes) = self.door.clone()?;
        let request = self.nic.poll_listener(listener).unwrap()?;
        let vi = self.nic.create_vi(attributes).unwrap();
        assert!(self.nic.accept(request, vi).is_ok());
        Some(vi)
    }

    fn take_in(&mut self) {
        while let Some(completion) = self.nic.poll_cq(self.cq).unwrap() {
            self.tasks.remove(&completion.vi).into_iter().for_each(|task| self.news.task(task));
            self.came.entry(completion.vi).or_default().push_back(completion);
            self.news.wake();
        }
    }

    /// Leaves the waker of a thread that waits for a VI.
    fn leave(&mut self, vi: Vi, waker: &Waker) {
        self.tasks.insert(vi, waker.clone());
    }

    fn next(&mut self, vi: Vi) -> Option<Completion> {
        self.take_in();
        self.came.get_mut(&vi)?.pop_front()
    }
}

/// The peer, pairs of VIs, and the other NIC under a driver.
struct Scene {
    peer: Node,
    pairs: Vec<(Vi, Vi)>,
    desk: Driver<Desk>,
    ticks: Receiver<Option<Vi>>,
    _folder: Option<TempDir>,
}

fn scene(mut w: World, pairs: usize, change: impl FnOnce(&mut Desk)) -> Scene {
    w.sleepy();
    let cq = w.b.create_cq(1024).unwrap();
    let mut pair = || {
        let attributes = w.b.vi_attributes(ReliableDelivery).cq(cq);
        let (va, vb) = (w.a.vi(ReliableDelivery), w.b.vi_with(attributes));
        w.connect(va, vb);
        w.b.post_recvs(vb, 20, 32);
        (va, vb)
    };
    let pairs = (0..pairs).map(|_| pair()).collect();
    let World { a: peer, b, folder: _folder, .. } = w;
    let (told, ticks) = channel();
    let mut desk = Desk {
        nic: b.into_nic(),
        news: News::default(),
        cq,
        came: HashMap::new(),
        tasks: HashMap::new(),
        door: None,
        serves: false,
        every: None,
        ticks: Some(told),
    };
    change(&mut desk);
    Scene { peer, pairs, desk: Driver::new(desk), ticks, _folder }
}

impl Scene {
    fn say(&mut self, vi: Vi, bytes: &[u8]) {
        self.peer.send(vi, bytes);
        drop(until("the send", || self.peer.poll_send(vi).unwrap()));
    }

    fn tick(&self) -> Option<Vi> {
        self.ticks.recv_timeout(LONG.unwrap()).expect("a tick of the service thread")
    }
}

#[derive(Default)]
struct Count {
    wakes: AtomicUsize,
    thread: Mutex<Option<thread::Thread>>,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.lock().unwrap().iter().for_each(thread::Thread::unpark);
    }
}

/// A message wakes the task that waits for its VI, and no other.
pub fn a_message_wakes_the_task_of_its_vi_alone(w: World) {
    let mut s = scene(w, 3, |desk| desk.serves = true);
    s.desk.start().unwrap();
    let counts: Vec<_> = s.pairs.iter().map(|_| Arc::new(Count::default())).collect();
    *counts[1].thread.lock().unwrap() = Some(thread::current());
    s.desk.with(|desk| {
        let wakers = counts.iter().map(|count| Waker::from(count.clone()));
        desk.tasks.extend(s.pairs.iter().map(|(_, vb)| *vb).zip(wakers));
    });
    let (va, vb) = s.pairs[1];
    s.say(va, b"for the second");
    until("the waker", || (counts[1].wakes.load(Ordering::SeqCst) == 1).then_some(()));
    let came = s.desk.with(|desk| desk.came.get_mut(&vb)?.pop_front()).flatten().expect("taken in before");
    assert_eq!(came.data(), b"for the second");
    let woken: Vec<_> = counts.iter().map(|count| count.wakes.load(Ordering::SeqCst)).collect();
    assert_eq!(woken, [0, 1, 0]);
}

/// Each of two threads gets what came for it, also if the other one took it in, and none is left asleep.
pub fn a_thread_that_takes_in_for_another_wakes_it(w: World) {
    let mut s = scene(w, 2, |_| {});
    let (first, second) = (s.pairs[0], s.pairs[1]);
    let wait = |vi| {
        let desk = s.desk.clone();
        thread::spawn(move || {
            for n in 0..10u8 {
                assert_eq!(desk.wait(LONG, |desk| desk.next(vi)).unwrap().data(), [n]);
            }
        })
    };
    let threads = [wait(first.1), wait(second.1)];
    for n in 0..10u8 {
        s.say(second.0, &[n]);
        s.say(first.0, &[n]);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Waits at a VI, asleep, with its waker left there.
fn try_at(desk: &Driver<Desk>, vi: Vi, limit: Option<Duration>) -> Result<Completion, Error> {
    let mut policy = WaitPolicy::new(WaitConfig { spin: Spin::Never });
    let deadline = limit.map(|time| clock::now_ns() + time.as_nanos() as u64);
    desk.wait_at(&mut policy, deadline, |desk| desk.next(vi), |desk, waker| desk.leave(vi, waker))
}

fn await_at(desk: &Driver<Desk>, vi: Vi) -> Completion {
    try_at(desk, vi, LONG).unwrap()
}

/// Of many threads that wait at VIs each gets what is for it, whichever of them is at the bell.
pub fn threads_that_wait_at_vis_get_what_is_theirs(w: World) {
    let mut s = scene(w, 5, |_| {});
    let threads: Vec<_> = (s.pairs.iter())
        .map(|&(_, vi)| {
            let desk = s.desk.clone();
            thread::spawn(move || (0..10u8).for_each(|n| assert_eq!(await_at(&desk, vi).data(), [n])))
        })
        .collect();
    for n in 0..10u8 {
        // Once all together, once one after the other from the last to the first.
        for at in 0..5 {
            let at = if n.is_multiple_of(2) { at } else { 4 - at };
            let (va, _) = s.pairs[at];
            s.say(va, &[n]);
            if n % 3 == 1 {
                thread::sleep(Duration::from_micros(300));
            }
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A thread that was at the bell and does not come back leaves no other one asleep.
pub fn a_lookout_that_does_not_come_back_is_replaced(w: World) {
    one_after_the_other(&mut scene(w, 3, |_| {}));
}

/// Also where no service thread can stand in: it was stopped, or could not be made.
pub fn without_a_service_thread_the_next_waiter_is_the_lookout(w: World) {
    let mut s = scene(w, 3, |_| {});
    s.desk.stop();
    one_after_the_other(&mut s);
}

/// Three threads wait, and each is gone once it has its message, that of the lookout first.
fn one_after_the_other(s: &mut Scene) {
    let threads = [0, 1, 2].map(|at| {
        let (desk, vi) = (s.desk.clone(), s.pairs[at].1);
        let thread = thread::spawn(move || try_at(&desk, vi, None).unwrap().data());
        // Asleep, so that the first of them is the one at the bell.
        thread::sleep(Duration::from_millis(5));
        thread
    });
    for (at, thread) in threads.into_iter().enumerate() {
        s.say(s.pairs[at].0, &[at as u8]);
        until("a thread's message", || thread.is_finished().then_some(()));
        assert_eq!(thread.join().unwrap(), [at as u8]);
    }
}

/// Closing the layer ends the waits at its objects, that of the thread at the bell and those of the others.
pub fn closing_ends_every_wait_at_a_vi(w: World) {
    let s = scene(w, 3, |_| {});
    let threads = [0, 1, 2].map(|at| {
        let (desk, vi) = (s.desk.clone(), s.pairs[at].1);
        thread::spawn(move || try_at(&desk, vi, None).map(drop))
    });
    until("three wakers left", || s.desk.with(|desk| desk.tasks.len() == 3).filter(|&all| all));
    // Asleep, each with its waker where it is dropped.
    thread::sleep(Duration::from_millis(5));
    s.desk.close().unwrap();
    for thread in threads {
        until("the end of a wait", || thread.is_finished().then_some(()));
        let waited = thread.join().unwrap();
        assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    }
}

/// A wait ends at its deadline, and the layer is free for others while it lasts.
pub fn a_wait_has_a_deadline(w: World) {
    let mut s = scene(w, 1, |_| {});
    let (va, vb) = s.pairs[0];
    let missed = s.desk.wait(SHORT, |desk| desk.next(vb).map(drop));
    assert!(matches!(missed, Err(Error::Timeout)), "{missed:?}");
    let desk = s.desk.clone();
    let waiter = thread::spawn(move || desk.wait(LONG, |desk| desk.next(vb)).unwrap());
    for _ in 0..100 {
        assert!(s.desk.with(|desk| desk.door.is_none()).unwrap());
    }
    s.say(va, b"in time");
    assert_eq!(waiter.join().unwrap().data(), b"in time");
}

/// The service thread ticks when the layer asked for it, with no call by any other thread.
pub fn timers_need_no_calls(w: World) {
    let s = scene(w, 0, |desk| desk.every = Some(Duration::from_millis(2)));
    s.desk.start().unwrap();
    for _ in 0..5 {
        assert_eq!(s.tick(), None);
    }
    s.desk.with(|desk| desk.every = None);
    while s.ticks.recv_timeout(Duration::from_millis(50)).is_ok() {}
    // Parked for good; a poke has it tick once more, from outside of a turn and by the layer's news.
    s.desk.poke();
    s.tick();
    s.desk.with(|desk| desk.news.poke());
    s.tick();
}

/// The service thread accepts while no other thread of its process makes calls.
pub fn the_service_thread_accepts(mut w: World) {
    let address = w.address();
    let attributes = w.b.vi_attributes(ReliableDelivery);
    let listener = w.b.listen(&address, 4).unwrap();
    let mut s = scene(w, 0, |desk| desk.door = Some((listener, attributes)));
    s.desk.start().unwrap();
    for _ in 0..3 {
        let vi = s.peer.vi(ReliableDelivery);
        s.peer.connect_request(vi, &address, LONG).unwrap();
        let theirs = until("the tick that accepted", || s.tick());
        s.desk.with(|desk| desk.nic.send_inline(theirs, b"come in", None)).unwrap().unwrap();
        s.peer.post_recvs(vi, 1, 32);
        assert_eq!(until("the greeting", || s.peer.poll_recv(vi).unwrap()).data(), b"come in");
    }
}

/// Sends that could not leave at once do so without a further call of the layer's users.
pub fn sends_leave_without_their_owner(w: World) {
    let mut s = scene(w, 1, |_| {});
    let (va, vb) = s.pairs[0];
    let long: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
    s.peer.post_recvs(va, 30, long.len());
    let posted = s.desk.with(|desk| {
        for _ in 0..30 {
            let buffer = desk
                .nic
                .register(long.clone(), viaduct_via::MemAttributes::local(viaduct_via::ProtectionTag::ANY));
            desk.nic.post_send(vb, Descriptor::send(buffer.unwrap())).unwrap();
        }
    });
    assert!(posted.is_some());
    for _ in 0..30 {
        assert!(until("a message", || s.peer.poll_recv(va).unwrap()).data() == long);
    }
}

/// The descriptor of a watch is readable at the next message, and can be armed anew.
pub fn a_watch_tells_of_each_message(w: World) {
    let mut s = scene(w, 1, |_| {});
    let (va, vb) = s.pairs[0];
    let watch = s.desk.watch().unwrap();
    let readable = |wait: i64| {
        let limit = Timespec { tv_sec: wait, tv_nsec: 0 };
        poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&limit)).unwrap() == 1
    };
    for n in 0..5u8 {
        assert!(s.desk.with(|desk| desk.next(vb)).flatten().is_none() && !readable(0));
        s.say(va, &[n]);
        assert!(readable(30), "message {n}");
        assert_eq!(until("the message", || s.desk.with(|desk| desk.next(vb)).flatten()).data(), [n]);
        watch.again().unwrap();
    }
}

/// A peer that is gone ends the waits for it, and has the service thread tick.
pub fn the_end_of_a_peer_ends_waits(w: World) {
    let s = scene(w, 1, |_| {});
    let (_, vb) = s.pairs[0];
    s.desk.start().unwrap();
    s.tick();
    let desk = s.desk.clone();
    let waiter = thread::spawn(move || desk.wait(LONG, |desk| desk.next(vb)).unwrap());
    thread::sleep(Duration::from_millis(20));
    drop(s.peer);
    assert_eq!(waiter.join().unwrap().status, Status::Flushed);
    assert_eq!(s.ticks.recv_timeout(LONG.unwrap()), Ok(None));
}

/// Closing ends every wait, and the service thread; what comes later is refused.
pub fn closing_ends_waits(w: World) {
    let s = scene(w, 1, |_| {});
    let (_, vb) = s.pairs[0];
    s.desk.start().unwrap();
    s.tick();
    let desk = s.desk.clone();
    let waiter = thread::spawn(move || desk.wait(None, |desk| desk.next(vb)).map(drop));
    thread::sleep(Duration::from_millis(20));
    s.desk.close().unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    assert!(s.desk.with(|_| ()).is_none() && matches!(s.desk.lock().map(drop), Err(Error::Closed)));
    assert!(s.ticks.recv_timeout(LONG.unwrap()).is_err(), "the layer is gone, and its end of the channel");
}
