//! The product: reliability x way of waiting x size x segments x memory, with every byte checked.
//!
//! The ordinary run takes a sample, drawn by a seed that is printed with any failure; `VIADUCT_TEST_FULL=1` runs all.
//! `VIADUCT_UBERTEST_SEED` repeats a sample.

use std::env;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use viaduct_kit::effort::full;
use viaduct_via::{Buffer, Completion, Cq, Descriptor, MemAttributes, Op, Queue, Reliability, Status, Vi};

use crate::pattern::{Rng, assert_same, bytes};
use crate::world::{LONG, Node, World, connect, until};

const SIZES: [usize; 10] = [0, 1, 8, 48, 49, 104, 105, 4096, 65_537, 1 << 20];
const SEGMENTS: [usize; 3] = [1, 2, 7];
/// Combinations of an ordinary run.
const SAMPLE: usize = 330;
/// Messages of each combination.
const MESSAGES: usize = 2;

/// How a side learns of completions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mode {
    Poll,
    Wait,
    CqPoll,
    CqWait,
    Fd,
}

const MODES: [Mode; 5] = [Mode::Poll, Mode::Wait, Mode::CqPoll, Mode::CqWait, Mode::Fd];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Allocated,
    Registered,
    Implicit,
}

const KINDS: [Kind; 3] = [Kind::Allocated, Kind::Registered, Kind::Implicit];

/// One point of the product.
#[derive(Clone, Copy, Debug)]
struct Combination {
    level: Reliability,
    mode: Mode,
    size: usize,
    out_segments: usize,
    in_segments: usize,
    out_kind: Kind,
    in_kind: Kind,
    number: u64,
}

/// Every combination, or a sample in which each value of each dimension is as frequent as the others.
pub fn every_combination_carries_its_bytes(mut w: World) {
    let seed = env::var("VIADUCT_UBERTEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let combinations = if full() { all() } else { sample(seed) };
    assert!(combinations.len() >= 300);
    println!("{}: {} combinations, seed {seed}", w.name(), combinations.len());
    for level in Reliability::ALL {
        for mode in MODES {
            let group: Vec<Combination> =
                combinations.iter().filter(|c| c.level == level && c.mode == mode).copied().collect();
            if !group.is_empty() {
                run_group(&mut w, level, mode, &group, seed);
            }
        }
    }
}

fn all() -> Vec<Combination> {
    let mut all = Vec::new();
    for level in Reliability::ALL {
        for mode in MODES {
            for size in SIZES {
                for (out_segments, in_segments) in pairs(&SEGMENTS) {
                    for (out_kind, in_kind) in pairs(&KINDS) {
                        let number = all.len() as u64;
                        let one = Combination {
                            level,
                            mode,
                            size,
                            out_segments,
                            in_segments,
                            out_kind,
                            in_kind,
                            number,
                        };
                        all.push(one);
                    }
                }
            }
        }
    }
    all
}

fn pairs<T: Copy>(values: &[T]) -> impl Iterator<Item = (T, T)> + '_ {
    values.iter().flat_map(move |a| values.iter().map(move |b| (*a, *b)))
}

fn sample(seed: u64) -> Vec<Combination> {
    let mut all = all();
    let mut rng = Rng::new(seed);
    for i in 0..SAMPLE {
        let j = i + rng.below(all.len() - i);
        all.swap(i, j);
    }
    all.truncate(SAMPLE);
    all
}

/// Both sides on threads of their own, on one connection for the whole group.
fn run_group(w: &mut World, level: Reliability, mode: Mode, group: &[Combination], seed: u64) {
    let delayed = w.delayed;
    let address = w.address();
    let (mut left, mut right) = (End::new(&mut w.a, level, mode), End::new(&mut w.b, level, mode));
    connect(left.node, left.vi, right.node, right.vi, &address);
    (left.delayed, right.delayed) = (delayed, delayed);
    let (ready, is_ready) = channel();
    thread::scope(|scope| {
        let left = &mut left;
        scope.spawn(move || each(group, seed, "sending", |c| send(left, c, &is_ready)));
        each(group, seed, "receiving", |c| receive(&mut right, c, &ready));
        drop(ready);
    });
    left.close();
    right.close();
}

fn each(group: &[Combination], seed: u64, what: &str, mut run: impl FnMut(&Combination)) {
    for combination in group {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(combination))) {
            eprintln!("{what} failed (VIADUCT_UBERTEST_SEED={seed}): {combination:?}");
            resume_unwind(panic);
        }
    }
}

fn send(end: &mut End, c: &Combination, is_ready: &Receiver<()>) {
    is_ready.recv_timeout(LONG.unwrap()).expect("the receiver posts");
    for n in 0..MESSAGES {
        let message = bytes(c.number * 8 + n as u64, c.size);
        let descriptor = end.descriptor(Op::Send, c.size, c.out_segments, c.out_kind, Some(&message));
        let immediate = if n == 0 { descriptor.immediate(c.number as u32) } else { descriptor };
        end.node.post_send(end.vi, immediate.context(n as u64)).expect("posted");
    }
    for n in 0..MESSAGES {
        let done = end.next(Queue::Send);
        assert_eq!((done.status, done.length as usize), (Status::Success, c.size));
        assert_eq!(done.descriptor.work().context, n as u64);
    }
}

fn receive(end: &mut End, c: &Combination, ready: &Sender<()>) {
    for n in 0..MESSAGES {
        let descriptor = end.descriptor(Op::Receive, c.size, c.in_segments, c.in_kind, None);
        end.node.post_recv(end.vi, descriptor.context(n as u64)).expect("posted");
    }
    ready.send(()).expect("the sender listens");
    for n in 0..MESSAGES {
        let done = end.next(Queue::Receive);
        assert_eq!((done.status, done.length as usize), (Status::Success, c.size));
        assert_eq!(done.immediate, (n == 0).then_some(c.number as u32));
        assert_eq!(done.descriptor.work().context, n as u64);
        let segments = done.descriptor.work().segments().iter().map(|s| s.len as usize).collect::<Vec<_>>();
        let mut got = Vec::with_capacity(c.size);
        for (buffer, len) in done.descriptor.into_buffers().iter().zip(segments) {
            got.extend_from_slice(&buffer.to_vec(PAD + len)[PAD..]);
        }
        assert_same(&got[..c.size], &bytes(c.number * 8 + n as u64, c.size));
    }
}

/// Bytes before each segment, so that none is aligned.
const PAD: usize = 3;

/// One side of a group.
struct End<'a> {
    node: &'a mut Node,
    vi: Vi,
    cq: Option<Cq>,
    mode: Mode,
    delayed: bool,
}

impl<'a> End<'a> {
    fn new(node: &'a mut Node, level: Reliability, mode: Mode) -> End<'a> {
        let attributes = node.vi_attributes(level);
        let cq = matches!(mode, Mode::CqPoll | Mode::CqWait).then(|| node.create_cq(64).unwrap());
        let vi = node.vi_with(match cq {
            Some(cq) => attributes.cq(cq),
            None => attributes,
        });
        End { node, vi, cq, mode, delayed: false }
    }

    fn close(self) {
        self.node.retire(self.vi);
        if let Some(cq) = self.cq {
            self.node.destroy_cq(cq).unwrap();
        }
    }

    /// A descriptor with `size` bytes in `count` segments of uneven lengths; some have none.
    fn descriptor(
        &mut self,
        op: Op,
        size: usize,
        count: usize,
        kind: Kind,
        data: Option<&[u8]>,
    ) -> Descriptor {
        let attributes = MemAttributes::local(self.node.tag);
        cuts(size, count).into_iter().fold(Descriptor::new(op), |descriptor, range| {
            let len = range.len() + PAD;
            let mut buffer = match kind {
                Kind::Allocated => self.node.alloc(len, attributes).expect("memory"),
                Kind::Registered => self.node.register(vec![0; len], attributes).expect("registered"),
                Kind::Implicit => Buffer::from(vec![0; len]),
            };
            if let Some(data) = data {
                buffer.write(PAD, &data[range]);
            }
            descriptor.segment_range(buffer, PAD..len)
        })
    }

    fn next(&mut self, queue: Queue) -> Completion {
        let (vi, cq) = (self.vi, self.cq);
        match self.mode {
            Mode::Poll => until("a completion", || self.node.poll(vi, queue)),
            Mode::Wait if queue == Queue::Send => {
                self.node.wait_send_outcome(vi, LONG).expect("a completion").0
            }
            Mode::Wait => self.node.wait_recv_outcome(vi, LONG).expect("a completion").0,
            Mode::CqPoll => until("an entry", || self.node.poll_cq(cq?).unwrap()),
            Mode::CqWait => self.node.wait_cq(cq.expect("this mode has one"), LONG).expect("an entry").0,
            Mode::Fd => self.by_descriptor(queue),
        }
    }

    /// Arms, looks once more, sleeps in poll(2), disarms.
    fn by_descriptor(&mut self, queue: Queue) -> Completion {
        let vi = self.vi;
        // What a hook holds back is not announced: look again after a moment.
        let limit = if self.delayed { Duration::from_millis(1) } else { LONG.unwrap() };
        let limit = Timespec::try_from(limit).expect("a short time");
        until("a completion", || {
            if let Some(done) = self.node.poll(vi, queue) {
                return Some(done);
            }
            self.node.arm().expect("armed");
            let mut found = self.node.poll(vi, queue);
            if found.is_none() {
                let fd = self.node.fd().expect("a descriptor");
                let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit));
                assert!(self.delayed || ready != Ok(0), "slept over something");
                found = self.node.poll(vi, queue);
            }
            self.node.disarm();
            found
        })
    }
}

/// Where a message of `size` bytes is cut into `count` pieces; some pieces have no bytes.
fn cuts(size: usize, count: usize) -> Vec<Range<usize>> {
    let mut rng = Rng::new((size * 31 + count) as u64);
    let mut ends: Vec<usize> = (1..count).map(|_| rng.below(size + 1)).collect();
    ends.push(size);
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(ends).map(|(start, end)| start..end).collect()
}
