//! Where agents of different users on one host meet: an abstract socket with the owner's number in its name.
//!
//! Anybody can take such a name, so the name proves nothing: whoever connects asks the kernel who answers, and whoever
//! answers asks who called. Roles that need it (claiming sockets between users) decide what to do with a stranger.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use viaduct_os::fdpass::{Channel, PeerCred};
use viaduct_os::process;

fn address(uid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("viaduct-agent-{uid}"))
}

/// Listens for the agents of other users.
///
/// # Errors
/// If somebody has taken the name.
pub fn listen() -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(process::effective_uid())?)
}

/// Connects to the agent of another user, if it is that user's.
///
/// # Errors
/// If nobody listens, or somebody else does.
pub fn connect(uid: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(uid)?)?;
    let peer = peer(&stream)?;
    if peer.uid != uid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "somebody else has taken the name of that agent",
        ));
    }
    Ok(stream)
}

/// Who is at the other end.
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
    fn agents_meet_and_know_whom_they_met() {
        // Another test run of the same user may have the name.
        let Ok(listener) = listen() else { return };
        let uid = process::effective_uid();
        let ours = connect(uid).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        assert_eq!((peer(&ours).unwrap().uid, peer(&theirs).unwrap().uid), (uid, uid));
        assert!(connect(uid.wrapping_add(77)).is_err(), "nobody is there");
    }
}
