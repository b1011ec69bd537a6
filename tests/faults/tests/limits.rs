//! Descriptors and memory run out: each time an error that names the limit, nothing half made, and work after relief.

use std::os::fd::AsFd;
use std::time::Duration;

use viaduct_faults::door::{Door, GREETER, Guest};
use viaduct_faults::footprint::Footprint;
use viaduct_faults::lingering::{closers, lingering};
use viaduct_faults::node::{Mode, Place, config, try_open};
use viaduct_kit::child::Child;
use viaduct_kit::resources::{with_memlock_limit, with_nofile_limit};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::unprivileged::User;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fdpass::{Channel, Listener, Recv, close_apart};
use viaduct_via::{
    AcceptError, Descriptor, Error, MemAttributes, Nic, ProtectionTag, Status, ViAttributes, ViState,
};

const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a message that travels in bounce buffers.
const LONG: usize = 300_000;

fn is_fds(error: &Error) -> bool {
    matches!(error, Error::Os(OsError::Fds { .. })) && error.to_string().contains("RLIMIT_NOFILE")
}

/// Comes as a guest with 0, 1, 2, ... descriptors to spare, until that is enough. How many that were.
fn enough(folder: &TempDir, warm: bool) -> u64 {
    let config = config(folder.path(), Mode::Direct);
    if warm {
        drop(Guest::come(&config, PATIENCE).unwrap());
    }
    let before = Footprint::settled();
    let open = before.descriptors() as u64 - 1; // without the one that counts
    let mut lost = 0;
    for spare in 0..64 {
        let _watchdog = Watchdog::arm(LIMIT, &format!("{spare} descriptors to spare"));
        match with_nofile_limit(open + spare, || Guest::come(&config, PATIENCE)) {
            Ok(_) => {
                assert!(lost <= 3, "connections were lost with {lost} different numbers of descriptors");
                return spare;
            }
            // Too few for a segment that came when the connection stood: then it breaks.
            Err(Error::NotReachable(_)) => lost += 1,
            Err(error) => assert!(is_fds(&error), "{spare} to spare: {error}"),
        }
        if warm {
            before.comes_back(&format!("{spare} descriptors to spare"));
        }
    }
    panic!("64 descriptors are not enough for a NIC and a connection");
}

viaduct_kit::isolated! { limit 300;
    fn a_client_out_of_descriptors_is_told_at_every_step() {
        let folder = TempDir::new("limits");
        let mut server = GREETER.spawn(&[folder.path().to_str().unwrap(), "0"]);
        server.expect_line("ready", LIMIT);
        let spare = enough(&folder, true);
        eprintln!("a NIC and a connection take {spare} descriptors");
        assert!(spare > 10);
        drop(Guest::come(&config(folder.path(), Mode::Direct), PATIENCE).unwrap());
    }
}

viaduct_kit::isolated! { limit 300;
    fn a_process_that_starts_without_descriptors_recovers() {
        let folder = TempDir::new("limits");
        let mut server = GREETER.spawn(&[folder.path().to_str().unwrap(), "0"]);
        server.expect_line("ready", LIMIT);
        // Cold: what a process makes once for all fails as well, and is made later.
        enough(&folder, false);
        drop(Guest::come(&config(folder.path(), Mode::Direct), PATIENCE).unwrap());
    }
}

viaduct_kit::isolated! { limit 300;
    fn a_server_out_of_descriptors_goes_on_with_those_it_has() {
        for spare in [18, 22, 25, 28, 31, 34] {
            let _watchdog = Watchdog::arm(LIMIT, &format!("a server with {spare} descriptors to spare"));
            let folder = TempDir::new("limits");
            let config = config(folder.path(), Mode::Direct);
            let mut server = GREETER.spawn(&[folder.path().to_str().unwrap(), &spare.to_string()]);
            server.expect_line("ready", LIMIT);
            let mut guests = Vec::new();
            let refused = loop {
                assert!(guests.len() < 16, "{spare} descriptors were enough for 16 peers");
                match Guest::come(&config, Duration::from_millis(500)) {
                    Ok(guest) => guests.push(guest),
                    Err(error) => break error,
                }
            };
            // The server could not take the request, or not answer it.
            let known = matches!(
                refused,
                Error::Timeout | Error::Rejected(_) | Error::NoRoom { .. } | Error::NotReachable(_)
            );
            assert!(known, "{spare}: {refused}");
            for guest in &mut guests {
                let state = guest.nic.query_vi(guest.vi).unwrap().state;
                assert_eq!(state, ViState::Connected, "{spare}: guests that are in stay in");
            }
            let before = guests.len();
            drop(guests);
            if before > 0 {
                while Guest::come(&config, PATIENCE).is_err() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            assert!(server.is_running());
        }
    }
}

viaduct_kit::isolated! { limit 120;
    fn memory_over_the_budget_is_refused_by_name() {
        let folder = TempDir::new("limits");
        let mut config = config(folder.path(), Mode::Direct);
        config.shm.memory_budget = Some(2 << 20);
        let mut nic = try_open(&config).unwrap();
        let tag = nic.create_ptag().unwrap();
        let local = MemAttributes::local(tag);
        for _ in 0..3 {
            let held = nic.alloc(1 << 20, local).unwrap();
            let error = nic.alloc(2 << 20, local).unwrap_err();
            assert!(matches!(error, Error::Os(OsError::Budget { wanted, limit, .. }) if wanted >= 2 << 20 && limit == 2 << 20));
            // Memory of the caller's own is not in the budget.
            drop(nic.register(vec![0; 8 << 20], local).unwrap());
            drop(held);
        }
        config.shm.memory_budget = Some(4_096);
        assert!(matches!(try_open(&config), Err(Error::Os(OsError::Budget { .. }))));
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_server_without_memory_for_a_connection_says_no() {
        let _watchdog = Watchdog::arm(LIMIT, "a server without memory");
        let folder = TempDir::new("limits");
        let mut small = config(folder.path(), Mode::Direct);
        small.shm.memory_budget = Some(600 << 10);
        let (mut server, mut client) = (try_open(&small).unwrap(), Place { folder: folder.path(), mode: Mode::Direct }.open());
        let (tag, other) = (server.create_ptag().unwrap(), client.create_ptag().unwrap());
        let listener = server.listen(&"small".parse().unwrap(), 1).unwrap();
        let (vi, asking) = (vi(&mut server, tag), vi(&mut client, other));
        let before = Footprint::settled();
        let held = server.alloc(300 << 10, MemAttributes::local(tag)).unwrap();
        for _ in 0..3 {
            client.connect_start(asking, None, &"small".parse().unwrap(), &[], None).unwrap();
            let request = server.wait_listener(listener, None).unwrap();
            let AcceptError { error, request } = server.accept(request, vi).unwrap_err();
            assert!(matches!(error, Error::Os(OsError::Budget { .. })), "{error}");
            server.reject(request).unwrap();
            // Without a time limit: the answer comes.
            assert!(matches!(client.connect_finish(asking), Err(Error::Rejected(_))));
        }
        server.deregister(held).unwrap();
        before.comes_back("connections without memory");
        client.connect_start(asking, None, &"small".parse().unwrap(), &[], None).unwrap();
        let request = server.wait_listener(listener, None).unwrap();
        server.accept(request, vi).unwrap();
        client.connect_finish(asking).unwrap();
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_message_without_memory_to_travel_in_fails_and_does_not_wait() {
        let _watchdog = Watchdog::arm(LIMIT, "a message without bounce buffers");
        let door = Door::open();
        let mut small = config(door.folder.path(), Mode::Copy);
        small.shm.memory_budget = Some(1 << 20);
        let mut guest = Guest::come(&small, PATIENCE).unwrap();
        let message = Descriptor::send(vec![1; 50_000].into());
        guest.nic.post_send(guest.vi, message).unwrap();
        let done = guest.nic.wait_send_outcome(guest.vi, None).unwrap().0;
        assert_eq!(done.status, Status::TransportError);
        assert_eq!(guest.nic.query_vi(guest.vi).unwrap().state, ViState::Error);
        door.serves();
    }
}

// As an ordinary user that may lock no memory at all: nothing is locked, so everything works.
viaduct_kit::child!(WITHOUT_LOCKS, |args| {
    with_memlock_limit(0, || {
        let config = config(args[0].as_ref(), Mode::Direct);
        let mut nic = try_open(&config).unwrap();
        let tag = nic.create_ptag().unwrap();
        let remote = MemAttributes::remote(tag);
        let kept = (nic.alloc(8 << 20, remote).unwrap(), nic.register(vec![1; 64 << 20], remote).unwrap());
        let server = GREETER.spawn(&[&args[0], "0"]);
        while Guest::come(&config, PATIENCE).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((kept, server));
        // SAFETY: a system call without arguments.
        assert_ne!(unsafe { libc::geteuid() }, 0);
    });
});

#[test]
fn nothing_needs_locked_memory() {
    run_as_user("WITHOUT_LOCKS", |folder| WITHOUT_LOCKS.command(&[folder]));
}

// As an ordinary user, whose descriptors in messages that were not read are counted against the limit of open ones.
viaduct_kit::child!(CROWDED, |_| {
    with_nofile_limit(64, || {
        let event = EventFd::new().unwrap();
        let (full, reader) = Channel::pair().unwrap();
        let (other, its_reader) = Channel::pair().unwrap();
        let refused = loop {
            match full.send(b"one", &[event.as_fd(); 8]) {
                Ok(true) => {}
                Ok(false) => panic!("the channel was full first"),
                Err(error) => break error,
            }
        };
        assert!(refused.is_crowded(), "{refused}");
        // Another channel of the user has done nothing wrong: it has to wait, and is not broken.
        let refused = other.send(b"two", &[event.as_fd()]).unwrap_err();
        assert!(refused.is_crowded(), "{refused}");
        let mut fds = Vec::new();
        while let Ok(Recv::Message(_)) = reader.recv(&mut [0; 16], &mut fds, 8) {
            fds.clear();
        }
        assert!(other.send(b"two", &[event.as_fd()]).unwrap());
        assert!(matches!(its_reader.recv(&mut [0; 16], &mut fds, 1), Ok(Recv::Message(3))));
    });
});

// As an ordinary user. The announcement of bounce buffers brings a descriptor.
viaduct_kit::child!(CROWDED_PAIR, |args| {
    let place = Place { folder: args[0].as_ref(), mode: Mode::Direct };
    let (mut nic, mut peer) = (place.open(), place.open());
    let (tag, peer_tag) = (nic.create_ptag().unwrap(), peer.create_ptag().unwrap());
    let listener = peer.listen(&"crowded".parse().unwrap(), 1).unwrap();
    let (ours, theirs) = (vi(&mut nic, tag), vi(&mut peer, peer_tag));
    let inbox = peer.register(vec![0; LONG], MemAttributes::local(peer_tag)).unwrap();
    peer.post_recv(theirs, Descriptor::recv(inbox)).unwrap();
    nic.connect_start(ours, None, &"crowded".parse().unwrap(), &[], None).unwrap();
    let request = peer.wait_listener(listener, Some(LIMIT)).unwrap();
    peer.accept(request, theirs).unwrap();
    nic.connect_finish(ours).unwrap();
    with_nofile_limit(Footprint::take().descriptors() as u64 + 8, || {
        let event = EventFd::new().unwrap();
        let (full, reader) = Channel::pair().unwrap();
        while full.send(b"one", &[event.as_fd(); 8]).unwrap_or(false) {}
        let refused = full.send(b"one", &[event.as_fd()]).unwrap_err();
        assert!(refused.is_crowded(), "{refused}");
        let text = nic.register(vec![7; LONG], MemAttributes::local(tag)).unwrap();
        nic.post_send(ours, Descriptor::send(text)).unwrap();
        for _ in 0..20 {
            assert!(nic.poll_send(ours).unwrap().is_none(), "nothing is offered ahead of the announcement");
            assert!(peer.poll_recv(theirs).unwrap().is_none());
            std::thread::sleep(Duration::from_millis(1));
        }
        // The connection has done nothing wrong: its message waits, and arrives when the others have left.
        drop((full, reader));
        let got = loop {
            let _ = nic.poll_send(ours).unwrap();
            if let Some(got) = peer.poll_recv(theirs).unwrap() {
                break got;
            }
        };
        assert!(got.status.is_success() && got.length as usize == LONG, "{:?}", got.status);
        assert_eq!(nic.query_vi(ours).unwrap().state, ViState::Connected);
    });
});

#[test]
fn too_many_descriptors_on_their_way_are_no_end_of_a_channel() {
    // One after the other: those of both count against one user.
    run_as_user("CROWDED", |_| CROWDED.command(&[]));
    run_as_user("CROWDED_PAIR", |folder| CROWDED_PAIR.command(&[folder]));
}

/// Runs a child as an ordinary user, with a run-time folder.
fn run_as_user(name: &str, command: impl FnOnce(&str) -> std::process::Command) {
    let user = User::new();
    let mut command = command(user.runtime_dir().join("viaduct").to_str().unwrap());
    user.runs(&mut command);
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } == 0 && !reachable(&user) {
        viaduct_kit::skip!("the test binary lies where user nobody cannot reach it");
    }
    Child::start(name, command).finish(LIMIT);
}

viaduct_kit::isolated! {
    fn a_descriptor_whose_close_hangs_is_closed_by_another_thread() {
        let (socket, reader) = lingering();
        close_apart(vec![socket]);
        // This thread would be closing it still. Another one is, or will be at once.
        while closers(std::process::id()) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(reader);
        while closers(std::process::id()) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

viaduct_kit::isolated! {
    fn a_listener_that_goes_closes_apart_what_was_sent_to_it() {
        let folder = TempDir::new("unread");
        let listener = Listener::bind(&folder.join("door.sock")).unwrap();
        let client = Channel::connect(&folder.join("door.sock")).unwrap();
        let (socket, reader) = lingering();
        assert!(client.send(b"before it is accepted", &[socket.as_fd()]).unwrap());
        drop(socket);
        drop(listener);
        while closers(std::process::id()) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(reader);
        while closers(std::process::id()) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn reachable(user: &User) -> bool {
    let mut command = std::process::Command::new("test");
    command.arg("-x").arg(std::env::current_exe().unwrap());
    user.runs(&mut command);
    command.status().is_ok_and(|status| status.success())
}

fn vi(nic: &mut Nic, tag: ProtectionTag) -> viaduct_via::Vi {
    nic.create_vi(ViAttributes::new(tag)).unwrap()
}
