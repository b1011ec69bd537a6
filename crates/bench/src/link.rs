//! Orders and answers between two hosts: letters over a TCP connection, whose ends have proved to be of one job.
//!
//! ```text
//!   client                               server
//!   magic, nonce ──────────────────────▶
//!         ◀───────────── nonce, proof of the server
//!   proof of the client ───────────────▶
//!   letters, each with its length in front, both ways
//! ```
//!
//! What is measured takes other ways; this one is silent while a slice runs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use viaduct_job::Token;
use viaduct_job::auth::{NONCE_LEN, Nonce, PROOF_LEN, Role, prove, verify};

use crate::error::{Error, Result};

/// Where a benchmark listens unless told otherwise.
pub(crate) const PORT: u16 = 7471;

const MAGIC: [u8; 16] = *b"viaduct bench 1\n";
/// Longest letter.
const MOST: u32 = 1 << 20;
/// A process that says nothing for so long while it should is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// A caller has so long to prove itself.
const GREETING: Duration = Duration::from_secs(5);

/// One end of the connection.
#[derive(Debug)]
pub(crate) struct Link(TcpStream);

impl Link {
    /// Connects to the bench that listens at `HOST` or `HOST:PORT`.
    pub(crate) fn call(host: &str, token: &Token) -> Result<Link> {
        let stream = reach(host)?;
        let mut link = Link::over(stream, GREETING)?;
        let ours = Nonce::random();
        link.put(&[&MAGIC[..], &ours.0].concat()).map_err(|e| cut_off(host, e))?;
        let theirs = Nonce(link.take::<NONCE_LEN>().map_err(|e| cut_off(host, e))?);
        let proof = link.take::<PROOF_LEN>().map_err(|e| cut_off(host, e))?;
        if !verify(token, Role::Server, &ours, &theirs, &MAGIC, &proof) {
            return Err(Error::usage(format!("{host} does not belong to this job"), SAME_TOKEN));
        }
        let proof = prove(token, Role::Client, &ours, &theirs, &MAGIC);
        link.put(&proof).map_err(|e| cut_off(host, e))?;
        link.patient()
    }

    /// Greets a caller; an error if it does not belong to the job.
    pub(crate) fn answer(stream: TcpStream, token: &Token) -> Result<Link> {
        let mut link = Link::over(stream, GREETING)?;
        let failed = || Error::os("greeting a caller");
        let magic = link.take::<16>().map_err(failed())?;
        let theirs = Nonce(link.take::<NONCE_LEN>().map_err(failed())?);
        if magic != MAGIC {
            return Err(Error::usage(
                "the words of another protocol came in",
                "`viaduct bench --connect` calls here",
            ));
        }
        let ours = Nonce::random();
        let proof = prove(token, Role::Server, &theirs, &ours, &MAGIC);
        link.put(&[&ours.0[..], &proof].concat()).map_err(failed())?;
        let proof = link.take::<PROOF_LEN>().map_err(failed())?;
        if !verify(token, Role::Client, &theirs, &ours, &MAGIC, &proof) {
            return Err(Error::usage("a process of another job has called", SAME_TOKEN));
        }
        link.patient()
    }

    /// A connection that was greeted by the parent process.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Link> {
        Link(TcpStream::from(fd)).patient()
    }

    /// The descriptor to hand to a child process.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0.into()
    }

    /// A second descriptor that shows when the other end is gone.
    pub(crate) fn watch(&self) -> Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned().map_err(Error::os("watching the connection"))
    }

    pub(crate) fn send<T: Serialize>(&mut self, letter: &T) -> Result<()> {
        let text = serde_json::to_vec(letter).expect("orders and answers always serialise");
        let framed = [&(text.len() as u32).to_le_bytes()[..], &text].concat();
        self.put(&framed).map_err(|_| Error::PeerGone { doing: "writing to it" })
    }

    /// The next letter. [`Error::Stalled`] if none comes for a minute.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, doing: &'static str) -> Result<T> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::Stalled { doing, seconds: PATIENCE.as_secs() }
            }
            _ => Error::PeerGone { doing },
        };
        let len = u32::from_le_bytes(self.take::<4>().map_err(failed)?);
        if len > MOST {
            return Err(Error::PeerGone { doing });
        }
        let mut text = vec![0; len as usize];
        self.0.read_exact(&mut text).map_err(failed)?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::Peer { message: format!("unreadable letter: {e}"), hint: SAME_BUILD.into() })
    }

    fn over(stream: TcpStream, patience: Duration) -> Result<Link> {
        stream.set_nodelay(true).map_err(Error::os("setting TCP_NODELAY"))?;
        stream.set_read_timeout(Some(patience)).map_err(Error::os("setting a time limit"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(Error::os("setting a time limit"))?;
        Ok(Link(stream))
    }

    fn patient(self) -> Result<Link> {
        Link::over(self.0, PATIENCE)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

const SAME_TOKEN: &str = "give both the same file in VIADUCT_TOKEN_FILE";
const SAME_BUILD: &str = "both hosts need the same version of viaduct";

fn cut_off(host: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            Error::usage(format!("{host} has cut us off"), SAME_TOKEN)
        }
        _ => Error::os(format!("greeting {host}"))(error),
    }
}

fn reach(host: &str) -> Result<TcpStream> {
    let named =
        |e| Error::usage(format!("looking {host} up: {e}"), "a name or an address, with or without a port");
    let addresses: Vec<SocketAddr> = match host.to_socket_addrs() {
        Ok(found) => found.collect(),
        // Without a port.
        Err(_) => (host, PORT).to_socket_addrs().map_err(named)?.collect(),
    };
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, GREETING) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let why = last.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    Err(Error::usage(format!("{host}: {why}"), "run `viaduct bench --listen` there first"))
}

/// The host of `HOST` or `HOST:PORT`, as addresses of VIs have it.
pub(crate) fn host_of(text: &str) -> &str {
    match text.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.ends_with(':') => host,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn pair(ours: &Token, theirs: Token) -> (Result<Link>, Result<Link>) {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = door.local_addr().unwrap().to_string();
        let server = thread::spawn(move || Link::answer(door.accept().unwrap().0, &theirs));
        (Link::call(&at, ours), server.join().unwrap())
    }

    #[test]
    fn letters_go_both_ways_between_ends_of_one_job() {
        let token = Token::random();
        let (client, server) = pair(&token, token.clone());
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        client.send(&("hello", 7)).unwrap();
        assert_eq!(server.receive::<(String, u8)>("listening").unwrap(), ("hello".into(), 7));
        server.send(&vec![1, 2]).unwrap();
        assert_eq!(client.receive::<Vec<u8>>("listening").unwrap(), [1, 2]);
        drop(server);
        assert!(matches!(client.receive::<u8>("listening"), Err(Error::PeerGone { .. })));
    }

    #[test]
    fn a_caller_of_another_job_is_turned_away_at_both_ends() {
        let (client, server) = pair(&Token::random(), Token::random());
        assert!(client.is_err() && server.is_err());
    }

    #[test]
    fn ports_are_not_part_of_the_host() {
        assert_eq!(
            (host_of("node3:99"), host_of("node3"), host_of("10.0.0.7")),
            ("node3", "node3", "10.0.0.7")
        );
    }
}
