//! Servers and clients that they cannot serve: more than there is room for, and one that asks and takes no answers; and a server that
//! ends right after its answer.

use std::time::{Duration, Instant};

use viaduct_kit::watchdog::Watchdog;
use viaduct_net::{Buffer, Descriptor, Error, NetAddress, Nic, Vi, ViAttributes};

use crate::programs::{LIMIT, Place, nic_at};

/// What each of the servers has room for.
const ROOM: usize = 100;

/// Gives a VI of the test a connection to a server, which may still be starting.
fn let_in(nic: &mut Nic, name: &str) -> Result<Vi, Error> {
    let address: NetAddress = name.parse()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, 256)?;
    let start = Instant::now();
    loop {
        match nic.connect(vi, &address).timeout(LIMIT).wait() {
            Ok(_) => return Ok(vi),
            Err(Error::NoMatch(_) | Error::NoRoom { .. }) if start.elapsed() < LIMIT => {
                std::thread::sleep(Duration::from_millis(5))
            }
            Err(error) => {
                nic.retire(vi)?;
                return Err(error);
            }
        }
    }
}

/// Asks a server, and gives its answer.
fn ask(nic: &mut Nic, vi: Vi, question: &[u8]) -> Vec<u8> {
    nic.send(vi, &[question], None).expect("a question");
    let answer = nic.wait_recv(vi, Some(LIMIT)).expect("an answer");
    let bytes = answer.data();
    nic.post_recv(vi, answer.descriptor).expect("a receive for the next one");
    bytes
}

#[test]
fn servers_refuse_clients_for_whom_there_is_no_room_and_go_on() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "more clients than a server has room for");
    const ECHO: &str = env!("CARGO_BIN_EXE_echo");
    const KV: &str = env!("CARGO_BIN_EXE_kv");
    for (program, arguments, name, question, answer) in [
        (ECHO, ["server", "100000"], "echo", &b"hello"[..], &b"hello"[..]),
        (KV, ["serve", "store"], "store", b"G\x06colour", b"\x01"),
        (KV, ["serve-raw", "store"], "store", b"G\x06colour", b"\x01"),
    ] {
        let place = Place::new();
        let mut server = place.start(program, &arguments);
        let mut nic = place.nic();
        let (mut inside, mut refused) = (Vec::new(), 0);
        for _ in 0..3 * ROOM {
            match let_in(&mut nic, name) {
                Ok(vi) => inside.push(vi),
                Err(Error::Rejected(why)) if why == b"no room for one more client" => refused += 1,
                Err(error) => panic!("{arguments:?}, after {}: {error}", inside.len()),
            }
        }
        assert_eq!((inside.len(), refused), (ROOM, 2 * ROOM), "{arguments:?}");
        for vi in &inside {
            assert_eq!(ask(&mut nic, *vi, question), answer, "{arguments:?}");
        }
        // One that leaves makes room for another, once the server has heard of it.
        nic.retire(inside[0]).expect("a VI");
        let late = loop {
            match let_in(&mut nic, name) {
                Err(Error::Rejected(_)) => std::thread::sleep(Duration::from_millis(1)),
                outcome => break outcome.expect("room for one"),
            }
        };
        assert_eq!(ask(&mut nic, late, question), answer, "{arguments:?}");
        assert!(server.is_running(), "{arguments:?}");
        server.kill();
    }
}

#[test]
fn the_echo_outlives_a_client_that_asks_and_takes_no_answers() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "a client that takes no answers");
    const ECHO: &str = env!("CARGO_BIN_EXE_echo");
    let place = Place::new();
    let mut server = place.start(ECHO, &["server", "100000"]);
    let (mut nic, mut other) = (place.nic(), place.nic());
    let (greedy, patient) = (let_in(&mut nic, "echo").unwrap(), let_in(&mut other, "echo").unwrap());
    // Sends by value do not look at what has come. Between any two of them the server answers another client, so that each finds a receive;
    // it stops taking them when it has given the greedy one up.
    let (mut sent, mut busy) = (0, 0);
    while sent < 20_000 && busy < 200 {
        match nic.send_inline(greedy, &[7; 100], None) {
            Ok(()) => (sent, busy) = (sent + 1, 0),
            Err(Error::Busy) => {
                busy += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_ended) => break,
        }
        assert_eq!(ask(&mut other, patient, b"still there?"), b"still there?", "after {sent} questions");
    }
    assert!(sent > 8 && sent < 20_000, "{sent} questions were taken in");
    assert_eq!(place.says(ECHO, &["client", "hello"]), "hello\n");
    assert!(server.is_running());
    server.kill();
}

viaduct_kit::child!(HASTY, |arguments| {
    let [folder, provider, length] = arguments else { panic!("three arguments, not {arguments:?}") };
    let mut nic = nic_at(folder.as_ref(), provider);
    let vi = nic.create_vi(ViAttributes::default()).expect("a VI");
    nic.vi(vi).unwrap().post_receives(1, 64).expect("a receive");
    let listener = nic.listen(&"hasty".parse().unwrap(), 1).expect("a listener");
    let request = nic.wait_listener(listener, Some(LIMIT)).expect("a client");
    nic.accept(request, vi).expect("a client");
    nic.wait_recv(vi, Some(LIMIT)).expect("a question");
    let answer = vec![b'z'; length.parse().expect("a length")];
    nic.post_send(vi, Descriptor::send(Buffer::from(answer))).expect("a place in the queue");
    // Neither a wait nor a poll: the program ends.
});

#[test]
fn an_answer_arrives_though_its_server_ends_at_once() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "servers that end after their answer");
    let place = Place::new();
    for length in [5, 47, 104, 105, 1000, 4097, 20_000, 100_000] {
        let folder = place.path().to_str().expect("a plain path");
        let mut server = HASTY.spawn(&[folder, "shm", &length.to_string()]);
        let mut nic = place.nic();
        let vi = nic.create_vi(ViAttributes::default()).unwrap();
        nic.vi(vi).unwrap().post_receives(1, 1 << 20).unwrap();
        let address: NetAddress = "hasty".parse().unwrap();
        while let Err(error) = nic.connect(vi, &address).timeout(LIMIT).wait() {
            assert!(matches!(error, Error::NoMatch(_)), "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        nic.send_inline(vi, b"?", None).unwrap();
        let answer = nic.wait_recv(vi, Some(LIMIT)).expect("an answer");
        assert_eq!(answer.data(), vec![b'z'; length], "{length} bytes");
        assert!(server.wait(LIMIT).success(), "{length} bytes");
    }
}
