//! Where agents of different users on one host meet: an abstract socket with the owner's number in its name.
//!
//! Every process can take such a name, so the name proves nothing: the caller asks the kernel for the user that answers, and
//! the agent for the user that calls. An agent tells a stranger its process and the user that it takes the stranger for, and
//! nothing else: no role is open to strangers yet.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use viaduct_os::fdpass::{Channel, PeerCred};
use viaduct_os::process;

/// How long an agent may take to name itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Callers that are answered before others of the agent have their turn.
const MOST_CALLERS: usize = 64;

/// What two agents know of each other when they have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The process of the agent.
    pub pid: u32,
    /// The user that the agent takes its caller for.
    pub caller: u32,
}

fn address(uid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("viaduct-agent-{uid}"))
}

/// Listens for the agents of other users.
///
/// # Errors
/// If another process has taken the name.
pub fn listen() -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&address(process::effective_uid())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Names us to those that have come, so many in one turn. A few bytes always fit into a fresh socket, so no caller makes us
/// wait.
pub(crate) fn greet(listener: &UnixListener) {
    for (mut stream, _) in (0..MOST_CALLERS).map_while(|_| listener.accept().ok()) {
        let Ok(caller) = peer(&stream) else { continue };
        let met = Met { pid: std::process::id(), caller: caller.uid };
        if let Ok(bytes) = postcard::to_stdvec(&met) {
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&bytes));
        }
    }
}

/// Meets the agent of another user.
///
/// # Errors
/// If there is none, another user answers in its place, or it says nothing in time.
pub fn visit(uid: u32) -> io::Result<Met> {
    let mut stream = connect(uid)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = [0; 64];
    // One look: it says all of it at once, and cannot make us wait by saying it bit by bit.
    let len = stream.read(&mut said)?;
    postcard::from_bytes(&said[..len])
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "that is no agent"))
}

/// Connects to the agent of another user, if it is that user's.
///
/// # Errors
/// If there is no listener, or it is another user's.
pub fn connect(uid: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(uid)?)?;
    let peer = peer(&stream)?;
    if peer.uid != uid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user has taken the name of that agent",
        ));
    }
    Ok(stream)
}

/// The process and user at the other end.
///
/// # Errors
/// The kernel's.
pub fn peer(stream: &UnixStream) -> io::Result<PeerCred> {
    let channel = Channel::from_fd(stream.try_clone()?.into());
    channel.peer().map_err(|why| io::Error::other(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_meet_and_know_each_other() {
        // An agent of the same user may have the name.
        let Ok(listener) = listen() else { return };
        let uid = process::effective_uid();
        let visitor = std::thread::spawn(move || visit(uid).unwrap());
        while !visitor.is_finished() {
            greet(&listener);
        }
        assert_eq!(visitor.join().unwrap(), Met { pid: std::process::id(), caller: uid });
        assert!(visit(uid.wrapping_add(77)).is_err(), "there is none");
    }
}
