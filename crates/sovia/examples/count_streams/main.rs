//! The calls of streams whose instructions `cargo xtask instructions` counts, under callgrind.
//!
//! ```text
//!  instructions                     prints the names of the operations
//!  instructions OPERATION ROUNDS    does one of them so many times
//! ```
//!
//! Both ends are in one thread, so that what is read is there. callgrind collects while one of the functions is on the stack
//! that are called `count_this_`; they add a few instructions.

use std::fs::DirBuilder;
use std::io::{Read, Result, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use viaduct_providers::config::ShmConfig;
use viaduct_sovia::{Config, Listener, Sovia, Stream, Waiting};
use viaduct_via::Nic;

/// The call that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// None: to warm up.
    Nothing,
    Write,
    Read,
}

/// A name, whether requests are combined, the round, and which call of it counts. Numbers are bytes.
type Operation = (&'static str, bool, fn(&mut Pair, Call), Call);

const OPERATIONS: &[Operation] = &[
    ("write-8", false, Pair::question::<8>, Call::Write),
    ("read-8", false, Pair::question::<8>, Call::Read),
    ("write-64", false, Pair::question::<64>, Call::Write),
    ("read-64", false, Pair::question::<64>, Call::Read),
    ("write-8-lone", true, Pair::question::<8>, Call::Write),
    ("write-8-combined", true, Pair::combined, Call::Write),
    ("read-4096", false, Pair::question::<4096>, Call::Read),
];

/// Rounds before counting starts: several windows.
const WARM_UP: u32 = 256;
/// Turns of one request each, after which none is held any more.
const TURNS: usize = 16;
/// Requests that are combined before they are flushed and read.
const COMBINED: usize = 64;

#[inline(never)]
fn count_this_write(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes)
}

#[inline(never)]
fn count_this_read(stream: &mut Stream, into: &mut [u8]) -> Result<()> {
    stream.read_exact(into)
}

/// Two ends of a stream in one process.
struct Pair {
    one: Stream,
    other: Stream,
    turns: usize,
    /// Requests that were combined.
    requests: usize,
    _libraries: (Sovia, Sovia, Listener),
    folder: PathBuf,
}

impl Pair {
    fn new(combining: bool) -> Pair {
        let folder = std::env::temp_dir().join(format!("sovia-instructions-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).expect("a folder for the two ends");
        let open = || {
            let shm = ShmConfig { runtime_dir: Some(folder.clone()), ..ShmConfig::default() };
            let providers = viaduct_providers::Config { shm, ..Default::default() };
            let nic = Nic::open(viaduct_providers::open("shm", &providers).expect("shm")).expect("a NIC");
            let config = Config { combining, waiting: Waiting::Polling, ..Config::default() };
            Sovia::open(nic, config).expect("the library")
        };
        let (server, client) = (open(), open());
        let listener = server.listen("via://:7000", 1).expect("listening");
        let one = client.connect("via://:7000").expect("connecting");
        let other = listener.accept().expect("accepting");
        Pair { one, other, turns: 0, requests: 0, _libraries: (server, client, listener), folder }
    }

    fn write(&mut self, bytes: &[u8], counted: bool) {
        let written =
            if counted { count_this_write(&mut self.one, bytes) } else { self.one.write_all(bytes) };
        written.expect("written");
    }

    /// A question and its answer.
    fn question<const LEN: usize>(&mut self, counted: Call) {
        let mut bytes = [1; LEN];
        self.write(&bytes, counted == Call::Write);
        self.push();
        self.turns += 1;
        let read = match counted {
            Call::Read => count_this_read(&mut self.other, &mut bytes),
            _ => self.other.read_exact(&mut bytes),
        };
        read.expect("read");
        self.other.write_all(&bytes[..8]).expect("answered");
        self.push();
        self.one.read_exact(&mut bytes[..8]).expect("an answer");
    }

    /// The first requests of a connection are held where they may be combined, until turns of one each have been seen.
    fn push(&mut self) {
        if self.turns < TURNS {
            self.one.flush().expect("flushed");
            self.other.flush().expect("flushed");
        }
    }

    /// One of many requests that go together.
    fn combined(&mut self, counted: Call) {
        self.write(&[1; 8], counted == Call::Write);
        self.requests += 1;
        if self.requests.is_multiple_of(COMBINED) {
            self.one.flush().expect("flushed");
            self.other.read_exact(&mut [0; 8 * COMBINED]).expect("read");
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rounds] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let operation = OPERATIONS.iter().find(|(known, ..)| known == name);
    let (_, combining, round, call) =
        operation.expect("one of the operations that are printed without arguments");
    let rounds: u32 = rounds.parse().expect("a number of rounds");
    let mut pair = Pair::new(*combining);
    (0..WARM_UP).for_each(|_| round(&mut pair, Call::Nothing));
    (0..rounds).for_each(|_| round(&mut pair, *call));
}
