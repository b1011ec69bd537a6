//! Connections between nodes over TCP: both ends prove that they have the job's token before the first record.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use viaduct_job::{Token, greeting};

use super::mesh::PATIENCE;
use super::{TcpSink, TcpSource};
use crate::error::Error;
use crate::pool::MemPool;

/// Connections that have proved nothing yet, at most.
const STRANGERS: usize = 64;

/// How often new connections are looked for.
const LOOK: Duration = Duration::from_millis(1);

/// Where this node listens.
pub(super) struct Door<'a> {
    listener: TcpListener,
    rank: usize,
    size: usize,
    token: &'a Token,
    port: u16,
}

impl<'a> Door<'a> {
    /// Listens; on no network if all nodes are on this host.
    pub(super) fn open(alone: bool, rank: usize, size: usize, token: &'a Token) -> Result<Door<'a>, Error> {
        let failed = |error: io::Error| Error::Network(format!("listening: {error}"));
        let address = if alone { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let listener = TcpListener::bind((IpAddr::V4(address), 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Door { listener, rank, size, token, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Connects to a node.
    pub(super) fn connect(&self, node: usize, address: SocketAddr) -> Result<TcpSink, Error> {
        let failed = |error: io::Error| {
            let cause = if error.kind() == io::ErrorKind::PermissionDenied {
                "it has another token; hint: VIADUCT_TOKEN has to be that of the job everywhere".to_owned()
            } else {
                format!("{address}: {error}")
            };
            Error::Net { what: "connecting to", node: node as u32, cause }
        };
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        greeting::greet(&mut stream, self.token, self.rank as u32, &said(self.rank, node)).map_err(failed)?;
        Ok(TcpSink::new(&format!("to node {node}"), node as u32, stream))
    }

    /// Accepts a connection of every other node. Strangers, which have proved nothing yet, are heard side by side, so that one that
    /// says nothing holds up no node; of too many the oldest is dropped.
    pub(super) fn accept_all(&self, pool: &MemPool) -> Result<Vec<(usize, TcpSource)>, Error> {
        let end = Instant::now() + PATIENCE;
        let mut sources: Vec<(usize, TcpSource)> = Vec::new();
        std::thread::scope(|scope| {
            let (tell, heard) = channel();
            let mut strangers: VecDeque<(u64, TcpStream)> = VecDeque::new();
            let mut number = 0;
            while sources.len() + 1 < self.size && Instant::now() < end {
                while let Ok((stream, _)) = self.listener.accept() {
                    if strangers.len() == STRANGERS {
                        strangers.pop_front().iter().for_each(|(_, oldest)| dismiss(oldest));
                    }
                    let (tell, Ok(handle)) = (tell.clone(), stream.try_clone()) else { continue };
                    number += 1;
                    strangers.push_back((number, handle));
                    scope.spawn(move || {
                        let mut stream = stream;
                        let node = self.welcome(&mut stream);
                        let _ = tell.send((number, node, stream));
                    });
                }
                let Ok((number, node, stream)) = heard.recv_timeout(LOOK) else { continue };
                strangers.retain(|(known, _)| *known != number);
                let Ok(node) = node else { continue };
                if sources.iter().all(|(known, _)| *known != node) {
                    let name = format!("from node {node}");
                    sources.push((node, TcpSource::new(&name, node as u32, stream, pool.clone())));
                }
            }
            strangers.iter().for_each(|(_, stream)| dismiss(stream));
        });
        let (here, wanted) = (sources.len(), self.size - 1);
        if here < wanted {
            return Err(Error::Network(format!(
                "{here} of {wanted} nodes have connected within {} s; hint: do firewalls let them?",
                PATIENCE.as_secs()
            )));
        }
        Ok(sources)
    }

    fn welcome(&self, stream: &mut TcpStream) -> io::Result<usize> {
        stream.set_nonblocking(false)?;
        let rank = greeting::welcome(stream, self.token, |rank| said(rank as usize, self.rank))? as usize;
        if rank >= self.size || rank == self.rank {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_write_timeout(None)?;
        Ok(rank)
    }
}

/// Ends a connection of which another thread reads.
fn dismiss(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// What both ends of a connection agree on.
fn said(from: usize, to: usize) -> Vec<u8> {
    [&b"viaduct river 1"[..], &(from as u32).to_le_bytes(), &(to as u32).to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_connection_without_the_token_is_dropped_and_the_node_still_comes() {
        let (token, other) = (Token::random(), Token::random());
        let door = Door::open(true, 0, 2, &token).unwrap();
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, door.port()).into();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| door.accept_all(&MemPool::new(1, 4096).unwrap()).unwrap());
            let stranger = Door::open(true, 1, 2, &other).unwrap();
            let error = stranger.connect(0, address).unwrap_err().to_string();
            assert!(error.contains("another token"), "{error}");
            let mut nonsense = TcpStream::connect(address).unwrap();
            nonsense.write_all(&[7; 500]).unwrap();
            drop(nonsense);
            // More than are heard at a time, and each could take its whole time.
            let silent: Vec<_> = (0..STRANGERS + 6).map(|_| TcpStream::connect(address).unwrap()).collect();
            let node = Door::open(true, 1, 2, &token).unwrap();
            let _sink = node.connect(0, address).unwrap();
            assert_eq!(accepted.join().unwrap()[0].0, 1);
            drop(silent);
        });
    }
}
