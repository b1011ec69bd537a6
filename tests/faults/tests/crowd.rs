//! Crowds at the door: more connections than a server keeps, or than the kernel lets wait at its socket. Those that say
//! nothing give way, and a client that means it gets through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use viaduct_faults::door::Door;
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_via::{Error, Nic, Vi, ViAttributes};

const LIMIT: Duration = Duration::from_secs(60);
/// How many silent connections a NIC keeps (docs/protocols/shm.md).
const MOST_SILENT: usize = 128;

viaduct_kit::isolated! { limit 120;
    fn of_many_silent_clients_the_oldest_go() {
        let _watchdog = Watchdog::arm(LIMIT, "many silent connections");
        let door = Door::open();
        let silent: Vec<Channel> = (0..400).map(|_| door.knock()).collect();
        // Behind all of them in the kernel's queue: they have been looked at when it is served.
        door.serves();
        let open = silent.iter().filter(|channel| is_open(channel)).count();
        assert!(open <= MOST_SILENT, "{open} silent connections are kept");
    }
}

viaduct_kit::isolated! { limit 120;
    fn an_honest_client_gets_through_a_crowd() {
        let _watchdog = Watchdog::arm(LIMIT, "a crowd that does not end");
        let door = Door::open();
        let (path, stop) = (door.folder.join("door.sock"), Arc::new(AtomicBool::new(false)));
        let flag = stop.clone();
        let crowd = std::thread::spawn(move || {
            let mut kept = std::collections::VecDeque::new();
            let mut came = 0_u64;
            while !flag.load(Ordering::Acquire) {
                match Channel::connect(&path) {
                    Ok(channel) => {
                        came += 1;
                        kept.push_back(channel);
                    }
                    Err(_) => std::thread::yield_now(),
                }
                if kept.len() > 300 {
                    kept.pop_front();
                }
            }
            came
        });
        (0..20).for_each(|_| door.serves());
        stop.store(true, Ordering::Release);
        let came = crowd.join().unwrap();
        eprintln!("20 clients were served while {came} came for nothing");
        assert!(came > 0);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_request_to_a_full_socket_waits_for_room() {
        let _watchdog = Watchdog::arm(LIMIT, "a request to a full socket");
        let folder = TempDir::new("crowd");
        let (mut nic, vi) = asking(&folder);
        let (full, crowd) = full(&folder);
        nic.connect_start(vi, None, &"full".parse().unwrap(), b"", None).unwrap();
        for _ in 0..20 {
            assert!(nic.connect_poll(vi).unwrap().is_none(), "there is a listener, and it has not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Room comes, and with it the request, once.
        let mut requests = 0;
        drop(crowd);
        while requests == 0 {
            requests += accept_all(&full);
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(requests + accept_all(&full), 1);
        // It hung up without an answer.
        assert!(matches!(nic.connect_finish(vi), Err(Error::NoMatch(_))));
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_request_to_a_full_socket_ends_with_its_time_or_its_listener() {
        let _watchdog = Watchdog::arm(LIMIT, "a request that is given up");
        let folder = TempDir::new("crowd");
        let (mut nic, vi) = asking(&folder);
        let (listener, crowd) = full(&folder);
        let address = "full".parse().unwrap();
        let refused = nic.connect_request(vi, &address, Some(Duration::from_millis(30)));
        assert!(matches!(refused, Err(Error::Timeout)), "{refused:?}");
        nic.connect_start(vi, None, &address, b"", None).unwrap();
        assert!(nic.connect_poll(vi).unwrap().is_none());
        drop(listener);
        assert!(matches!(nic.connect_finish(vi), Err(Error::NoMatch(_))));
        drop(crowd);
    }
}

fn asking(folder: &TempDir) -> (Nic, Vi) {
    let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    (nic, vi)
}

/// A socket whose owner does not accept, with as many connections as the kernel lets wait there.
fn full(folder: &TempDir) -> (Listener, Vec<Channel>) {
    let path = folder.join("full.sock");
    let listener = Listener::bind(&path).unwrap();
    let crowd = std::iter::from_fn(|| Channel::connect(&path).ok()).collect();
    (listener, crowd)
}

/// Accepts whatever waits. How many of them said something.
fn accept_all(listener: &Listener) -> usize {
    let mut requests = 0;
    while let Some(channel) = listener.accept().unwrap() {
        let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
        loop {
            match channel.recv(&mut buffer, &mut fds, 8) {
                Ok(Recv::Message(_)) => requests += 1,
                // Connected, and about to speak.
                Ok(Recv::WouldBlock) if requests == 0 => std::thread::yield_now(),
                Ok(Recv::WouldBlock | Recv::Closed) | Err(_) => break,
            }
        }
    }
    requests
}

fn is_open(channel: &Channel) -> bool {
    let (mut buffer, mut fds) = ([0; 64], Vec::new());
    matches!(channel.recv(&mut buffer, &mut fds, 8), Ok(Recv::WouldBlock))
}
