//! Strangers at the socket: garbage, wrong versions, wrong descriptors, silence. Each is turned away, what it brought is
//! closed, and clients that behave are served meanwhile.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use viaduct_faults::door::{Answer, Door, GREETER, Guest, Letter, answer};
use viaduct_faults::footprint::Footprint;
use viaduct_faults::lingering::{closers, lingering};
use viaduct_faults::node::{Mode, Place, config};
use viaduct_faults::scribbler::Garbage;
use viaduct_kit::child;
use viaduct_kit::effort;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fdpass::{Channel, Recv};
use viaduct_via::{Descriptor, ViAttributes};

const LIMIT: Duration = Duration::from_secs(60);
/// Where the fields of a request lie (docs/protocols/shm.md).
const UID: std::ops::Range<usize> = 8..24;
const VERSION: usize = 40;
const KIND: usize = 44;
const FLAGS: usize = 56;
/// The sender of a last word has another channel for this connection than it had for the first.
const HAS_CHANNEL: u32 = 2;
const PEER_REQUEST: u32 = 2;
const ACCEPT: u32 = 3;
const ACK: u32 = 7;
const WRONG_VERSION: u32 = 8;

fn set(bytes: &[u8], at: usize, value: u32) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    changed
}

fn say(channel: &Channel, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    // A door shut in our face is an answer too.
    let _ = channel.send(bytes, fds);
}

viaduct_kit::isolated! { limit 120;
    fn garbage_at_the_door_is_turned_away() {
        let _watchdog = Watchdog::arm(LIMIT, "garbage at the door");
        let door = Door::open();
        let letter = door.letter();
        let mut garbage = Garbage::new(4);
        let before = Footprint::settled();
        let size = letter.bytes.len();
        for len in [1, 7, 8, 40, 64, size - 1, size, size + 1, 32_832, 32_833, 60_000] {
            let bytes: Vec<u8> = (0..len).map(|_| garbage.number() as u8).collect();
            let channel = door.knock();
            say(&channel, &bytes, &[]);
            assert_eq!(answer(&channel), Answer::Shut, "{len} bytes of noise");
        }
        let wrong_magic = set(&letter.bytes, 0, 0x1234_5678);
        for bytes in [&wrong_magic[..], &letter.bytes[..size - 1], &letter.bytes[..64]] {
            let channel = door.knock();
            say(&channel, bytes, &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Shut);
        }
        for version in [0, 1, u32::MAX] {
            let channel = door.knock();
            say(&channel, &set(&letter.bytes, VERSION, version), &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Said(WRONG_VERSION), "a stranger is told so");
            assert_eq!(answer(&channel), Answer::Shut);
        }
        for kind in [0, ACCEPT, 4, 5, 6, ACK, WRONG_VERSION, 99, u32::MAX] {
            let channel = door.knock();
            say(&channel, &set(&letter.bytes, KIND, kind), &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Shut, "kind {kind} opens no conversation");
        }
        before.comes_back("garbage at the door");
        door.serves();
    }
}

viaduct_kit::isolated! { limit 300;
    fn requests_with_changed_bytes_are_survived() {
        let _watchdog = Watchdog::arm(LIMIT * 4, "requests with changed bytes");
        let door = Door::open();
        let letter = door.letter();
        let (mut garbage, rounds) = (Garbage::new(5), effort::rounds(400, 20_000));
        let before = Footprint::settled();
        let mut accepted = 0;
        for _ in 0..rounds {
            let mut bytes = letter.bytes.clone();
            for _ in 0..=garbage.number() % 4 {
                let n = garbage.number();
                // Mostly before the addresses, where every byte matters.
                let at = 8 + (n >> 8) as usize % if n & 1 == 0 { 100 } else { bytes.len() - 8 };
                bytes[at] = (n >> 32) as u8;
            }
            let channel = door.knock();
            say(&channel, &bytes, &letter.enclosed());
            accepted += u64::from(answer(&channel) == Answer::Said(ACCEPT));
        }
        drop(letter);
        eprintln!("{rounds} changed requests, {accepted} of them as good as the original");
        door.serves();
        drop(door);
        assert!(before.descriptors() > 0);
    }
}

viaduct_kit::isolated! { limit 120;
    fn wrong_descriptors_are_refused_and_closed() {
        let _watchdog = Watchdog::arm(LIMIT, "wrong descriptors");
        let door = Door::open();
        let letter = door.letter();
        let before = Footprint::settled();
        let [page, directory, bell] = letter.enclosed()[..] else { panic!("three descriptors") };
        let strangers = strangers(page);
        let before_refused = door.refused();
        let mut cases: Vec<(String, Vec<BorrowedFd<'_>>)> = vec![
            ("none".into(), vec![]),
            ("one".into(), vec![page]),
            ("two".into(), vec![page, directory]),
            ("another order".into(), vec![bell, page, directory]),
            ("five".into(), vec![page, directory, bell, page, page]),
            ("two hundred".into(), vec![page; 200]),
        ];
        for (name, fd) in &strangers {
            // A page would fit into it.
            if *name != "a short segment" {
                cases.push((format!("{name} for a page"), vec![fd.as_fd(), directory, bell]));
            }
            if *name != "a read-only view of the page" {
                cases.push((format!("{name} for a directory"), vec![page, fd.as_fd(), bell]));
            }
            cases.push((format!("{name} for a bell"), vec![page, directory, fd.as_fd()]));
        }
        for (name, fds) in &cases {
            let channel = door.knock();
            say(&channel, &letter.bytes, fds);
            assert_ne!(answer(&channel), Answer::Said(ACCEPT), "{name}");
        }
        assert!(door.refused() > before_refused + 5, "what is memory is looked at when the owner accepts");
        drop(strangers);
        before.comes_back("wrong descriptors");
        door.serves();
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_client_out_of_step_takes_no_place_of_another() {
        let _watchdog = Watchdog::arm(LIMIT, "clients out of step");
        let door = Door::open();
        let letter = door.letter();
        let before = Footprint::settled();
        // The listener's backlog is 8: places that leaked would be gone soon.
        for kind in [1, 2, 3, 4, ACK, 99] {
            for _ in 0..12 {
                let channel = door.knock();
                say(&channel, &letter.bytes, &letter.enclosed());
                say(&channel, &set(&letter.bytes, KIND, kind), &[]);
                // Or accepted, if the owner was quicker than the second message.
                let heard = answer(&channel);
                assert!(matches!(heard, Answer::Shut | Answer::Said(ACCEPT)), "kind {kind}: {heard:?}");
            }
            door.serves();
        }
        (0..300).for_each(|_| drop(door.knock()));
        before.comes_back("clients out of step");
        door.serves();
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_peer_that_asks_and_leaves_takes_no_place_of_another() {
        let _watchdog = Watchdog::arm(LIMIT, "a peer that asks and leaves");
        let folder = TempDir::new("peer");
        let place = Place { folder: folder.path(), mode: Mode::Peer };
        let mut nic = place.open();
        let mut letter = Letter::of(place.open(), folder.path());
        let at = letter.bytes.windows(4).position(|part| part == b"nic-").expect("it names its sender");
        let name = String::from_utf8(letter.bytes[at..at + 8].to_vec()).unwrap();
        let (here, there) = ("door".parse().unwrap(), name.parse().unwrap());
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.connect_peer_request(vi, &here, &there, None).unwrap();
        for _ in 0..20 {
            let channel = Channel::connect(&folder.join("door.sock")).unwrap();
            // It hears no answer any more, however fast that comes.
            rustix::net::shutdown(channel.as_fd(), rustix::net::Shutdown::Read).unwrap();
            say(&channel, &set(&letter.bytes, KIND, PEER_REQUEST), &letter.enclosed());
            drop(channel);
            std::thread::sleep(Duration::from_millis(2));
            assert!(nic.connect_poll(vi).unwrap().is_none(), "no peer is there that could be met");
        }
        // The peer that stays is met.
        let tag = letter.sender.create_ptag().unwrap();
        let other = letter.sender.create_vi(ViAttributes::new(tag)).unwrap();
        letter.sender.connect_peer_request(other, &there, &here, None).unwrap();
        letter.sender.connect_finish(other).unwrap();
        nic.connect_finish(vi).unwrap();
    }
}

viaduct_kit::isolated! { limit 120;
    fn silent_clients_are_dropped_and_hold_no_other_up() {
        let _watchdog = Watchdog::arm(LIMIT, "silent connections");
        let door = Door::open();
        let before = Footprint::settled();
        let silent: Vec<Channel> = (0..200).map(|_| door.knock()).collect();
        let start = Instant::now();
        (0..5).for_each(|_| door.serves());
        for channel in &silent {
            assert_eq!(answer(channel), Answer::Shut, "dropped at the deadline of the handshake");
        }
        assert!(start.elapsed() > Duration::from_secs(2), "a slow client had no chance");
        drop(silent);
        before.comes_back("silent connections");
        door.serves();
    }
}

// Tells the number of its NIC, and when told connects to the door and is greeted, twice.
viaduct_kit::child!(HONEST, |args| {
    let place = Place { folder: args[0].as_ref(), mode: Mode::Direct };
    let Letter { bytes, mut sender, .. } = Letter::of(place.open(), place.folder);
    let tag = sender.create_ptag().unwrap();
    let mut greeted = || {
        let vi = sender.create_vi(ViAttributes::new(tag)).unwrap();
        sender.post_recv(vi, Descriptor::recv(vec![0; 5_000].into())).unwrap();
        sender.connect_request(vi, &"door".parse().unwrap(), None).unwrap();
        assert!(sender.wait_recv_outcome(vi, None).unwrap().status().is_success());
    };
    child::say(bytes[UID].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    for _ in 0..2 {
        child::hear();
        greeted();
        child::say("greeted");
    }
});

viaduct_kit::isolated! { limit 120;
    fn a_process_that_uses_the_number_of_anothers_nic_keeps_it_from_nothing() {
        let _watchdog = Watchdog::arm(LIMIT, "a process that uses another's number");
        let door = Door::open();
        let mut letter = door.letter();
        let mut honest = HONEST.spawn(&[door.folder.path().to_str().unwrap()]);
        let uid = honest.expect_line("", LIMIT);
        let digits: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&uid[2 * i..2 * i + 2], 16).unwrap()).collect();
        letter.bytes[UID].copy_from_slice(&digits);
        // Before the owner of the number comes, and again when it is known: a NIC of the process that asks, each time.
        let mut impostors = Vec::new();
        for _ in 0..2 {
            let channel = door.knock();
            say(&channel, &letter.bytes, &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Said(ACCEPT));
            impostors.push(channel);
            honest.send_line("come");
            honest.expect_line("greeted", LIMIT);
        }
        honest.finish(LIMIT);
    }
}

/// Descriptors that are no segment of ours, each in its own way.
fn strangers(page: BorrowedFd<'_>) -> Vec<(&'static str, OwnedFd)> {
    let (pipe, _) = std::io::pipe().unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", page.as_raw_fd())).unwrap();
    vec![
        ("a pipe", pipe.into()),
        ("a null device", File::open("/dev/null").unwrap().into()),
        ("a folder", File::open("/").unwrap().into()),
        ("a read-only view of the page", read_only.into()),
        ("an unsealed segment", memfd(1 << 16, 1 << 16, false)),
        ("an empty segment", memfd(0, 0, true)),
        ("a sparse segment", memfd(1 << 16, 4_096, true)),
        ("an odd segment", memfd(10_000, 10_000, true)),
        ("a short segment", memfd(4_096, 4_096, true)),
    ]
}

fn memfd(len: u64, allocated: i64, sealed: bool) -> OwnedFd {
    // SAFETY: plain system calls on a descriptor that is ours alone.
    unsafe {
        let fd = libc::memfd_create(c"stranger".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        let file = File::from_raw_fd(fd);
        file.set_len(len).unwrap();
        assert!(allocated == 0 || libc::fallocate(fd, 0, 0, allocated) == 0);
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        assert!(!sealed || libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0);
        file.into()
    }
}

/// Stops the server while a client writes letters with a socket whose last close waits, so that the server has the last
/// reference, and sees that others are served while that close waits.
fn a_lingering_socket_holds_no_client_up(what: &str, write: fn(&Letter, &Channel, BorrowedFd<'_>)) {
    let _watchdog = Watchdog::arm(LIMIT, &format!("a lingering socket {what}"));
    let folder = TempDir::new("door");
    let mut server = GREETER.spawn(&[folder.path().to_str().unwrap(), "0"]);
    server.expect_line("ready", LIMIT);
    let config = config(folder.path(), Mode::Direct);
    let letter = Letter::of(Place { folder: folder.path(), mode: Mode::Direct }.open(), folder.path());
    let (socket, reader) = lingering();
    server.stop();
    let channel = Channel::connect(&folder.join("door.sock")).unwrap();
    write(&letter, &channel, socket.as_fd());
    // A message that is under way holds it, so this close waits for nothing.
    drop(socket);
    server.cont();
    while closers(server.pid()) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(Guest::come(&config, LIMIT).unwrap());
    assert_eq!(closers(server.pid()), 1, "{what}: the close still waits, on a thread of its own");
    drop(reader);
    while closers(server.pid()) > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.is_running());
}

#[test]
fn a_socket_that_lingers_when_it_is_closed_holds_no_client_up() {
    a_lingering_socket_holds_no_client_up("for a page", |letter, channel, socket| {
        let [_, directory, bell] = letter.enclosed()[..] else { panic!("three descriptors") };
        say(channel, &letter.bytes, &[socket, directory, bell]);
    });
    a_lingering_socket_holds_no_client_up("for a bell", |letter, channel, socket| {
        let [page, directory, _] = letter.enclosed()[..] else { panic!("three descriptors") };
        say(channel, &letter.bytes, &[page, directory, socket]);
    });
    a_lingering_socket_holds_no_client_up("beside too many", |letter, channel, socket| {
        let [page, ..] = letter.enclosed()[..] else { panic!("three descriptors") };
        say(channel, &letter.bytes, &[page, page, page, page, socket]);
    });
    a_lingering_socket_holds_no_client_up("with noise", |_, channel, socket| {
        say(channel, &[1; 100], &[socket]);
    });
}

#[test]
fn a_socket_that_lingers_in_a_letter_that_is_not_read_holds_no_client_up() {
    // The first message shuts the door, and the other is in the queue of the socket that is closed then.
    a_lingering_socket_holds_no_client_up("in a letter that is not read", |_, channel, socket| {
        say(channel, &[1; 100], &[]);
        say(channel, &[1; 100], &[socket]);
    });
    // Nor is the end found in a message that is empty.
    a_lingering_socket_holds_no_client_up("behind an empty message", |_, channel, socket| {
        say(channel, &[1; 100], &[]);
        rustix::net::send(channel.as_fd(), &[], rustix::net::SendFlags::empty()).unwrap();
        say(channel, &[1; 100], &[socket]);
    });
}

#[test]
fn clients_without_a_last_word_do_not_pile_up() {
    let _watchdog = Watchdog::arm(LIMIT, "connections without a last word");
    let door = Door::open();
    let letter = door.letter();
    // The first becomes the channel; after each of the others the server waits for a word.
    let silent: Vec<Channel> = (0..200)
        .map(|_| {
            let channel = door.knock();
            assert!(channel.send(&letter.bytes, &letter.enclosed()).unwrap());
            assert_eq!(answer(&channel), Answer::Said(ACCEPT));
            channel
        })
        .collect();
    let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
    let mut shut = vec![false; silent.len()];
    while shut.iter().filter(|shut| **shut).count() < silent.len() - 1 - 64 {
        for (channel, shut) in silent.iter().zip(&mut shut) {
            *shut |= matches!(channel.recv(&mut buffer, &mut fds, 8), Ok(Recv::Closed) | Err(_));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(silent);
    door.serves();
}

#[test]
fn a_client_with_a_channel_for_each_connection_is_cut_off() {
    let _watchdog = Watchdog::arm(LIMIT, "a channel for each connection");
    let door = Door::open();
    let letter = door.letter();
    let flags = u32::from_ne_bytes(letter.bytes[FLAGS..FLAGS + 4].try_into().unwrap());
    let last_word = set(&set(&letter.bytes, KIND, ACK), FLAGS, flags | HAS_CHANNEL);
    let many: Vec<Channel> = (0..60)
        .map(|number| {
            let channel = door.knock();
            say(&channel, &letter.bytes, &letter.enclosed());
            // Refused, if the end of the connections before is not over yet.
            let _ = answer(&channel);
            // The first is the pair's own, over which notes follow.
            if number > 0 {
                say(&channel, &last_word, &[]);
            }
            channel
        })
        .collect();
    // A pair has its first channel and a few more; one beyond that is the end of it.
    let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
    let mut shut = vec![false; many.len()];
    while shut.iter().filter(|shut| !**shut).count() > 6 {
        for (channel, shut) in many.iter().zip(&mut shut) {
            *shut |= matches!(channel.recv(&mut buffer, &mut fds, 8), Ok(Recv::Closed) | Err(_));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(many);
    door.serves();
}
