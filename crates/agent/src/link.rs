//! A [`Session`] on a TCP connection, for a loop that must not wait.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use viaduct_os::epoll::{Epoll, Interest};

use crate::error::Error;
use crate::identity::{Identity, PublicKey};
use crate::session::Session;
use crate::ticket::Ticket;

/// An encrypted connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    session: Session,
    interest: Option<Interest>,
    /// Came together with the first message, and is for the same receiver.
    unread: Vec<Vec<u8>>,
}

impl Link {
    /// Calls an agent, and waits at most so long until both know each other.
    ///
    /// # Errors
    /// If no agent is there, or one with another key.
    pub fn call(
        address: &str,
        identity: &Identity,
        agent: PublicKey,
        limit: Duration,
    ) -> Result<Link, Error> {
        Link::call_with(address, identity, agent, None, limit)
    }

    /// Calls an agent with a ticket of a launcher that the agent knows.
    ///
    /// # Errors
    /// As above, and if the agent does not think much of the ticket.
    pub fn call_with(
        address: &str,
        identity: &Identity,
        agent: PublicKey,
        ticket: Option<&Ticket>,
        limit: Duration,
    ) -> Result<Link, Error> {
        let show = ticket.map(Ticket::to_bytes).unwrap_or_default();
        let (end, failed) =
            (Instant::now() + limit, |why: std::io::Error| Error::system(address.to_owned(), why));
        let all: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
        let mut last = Error::Refused("the host has no address");
        for one in all {
            match TcpStream::connect_timeout(&one, left(end)) {
                Ok(stream) => return Link::greet(stream, Session::call(identity, agent, &show)?, end),
                Err(why) => last = failed(why),
            }
        }
        Err(last)
    }

    /// The agent's end of a connection that came in.
    ///
    /// # Errors
    /// The kernel's.
    pub fn answer(stream: TcpStream, identity: &Identity) -> Result<Link, Error> {
        Link::new(stream, Session::answer(identity)?)
    }

    /// Reads what is there; false if the other end has closed.
    ///
    /// # Errors
    /// If the connection broke or the other end has another key than it should have.
    pub fn read(
        &mut self,
        admit: &dyn Fn(PublicKey, &[u8]) -> bool,
        messages: &mut Vec<Vec<u8>>,
    ) -> Result<bool, Error> {
        messages.append(&mut self.unread);
        let mut bytes = vec![0; 128 << 10];
        // Only so much at a time: others wait, and what is left is reported again.
        for _ in 0..16 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(n) => self.session.feed(&bytes[..n], admit, messages)?,
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(Error::system("reading from the other end", why)),
            }
        }
        self.write()?;
        Ok(true)
    }

    /// Gives messages back: the next [`read`](Self::read) has them again, but nothing reports them.
    pub(crate) fn unread(&mut self, messages: Vec<Vec<u8>>) {
        self.unread = messages;
    }

    /// Says a message; sends what there is room for.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn say(&mut self, message: &[u8]) -> Result<(), Error> {
        self.session.say(message);
        self.write()
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn write(&mut self) -> Result<(), Error> {
        let output = self.session.output();
        while !output.is_empty() {
            let (front, _) = output.as_slices();
            match self.stream.write(front) {
                Ok(n) => drop(output.drain(..n)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(Error::system("writing to the other end", why)),
            }
        }
        Ok(())
    }

    /// Bytes that wait for room.
    pub fn backlog(&mut self) -> usize {
        self.session.output().len()
    }

    /// The key of the other end.
    pub fn peer(&self) -> Option<PublicKey> {
        self.session.peer()
    }

    /// What the caller showed with its key.
    pub fn shown(&self) -> &[u8] {
        self.session.shown()
    }

    /// Watches for what makes sense now; `hear` is false while nothing may be read.
    pub fn arm(&mut self, epoll: &Epoll, token: u64, hear: bool) {
        let wanted = match (hear, self.session.output().is_empty()) {
            (true, true) => Some(Interest::Read),
            (true, false) => Some(Interest::Both),
            (false, false) => Some(Interest::Write),
            (false, true) => None,
        };
        if wanted == self.interest {
            return;
        }
        let _ = match (self.interest, wanted) {
            (None, Some(interest)) => epoll.add(&self.stream, token, interest),
            (Some(_), Some(interest)) => epoll.modify(&self.stream, token, interest),
            (_, None) => epoll.del(&self.stream),
        };
        self.interest = wanted;
    }

    /// Out of the set, to go into another one.
    pub fn forget(&mut self, epoll: &Epoll) {
        if self.interest.take().is_some() {
            let _ = epoll.del(&self.stream);
        }
    }

    /// Waits until everything is sent, at most so long.
    pub fn flush(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.write().is_ok() && self.backlog() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends everything, and then waits until the other end hangs up, at most so long. To be called by the end that has
    /// said the last word: a process that ends with something unread makes the kernel throw away what the other end has
    /// not read yet.
    pub fn linger(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        self.flush(limit);
        let (Ok(()), Ok(epoll)) = (self.stream.shutdown(Shutdown::Write), Epoll::new()) else { return };
        if epoll.add(&self.stream, 0, Interest::Read).is_err() {
            return;
        }
        while Instant::now() < end {
            match self.stream.read(&mut [0; 4096]) {
                Ok(1..) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    if epoll.wait(&mut Vec::new(), Some(left(end))).is_err() {
                        return;
                    }
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Hangs up: nothing more is to be heard or said.
    pub fn hang_up(&mut self, epoll: &Epoll) {
        self.forget(epoll);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The next message, waiting at most until then.
    ///
    /// # Errors
    /// If none comes.
    pub fn wait(&mut self, end: Instant) -> Result<Vec<Vec<u8>>, Error> {
        let epoll = Epoll::new().map_err(|e| Error::system("waiting", e))?;
        let mut messages = Vec::new();
        while messages.is_empty() {
            self.arm(&epoll, 0, true);
            let waited =
                epoll.wait(&mut Vec::new(), Some(left(end))).map_err(|e| Error::system("waiting", e))?;
            if waited == 0 && Instant::now() >= end {
                self.forget(&epoll);
                return Err(Error::system("the agent", "it does not answer in time"));
            }
            if !self.read(&|_, _| false, &mut messages)? && messages.is_empty() {
                return Err(Error::system("the agent", "it hung up"));
            }
        }
        self.forget(&epoll);
        Ok(messages)
    }

    fn greet(stream: TcpStream, session: Session, end: Instant) -> Result<Link, Error> {
        let mut link = Link::new(stream, session)?;
        let epoll = Epoll::new().map_err(|e| Error::system("waiting", e))?;
        link.write()?;
        while link.peer().is_none() {
            link.arm(&epoll, 0, true);
            epoll.wait(&mut Vec::new(), Some(left(end))).map_err(|e| Error::system("waiting", e))?;
            if !link.read(&|_, _| false, &mut Vec::new())? {
                return Err(Error::Refused("the agent hung up: it does not know our key, or is another one"));
            }
            if Instant::now() >= end && link.peer().is_none() {
                return Err(Error::system("the agent", "it does not answer in time"));
            }
        }
        link.forget(&epoll);
        Ok(link)
    }

    fn new(stream: TcpStream, session: Session) -> Result<Link, Error> {
        let set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        set.map_err(|e| Error::system("a connection", e))?;
        Ok(Link { stream, session, interest: None, unread: Vec::new() })
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
