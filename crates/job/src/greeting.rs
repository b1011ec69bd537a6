//! A greeting over TCP: caller and listener prove that they have the job's token (`auth`) before the first byte of anything
//! else, and the caller says its rank.
//!
//! ```text
//!   caller                                      listener
//!   nonce, rank ─────────────────────────────▶
//!              ◀────── nonce, proof of the listener
//!   proof of the caller ─────────────────────▶  what the two have to say to each other
//! ```
//!
//! A greeting has one deadline, however slowly its bytes come. What listeners do about many silent callers is theirs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::auth::{NONCE_LEN, Nonce, PROOF_LEN, Role, prove, verify};
use crate::token::Token;

/// How long a greeting may take as a whole. In tests of this package longer than their watchdogs allow, so that a wait for
/// this limit is seen.
pub const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 10 });

/// Greets a listener as `rank`. `said` is what both must agree on: the protocol, and whom the caller means.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if the listener has another token; else what the connection fails with.
pub fn greet(stream: &mut TcpStream, token: &Token, rank: u32, said: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let end = Instant::now() + LIMIT;
    let (ours, mut theirs, mut proof) = (Nonce::random(), Nonce([0; NONCE_LEN]), [0; PROOF_LEN]);
    stream.write_all(&[&ours.0[..], &rank.to_le_bytes()].concat())?;
    read_by(stream, &mut theirs.0, end)?;
    read_by(stream, &mut proof, end)?;
    if !verify(token, Role::Server, &ours, &theirs, said, &proof) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.write_all(&prove(token, Role::Client, &ours, &theirs, said))?;
    stream.set_read_timeout(None)
}

/// Answers the greeting of a caller; its rank. `said` says, for a rank, what both must agree on.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if the caller has another token; else what the connection fails with.
pub fn welcome(stream: &mut TcpStream, token: &Token, said: impl Fn(u32) -> Vec<u8>) -> io::Result<u32> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(LIMIT))?;
    let end = Instant::now() + LIMIT;
    let (mut theirs, mut rank, ours) = (Nonce([0; NONCE_LEN]), [0; 4], Nonce::random());
    read_by(stream, &mut theirs.0, end)?;
    read_by(stream, &mut rank, end)?;
    let rank = u32::from_le_bytes(rank);
    let (said, mut proof) = (said(rank), [0; PROOF_LEN]);
    let made = prove(token, Role::Server, &theirs, &ours, &said);
    stream.write_all(&[&ours.0[..], &made].concat())?;
    read_by(stream, &mut proof, end)?;
    if !verify(token, Role::Client, &theirs, &ours, &said, &proof) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(None)?;
    Ok(rank)
}

/// Fills the buffer, however many reads that takes, or fails at `end`.
fn read_by(stream: &mut TcpStream, mut into: &mut [u8], end: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use viaduct_kit::watchdog::Watchdog;

    use super::*;

    /// What caller and listener get from these tokens and what they want agreed on.
    fn meeting(tokens: [&Token; 2], said: [&str; 2]) -> (io::Result<()>, io::Result<u32>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let caller = scope.spawn(move || {
                greet(&mut TcpStream::connect(address).unwrap(), tokens[0], 7, said[0].as_bytes())
            });
            let mut stream = listener.accept().unwrap().0;
            let welcomed = welcome(&mut stream, tokens[1], |_| said[1].as_bytes().to_vec());
            drop(stream);
            (caller.join().unwrap(), welcomed)
        })
    }

    #[test]
    fn caller_and_listener_need_one_token_and_one_meaning() {
        let (token, other) = (Token::random(), Token::random());
        let (greeted, rank) = meeting([&token; 2], ["a"; 2]);
        assert!(greeted.is_ok());
        assert_eq!(rank.unwrap(), 7);
        for (tokens, said) in [([&token, &other], ["a", "a"]), ([&token; 2], ["a", "b"])] {
            let (greeted, rank) = meeting(tokens, said);
            assert_eq!(greeted.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(rank.is_err());
        }
    }

    #[test]
    fn a_greeting_has_one_deadline_however_many_reads_it_takes() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "a deadline");
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let mut server = door.accept().unwrap().0;
        let stranger = std::thread::spawn(move || {
            // Ends when the other end hangs up.
            while client.write_all(&[7]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let end = Instant::now() + Duration::from_millis(200);
        let late = read_by(&mut server, &mut [0; 1 << 20], end).unwrap_err();
        assert!(matches!(late.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{late}");
        drop(server);
        stranger.join().unwrap();
    }
}
