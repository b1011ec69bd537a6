//! The engine: one NIC, its completion queue, and the sockets on it. Everything here runs under the library's lock.
//!
//! SOVIA, sections 4.1 to 4.3. [`Engine::handle`] is the paper's `sovia_handler()`: it takes in what came, whichever socket
//! it came for, so that one socket never waits for another.

use std::collections::VecDeque;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_via::{Cq, Listener, NetAddress, Nic, ProtectionTag, Queue, ViAttributes};

use crate::config::Config;
use crate::error::Error;
use crate::socket::{Socket, send_depth};
use crate::table::{SocketId, Table};
use crate::wire::Greeting;

/// Most packets taken in by one call, so that whoever waits for the lock gets it.
const BATCH: usize = 64;

/// An address somebody listens on, with connections nobody has fetched yet.
pub(crate) struct Port {
    at: Listener,
    backlog: usize,
    pub(crate) ready: VecDeque<SocketId>,
    pub(crate) open: bool,
}

pub(crate) struct Engine {
    pub(crate) nic: Nic,
    pub(crate) config: Config,
    pub(crate) sockets: Table,
    pub(crate) ports: Vec<Port>,
    tag: ProtectionTag,
    cq: Cq,
    entries: usize,
    /// Sockets of the application.
    pub(crate) open: usize,
    /// Sockets that the application has closed and the protocol has not.
    pub(crate) closing: usize,
    /// Something happened that another thread may wait for.
    pub(crate) news: bool,
    /// The earliest timer of a combining buffer that the service thread knows of.
    pub(crate) timer_at: Option<u64>,
    finished: Vec<SocketId>,
    /// Packets taken in.
    pub(crate) handled: u64,
}

impl Engine {
    pub(crate) fn new(mut nic: Nic, config: Config) -> Result<Engine, Error> {
        let tag = nic.create_ptag()?;
        let cq = nic.create_cq(1)?;
        Ok(Engine {
            nic,
            config,
            sockets: Table::default(),
            ports: Vec::new(),
            tag,
            cq,
            entries: 1,
            open: 0,
            closing: 0,
            news: false,
            timer_at: None,
            finished: Vec::new(),
            handled: 0,
        })
    }

    /// Takes in what came. Whether there was anything.
    pub(crate) fn handle(&mut self) -> bool {
        let mut some = false;
        for _ in 0..BATCH {
            let Ok(Some(completion)) = self.nic.poll_cq(self.cq) else { break };
            some = true;
            let id = SocketId(completion.descriptor.work().context);
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            match completion.queue {
                Queue::Send => socket.sent(completion),
                Queue::Receive => {
                    self.handled += 1;
                    socket.received(&mut self.nic, completion);
                }
            }
            if socket.ended {
                self.finished.push(id);
            }
        }
        self.news |= some;
        while let Some(id) = self.finished.pop() {
            self.finish(id);
        }
        some
    }

    /// Whether threads that sleep have to look again although nothing came.
    #[inline]
    pub(crate) fn leaves_doubts(&self) -> bool {
        self.nic.leaves_doubts(self.cq)
    }

    /// Makes a socket with its receives posted, and a VI that is not connected.
    pub(crate) fn create(&mut self, peer: &NetAddress, receives: usize) -> Result<SocketId, Error> {
        let sends = send_depth(&self.config);
        let need = (self.sockets.len() + 1) * (receives + sends) + 1;
        if need > self.entries {
            self.entries = need.next_power_of_two();
            self.nic.resize_cq(self.cq, self.entries)?;
        }
        let attributes = ViAttributes {
            rdma_write: false,
            rdma_read: false,
            send_depth: sends,
            // A peer with other settings may need some more.
            recv_depth: most_receives(receives),
            ..ViAttributes::new(self.tag).cq(self.cq)
        };
        let vi = self.nic.create_vi(attributes)?;
        let (nic, config, tag) = (&mut self.nic, &self.config, self.tag);
        let made = self.sockets.insert(|id| {
            let mut socket = Socket::new(id, vi, tag, config, nic, peer.clone());
            socket.post_receives(nic, receives).map(|()| socket)
        });
        made.map_err(|e| {
            let _ = self.nic.disconnect(vi);
            self.discard(vi);
            e.into()
        })
    }

    /// Connects a socket to `peer`; [`Self::established`] follows when that has succeeded.
    pub(crate) fn connect_start(&mut self, peer: &NetAddress, limit: Duration) -> Result<SocketId, Error> {
        let greeting = self.config.greeting();
        let id = self.create(peer, self.config.descriptors(&greeting))?;
        let vi = self.sockets.get_mut(id).expect("just made").vi;
        let started = self.nic.connect_start(vi, None, peer, &greeting.encode(), Some(limit));
        if let Err(e) = started {
            self.retire(id);
            return Err(e.into());
        }
        Ok(id)
    }

    /// The answer to a connection request, once it is there. The socket is gone if it was no.
    pub(crate) fn connect_poll(&mut self, id: SocketId) -> Option<Result<(), Error>> {
        let socket = self.sockets.get_mut(id)?;
        let answer = match self.nic.connect_poll(socket.vi) {
            Ok(None) => return None,
            Ok(Some(remote)) => Greeting::decode(&remote.private_data)
                .map_err(|why| Error::Greeting { address: crate::address::display(&socket.peer), why }),
            Err(e) => Err(e.into()),
        };
        let opened = answer.and_then(|peer| self.established(id, &peer));
        if opened.is_err() {
            self.retire(id);
        }
        Some(opened)
    }

    /// Both greetings are known: posts what the peer's settings need beyond ours, and begins.
    fn established(&mut self, id: SocketId, peer: &Greeting) -> Result<(), Error> {
        let posted = self.config.descriptors(&self.config.greeting());
        let more = self.config.descriptors(peer).saturating_sub(posted);
        if posted + more > most_receives(posted) {
            let address =
                self.sockets.get_mut(id).map(|s| crate::address::display(&s.peer)).unwrap_or_default();
            return Err(Error::Greeting {
                address,
                why: "it acknowledges far more often than this side expects",
            });
        }
        if more > 0 {
            self.entries += more;
            self.nic.resize_cq(self.cq, self.entries)?;
        }
        let Some(socket) = self.sockets.get_mut(id) else { return Err(Error::Closed) };
        socket.post_receives(&mut self.nic, more)?;
        socket.open(&mut self.nic, &self.config, peer);
        for completion in std::mem::take(&mut socket.early) {
            socket.received(&mut self.nic, completion);
        }
        self.open += 1;
        self.news = true;
        Ok(())
    }

    /// Listens; the number of the port.
    pub(crate) fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<usize, Error> {
        let at = self.nic.listen(address, backlog)?;
        self.ports.push(Port { at, backlog, ready: VecDeque::new(), open: true });
        Ok(self.ports.len() - 1)
    }

    /// Accepts what asks, as far as the backlogs allow (the connection thread's work in the paper). Whether there was
    /// anything.
    pub(crate) fn accept_requests(&mut self) -> bool {
        let mut some = false;
        for at in 0..self.ports.len() {
            while self.ports[at].open && self.ports[at].ready.len() < self.ports[at].backlog {
                let Ok(Some(request)) = self.nic.poll_listener(self.ports[at].at) else { break };
                some = true;
                let Ok(peer) = Greeting::decode(&request.remote().private_data) else {
                    let _ = self.nic.reject(request);
                    continue;
                };
                let from = request.from().clone();
                let Ok(id) = self.create(&from, self.config.descriptors(&self.config.greeting())) else {
                    let _ = self.nic.reject(request);
                    continue;
                };
                let vi = self.sockets.get_mut(id).expect("just made").vi;
                let greeting = self.config.greeting().encode();
                if let Err((_, request)) = self.nic.accept_with(request, vi, &greeting) {
                    let _ = self.nic.reject(request);
                    self.retire(id);
                    continue;
                }
                match self.established(id, &peer) {
                    Ok(()) => self.ports[at].ready.push_back(id),
                    Err(_) => self.retire(id),
                }
            }
        }
        some
    }

    pub(crate) fn unlisten(&mut self, port: usize) {
        let listening = &mut self.ports[port];
        listening.open = false;
        let (at, waiting) = (listening.at, std::mem::take(&mut listening.ready));
        let _ = self.nic.unlisten(at);
        waiting.into_iter().for_each(|id| self.close(id));
    }

    /// Starts the timer of a socket's combining buffer. Whether the service thread has to be told.
    pub(crate) fn start_timer(&mut self, id: SocketId) -> bool {
        let at = clock::now_ns() + self.config.timer.as_nanos() as u64;
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.timer_at = Some(at);
        }
        let tell = self.timer_at.is_none();
        self.timer_at.get_or_insert(at);
        tell
    }

    /// Sends what has waited long enough, and cuts off who does not answer.
    pub(crate) fn expire(&mut self) {
        let now = clock::now_ns();
        if self.timer_at.is_some_and(|at| at <= now) {
            // The application may be busy elsewhere, and the acknowledgement that opens the window be there.
            self.handle();
        }
        let again = now + self.config.timer.as_nanos() as u64;
        let mut next = None;
        let mut cut = Vec::new();
        for (id, socket) in self.sockets.iter_mut() {
            match socket.timer_at {
                Some(at) if at <= now => {
                    socket.timer_at = None;
                    if !socket.flush(&mut self.nic) {
                        socket.timer_at = Some(again);
                        next = Some(next.map_or(again, |n: u64| n.min(again)));
                    }
                }
                Some(at) => next = Some(next.map_or(at, |n: u64| n.min(at))),
                None => {}
            }
            if socket.cut_at.is_some_and(|at| at <= now) {
                cut.push(id);
            }
        }
        self.timer_at = next;
        for id in cut {
            self.closing -= 1;
            self.news = true;
            self.retire(id);
        }
    }

    /// The application is through with a socket. The protocol goes on behind it.
    pub(crate) fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if socket.closed {
            return;
        }
        socket.close(&mut self.nic);
        socket.cut_at = Some(clock::now_ns() + self.config.close_limit.as_nanos() as u64);
        self.open -= 1;
        self.closing += 1;
        self.finish(id);
    }

    /// The application is through, and so is the connection, whatever is under way.
    pub(crate) fn abort(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if socket.closed {
            self.closing -= 1
        } else {
            self.open -= 1
        }
        self.retire(id);
    }

    /// A connection that has ended is disconnected; if the application has closed it too, the socket goes.
    fn finish(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if !socket.ended {
            return;
        }
        self.news = true;
        if socket.closed {
            self.closing -= 1;
            self.retire(id);
        } else {
            let _ = self.nic.disconnect(socket.vi);
        }
    }

    /// Takes a socket out of the table and gives back everything it has.
    pub(crate) fn retire(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.remove(id) else { return };
        let _ = self.nic.disconnect(socket.vi);
        self.discard(socket.vi);
    }

    fn discard(&mut self, vi: viaduct_via::Vi) {
        while let Ok(Some(_)) = self.nic.poll_send(vi) {}
        while let Ok(Some(_)) = self.nic.poll_recv(vi) {}
        let _ = self.nic.destroy_vi(vi);
    }
}

/// Receives that a socket may have where its own settings ask for so many.
fn most_receives(receives: usize) -> usize {
    2 * receives + 64
}
