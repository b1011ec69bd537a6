//! Ranks without a launcher meet: rank 0 keeps the table, the others come to it.
//!
//! `viaduct launch --dry-run` prints lines that a user may paste by hand, on one host or on several. There is no launcher
//! then that could answer PMI, so rank 0 does: it listens where VIADUCT_MEET says, and all ranks, itself among them, go
//! there. Both ends prove that they have the job's token (`greeting`) before the first line; what follows is PMI-1, in the
//! clear. Connections that have not proved themselves are bounded in time and number, and hold up neither the ranks nor the
//! end of the table.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::greeting;
use crate::pmi::server::{Action, Node, mapping};
use crate::pmi::wire::Lines;
use crate::token::Token;

/// How long a rank looks for rank 0: a user pastes lines, one after the other.
const PATIENCE: Duration = Duration::from_secs(300);
/// Connections at once that have not proved to be of this job; one more pushes the oldest out.
const STRANGERS: usize = 64;
/// How long the table waits after it could not accept a connection, for want of descriptors say.
const BREATH: Duration = Duration::from_millis(50);

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
/// If rank 0 is not there within some minutes, or has another token.
pub(crate) fn visit(address: &str, rank: usize, token: &Token) -> Result<TcpStream, Error> {
    let end = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(why) if Instant::now() >= end => return Err(failed("connecting to VIADUCT_MEET")(why)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let greeted = greeting::greet(&mut stream, token, rank as u32, &said(rank as u32));
    greeted.map_err(failed("meeting rank 0 (do both have one VIADUCT_TOKEN_FILE?)"))?;
    Ok(stream)
}

fn said(rank: u32) -> Vec<u8> {
    [&b"viaduct meet 1"[..], &rank.to_le_bytes()].concat()
}

/// What is on the table, and which ranks sit there.
struct Hub {
    node: Node,
    seats: Vec<Option<TcpStream>>,
    /// Connections that have not proved themselves, the oldest first.
    strangers: VecDeque<(u64, TcpStream)>,
    /// A rank left too early.
    broken: bool,
}

impl Hub {
    fn line(&mut self, rank: usize, line: &str) {
        let mut actions = Vec::new();
        self.node.line(rank, line, &mut actions);
        while let Some(action) = (!actions.is_empty()).then(|| actions.remove(0)) {
            match action {
                Action::Reply(rank, text) => {
                    if let Some(seat) = &mut self.seats[rank]
                        && seat.write_all(text.as_bytes()).is_err()
                    {
                        // A rank that does not read does not hold up the others; its own thread notices the end.
                        let _ = seat.shutdown(Shutdown::Both);
                    }
                }
                Action::Arrive(pairs) => self.node.release(&pairs, &mut actions),
                Action::Abort(..) => self.dissolve(),
            }
        }
    }

    /// A rank has left; if too early, the others need not wait.
    fn leave(&mut self, rank: usize) {
        if self.node.left_early(rank) {
            self.dissolve();
        }
    }

    /// Notes a connection that has to prove itself. Returns false if it cannot be watched.
    fn let_in(&mut self, number: u64, stream: &TcpStream) -> bool {
        let Ok(copy) = stream.try_clone() else { return false };
        if self.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = self.strangers.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.strangers.push_back((number, copy));
        true
    }

    /// A connection has proved itself, or failed to. Returns false if it had to leave before.
    fn is_known(&mut self, number: u64) -> bool {
        let before = self.strangers.len();
        self.strangers.retain(|(n, _)| *n != number);
        self.strangers.len() < before
    }

    /// Whether no other rank is expected.
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
    let seats = (0..size).map(|_| None).collect();
    let hub = Arc::new(Mutex::new(Hub { node, seats, strangers: VecDeque::new(), broken: false }));
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let door = listener.local_addr().ok();
    // Strangers may come in between: a seat counts once it is taken.
    for number in 0.. {
        if lock(&hub).is_closed() {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(BREATH);
            continue;
        };
        if !lock(&hub).let_in(number, &stream) {
            continue;
        }
        let (hub, token) = (hub.clone(), token.clone());
        let wake = move |hub: &Mutex<Hub>| {
            if lock(hub).is_closed() {
                let _ = door.map(TcpStream::connect);
            }
        };
        let thread = std::thread::Builder::new().name("viaduct-seat".to_owned());
        let work = move || sit(stream, number, size, &token, &hub, &wake);
        // Without a thread the connection ends here.
        threads.extend(thread.spawn(work));
    }
    // The ranks are all here: no stranger is waited for.
    for (_, stranger) in lock(&hub).strangers.drain(..) {
        let _ = stranger.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// One connection, from its greeting to its end. `wake` wakes the thread that accepts if no other rank is expected.
fn sit(
    mut stream: TcpStream,
    number: u64,
    size: usize,
    token: &Token,
    hub: &Mutex<Hub>,
    wake: &dyn Fn(&Mutex<Hub>),
) {
    let welcomed = greeting::welcome(&mut stream, token, said);
    let stays = lock(hub).is_known(number);
    let Some(rank) = welcomed.ok().map(|rank| rank as usize).filter(|rank| *rank < size) else { return };
    {
        let mut hub = lock(hub);
        match (&mut hub.seats[rank], stream.try_clone()) {
            (seat @ None, Ok(copy)) if stays => *seat = Some(copy),
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
    use viaduct_kit::watchdog::Watchdog;

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
    fn a_stranger_that_takes_its_time_holds_up_neither_the_ranks_nor_the_end() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "a slow stranger");
        let (address, token) = (somewhere(), Token::random());
        let table = Table::open(&address, 1, &token).unwrap();
        let mut slow = TcpStream::connect(&address).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        // Always in time for the next read; it would take minutes to say all that a greeting has.
        let stranger = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_secs(2)).is_err() {
                let _ = slow.write_all(&[7]);
            }
        });
        Client::on_connection(visit(&address, 0, &token).unwrap()).unwrap().finish().unwrap();
        table.close();
        stop.send(()).unwrap();
        stranger.join().unwrap();
    }

    #[test]
    fn a_crowd_of_silent_strangers_is_bounded_and_keeps_no_rank_out() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "a crowd");
        let (address, token) = (somewhere(), Token::random());
        let table = Table::open(&address, 1, &token).unwrap();
        let crowd: Vec<_> = (0..STRANGERS + 20).map(|_| TcpStream::connect(&address).unwrap()).collect();
        // The oldest ones have to leave.
        for mut stranger in crowd.iter().take(20) {
            assert_eq!(stranger.read(&mut [0; 8]).unwrap_or(0), 0);
        }
        Client::on_connection(visit(&address, 0, &token).unwrap()).unwrap().finish().unwrap();
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
