//! What goes wrong: peers that die, stop, read slowly or talk nonsense; no listener; too many at the door. Errors come in
//! bounded time, concern one stream, and leave nothing behind.

use crate::world;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use viaduct_kit::child::{hear, say};
use viaduct_kit::effort::scaled;
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::watchdog::Watchdog;
use viaduct_sovia::wire::{Kind, Packet};
use viaduct_sovia::{Config, Sovia, Stream};
use viaduct_via::{Descriptor, MemAttributes, Nic, ViAttributes};
use world::{WORLDS, World, hasty, patient};

const LIMIT: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(30);
/// Clients that come at once.
const BURST: usize = 100;

// Connects, writes, and then does what it is told.
viaduct_kit::child!(PEER, |args| {
    let sovia = World::at("shm", args[0].as_ref()).open(&patient(&Config::default()));
    let mut stream = sovia.connect("faults").unwrap();
    stream.write_all(b"hello").unwrap();
    stream.flush().unwrap();
    say("connected");
    while let Some(line) = hear() {
        match line.as_str() {
            "read" => {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                say(format!("read {}", all.len()));
            }
            // A clone that is not dropped, bytes that are held, and no word to the library.
            "hold and exit" => {
                std::mem::forget(stream.try_clone().unwrap());
                std::mem::forget(sovia.clone());
                stream.write_all(b"last words").unwrap();
                std::process::exit(0);
            }
            "exit at once" => viaduct_os::children::quit(0),
            "abort" => {
                Sovia::cut_at_fatal_signals().unwrap();
                std::process::abort();
            }
            _ => std::process::exit(0),
        }
    }
});

fn served() -> (World, Sovia, viaduct_kit::child::Child, Stream) {
    let world = World::new("shm");
    let sovia = world.open(&patient(&Config::default()));
    let listener = sovia.listen("faults", 4).unwrap();
    let mut child = PEER.spawn(&[world.folder()]);
    child.expect_line("connected", scaled(WAIT));
    let mut stream = listener.accept_timeout(scaled(WAIT)).unwrap();
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    (world, sovia, child, stream)
}

#[test]
fn a_peer_that_is_killed_is_noticed() {
    let _watchdog = Watchdog::arm(LIMIT, "a killed peer");
    let (_world, sovia, mut child, mut stream) = served();
    child.kill();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stream.write(&[0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    stream.close().unwrap();
    let activity = sovia.activity();
    assert_eq!((activity.open, activity.closing), (0, 0), "nothing is waited for");
}

#[test]
fn a_peer_that_exits_has_said_all() {
    let _watchdog = Watchdog::arm(LIMIT, "exit");
    let (_world, sovia, mut child, mut stream) = served();
    child.send_line("hold and exit");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last words");
    drop(stream);
    child.finish(scaled(WAIT));
    assert_eq!(sovia.activity().open, 0);
}

#[test]
fn every_other_end_of_a_peer_is_noticed() {
    for how in ["exit at once", "abort"] {
        let _watchdog = Watchdog::arm(LIMIT, how);
        let (_world, sovia, mut child, mut stream) = served();
        child.send_line(how);
        assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{how}");
        stream.close().unwrap();
        let activity = sovia.activity();
        assert_eq!((activity.open, activity.closing), (0, 0), "{how}");
    }
}

#[test]
fn a_writer_is_not_kept_by_a_peer_that_dies() {
    let _watchdog = Watchdog::arm(LIMIT, "a writer and a killed peer");
    let (_world, _sovia, mut child, mut stream) = served();
    let writer = std::thread::spawn(move || stream.write_all(&vec![7; 16 << 20]).unwrap_err().kind());
    // It does not read, so the writer waits for the window.
    std::thread::sleep(Duration::from_millis(50));
    child.kill();
    assert_eq!(writer.join().unwrap(), ErrorKind::ConnectionReset);
}

#[test]
fn a_stopped_peer_costs_time_and_no_bytes() {
    let _watchdog = Watchdog::arm(LIMIT, "a stopped peer");
    let (_world, _sovia, mut child, mut stream) = served();
    child.stop();
    let bytes = vec![7; 4 << 20];
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let sent = stream.write(&bytes).unwrap();
    assert!(sent < bytes.len(), "the window bounds what is under way");
    assert_eq!(stream.write(&bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    child.cont();
    child.send_line("read");
    stream.set_write_timeout(None).unwrap();
    stream.write_all(&bytes[sent..]).unwrap();
    stream.close().unwrap();
    assert_eq!(child.expect_line("read ", scaled(WAIT)), bytes.len().to_string());
}

#[test]
fn an_address_without_listener_is_an_error_at_once() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, "connect without a listener");
        let world = World::new(name);
        let sovia = world.open(&Config::default());
        let error = io::Error::from(sovia.connect("via://:1").err().unwrap());
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        assert_eq!(sovia.activity().open, 0);
    }
}

#[test]
fn a_full_backlog_keeps_waiting_and_recovers() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("a full backlog on {name}"));
        let world = World::new(name);
        let (server, client) =
            (world.open(&hasty(&Config::default())), world.open(&hasty(&Config::default())));
        let listener = server.listen("door", 1).unwrap();
        let first = client.connect("door").unwrap();
        // One stands, one knocks, and for a third there is no room.
        for _ in 0..2 {
            let error =
                io::Error::from(client.connect_timeout("door", Duration::from_millis(50)).err().unwrap());
            assert_eq!(error.kind(), ErrorKind::TimedOut, "the listener is there: {error}");
        }
        drop(first);
        drop(listener.accept().unwrap());
        let mut stream = loop {
            if let Ok(stream) = client.connect_timeout("door", scaled(Duration::from_secs(1))) {
                break stream;
            }
            // A client that gave up may stand in the way.
            drop(listener.accept_timeout(Duration::from_millis(10)));
        };
        stream.write_all(b"in").unwrap();
        stream.flush().unwrap();
        loop {
            let mut got = [0; 2];
            let mut next = listener.accept().unwrap();
            next.set_read_timeout(Some(scaled(Duration::from_secs(1)))).unwrap();
            if next.read(&mut got).is_ok_and(|n| n == 2) {
                assert_eq!(&got, b"in");
                break;
            }
        }
    }
}

/// Clients of a few libraries, all at once, each with a greeting of its own in the answer.
#[test]
fn a_burst_of_clients_gets_through_a_small_backlog() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(scaled(LIMIT), &format!("a burst on {name}"));
        let world = World::new(name);
        let server = world.open(&patient(&Config::default()));
        let listener = server.listen("burst", 4).unwrap();
        let libraries: Vec<_> = (0..4).map(|_| world.open(&patient(&Config::default()))).collect();
        let start = Barrier::new(BURST + 1);
        thread::scope(|scope| {
            for n in 0..BURST {
                let (library, start) = (&libraries[n % libraries.len()], &start);
                scope.spawn(move || {
                    start.wait();
                    let mut stream = library.connect_timeout("burst", scaled(WAIT)).unwrap();
                    stream.write_all(&[n as u8]).unwrap();
                    let mut answer = [0];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(usize::from(answer[0]), n);
                });
            }
            start.wait();
            for _ in 0..BURST {
                let mut stream = listener.accept_timeout(scaled(WAIT)).unwrap();
                let mut word = [0];
                stream.read_exact(&mut word).unwrap();
                stream.write_all(&word).unwrap();
            }
        });
    }
}

#[test]
fn garbage_breaks_its_own_stream_and_no_other() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("garbage on {name}"));
        let world = World::new(name);
        let (server, client) =
            (world.open(&hasty(&Config::default())), world.open(&hasty(&Config::default())));
        let listener = server.listen("gate", 4).unwrap();
        let mut good = client.connect("gate").unwrap();
        let mut good_end = listener.accept().unwrap();
        let greeting = Config::default().greeting(None).encode();
        let wakeup = Packet::new(Kind::Wakeup, 0).encode();
        let data = Packet::new(Kind::Data, 0).encode();
        let nonsense: [&[(Option<u32>, usize)]; 6] = [
            &[(Some(0xffff_ffff), 0)],
            &[(None, 4)],
            &[(Some(data), 4)],
            &[(Some(wakeup), 0), (Some(Packet::new(Kind::Ack, 4000).encode()), 0)],
            &[(Some(wakeup), 0), (Some(data), 0)],
            &[(Some(wakeup), 0), (Some(Packet::new(Kind::FinAck, 0).encode()), 0)],
        ];
        for packets in nonsense {
            let mut liar = liar(&world, "gate", &greeting).unwrap();
            let mut stream = listener.accept().unwrap();
            for (word, len) in packets {
                let _ = liar.0.send_inline(liar.1, &[1; 8][..*len], *word);
            }
            assert_eq!(
                stream.read(&mut [0; 8]).unwrap_err().kind(),
                ErrorKind::ConnectionReset,
                "{packets:?}"
            );
        }
        assert!(liar(&world, "gate", b"hello, what are you?").is_err(), "another protocol is rejected");
        good.write_all(b"unharmed").unwrap();
        good.flush().unwrap();
        let mut got = [0; 8];
        good_end.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"unharmed");
    }
}

/// A NIC that connects like one of us and has no idea of the protocol.
fn liar(world: &World, at: &str, greeting: &[u8]) -> Result<(Nic, viaduct_via::Vi), viaduct_via::Error> {
    let mut nic = world.nic();
    let tag = nic.create_ptag()?;
    let vi = nic.create_vi(ViAttributes { rdma_write: false, rdma_read: false, ..ViAttributes::new(tag) })?;
    for buffer in nic.alloc(64 << 10, MemAttributes::local(tag))?.chunks(4096) {
        nic.post_recv(vi, Descriptor::recv(buffer))?;
    }
    nic.connect_start(vi, None, &at.parse()?, greeting, Some(scaled(WAIT)))?;
    nic.connect_finish(vi)?;
    Ok((nic, vi))
}

#[test]
fn the_close_thread_runs_when_nothing_is_open_and_only_then() {
    let _watchdog = Watchdog::arm(LIMIT, "the close thread");
    let world = World::new("shm");
    let (server, client) =
        (world.open(&patient(&Config::default())), world.open(&patient(&Config::default())));
    let listener = server.listen("close", 4).unwrap();
    let mut a = client.connect("close").unwrap();
    let mut b = listener.accept().unwrap();
    let before = (server.activity().close_rounds, client.activity().close_rounds);
    for i in 0..100u8 {
        a.write_all(&[i]).unwrap();
        a.flush().unwrap();
        let mut got = [0];
        b.read_exact(&mut got).unwrap();
        assert_eq!(got, [i]);
    }
    assert_eq!((server.activity().close_rounds, client.activity().close_rounds), before, "during a transfer");
    // No thread calls anything any more, and yet both ends are closed in the end.
    a.close().unwrap();
    b.close().unwrap();
    for sovia in [&server, &client] {
        while sovia.activity().closing > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let slept = server.activity().close_rounds + client.activity().close_rounds;
    assert!(slept <= before.0 + before.1 + 200, "it sleeps instead of looking");
}

viaduct_kit::isolated! {
    fn nothing_is_left_behind() {
        let _watchdog = Watchdog::arm(LIMIT, "leaks");
        let world = World::new("shm");
        drop(world.pair(&hasty(&Config::default())));
        let leaks = LeakCheck::start_with_folders([world.folder()]);
        for _ in 0..3 {
            let (mut a, mut b) = world.pair(&hasty(&Config::default()));
            a.write_all(&vec![1; 100_000]).unwrap();
            b.read_exact(&mut vec![0; 100_000]).unwrap();
            drop((a, b));
        }
        leaks.settle(scaled(WAIT)).finish();
    }
}
