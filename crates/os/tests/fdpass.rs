//! Passing descriptors: round trips, limits, hang-ups, and the socket file's life.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fdpass::{Channel, Listener, MAX_FDS, Recv};
use viaduct_os::process::pid_alive;
use viaduct_os::{random, runtime_dir};

/// A private folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("viaduct-os-test-{:016x}", random::u64()));
        Scratch(runtime_dir::runtime_dir(Some(&path)).unwrap())
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn receive(channel: &Channel, max_fds: usize) -> (Result<Recv, OsError>, Vec<u8>, Vec<OwnedFd>) {
    let (mut buf, mut fds) = (vec![0; 16], Vec::new());
    let result = channel.recv(&mut buf, &mut fds, max_fds);
    if let Ok(Recv::Message(n)) = result {
        buf.truncate(n);
    }
    (result, buf, fds)
}

#[test]
fn descriptors_arrive_with_their_message() {
    let (a, b) = Channel::pair().unwrap();
    assert!(matches!(receive(&b, 2).0, Ok(Recv::WouldBlock)));
    let event = EventFd::new().unwrap();
    assert!(a.send(b"hello", &[event.as_fd(), event.as_fd()]).unwrap());
    assert!(a.send(b"more", &[]).unwrap());
    let (result, bytes, fds) = receive(&b, 2);
    assert_eq!((result.unwrap(), bytes.as_slice(), fds.len()), (Recv::Message(5), b"hello".as_slice(), 2));
    for fd in fds {
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        EventFd::from_peer(fd).unwrap().signal();
        assert!(event.drain());
    }
    assert_eq!(receive(&b, 0).1, b"more");
    drop(a);
    assert!(matches!(receive(&b, 0).0, Ok(Recv::Closed)));
    assert!(b.send(b"x", &[]).is_err());
}

/// Every descriptor of a refused message is closed: the pipe behind them reads its end.
/// A receiver that looks at the moment at which its peer sends and hangs up: the kernel can say "ended" while the message
/// is there (some times in ten thousand on two processors).
#[test]
fn a_message_sent_right_before_the_end_is_not_lost() {
    const ROUNDS: usize = 500;
    let (give, take) = std::sync::mpsc::sync_channel::<Channel>(0);
    let sender = std::thread::spawn(move || {
        for channel in take {
            assert!(channel.send(b"last words", &[]).unwrap());
        }
    });
    for round in 0..ROUNDS {
        let (ours, theirs) = Channel::pair().unwrap();
        give.send(theirs).unwrap();
        let outcome = loop {
            match receive(&ours, 0) {
                (Ok(Recv::WouldBlock), ..) => std::hint::spin_loop(),
                (outcome, ..) => break outcome.unwrap(),
            }
        };
        assert!(matches!(outcome, Recv::Message(10)), "{outcome:?} in round {round}");
    }
    drop(give);
    sender.join().unwrap();
}

#[test]
fn refused_messages_leave_no_descriptors() {
    let (a, b) = Channel::pair().unwrap();
    let send = |bytes: &[u8], count: usize| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let fds: Vec<BorrowedFd<'_>> = vec![writer.as_fd(); count];
        assert!(a.send(bytes, &fds).unwrap());
        reader
    };
    for (bytes, count, max) in [(&b"x"[..], 3, 2), (b"x", 1, 0), (b"x", MAX_FDS, 8), (&[7; 17], 1, 1)] {
        let reader = send(bytes, count);
        let (result, _, fds) = receive(&b, max);
        assert!(matches!(result, Err(OsError::BadMessage(_))), "{result:?}");
        assert!(fds.is_empty());
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "a writer is still open");
    }
    assert!(matches!(receive(&b, 0).0, Ok(Recv::WouldBlock)), "the channel still works");
}

#[test]
fn a_refused_message_keeps_what_was_there_before() {
    let (a, b) = Channel::pair().unwrap();
    let event = EventFd::new().unwrap();
    let mut fds = vec![event.dup().unwrap()];
    a.send(b"x", &[event.as_fd(), event.as_fd()]).unwrap();
    assert!(b.recv(&mut [0; 4], &mut fds, 1).is_err());
    assert_eq!(fds.len(), 1);
}

#[test]
fn impossible_sends_are_refused() {
    let (a, b) = Channel::pair().unwrap();
    let event = EventFd::new().unwrap();
    assert!(matches!(a.send(b"", &[]), Err(OsError::BadMessage(_))));
    assert!(matches!(a.send(b"x", &vec![event.as_fd(); MAX_FDS + 1]), Err(OsError::BadMessage(_))));
    while a.send(&[0; 4096], &[]).unwrap() {}
    assert!(matches!(b.recv(&mut [0; 4096], &mut Vec::new(), 0), Ok(Recv::Message(4096))));
    drop(b); // with messages unread
    assert!(matches!(receive(&a, 0).0, Ok(Recv::Closed)));
}

#[test]
fn connect_accept_and_credentials() {
    let scratch = Scratch::new();
    let path = scratch.join("socket");
    assert_eq!(Channel::connect(&path).unwrap_err().kind(), ErrorKind::NotFound);
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(listener.accept().unwrap().is_none());
    let client = Channel::connect(&path).unwrap();
    let server = listener.accept().unwrap().unwrap();
    client.send(b"hi", &[]).unwrap();
    assert_eq!(receive(&server, 0).1, b"hi");
    for end in [&client, &server] {
        let peer = end.peer().unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(pid_alive(end.peer_pidfd().unwrap().expect("alive").as_fd()));
    }
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn live_sockets_are_kept_and_dead_ones_replaced() {
    let scratch = Scratch::new();
    let path = scratch.join("socket");
    let first = Listener::bind(&path).unwrap();
    assert!(matches!(Listener::bind(&path), Err(OsError::InUse { .. })));
    assert!(path.exists());
    // What a killed process leaves: the file without a listener.
    fs::rename(&path, scratch.join("kept")).unwrap();
    drop(first);
    assert!(scratch.join("kept").exists(), "a file of another name is not ours to remove");
    fs::rename(scratch.join("kept"), &path).unwrap();
    let second = Listener::bind(&path).unwrap();
    // A stranger's file in the same place is not removed.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    assert!(matches!(Listener::bind(&path), Err(OsError::InUse { .. })));
    drop(second);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn paths_longer_than_an_address_work() {
    let scratch = Scratch::new();
    let dir = scratch.join("d".repeat(150));
    fs::create_dir(&dir).unwrap();
    let path = dir.join("socket");
    let listener = Listener::bind(&path).unwrap();
    let _client = Channel::connect(&path).unwrap();
    assert!(listener.accept().unwrap().is_some());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn an_abstract_name_has_one_owner_and_no_file() {
    let name = format!("viaduct-test-{}", std::process::id());
    let listener = Listener::bind_abstract(name.as_bytes()).unwrap();
    assert!(matches!(Listener::bind_abstract(name.as_bytes()), Err(OsError::InUse { .. })));
    let client = Channel::connect_abstract(name.as_bytes()).unwrap();
    let server = listener.accept().unwrap().unwrap();
    client.send(b"hi", &[]).unwrap();
    assert_eq!(receive(&server, 0).1, b"hi");
    drop(listener);
    let gone = Channel::connect_abstract(name.as_bytes()).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::ConnectionRefused);
}
