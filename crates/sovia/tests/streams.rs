//! Streams over every provider that needs nothing of the machine: what users of sockets rely on.

use crate::world;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::watchdog::Watchdog;
use viaduct_sovia::{Config, Handling, Path, Step, Stream, Waiting};
use world::{WORLDS, World, hasty, patient};

const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of which none is like its neighbours.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Runs `test` with a connected pair, in every world.
fn everywhere(what: &str, config: &Config, test: impl Fn(Stream, Stream)) {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("{what} on {name}"));
        let world = World::new(name);
        let (a, b) = world.pair(config);
        test(a, b);
    }
}

#[test]
fn bytes_arrive_as_they_were_written() {
    for step in Step::ALL {
        everywhere(step.name(), &patient(&Config::step(step)), |mut a, mut b| {
            let sent = pattern(300_000);
            let expected = sent.clone();
            let writer = thread::spawn(move || {
                let mut rest = &sent[..];
                for size in [1, 8, 100, 2048, 2049, 5000, 40_000].into_iter().cycle() {
                    let n = size.min(rest.len());
                    a.write_all(&rest[..n]).unwrap();
                    rest = &rest[n..];
                    if rest.is_empty() {
                        break;
                    }
                }
                a.shutdown(Shutdown::Write).unwrap();
                let mut answer = String::new();
                a.read_to_string(&mut answer).unwrap();
                answer
            });
            let mut got = Vec::new();
            b.read_to_end(&mut got).unwrap();
            assert!(got == expected, "other bytes came: {} of {}", got.len(), expected.len());
            b.write_all(b"all there").unwrap();
            drop(b);
            assert_eq!(writer.join().unwrap(), "all there");
        });
    }
}

#[test]
fn exactly_what_was_asked_for_is_read_or_the_end_is_an_error() {
    everywhere("exact reads", &patient(&Config::default()), |mut a, mut b| {
        let sent = pattern(5000);
        for part in sent.chunks(100) {
            a.write_all(part).unwrap();
        }
        a.shutdown(Shutdown::Write).unwrap();
        let mut got = vec![0; 4950];
        b.read_exact(&mut []).unwrap();
        b.read_exact(&mut got[..30]).unwrap(); // a part of a message
        b.read_exact(&mut got[30..]).unwrap(); // the rest of it, and many
        assert!(got == sent[..4950]);
        let mut last = [0; 51];
        assert_eq!(b.read_exact(&mut last).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(last[..50], sent[4950..]);
        b.read_exact(&mut []).unwrap();
    });
}

#[test]
fn a_ping_pong_needs_no_timer() {
    // With a timer of an hour, what waits for it waits for ever.
    let config = Config { timer: Duration::from_secs(3600), ..Config::default() };
    everywhere("ping-pong", &patient(&config), |mut a, mut b| {
        let echo = thread::spawn(move || {
            let mut buffer = [0; 64];
            while let n @ 1.. = b.read(&mut buffer).unwrap() {
                b.write_all(&buffer[..n]).unwrap();
            }
        });
        for i in 0..200u64 {
            a.write_all(&i.to_le_bytes()).unwrap();
            let mut back = [0; 8];
            a.read_exact(&mut back).unwrap();
            assert_eq!(u64::from_le_bytes(back), i);
        }
        drop(a);
        echo.join().unwrap();
    });
}

#[test]
fn held_bytes_go_when_the_timer_is_over() {
    let config = Config { timer: Duration::from_millis(20), ..Config::default() };
    everywhere("timer", &hasty(&config), |mut a, mut b| {
        a.write_all(b"small").unwrap();
        // The sender calls nothing.
        let mut got = [0; 5];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"small");
        a.write_all(b"again").unwrap();
        a.flush().unwrap();
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"again");
    });
}

#[test]
fn peeking_leaves_the_bytes() {
    everywhere("peek", &hasty(&Config::step(Step::Dacks)), |mut a, mut b| {
        a.write_all(b"one").unwrap();
        a.write_all(b"two").unwrap();
        let mut seen = [0; 3];
        assert_eq!(b.peek(&mut seen).unwrap(), 3);
        assert_eq!(&seen, b"one");
        let mut got = [0; 6];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"onetwo");
        b.set_nonblocking(true).unwrap();
        assert_eq!(b.peek(&mut seen).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn calls_give_up_when_their_time_is_over() {
    let config =
        Config { window: 2, threshold: 1, mtu: 64, copy_max: 64, combining: false, ..Config::default() };
    everywhere("timeouts", &hasty(&config), |mut a, mut b| {
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(b.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(a.set_write_timeout(Some(Duration::ZERO)).is_err());
        a.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        // The receiver does not read: the window is shut after two packets, and the sender has no memory for more.
        let sent = a.write(&pattern(10_000)).unwrap();
        assert!(sent <= 2 * 64, "{sent} bytes were taken");
        assert_eq!(a.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut got = vec![0; sent];
        b.set_read_timeout(None).unwrap();
        b.read_exact(&mut got).unwrap();
        assert_eq!(got, pattern(10_000)[..sent]);
        a.set_write_timeout(None).unwrap();
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn nonblocking_calls_return_at_once() {
    everywhere("nonblocking", &hasty(&Config::default()), |mut a, mut b| {
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        assert_eq!(b.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let total = 4 << 20;
        let (sent, mut got, mut at) = (pattern(total), Vec::<u8>::new(), 0);
        let mut piece = vec![0; 50_000];
        while got.len() < total {
            match a.write(&sent[at..]) {
                Ok(n) => at += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            match b.read(&mut piece) {
                Ok(n) => got.extend(&piece[..n]),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(got == sent);
    });
}

#[test]
fn several_slices_at_once() {
    everywhere("vectored", &hasty(&Config::default()), |mut a, mut b| {
        let (one, two) = (pattern(10), pattern(5000));
        let n = a.write_vectored(&[IoSlice::new(&one), IoSlice::new(&[]), IoSlice::new(&two)]).unwrap();
        assert_eq!(n, 5010);
        a.flush().unwrap();
        let (mut x, mut y) = (vec![0; 7], vec![0; 3]);
        let n = b.read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)]).unwrap();
        assert!(n >= 7, "{n}");
        x.extend(&y[..n - 7]);
        assert_eq!(x, one[..n]);
    });
}

#[test]
fn connections_stand_before_accept_is_called() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("accept on {name}"));
        let world = World::new(name);
        let config = hasty(&Config::default());
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("via://:7000", 4).unwrap();
        // This thread is the only one there is for both.
        let mut streams: Vec<Stream> =
            (0..3).map(|_| client.connect("via://localhost:7000").unwrap()).collect();
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[i as u8]).unwrap();
            stream.flush().unwrap();
        }
        for i in 0..3u8 {
            let mut got = [9];
            listener.accept_timeout(scaled(Duration::from_secs(20))).unwrap().read_exact(&mut got).unwrap();
            assert_eq!(got, [i], "in the order in which they came");
        }
        listener.set_nonblocking(true);
        assert_eq!(listener.accept().err().unwrap().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn closing_returns_at_once_and_the_rest_arrives() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("close on {name}"));
        let world = World::new(name);
        let config = patient(&Config::default());
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("close", 1).unwrap();
        let mut a = client.connect("close").unwrap();
        let mut b = listener.accept().unwrap();
        a.write_all(&pattern(100_000)).unwrap();
        a.write_all(b"the end").unwrap();
        a.close().unwrap();
        // Only the library is there to send the rest.
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert!(got.ends_with(b"the end") && got.len() == 100_007, "{} bytes", got.len());
        assert_eq!(b.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

#[test]
fn lingering_waits_for_the_peer_or_breaks_off() {
    everywhere("linger", &patient(&Config::default()), |mut a, b| {
        a.write_all(b"still there").unwrap();
        a.set_linger(Some(Duration::from_secs(3600))).unwrap();
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            (&b).read_to_end(&mut got).unwrap();
            b.close().unwrap();
            got
        });
        a.close().unwrap();
        assert_eq!(reader.join().unwrap(), b"still there");
    });
    everywhere("no linger", &hasty(&Config::default()), |a, mut b| {
        a.set_linger(Some(Duration::ZERO)).unwrap();
        a.close().unwrap();
        assert_eq!(b.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(b.write(&[0; 4]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reader_and_a_writer_share_a_stream() {
    for config in [
        Config::default(),
        Config { waiting: Waiting::Polling, ..Config::default() },
        Config { handling: Handling::Handler, ..Config::default() },
    ] {
        everywhere("clones", &patient(&config), |a, b| {
            let total = 200_000;
            let both = |stream: Stream| {
                let mut writer = stream.try_clone().unwrap();
                let writing = thread::spawn(move || {
                    writer.write_all(&pattern(total)).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut stream = stream;
                let reading = thread::spawn(move || {
                    let mut got = Vec::new();
                    stream.read_to_end(&mut got).unwrap();
                    got
                });
                (writing, reading)
            };
            for (writing, reading) in [both(a), both(b)] {
                writing.join().unwrap();
                assert!(reading.join().unwrap() == pattern(total));
            }
        });
    }
}

#[test]
fn many_streams_of_one_library_do_not_mix() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, &format!("many on {name}"));
        let world = World::new(name);
        let config = patient(&Config::default());
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("many", 32).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..8 {
                    let mut stream = listener.accept().unwrap();
                    scope.spawn(move || {
                        let mut got = Vec::new();
                        stream.read_to_end(&mut got).unwrap();
                        stream.write_all(&got).unwrap();
                    });
                }
            });
            for i in 0..8 {
                let client = client.clone();
                scope.spawn(move || {
                    let mut stream = client.connect("many").unwrap();
                    let bytes: Vec<u8> = pattern(20_000 + i).iter().map(|b| b ^ i as u8).collect();
                    stream.write_all(&bytes).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).unwrap();
                    assert!(back == bytes, "stream {i} got {} bytes", back.len());
                });
            }
        });
    }
}

#[test]
fn the_network_carries_streams_by_the_same_code() {
    if let Err(error) = viaduct_providers::open("ofi:tcp", &Default::default()) {
        viaduct_kit::skip!("ofi:tcp cannot be used: {error}");
    }
    for name in ["ofi:tcp", "auto"] {
        let _watchdog = Watchdog::arm(LIMIT, name);
        let world = World::new(name);
        let (mut a, mut b) = world.pair(&patient(&Config::default()));
        assert_eq!(a.provider(), Some(if name == "auto" { "shm" } else { name }));
        let writer = thread::spawn(move || {
            for piece in pattern(500_000).chunks(1777) {
                a.write_all(piece).unwrap();
            }
            a.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            a.read_to_end(&mut answer).unwrap();
            answer
        });
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert!(got == pattern(500_000));
        b.write_all(b"thanks").unwrap();
        drop(b);
        assert_eq!(writer.join().unwrap(), b"thanks");
    }
}

/// What is above the threshold leaves from where it lies, unless the call may not wait for that; on this host nothing does.
#[test]
fn long_requests_are_lent_and_short_ones_copied() {
    let network = viaduct_providers::open("ofi:tcp", &Default::default()).is_ok();
    let worlds = ["loopback", "ofi:tcp", "shm"].into_iter().filter(|name| network || *name != "ofi:tcp");
    let ways = [
        (Path::Messages, Handling::Single),
        (Path::Ring, Handling::Single),
        (Path::Messages, Handling::Handler),
    ];
    for (name, (path, handling)) in worlds.flat_map(|name| ways.map(|way| (name, way))) {
        let _watchdog = Watchdog::arm(LIMIT, name);
        let world = World::new(name);
        let config = patient(&Config { path, handling, ..Config::default() });
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("lending", 1).unwrap();
        let mut a = client.connect("lending").unwrap();
        let mut b = listener.accept().unwrap();
        let mut send = |bytes: &[u8], a: &mut Stream| {
            let before = client.activity().lent;
            thread::scope(|scope| {
                scope.spawn(|| {
                    a.write_all(bytes).unwrap();
                    a.flush().unwrap();
                });
                let mut got = vec![0; bytes.len()];
                b.read_exact(&mut got).unwrap();
                assert!(got == bytes, "{name}: other bytes came");
            });
            client.activity().lent - before
        };
        // An RDMA write is over when the peer has said so, which no caller should wait for.
        let lends = u64::from(name != "shm" && path == Path::Messages);
        for _ in 0..3 {
            assert_eq!(send(&pattern(2048), &mut a), 0, "{name}");
            assert_eq!(send(&pattern(2049), &mut a), lends, "{name}");
            // Packets of the MTU, and the rest, which is short and held.
            assert_eq!(send(&pattern(8 * 32_768 + 100), &mut a), 8 * lends, "{name}");
        }
        a.set_write_timeout(Some(scaled(LIMIT))).unwrap();
        assert_eq!(send(&pattern(100_000), &mut a), 0, "{name}: it would have to be given up in time");
    }
}
