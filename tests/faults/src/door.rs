//! A server that lets everybody in and greets them, and ways to knock at its door without the library.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use viaduct_kit::tempdir::TempDir;
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_providers::config::Config;
use viaduct_via::{Descriptor, Error, MemAttributes, Nic, Status, Vi, ViAttributes, ViState};

use crate::footprint::Footprint;
use crate::node::{Mode, Place, config, try_open};

/// Too long for a ring entry, so that it has to be pushed or fetched.
const GREETING: &[u8] = &[b'!'; 5_000];
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

viaduct_kit::child!(
    /// The server of [`Door`] in a process of its own: folder, and how many more descriptors it may have (0: no limit). It says
    /// "ready" and serves until it is killed.
    pub GREETER,
    |args| {
        let extra: u64 = args[1].parse().unwrap();
        let serve = || serve(args[0].as_ref(), &AtomicBool::new(false), &AtomicU64::new(0));
        if extra == 0 {
            return serve();
        }
        let open = Footprint::take().descriptors() as u64;
        viaduct_kit::resources::with_nofile_limit(open + extra, serve);
    }
);

/// A server in a thread of this process, with a folder of its own.
pub struct Door {
    /// Its run-time folder.
    pub folder: TempDir,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens the door.
    pub fn open() -> Door {
        let folder = TempDir::new("door");
        let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, count, path) = (stop.clone(), refused.clone(), folder.path().to_owned());
        let thread = std::thread::spawn(move || serve(&path, &flag, &count));
        let door = Door { folder, stop, refused, thread: Some(thread) };
        door.serves();
        door
    }

    /// A client that does everything right is let in and greeted.
    pub fn serves(&self) {
        let place = Place { folder: self.folder.path(), mode: Mode::Direct };
        while let Err(error) = Guest::come(&config(place.folder, place.mode), PATIENCE) {
            // Not there yet, when the thread has just begun.
            assert!(matches!(error, Error::NoMatch(_)), "{error}");
            assert!(!self.thread.as_ref().is_some_and(JoinHandle::is_finished), "the server is gone");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Knocks: a bare connection to the server's socket.
    pub fn knock(&self) -> Channel {
        loop {
            match Channel::connect(&self.folder.join("door.sock")) {
                Ok(channel) => return channel,
                // So many at once do not fit into the queue before the door.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("no door: {error}"),
            }
        }
    }

    /// Requests that the server's NIC refused when it looked at them.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A request as the library makes it, with its descriptors.
    pub fn letter(&self) -> Letter {
        let nic = Place { folder: self.folder.path(), mode: Mode::Direct }.open();
        Letter::of(nic, self.folder.path())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// A client that was let in and greeted.
pub struct Guest {
    /// Its NIC.
    pub nic: Nic,
    /// Its connection.
    pub vi: Vi,
}

impl Guest {
    /// Opens a NIC, connects and waits for the greeting, which goes straight into its buffer.
    pub fn come(config: &Config, patience: Duration) -> Result<Guest, Error> {
        let mut nic = try_open(config)?;
        let tag = nic.create_ptag()?;
        let vi = nic.create_vi(ViAttributes::new(tag))?;
        let buffer = nic.alloc(GREETING.len(), MemAttributes::local(tag))?;
        nic.post_recv(vi, Descriptor::recv(buffer))?;
        nic.connect_request(vi, &"door".parse()?, Some(patience))?;
        let greeting = nic.wait_recv_outcome(vi, Some(PATIENCE))?.0;
        if greeting.status != Status::Success {
            return Err(Error::NotReachable(greeting.status.to_string()));
        }
        assert_eq!(greeting.data(), GREETING);
        Ok(Guest { nic, vi })
    }
}

/// A request.
pub struct Letter {
    /// The message.
    pub bytes: Vec<u8>,
    /// Page, directory and bell of its sender.
    pub fds: Vec<OwnedFd>,
    /// The NIC that wrote it.
    pub sender: Nic,
}

impl Letter {
    /// A request of this NIC's, as the library makes it.
    pub fn of(mut nic: Nic, folder: &Path) -> Letter {
        // After the NIC was opened, which looks whether sockets are stale.
        let trap = Listener::bind(&folder.join("trap.sock")).unwrap();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.connect_start(vi, None, &"trap".parse().unwrap(), b"", None).unwrap();
        let channel = loop {
            if let Some(channel) = trap.accept().unwrap() {
                break channel;
            }
        };
        let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
        let bytes = loop {
            match channel.recv(&mut buffer, &mut fds, 8).unwrap() {
                Recv::Message(len) => break buffer[..len].to_vec(),
                Recv::WouldBlock => std::thread::yield_now(),
                Recv::Closed => panic!("the client hung up"),
            }
        };
        let at = bytes.windows(4).position(|part| part == b"trap").expect("the request names its address");
        let mut letter = Letter { bytes, fds, sender: nic };
        letter.bytes[at..at + 4].copy_from_slice(b"door");
        letter
    }

    /// Its descriptors.
    pub fn enclosed(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }
}

/// What came of knocking.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A message of this kind.
    Said(u32),
    /// The door was shut.
    Shut,
}

/// Waits for an answer; the watchdog bounds it.
pub fn answer(channel: &Channel) -> Answer {
    let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
    loop {
        match channel.recv(&mut buffer, &mut fds, 8) {
            Ok(Recv::Message(_)) => {
                return Answer::Said(u32::from_ne_bytes(buffer[44..48].try_into().unwrap()));
            }
            Ok(Recv::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            Ok(Recv::Closed) | Err(_) => return Answer::Shut,
        }
    }
}

fn serve(folder: &Path, stop: &AtomicBool, refused: &AtomicU64) {
    let mut nic = Place { folder, mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let listener = nic.listen(&"door".parse().unwrap(), 8).unwrap();
    viaduct_kit::child::say("ready");
    let mut guests = Vec::new();
    while !stop.load(Ordering::Acquire) {
        if let Ok(request) = nic.wait_listener(listener, Some(Duration::from_millis(2))) {
            let remote = request.remote();
            let mut attributes = ViAttributes::new(tag).reliability(remote.reliability);
            (attributes.max_transfer_size, attributes.qos) = (remote.max_transfer_size, remote.qos);
            let accepted = match nic.create_vi(attributes) {
                Ok(vi) => nic.accept(request, vi).map(|()| vi).map_err(|refused| (Some(vi), refused.request)),
                Err(_) => Err((None, request)),
            };
            match accepted {
                Ok(vi) => {
                    let mut buffer = nic.alloc(GREETING.len(), MemAttributes::local(tag)).unwrap();
                    buffer.write(0, GREETING);
                    nic.post_send(vi, Descriptor::send(buffer)).unwrap();
                    guests.push(vi);
                }
                Err((vi, request)) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    nic.reject(request).unwrap();
                    vi.into_iter().for_each(|vi| nic.destroy_vi(vi).unwrap());
                }
            }
        }
        guests.retain(|vi| {
            let over = nic.query_vi(*vi).unwrap().state == ViState::Error;
            if over {
                nic.disconnect(*vi).unwrap();
                while nic.poll_send(*vi).unwrap().is_some() {}
                nic.destroy_vi(*vi).unwrap();
            }
            !over
        });
    }
}
