//! `pipe`: two kernel pipes, one for each direction.
//!
//! The second process makes them and passes the first one its ends over a Unix socket, so that no name is needed and
//! each process holds only what it uses: the death of one shows the other the end of its pipe.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use viaduct_os::fdpass::Channel;

use crate::control::Control;
use crate::error::{Error, Result};
use crate::layers::socket::{Stream, door, end};
use crate::layers::{Door, unix};
use crate::loops::End;
use crate::plan::Variant;

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    let (listener, name) = unix::bind()?;
    let stream = variant.motion.is_stream();
    Ok(door(name, variant, control, move |_| {
        let (letter, _) = listener.accept().map_err(Error::os("accepting the end that gets a pipe"))?;
        hand_over(letter, stream)
    }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, name: &str) -> Result<Box<dyn End>> {
    let address = unix::address_of(name)?;
    end(variant, control.patience(), |_| {
        let letter = UnixStream::connect_addr(&address).map_err(Error::os("asking for a pipe"))?;
        take_over(letter)
    })
}

/// What this process reads from, and what it writes to.
struct Pipes {
    from: File,
    to: File,
}

impl Read for Pipes {
    #[inline(always)]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.from.read(into)
    }
}

impl Write for Pipes {
    #[inline(always)]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.to.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Pipes {}

/// Bytes that a pipe holds in a stream: what every user may ask for.
const ROOM: usize = 1 << 20;

/// Makes both pipes and gives the peer its ends.
fn hand_over(letter: UnixStream, stream: bool) -> Result<Pipes> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(Error::os("making a pipe"));
    let ((from, theirs_out), (theirs_in, to)) = (pipe()?, pipe()?);
    if stream {
        for end in [&from, &to] {
            // A user with very many pipes is refused; then the pipe keeps the size it has.
            let _ = fcntl_setpipe_size(end, ROOM);
        }
    }
    let sent = Channel::from_fd(letter.into()).send(&[1], &[theirs_in.as_fd(), theirs_out.as_fd()]);
    match sent {
        Ok(true) => Ok(Pipes { from: from.into(), to: to.into() }),
        _ => Err(Error::PeerGone { doing: "passing a pipe" }),
    }
}

/// Waits for our ends.
fn take_over(letter: UnixStream) -> Result<Pipes> {
    let mut ready = [PollFd::new(&letter, PollFlags::IN)];
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut ready, Some(&limit)).map_err(Error::os("waiting for a pipe"))?;
    let mut ends: Vec<OwnedFd> = Vec::new();
    let _ = Channel::from_fd(letter.into()).recv(&mut [0], &mut ends, 2);
    match <[OwnedFd; 2]>::try_from(ends) {
        Ok([from, to]) => Ok(Pipes { from: from.into(), to: to.into() }),
        Err(_) => Err(Error::PeerGone { doing: "waiting for a pipe" }),
    }
}
