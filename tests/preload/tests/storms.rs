//! The C program of `c/storms.c`: kills at any point, descriptors that wander, upgrades at any offset, many connections
//! that do nothing; and a peer that writes anything it likes into shared memory.

use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use viaduct_intercept::layout::{Consumer, Direction, End, Header, Producer, SEGMENT};
use viaduct_intercept::wire;
use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::{full, rounds, scaled};
use viaduct_kit::packages::need_program;
use viaduct_kit::skip;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::children;
use viaduct_os::fdpass::{Channel, Recv};
use viaduct_os::segment::{Access, Segment};
use viaduct_preload_tests::{Stage, same_in};

use crate::AGENT;

fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/storms.c");
    PROGRAM.get_or_init(|| compile_c_file(source, &["-O1", "-pthread"])).as_ref()
}

fn storm(scenario: &str, seed: u64, count: u64, upgraded: usize) {
    if let Some(program) = program() {
        same_in(1, program, &AGENT, &[scenario, &seed.to_string(), &count.to_string()], upgraded);
    }
}

#[test]
fn bytes_are_right_up_to_the_point_where_a_process_is_killed() {
    for seed in 11..=rounds(11, 30) {
        storm("killed-writer", seed, rounds(12, 60), 40);
        storm("killed-reader", seed, rounds(12, 60), 40);
        storm("killed-sharer", seed, rounds(6, 40), 12);
    }
}

#[test]
fn a_descriptor_wanders_and_the_stream_goes_on() {
    let Some(program) = program() else { return };
    let seeds = rounds(3, 300);
    // One that is passed on in a message before its first byte stays on TCP, and so a few of all wanderings.
    let moves = |seed: &u64| {
        let notes = same_in(1, program, &AGENT, &["wandering", &seed.to_string(), "30"], 0);
        let moves = notes.contains(" upgraded: ");
        assert!(moves || notes.contains("it was passed on in a message"), "{seed}: {notes}");
        moves
    };
    let moved = (1..=seeds).filter(moves).count() as u64;
    assert!(2 * moved > seeds, "{moved} of {seeds} connections were upgraded");
}

#[test]
fn the_upgrade_may_come_at_any_offset() {
    let offsets = rounds(40, 4097);
    // Each has its sending direction upgraded, counted at both ends.
    let connections = offsets + 20 + offsets / 20;
    storm("offsets", 15, offsets, 2 * connections as usize);
}

#[test]
fn many_idle_connections_use_no_cpu() {
    storm("idle", 16, rounds(100, 2000), 200);
}

#[test]
fn many_processes_at_once_are_served() {
    let count = rounds(24, 1100);
    storm("crowd", 17, count, 4 * count as usize);
}

/// Without the library the limit is just enough; with it, a part of the connections stays on TCP.
#[test]
fn a_program_that_needs_all_its_descriptors_gets_them() {
    storm("crammed", 18, rounds(90, 900), 20);
}

/// With how many descriptors a process can have ten thousand connections upgraded, each with two bells: three times as many, and
/// these are to be a third of the limit.
const ENOUGH: u64 = 62_000;

#[test]
fn ten_thousand_idle_connections_use_no_cpu() {
    if !full() {
        skip!("in the long form only");
    }
    let Some(program) = program() else { return };
    let _dog = Watchdog::arm(scaled(Duration::from_secs(600)), "idle connections");
    let limit = Rlimit { current: Some(ENOUGH), maximum: Some(ENOUGH) };
    // Where the limit cannot be raised they are there all the same, a part of them on TCP.
    let raised = setrlimit(Resource::Nofile, limit).is_ok() || children::raise_open_files() >= ENOUGH;
    let (count, upgraded) = if raised { (10_000, 10_000) } else { (10_000, 1_000) };
    let stage = Stage::new(&AGENT);
    let output = stage.under(program.path()).args(["idle", "17", &count.to_string()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "idle\n", "{errors}");
    assert!(stage.upgrades() >= 4 * upgraded * 9 / 10, "{}", stage.upgrades());
}

/// The other side of a connection, which claims as the library does and then writes into the segment at random.
struct Vandal {
    segment: Segment,
}

impl Vandal {
    fn claim(agent: &str, socket: &impl AsFd) -> Vandal {
        let channel = Channel::connect_abstract(agent.as_bytes()).unwrap();
        assert!(channel.send(&wire::claim(), &[socket.as_fd()]).unwrap());
        let mut bytes = [0; wire::ANSWER];
        let mut fds: Vec<OwnedFd> = Vec::new();
        while !matches!(channel.recv(&mut bytes, &mut fds, 3).unwrap(), Recv::Message(_)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(wire::Answer::parse(&bytes).unwrap().verdict, wire::Verdict::Granted);
        let segment = Segment::open_sparse(fds.swap_remove(0), Access::ReadWrite, SEGMENT).unwrap();
        Vandal { segment }
    }

    /// Opens both sides, then writes numbers of all kinds. Lock words only if asked to: waiting for them takes its time.
    fn rage(&self, seed: u64, locks: bool, over: &AtomicBool) {
        let word = |at: usize| {
            // SAFETY: a place in the mapping, aligned; both ends use its words as atomics only.
            unsafe { &*self.segment.as_ptr().add(at).cast::<AtomicU64>() }
        };
        let header = size_of::<Header>();
        let lock = |at: usize| {
            let way = at.saturating_sub(offset_of!(Header, directions)) % size_of::<Direction>();
            let sender = offset_of!(Direction, producer) + offset_of!(Producer, lock);
            let receiver = offset_of!(Direction, consumer) + offset_of!(Consumer, lock);
            [sender, receiver].contains(&way)
        };
        let mut state = seed;
        let mut dice = |sides: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % sides
        };
        while !over.load(Ordering::Relaxed) {
            word(0).fetch_or(3, Ordering::SeqCst);
            let at = dice(header / 8) * 8;
            let value = match dice(6) {
                0 => 0,
                1 => u64::MAX,
                2 => dice(300_000) as u64,
                3 => 1 << dice(64),
                4 => word(at).load(Ordering::Relaxed).wrapping_add(dice(1000) as u64),
                _ => dice(usize::MAX) as u64,
            };
            if at > 0 && (locks || !lock(at)) {
                word(at).store(value, Ordering::SeqCst);
            }
            // In every third round no socket is said to be nonblocking, as those of the victim are.
            if seed % 3 == 1 {
                for end in [0, size_of::<End>()] {
                    word(offset_of!(Header, ends) + end).store(0, Ordering::SeqCst);
                }
            }
            if dice(50) == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

const VICTIM: &str = "
import socket, select, sys, threading
port, rounds = int(sys.argv[1]), int(sys.argv[2])
a = socket.create_server(('127.0.0.1', 0)); good = socket.create_connection(a.getsockname()); other, _ = a.accept()
def check(n):
    block = bytes((n * 7 + i) % 256 for i in range(997))
    good.sendall(block); assert other.recv(997, socket.MSG_WAITALL) == block
    other.sendall(block[:10]); assert good.recv(10, socket.MSG_WAITALL) == block[:10]
for n in range(rounds):
    bad = socket.create_connection(('127.0.0.1', port)); bad.settimeout(0 if n % 3 == 1 else 0.01)
    poll = select.epoll(); poll.register(bad, select.EPOLLIN | select.EPOLLOUT)
    for turn in range(40):
        check(n + turn)
        for act in (lambda: bad.send(b'x' * (1 + turn * 300)), lambda: bad.recv(5000), lambda: poll.poll(0.001), lambda: bad.recv(10, socket.MSG_PEEK)):
            try: act()
            except OSError: pass
    poll.close(); bad.close()
print('lives')
";

#[test]
fn a_hostile_peer_breaks_its_own_connection_only() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(300)), "a victim");
    let Some(python) = need_program("python3", "python3") else { return };
    let stage = Stage::new(&AGENT);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let count = rounds(6, 60);
    let mut command = stage.under(&python);
    command.args(["-c", VICTIM, &listener.local_addr().unwrap().port().to_string(), &count.to_string()]);
    let victim = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut victim = victim;
    for round in 0..count {
        let mut accepted = None;
        while accepted.is_none() && victim.try_wait().unwrap().is_none() {
            accepted = listener.accept().ok();
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some((mut socket, _)) = accepted else { break };
        socket.set_nonblocking(false).unwrap();
        let vandal = Vandal::claim(stage.name(), &socket);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| vandal.rage(round, round % 8 == 7, &over));
            // Until the victim has closed its end; what it sends by TCP is taken in, and something is sent, too.
            let mut bytes = [0; 4096];
            let _ = socket.write(b"hello");
            while matches!(socket.read(&mut bytes), Ok(count) if count > 0) {}
            over.store(true, Ordering::Relaxed);
        });
    }
    let output = victim.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&said));
    assert_eq!(String::from_utf8_lossy(&said), "lives\n");
}

const ECHO: &str = "
import socket, sys
if sys.argv[1] == 'server':
    a = socket.create_server(('127.0.0.1', 0)); print(a.getsockname()[1], flush=True)
    s, _ = a.accept()
    while (b := s.recv(4096)): s.sendall(b)
else:
    c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    for n in range(50):
        c.sendall(b'%d' % n * 100); assert c.recv(len(b'%d' % n * 100), socket.MSG_WAITALL) == b'%d' % n * 100
    print('echoed')
";

#[test]
fn processes_of_different_users_stay_on_tcp() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "two users");
    let Some(python) = need_program("python3", "python3") else { return };
    if viaduct_os::process::effective_uid() != 0 || !Path::new("/usr/bin/python3").exists() {
        skip!("it takes root to be two users");
    }
    let stage = Stage::new(&AGENT);
    let mut command = stage.under(&python);
    let mut server = command.args(["-c", ECHO, "server"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    let mut out = server.stdout.take().unwrap();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        port.push(byte[0] as char);
    }
    // Where the other user finds them, wherever this tree is.
    let library = stage.folder().join("libsovia_preload.so");
    std::fs::copy(stage.library(), &library).unwrap();
    let mut client = stage.under("/usr/bin/python3");
    client.args(["-c", ECHO, &port]).env("LD_PRELOAD", &library).current_dir("/").uid(65534).gid(65534);
    let output = client.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "echoed\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(server.wait().unwrap().success());
    assert_eq!(stage.upgrades(), 0, "{}", stage.notes());
}

#[test]
fn an_agent_that_was_killed_is_replaced() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "an agent");
    let Some(python) = need_program("python3", "python3") else { return };
    let mut stage = Stage::new(&AGENT);
    let script = "
import socket, sys, time
a = socket.create_server(('127.0.0.1', 0))
def pair():
    c = socket.create_connection(a.getsockname()); return c, a.accept()[0]
def turn(c, s):
    c.sendall(b'x' * 1000); assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    s.sendall(b'y'); assert c.recv(1) == b'y'
old = pair()
for _ in range(8): turn(*old)
print('up', flush=True); sys.stdin.readline()
for n in range(300):
    new = pair()
    for _ in range(4): turn(*new)
    turn(*old)
    time.sleep(0.01)
    for s in new: s.close()
print('done', flush=True)
";
    let mut command = stage.under(&python);
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut up = [0; 3];
    out.read_exact(&mut up).unwrap();
    let before = stage.upgrades();
    assert!(before >= 4, "{}", stage.notes());
    stage.replace_agent(&AGENT);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert!(child.wait().unwrap().success());
    assert!(stage.upgrades() > before, "{}", stage.notes());
}
