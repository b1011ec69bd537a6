//! The calls of MPI whose instructions `cargo xtask instructions` counts, under callgrind.
//!
//! ```text
//!  count_mpi                     prints the names of the operations
//!  count_mpi OPERATION ROUNDS    does one of them so many times
//! ```
//!
//! Two ranks of a job are in one process and, once they have met, in one thread, so that what is received is there. callgrind
//! collects while one of the functions is on the stack that are called `count_this_`; they add a few instructions.

use std::collections::VecDeque;
use std::thread;

use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Mode, Request, Status, World};
use viaduct_providers::Config;
use viaduct_via::Nic;

/// The call that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// None: to warm up.
    Nothing,
    Send,
    /// To post receives; `Receive` waits for them.
    Post,
    Receive,
}

/// A name, receives that are posted beside, the round, and which call of it counts. Numbers are bytes, messages of a window before them, or receives.
type Operation = (&'static str, usize, fn(&mut Pair, Call), Call);

const OPERATIONS: &[Operation] = &[
    ("send-8", 0, Pair::message::<8>, Call::Send),
    ("receive-8", 0, Pair::message::<8>, Call::Receive),
    ("send-1024", 0, Pair::message::<1024>, Call::Send),
    ("receive-1024", 0, Pair::message::<1024>, Call::Receive),
    ("send-12288", 0, Pair::message::<12288>, Call::Send),
    ("receive-12288", 0, Pair::message::<12288>, Call::Receive),
    ("isend-16x8", 0, Pair::window, Call::Send),
    ("irecv-16x8", 0, Pair::window, Call::Post),
    ("wait-16x8", 0, Pair::window, Call::Receive),
    ("match-10", 10, Pair::reverse, Call::Receive),
    ("match-10000", 10_000, Pair::reverse, Call::Receive),
];

/// Messages of a window.
const WINDOW: usize = 16;

/// Rounds before counting starts: several times all posted receives of VIA.
const WARM_UP: u32 = 256;

#[inline(never)]
fn count_this_send(world: &World, span: &Span) {
    world.send(Mode::Standard, span, 1, 0, world.comm_world()).expect("sent");
}

#[inline(never)]
fn count_this_receive(world: &World, span: &Span) -> Status {
    world.recv(span, 0, 0, world.comm_world()).expect("received")
}

/// Sends as many messages as a window has, and waits for all.
#[inline(never)]
fn count_this_window_sent(world: &World, span: &Span) {
    let sent = [(); WINDOW]
        .map(|()| Some(world.isend(Mode::Standard, span, 1, 0, world.comm_world()).expect("sent")));
    world.wait_all(&sent);
    world.take_all(&sent, |_, done| assert!(done.is_some_and(|(done, _)| done.error.is_none())));
}

#[inline(never)]
fn count_this_window_posted(world: &World, span: &Span) -> [Request; WINDOW] {
    [(); WINDOW].map(|()| world.irecv(span, 0, 0, world.comm_world()).expect("posted"))
}

#[inline(never)]
fn count_this_window_received(world: &World, posted: [Request; WINDOW]) {
    for request in posted {
        let (done, _) = world.end(request).expect("it is there");
        assert_eq!((done.error, done.status.bytes), (None, 8));
    }
}

/// A message meets its receive, which then is posted again.
#[inline(never)]
fn count_this_match(world: &World, request: Request, span: &Span, tag: i32) -> Request {
    let done = world.wait(request);
    assert_eq!((done.error, done.status.tag), (None, tag));
    world.irecv(span, 0, tag, world.comm_world()).expect("posted")
}

/// Two ranks in one process.
struct Pair {
    ranks: [World; 2],
    /// Receives that the second rank has posted, with their tags.
    posted: VecDeque<(Request, i32)>,
    span: Span,
}

impl Pair {
    fn new(posted: usize) -> Pair {
        let join = |rank: u32| move || World::init(&|name| variable(name, rank), |_| Ok(open()?));
        let other = thread::spawn(join(1));
        let one = join(0)().expect("rank 0");
        let other = other.join().expect("no panic").expect("rank 1");
        let span = Span::zeroes(8);
        let post = |tag| (other.irecv(&span, 0, tag, other.comm_world()).expect("posted"), tag);
        let posted = (1..=posted as i32).map(post).collect();
        Pair { posted, span, ranks: [one, other] }
    }

    fn message<const LEN: usize>(&mut self, counted: Call) {
        let [one, other] = &self.ranks;
        let (from, into) = (Span::owned(&[1; LEN]), Span::zeroes(LEN));
        match counted {
            Call::Send => count_this_send(one, &from),
            _ => one.send(Mode::Standard, &from, 1, 0, one.comm_world()).expect("sent"),
        }
        let status = match counted {
            Call::Receive => count_this_receive(other, &into),
            _ => other.recv(&into, 0, 0, other.comm_world()).expect("received"),
        };
        assert_eq!(status.bytes, LEN as u64);
        // Credits go back with what is sent the other way.
        let short = Span::zeroes(8);
        other.send(Mode::Standard, &short, 0, 0, other.comm_world()).expect("answered");
        one.recv(&short, 1, 0, one.comm_world()).expect("an answer");
    }

    /// Messages of 8 bytes that meet their receives. All three functions count in the rounds of their call only.
    fn window(&mut self, counted: Call) {
        let [one, other] = &self.ranks;
        let posted = match counted {
            Call::Post => count_this_window_posted(other, &self.span),
            _ => [(); WINDOW].map(|()| other.irecv(&self.span, 0, 0, other.comm_world()).expect("posted")),
        };
        match counted {
            Call::Send => count_this_window_sent(one, &self.span),
            _ => (0..WINDOW)
                .for_each(|_| one.send(Mode::Standard, &self.span, 1, 0, one.comm_world()).expect("sent")),
        }
        match counted {
            Call::Receive => count_this_window_received(other, posted),
            _ => posted.into_iter().for_each(|request| assert_eq!(other.wait(request).error, None)),
        }
        let short = Span::zeroes(8);
        other.send(Mode::Standard, &short, 0, 0, other.comm_world()).expect("answered");
        one.recv(&short, 1, 0, one.comm_world()).expect("an answer");
    }

    /// The message for the receive that was posted last, before which all others stand in the queue.
    fn reverse(&mut self, counted: Call) {
        let [one, other] = &self.ranks;
        let (request, tag) = self.posted.pop_back().expect("posted at the beginning");
        one.send(Mode::Standard, &self.span, 1, tag, one.comm_world()).expect("sent");
        let again = match counted {
            Call::Receive => count_this_match(other, request, &self.span, tag),
            _ => {
                other.wait(request);
                other.irecv(&self.span, 0, tag, other.comm_world()).expect("posted")
            }
        };
        // Among the first from now on, so that the next message meets another one.
        self.posted.push_front((again, tag));
        let short = Span::zeroes(8);
        other.send(Mode::Standard, &short, 0, 0, other.comm_world()).expect("answered");
        one.recv(&short, 1, 0, one.comm_world()).expect("an answer");
    }
}

fn variable(name: &str, rank: u32) -> Option<String> {
    let pid = std::process::id();
    let host = format!("127.{}.{}.{}", 192 + (pid >> 14 & 0x3f), pid >> 7 & 0x7f, 1 + (pid & 0x7f));
    match name {
        "VIADUCT_MEET" => Some(format!("{host}:20000")),
        "VIADUCT_RANK" => Some(rank.to_string()),
        "VIADUCT_SIZE" => Some("2".into()),
        "VIADUCT_TOKEN" => Some("5a".repeat(32)),
        _ => None,
    }
}

fn open() -> Result<Nic, viaduct_via::Error> {
    Nic::open(viaduct_providers::open("shm", &Config::default())?)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rounds] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let operation = OPERATIONS.iter().find(|(known, ..)| known == name);
    let (_, posted, round, call) =
        operation.expect("one of the operations that are printed without arguments");
    let rounds: u32 = rounds.parse().expect("a number of rounds");
    let mut pair = Pair::new(*posted);
    (0..WARM_UP).for_each(|_| round(&mut pair, Call::Nothing));
    (0..rounds).for_each(|_| round(&mut pair, *call));
    let Pair { ranks: [one, other], posted, .. } = pair;
    posted.iter().for_each(|(request, _)| other.cancel(*request));
    thread::scope(|scope| {
        scope.spawn(|| other.finalize().expect("an orderly end"));
        one.finalize().expect("an orderly end");
    });
}
