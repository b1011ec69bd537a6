//! What event loops and careful programs ask of a stream: readiness, the pollable descriptor, partial vectored writes.

use crate::world;

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;
use viaduct_sovia::{Config, Readiness, Step};
use world::{WORLDS, World, hasty};

const LIMIT: Duration = Duration::from_secs(60);

fn small() -> Config {
    let config =
        Config { window: 2, threshold: 1, mtu: 64, copy_max: 64, combining: false, ..Config::default() };
    hasty(&config)
}

#[test]
fn a_partial_vectored_write_leaves_no_gap() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, name);
        let (mut a, mut b) = World::new(name).pair(&small());
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let parts: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 50]).collect();
        let whole = parts.concat();
        let (mut sent, mut got) = (0usize, Vec::new());
        let mut rounds = 0;
        while got.len() < whole.len() {
            // What is left, cut where the parts are.
            let mut left = Vec::new();
            let mut at = 0;
            for part in &parts {
                let skip = sent.saturating_sub(at).min(part.len());
                left.push(IoSlice::new(&part[skip..]));
                at += part.len();
            }
            match a.write_vectored(&left) {
                Ok(n) => sent += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            let mut buffer = [0; 77];
            match b.read(&mut buffer) {
                Ok(n) => got.extend_from_slice(&buffer[..n]),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            rounds += 1;
        }
        assert!(got == whole, "bytes were left out or came twice");
        assert!(rounds > 3, "everything went at once: this shows nothing");
    }
}

#[test]
fn readiness_tells_what_would_not_wait() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, name);
        let world = World::new(name);
        let (server, client) = (world.open(&small()), world.open(&small()));
        let listener = server.listen("ready", 2).unwrap();
        assert!(!listener.ready());
        let mut a = client.connect("ready").unwrap();
        while !listener.ready() {
            std::thread::yield_now();
        }
        let mut b = listener.accept().unwrap();
        assert_eq!(a.readiness(), Readiness { read: false, write: true, ended: false });
        a.set_nonblocking(true).unwrap();
        while a.write(&[7; 64]).is_ok() {}
        assert!(!a.readiness().write, "the window is shut");
        server.progress();
        assert!(b.readiness().read);
        let mut all = vec![0; 1 << 16];
        b.set_nonblocking(true).unwrap();
        while b.read(&mut all).is_ok() {}
        client.progress();
        assert!(a.readiness().write && !b.readiness().read);
        drop(a);
        while !b.readiness().read {
            server.progress();
            client.progress();
        }
        assert_eq!(b.read(&mut all).unwrap(), 0);
    }
}

#[test]
fn the_descriptor_is_readable_after_news() {
    for name in WORLDS {
        let _watchdog = Watchdog::arm(LIMIT, name);
        let world = World::new(name);
        let config = hasty(&Config::step(Step::Dacks));
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("watched", 2).unwrap();
        let mut a = client.connect("watched").unwrap();
        let mut b = listener.accept().unwrap();
        server.progress();
        let poll = |fd: &dyn AsFd, ms: i64| {
            let time = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&time)).unwrap()
        };
        let watch = server.watch().unwrap();
        // A second one, which leaves before there is news, takes nothing from the first.
        drop(server.watch().unwrap());
        assert!(!b.readiness().read);
        a.write_all(b"news").unwrap();
        while poll(&watch, 1000) == 0 {}
        drop(watch);
        let mut got = [0; 4];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"news");
        // Cleared, and quiet while no thread watches.
        let watch = server.watch().unwrap();
        assert!(!b.readiness().read);
        assert_eq!(poll(&watch, 0), 0);
    }
}

#[test]
fn settings_of_a_stream_can_be_asked() {
    let (a, _b) = World::new("loopback").pair(&small());
    let time = Some(Duration::from_millis(70));
    assert_eq!(
        (a.read_timeout().unwrap(), a.write_timeout().unwrap(), a.linger().unwrap()),
        (None, None, None)
    );
    a.set_read_timeout(time).unwrap();
    a.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!((a.read_timeout().unwrap(), a.linger().unwrap()), (time, Some(Duration::ZERO)));
    assert!(a.set_write_timeout(Some(Duration::ZERO)).is_err());
}
