//! Peers of the provider between hosts that die, fall silent, or have nothing to say.

use std::path::Path;
use std::time::Duration;

use viaduct_kit::cc::compile_c;
use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::clock;
use viaduct_providers::config::OfiConfig;
use viaduct_providers::{Config, open};
use viaduct_via::{
    Descriptor, Error, ErrorCode, MemAttributes, NetAddress, Nic, ProtectionTag, Reliability, Status, Vi,
    ViAttributes, ViState,
};

const LIMIT: Duration = Duration::from_secs(60);
const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Silence after which a connection is lost, in milliseconds.
const SILENCE: u64 = 900;

/// Both processes find the user's token in the folder.
fn nic(folder: &Path, silence: u64) -> Option<(Nic, ProtectionTag)> {
    let ofi = OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        heartbeat: Duration::from_millis(silence / 4),
        silence: Duration::from_millis(silence),
        ..OfiConfig::default()
    };
    match open("ofi:tcp", &Config { ofi, ..Config::default() }) {
        Ok(provider) => {
            let mut nic = Nic::open(provider).unwrap();
            let tag = nic.create_ptag().unwrap();
            Some((nic, tag))
        }
        Err(e @ Error::Unavailable { .. }) => {
            skip(&e.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn meeting() -> NetAddress {
    "meeting".parse().unwrap()
}

// Accepts one connection with ten receives posted, and does what it is told.
viaduct_kit::child!(PEER, |args| {
    let (mut nic, tag) = nic(Path::new(&args[0]), args[1].parse().unwrap()).expect("the parent has one");
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(Reliability::ReliableReception)).unwrap();
    for _ in 0..10 {
        let buffer = nic.alloc(64, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    let listener = nic.listen(&meeting(), 1).unwrap();
    say("listening");
    let request = nic.wait_listener(listener, LONG).unwrap();
    nic.accept(request, vi).unwrap();
    say("connected");
    while let Some(line) = hear() {
        match line.as_str() {
            "receive" => say(format!("got {}", nic.wait_recv(vi, LONG).unwrap().length)),
            "state" => say(format!("state {:?}", nic.query_vi(vi).unwrap().state)),
            other => panic!("{other}"),
        }
    }
});

struct Scene {
    nic: Nic,
    tag: ProtectionTag,
    vi: Vi,
    peer: Child,
    _folder: TempDir,
}

fn scene(silence: u64) -> Option<Scene> {
    let folder = TempDir::new("ofi");
    let (mut nic, tag) = nic(folder.path(), silence)?;
    let mut peer = PEER.spawn(&[folder.path().to_str().unwrap(), &silence.to_string()]);
    peer.expect_line("listening", LIMIT);
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(Reliability::ReliableReception)).unwrap();
    for _ in 0..3 {
        let buffer = nic.alloc(64, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    peer.expect_line("connected", LIMIT);
    Some(Scene { nic, tag, vi, peer, _folder: folder })
}

impl Scene {
    fn send(&mut self, len: usize) {
        let buffer = self.nic.alloc(len, MemAttributes::local(self.tag)).unwrap();
        self.nic.post_send(self.vi, Descriptor::send(buffer)).unwrap();
    }

    /// A message goes across and is acknowledged.
    fn talk(&mut self) {
        self.send(33);
        self.peer.send_line("receive");
        assert_eq!(self.peer.expect_line("got ", LIMIT), "33");
        assert_eq!(self.nic.wait_send_outcome(self.vi, LONG).unwrap().status(), Status::Success);
    }

    /// A waiting owner learns that the peer is gone; everything posted comes back once.
    fn lost(&mut self) {
        for _ in 0..4 {
            self.send(20);
        }
        for _ in 0..4 {
            let back = self.nic.wait_send_outcome(self.vi, LONG).unwrap().0;
            assert_eq!(back.status, Status::Flushed);
        }
        for _ in 0..3 {
            assert_eq!(self.nic.wait_recv_outcome(self.vi, LONG).unwrap().status(), Status::Flushed);
        }
        assert!(matches!(self.nic.wait_recv(self.vi, LONG), Err(Error::QueueEmpty)));
        assert_eq!(self.nic.query_vi(self.vi).unwrap().state, ViState::Error);
        assert_eq!(self.nic.take_error().map(|e| e.code), Some(ErrorCode::ConnectionLost));
        assert!(self.nic.take_error().is_none());
    }
}

#[test]
fn a_killed_peer_is_noticed_and_everything_comes_back() {
    let _watchdog = Watchdog::arm(LIMIT, "a killed peer");
    // Long enough that it is not the silence that is noticed.
    let Some(mut scene) = scene(600_000) else { return };
    scene.talk();
    scene.peer.kill();
    scene.peer.wait(LIMIT);
    scene.lost();
}

#[test]
fn a_silent_peer_is_noticed_and_everything_comes_back() {
    let _watchdog = Watchdog::arm(LIMIT, "a silent peer");
    let Some(mut scene) = scene(SILENCE) else { return };
    scene.talk();
    scene.peer.stop();
    scene.lost();
    // When it goes on it finds out, too.
    scene.peer.cont();
    loop {
        scene.peer.send_line("state");
        if scene.peer.expect_line("state ", LIMIT) == "Error" {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn idle_ends_stay_connected_and_sleep() {
    let _watchdog = Watchdog::arm(LIMIT, "an idle connection");
    let silence = scaled(Duration::from_millis(SILENCE)).as_millis() as u64;
    let Some(mut scene) = scene(silence) else { return };
    scene.talk();
    let (began, cpu) = (clock::now_ns(), clock::process_cpu_ns());
    assert!(matches!(
        scene.nic.wait_recv_outcome(scene.vi, Some(Duration::from_millis(silence * 4))),
        Err(Error::Timeout)
    ));
    let (time, used) = (clock::now_ns() - began, clock::process_cpu_ns() - cpu);
    assert!(used < time / 5, "waiting took {used} of {time} ns of a CPU");
    assert_eq!(scene.nic.query_vi(scene.vi).unwrap().state, ViState::Connected);
    scene.talk();
}

/// Longer than what goes out at once.
const LARGE: usize = 8 << 20;

// Accepts one connection, posts a large receive or a large send, and does not look at the NIC until it is told to.
viaduct_kit::child!(ABSENT, |args| {
    let (mut nic, tag) = nic(Path::new(&args[0]), 600_000).expect("the parent has one");
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let mut buffer = nic.alloc(LARGE, MemAttributes::local(tag)).unwrap();
    buffer.write(0, &vec![7; LARGE]);
    let receives = args[1] == "receives";
    let listener = nic.listen(&meeting(), 1).unwrap();
    if receives {
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        say("listening");
        let request = nic.wait_listener(listener, LONG).unwrap();
        nic.accept(request, vi).unwrap();
    } else {
        say("listening");
        let request = nic.wait_listener(listener, LONG).unwrap();
        nic.accept(request, vi).unwrap();
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    }
    say("absent");
    hear();
    let back = if receives { nic.wait_recv_outcome(vi, LONG) } else { nic.wait_send_outcome(vi, LONG) };
    say(format!("back {:?}", back.unwrap().status()));
    hear();
});

fn with_absent(what: &str) -> Option<(Nic, ProtectionTag, Vi, Child, TempDir)> {
    let folder = TempDir::new("ofi");
    let (mut nic, tag) = nic(folder.path(), 600_000)?;
    let mut peer = ABSENT.spawn(&[folder.path().to_str().unwrap(), what]);
    peer.expect_line("listening", LIMIT);
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    Some((nic, tag, vi, peer, folder))
}

#[test]
fn a_large_message_goes_on_while_its_sender_computes() {
    let _watchdog = Watchdog::arm(LIMIT, "a large message");
    let Some((mut nic, tag, vi, mut peer, _folder)) = with_absent("sends") else { return };
    let buffer = nic.alloc(LARGE, MemAttributes::local(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    peer.expect_line("absent", LIMIT);
    let got = nic.wait_recv_outcome(vi, LONG).unwrap().0;
    assert_eq!((got.status, got.length as usize), (Status::Success, LARGE));
    assert!(got.data().iter().all(|b| *b == 7));
    peer.send_line("look");
    assert_eq!(peer.expect_line("back ", LIMIT), "Success");
}

#[test]
fn a_message_that_is_not_taken_does_not_keep_its_memory() {
    let _watchdog = Watchdog::arm(LIMIT, "a stuck message");
    let Some((mut nic, tag, vi, mut peer, _folder)) = with_absent("receives") else { return };
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    peer.expect_line("absent", LIMIT);
    for _ in 0..2 {
        let buffer = nic.alloc(LARGE, MemAttributes::local(tag)).unwrap();
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    }
    assert!(matches!(nic.poll_send(vi), Ok(None)), "it is far from being out");
    nic.disconnect(vi).unwrap();
    for _ in 0..2 {
        let mut back = nic.poll_send(vi).unwrap().expect("flushed");
        assert_eq!(back.status, Status::Flushed);
        // The memory is ours again, whatever was under way.
        back.descriptor.write(0, 0, &[9; 64]);
    }
    assert!(matches!(nic.poll_send(vi), Ok(None) | Err(Error::QueueEmpty)));
    peer.send_line("look");
    assert_eq!(peer.expect_line("back ", LIMIT), "Flushed", "half a message is none");
}

/// Makes the look-up of names below `.slow` take seconds, and then fail.
const SLOW_RESOLVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const char *seconds = getenv("SLOW_SECONDS");
    if (!name || !seconds || !strstr(name, ".slow")) {
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(name, service, hints, found);
    }
    sleep((unsigned)atoi(seconds));
    return EAI_AGAIN;
}
"#;

// Connects to the parent, and then looks for hosts whose names take long to look up.
viaduct_kit::child!(SEEKER, |args| {
    let (mut nic, tag) = nic(Path::new(&args[0]), args[1].parse().unwrap()).expect("the parent has one");
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    say("connected");
    for n in 0..6 {
        let other = nic.create_vi(ViAttributes::new(tag)).unwrap();
        let address = format!("host{n}.slow/echo").parse().unwrap();
        nic.connect_start(other, None, &address, &[], LONG).unwrap();
        if n == 5 {
            let found = nic.connect_finish(other);
            assert!(matches!(found, Err(Error::NotReachable(_))), "{found:?}");
        }
    }
    // Nor does one that looks up where to listen stop what goes on beside it.
    let listens = nic.listen(&"host.slow/echo".parse().unwrap(), 1);
    assert!(matches!(listens, Err(Error::NotReachable(_))));
    let buffer = nic.alloc(40, MemAttributes::local(tag)).unwrap();
    nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    say(format!("sent {:?}", nic.wait_send_outcome(vi, LONG).unwrap().status()));
    hear();
});

#[test]
fn connections_survive_a_name_server_that_takes_long() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a slow name server");
    let Some(resolver) = compile_c(SLOW_RESOLVER, &["-shared", "-fPIC", "-ldl"]) else { return };
    let folder = TempDir::new("ofi");
    let silence = scaled(Duration::from_millis(SILENCE)).as_millis() as u64;
    let Some((mut nic, tag)) = nic(folder.path(), silence) else { return };
    let listener = nic.listen(&meeting(), 1).unwrap();
    let mut command = SEEKER.command(&[folder.path().to_str().unwrap(), &silence.to_string()]);
    // Longer than the silence after which a connection is lost.
    command.env("LD_PRELOAD", resolver.path()).env("SLOW_SECONDS", (silence * 3 / 1000).to_string());
    let mut peer = Child::start("SEEKER", command);
    let request = nic.wait_listener(listener, LONG).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let buffer = nic.alloc(64, MemAttributes::local(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    nic.accept(request, vi).unwrap();
    peer.expect_line("connected", LIMIT);
    assert_eq!(peer.expect_line("sent ", LIMIT), "Success");
    let got = nic.wait_recv_outcome(vi, LONG).unwrap().0;
    assert_eq!((got.status, got.length), (Status::Success, 40));
}

/// More than a window of frames.
const MANY: usize = 100;

// Connects, posts many sends, and makes no further call.
viaduct_kit::child!(POSTER, |args| {
    let (mut nic, tag) = nic(Path::new(&args[0]), 600_000).expect("the parent has one");
    let level = Reliability::ALL[args[1].parse::<usize>().unwrap()];
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(level)).unwrap();
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    for n in 0..MANY {
        // Some are longer than a frame.
        let mut buffer =
            nic.alloc(if n % 10 == 0 { 100_000 } else { 100 }, MemAttributes::local(tag)).unwrap();
        buffer.write(0, &[n as u8; 100]);
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    }
    say("posted");
    hear();
    let done =
        (0..MANY).filter(|_| nic.wait_send_outcome(vi, LONG).unwrap().status() == Status::Success).count();
    say(format!("done {done}"));
    hear();
});

#[test]
fn all_that_was_posted_arrives_without_further_calls() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "posted sends");
    let folder = TempDir::new("ofi");
    let Some((mut nic, tag)) = nic(folder.path(), 600_000) else { return };
    let listener = nic.listen(&meeting(), 1).unwrap();
    for (number, level) in Reliability::ALL.into_iter().enumerate() {
        let vi = nic.create_vi(ViAttributes::new(tag).reliability(level)).unwrap();
        for _ in 0..MANY {
            let buffer = nic.alloc(100_000, MemAttributes::local(tag)).unwrap();
            nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        let mut peer = POSTER.spawn(&[folder.path().to_str().unwrap(), &number.to_string()]);
        let request = nic.wait_listener(listener, LONG).unwrap();
        nic.accept(request, vi).unwrap();
        peer.expect_line("posted", LIMIT);
        for n in 0..MANY {
            let got = nic.wait_recv_outcome(vi, LONG).unwrap().0;
            assert_eq!((got.status, got.data()[99]), (Status::Success, n as u8), "{level:?}");
        }
        peer.send_line("look");
        assert_eq!(peer.expect_line("done ", LIMIT), MANY.to_string());
        nic.disconnect(vi).unwrap();
    }
}

// Connects and sends one message after the other. Says how many were done with success, each time; then does what it is told.
viaduct_kit::child!(SENDER, |args| {
    let (mut nic, tag) = nic(Path::new(&args[0]), 600_000).expect("the parent has one");
    let (size, count): (usize, usize) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(promise(size, &args[3]))).unwrap();
    nic.connect_request(vi, &meeting(), LONG).unwrap();
    let mut buffer = nic.alloc(size, MemAttributes::local(tag)).unwrap();
    for n in 0..count {
        buffer.write(0, &(n as u32).to_le_bytes());
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        let done = nic.wait_send_outcome(vi, LONG).unwrap().0;
        assert_eq!(done.status, Status::Success);
        say(format!("done {}", n + 1));
        buffer = done.descriptor.into_buffer();
    }
    match args[3].as_str() {
        "disconnect" => nic.disconnect(vi).unwrap(),
        "drop" => drop(nic),
        "exit" => {}
        _ => drop(hear()),
    }
    // Nothing is tidied up.
    std::process::exit(0);
});

/// The level that promises the arrival. A kernel that ends a process resets connections with unread input, such as credits
/// for a message of many frames, so that a long message needs reliable reception to outlive an abrupt end.
fn promise(size: usize, end: &str) -> Reliability {
    let abrupt = matches!(end, "exit" | "killed");
    if size > 64 << 10 && abrupt { Reliability::ReliableReception } else { Reliability::ReliableDelivery }
}

/// A sender does what `end` says after its last message, or is killed in the middle; all that was done with success
/// arrives, though the receiver looks late.
fn arrives(size: usize, count: usize, end: &str, kill_at: Option<usize>) -> bool {
    let folder = TempDir::new("ofi");
    let Some((mut nic, tag)) = nic(folder.path(), 600_000) else { return false };
    let listener = nic.listen(&meeting(), 1).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(promise(size, end))).unwrap();
    for _ in 0..count {
        let buffer = nic.alloc(size, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    let size = size.to_string();
    let mut peer = SENDER.spawn(&[folder.path().to_str().unwrap(), &size, &count.to_string(), end]);
    let request = nic.wait_listener(listener, LONG).unwrap();
    nic.accept(request, vi).unwrap();
    let (mut done, mut got) = (0, 0);
    let mut take = |nic: &mut Nic, wait: bool| {
        let back = match wait {
            true => nic.wait_recv_outcome(vi, LONG).ok().map(|back| back.0),
            false => nic.poll_recv(vi).ok().flatten(),
        };
        let Some(back) = back.filter(|back| back.status == Status::Success) else { return false };
        assert_eq!(u32::from_le_bytes(back.data()[..4].try_into().unwrap()), got);
        got += 1;
        true
    };
    while done < kill_at.unwrap_or(count) {
        match peer.next_line(Duration::from_millis(20)) {
            Some(line) => done = line.strip_prefix("done ").unwrap().parse().unwrap(),
            // Its window is used up.
            None => drop(take(&mut nic, false)),
        }
    }
    if kill_at.is_some() {
        peer.kill();
    }
    peer.wait(LIMIT);
    while let Some(line) = peer.next_line(Duration::from_millis(1)) {
        done = line.strip_prefix("done ").unwrap().parse().unwrap();
    }
    while take(&mut nic, true) {}
    assert!(got as usize >= done, "{got} of {done} messages of {size} bytes arrived; {end}");
    true
}

#[test]
fn a_message_that_was_sent_with_success_arrives_whatever_its_sender_does_next() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "messages of a sender that leaves");
    for size in [8, 5_000, 1_000_000] {
        for end in ["disconnect", "drop", "exit"] {
            if !arrives(size, 12, end, None) {
                return;
            }
        }
        for kill_at in (1..=rounds(2, 30) as usize).map(|n| n * 7 % 19) {
            arrives(size, 24, "killed", Some(kill_at));
        }
    }
}
