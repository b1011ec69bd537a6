//! Ranks that nobody launched meet: rank 0 keeps the table, the others come to it.
//!
//! `viaduct launch --dry-run` prints lines that somebody may paste by hand, on one host or on several. There is no
//! launcher then that could answer PMI, so rank 0 does: it listens where VIADUCT_MEET says, and everybody, itself among
//! them, goes there. Both ends prove that they have the job's token (`auth`) before the first line; what follows is
//! PMI-1, in the clear.
//!
//! ```text
//!   rank                                        rank 0
//!   nonce, rank ─────────────────────────────▶
//!              ◀────── nonce, proof of the server
//!   proof of the client ─────────────────────▶  lines of PMI-1 from here on
//! ```

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::auth::{self, NONCE_LEN, Nonce, PROOF_LEN, Role};
use crate::error::Error;
use crate::pmi::server::{Action, Node, mapping};
use crate::pmi::wire::Lines;
use crate::token::Token;

/// How long a rank looks for rank 0: somebody pastes lines, one after the other.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long one who came may take to prove who it is.
const GREETING: Duration = Duration::from_secs(10);

/// The table that rank 0 keeps. It is there until all ranks have left.
#[derive(Debug)]
pub(crate) struct Table {
    thread: Option<JoinHandle<()>>,
}

impl Table {
    /// Listens for `size` ranks.
    ///
    /// # Errors
    /// If the address is not one of this host, or taken.
    pub(crate) fn open(address: &str, size: usize, token: &Token) -> Result<Table, Error> {
        let listener = TcpListener::bind(address).map_err(failed("listening at VIADUCT_MEET"))?;
        let token = token.clone();
        let thread = std::thread::Builder::new().name("viaduct-meet".to_owned());
        let thread = thread.spawn(move || serve(&listener, size, &token)).map_err(failed("a thread"))?;
        Ok(Table { thread: Some(thread) })
    }

    /// Waits until all ranks have left.
    pub(crate) fn close(mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Goes to the table as this rank.
///
/// # Errors
/// If nobody is there within some minutes, or somebody who has another token.
pub(crate) fn visit(address: &str, rank: usize, token: &Token) -> Result<TcpStream, Error> {
    let end = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(why) if Instant::now() >= end => return Err(failed("connecting to VIADUCT_MEET")(why)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let greeted = greet(&mut stream, rank as u32, token).and_then(|()| stream.set_read_timeout(None));
    greeted.map_err(failed("meeting rank 0 (do both have one VIADUCT_TOKEN_FILE?)"))?;
    Ok(stream)
}

fn greet(stream: &mut TcpStream, rank: u32, token: &Token) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    let (ours, mut theirs, mut proof) = (Nonce::random(), Nonce([0; NONCE_LEN]), [0; PROOF_LEN]);
    stream.write_all(&[&ours.0[..], &rank.to_le_bytes()].concat())?;
    stream.read_exact(&mut theirs.0)?;
    stream.read_exact(&mut proof)?;
    if !auth::verify(token, Role::Server, &ours, &theirs, &said(rank), &proof) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.write_all(&auth::prove(token, Role::Client, &ours, &theirs, &said(rank)))
}

fn welcome(stream: &mut TcpStream, size: usize, token: &Token) -> io::Result<usize> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    let (mut theirs, mut rank, ours) = (Nonce([0; NONCE_LEN]), [0; 4], Nonce::random());
    stream.read_exact(&mut theirs.0)?;
    stream.read_exact(&mut rank)?;
    let (rank, mut proof) = (u32::from_le_bytes(rank), [0; PROOF_LEN]);
    let made = auth::prove(token, Role::Server, &theirs, &ours, &said(rank));
    stream.write_all(&[&ours.0[..], &made].concat())?;
    stream.read_exact(&mut proof)?;
    let good = auth::verify(token, Role::Client, &theirs, &ours, &said(rank), &proof);
    if !good || rank as usize >= size {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(None)?;
    Ok(rank as usize)
}

fn said(rank: u32) -> Vec<u8> {
    [&b"viaduct meet 1"[..], &rank.to_le_bytes()].concat()
}

/// What is on the table, and who sits there.
struct Hub {
    node: Node,
    seats: Vec<Option<TcpStream>>,
    /// Somebody left too early.
    broken: bool,
}

impl Hub {
    fn line(&mut self, rank: usize, line: &str) {
        let mut actions = Vec::new();
        self.node.line(rank, line, &mut actions);
        while let Some(action) = (!actions.is_empty()).then(|| actions.remove(0)) {
            match action {
                Action::Reply(rank, text) => {
                    if let Some(seat) = &mut self.seats[rank] {
                        // Who does not read any more is noticed by its own thread.
                        let _ = seat.write_all(text.as_bytes());
                    }
                }
                Action::Arrive(pairs) => self.node.release(&pairs, &mut actions),
                Action::Abort(..) => self.dissolve(),
            }
        }
    }

    /// Somebody has left; if too early, the others need not wait.
    fn leave(&mut self, rank: usize) {
        if self.node.left_early(rank) {
            self.dissolve();
        }
    }

    /// Whether nobody else is expected.
    fn is_closed(&self) -> bool {
        self.broken || self.seats.iter().all(Option::is_some)
    }

    fn dissolve(&mut self) {
        self.broken = true;
        for seat in self.seats.iter().flatten() {
            let _ = seat.shutdown(Shutdown::Both);
        }
    }
}

fn serve(listener: &TcpListener, size: usize, token: &Token) {
    let node = Node::new("by-hand", size, vec![0; size], &mapping(&vec![1; size]));
    let hub = Mutex::new(Hub { node, seats: (0..size).map(|_| None).collect(), broken: false });
    let hub = Arc::new(hub);
    let mut threads = Vec::new();
    let door = listener.local_addr().ok();
    // Strangers may come in between: a seat counts once it is taken.
    while !lock(&hub).is_closed() {
        let Ok((stream, _)) = listener.accept() else { continue };
        let (hub, token) = (hub.clone(), token.clone());
        let wake = move |hub: &Mutex<Hub>| {
            if lock(hub).is_closed() {
                let _ = door.map(TcpStream::connect);
            }
        };
        threads.push(std::thread::spawn(move || sit(stream, size, &token, &hub, &wake)));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// One rank, from its greeting to its end. `wake` wakes the one who accepts if nobody else is expected.
fn sit(mut stream: TcpStream, size: usize, token: &Token, hub: &Mutex<Hub>, wake: &dyn Fn(&Mutex<Hub>)) {
    let Ok(rank) = welcome(&mut stream, size, token) else { return };
    {
        let mut hub = lock(hub);
        match (&mut hub.seats[rank], stream.try_clone()) {
            (seat @ None, Ok(copy)) => *seat = Some(copy),
            _ => return,
        }
        if hub.broken {
            hub.dissolve();
        }
    }
    wake(hub);
    let (mut lines, mut bytes) = (Lines::default(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        let mut heard = Vec::new();
        let good = lines.feed(&bytes[..n], |line| heard.push(line.to_owned())).is_ok();
        heard.iter().for_each(|line| lock(hub).line(rank, line));
        if !good {
            break;
        }
    }
    lock(hub).leave(rank);
    wake(hub);
}

fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |why| Error::Pmi { what, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::client::Client;

    fn somewhere() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn ranks_meet_and_strangers_do_not() {
        let (address, token) = (somewhere(), Token::random());
        let table = Table::open(&address, 3, &token).unwrap();
        // Says nothing; has another token; is a rank that there is not.
        let silent = TcpStream::connect(&address).unwrap();
        assert!(visit(&address, 1, &Token::random()).is_err());
        assert!(Client::on_connection(visit(&address, 3, &token).unwrap()).is_err());
        let rank = |rank: usize| {
            let mut client = Client::on_connection(visit(&address, rank, &token).unwrap()).unwrap();
            client.put(&format!("k{rank}"), &format!("v{rank}")).unwrap();
            client.barrier().unwrap();
            let all: Vec<_> = (0..3).map(|n| client.get(&format!("k{n}")).unwrap().unwrap()).collect();
            client.finish().unwrap();
            all
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|n| scope.spawn(move || rank(n))).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), ["v0", "v1", "v2"]);
            }
        });
        drop(silent);
        table.close();
    }

    #[test]
    fn one_that_leaves_early_is_the_end_for_all() {
        let (address, token) = (somewhere(), Token::random());
        let table = Table::open(&address, 3, &token).unwrap();
        let client = |rank| Client::on_connection(visit(&address, rank, &token).unwrap()).unwrap();
        let (mut first, second) = (client(0), client(1));
        drop(second);
        assert!(first.barrier().is_err());
        drop(first);
        table.close();
    }
}
