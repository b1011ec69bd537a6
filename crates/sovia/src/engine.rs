//! The engine: one NIC, its completion queue, and the sockets on it. Everything here runs under the library's lock.
//!
//! SOVIA, sections 4.1 to 4.3. [`Engine::handle`] is the paper's `sovia_handler()`: it takes in what came, whichever socket
//! it came for, so that one socket never waits for another.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::task::Waker;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_via::{
    Completion, ConnRequest, Cq, Layer, Listener, NetAddress, News, Nic, ProtectionTag, Queue, Reach, Rest,
    Vi, ViAttributes,
};

use crate::config::{Config, Handling, Path};
use crate::error::Error;
use crate::outbound::send_depth;
use crate::pool::Pool;
use crate::socket::{Direction, Outcome, Socket, Written};
use crate::table::{SocketId, Table};
use crate::wire::{Greeting, RING_LEN};

/// Most packets taken in by one call, so that another thread that waits for the lock gets it.
const BATCH: usize = 64;

/// While others are open, closing connections are looked at this often; usually the others' calls have done it before.
const LOOK: Duration = Duration::from_millis(20);

/// Connections are not cut off more often than this.
const SHORTEST: Duration = Duration::from_millis(1);

/// Most batches of a closing connection that the service thread takes in before other threads have their turn.
const ROUNDS: usize = 4;

/// What is held goes after one tick at least and two at most.
const TICKS: u32 = 2;

/// An address that a listener of the application has, with connections that wait for accept.
pub(crate) struct Port {
    at: Listener,
    backlog: usize,
    pub(crate) ready: VecDeque<SocketId>,
    /// Wakers of threads and tasks that wait for the next one.
    waiting: Vec<Waker>,
}

impl Port {
    /// The next connection takes this waker. To be left in one turn with a look, or followed by one.
    pub(crate) fn leave_waker(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|other| other.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}

pub(crate) struct Engine {
    pub(crate) nic: Nic,
    pub(crate) config: Config,
    pub(crate) sockets: Table,
    /// A place is used again when its listener is gone.
    ports: Vec<Option<Port>>,
    /// What peers are told where packets come as messages, and where they come into a ring.
    plain: Greeting,
    rung: Greeting,
    pub(crate) pool: Pool,
    /// Protection tags that no socket has. Each has its own, so that no peer reaches another's ring.
    tags: Vec<ProtectionTag>,
    pub(crate) cq: Cq,
    entries: usize,
    /// Sockets of the application.
    pub(crate) open: usize,
    /// Sockets that the application has closed and the protocol has not.
    pub(crate) closing: usize,
    pub(crate) news: News,
    /// Wakers that wait at sockets.
    pub(crate) waiting: usize,
    /// Times that the service thread went to sleep as the paper's close thread.
    pub(crate) close_rounds: u32,
    /// The timer of combining: when it ticks next, while something is held; how often it has ticked.
    pub(crate) tick_at: Option<u64>,
    tick: u64,
    /// Sockets that hold something, or did a tick ago.
    holding: Vec<SocketId>,
    /// Whether something was held since the last tick.
    held: bool,
    /// Packets taken in.
    pub(crate) handled: u64,
    /// Packets that left from lent memory, of sockets that are gone.
    lent: u64,
}

impl Engine {
    pub(crate) fn new(mut nic: Nic, config: Config) -> Result<Engine, Error> {
        // What goes by value goes as a message.
        let rung = config.greeting(Some(nic.attributes().max_inline.max(RING_LEN)));
        // Closing has a limit of its own, and no call waits for it.
        nic.set_drain(Duration::ZERO);
        let cq = nic.create_cq(1)?;
        Ok(Engine {
            sockets: Table::default(),
            ports: Vec::new(),
            pool: Pool::new(&config),
            plain: config.greeting(None),
            rung,
            tags: Vec::new(),
            cq,
            entries: 1,
            open: 0,
            closing: 0,
            news: News::default(),
            waiting: 0,
            close_rounds: 0,
            tick_at: None,
            tick: 0,
            holding: Vec::new(),
            held: false,
            handled: 0,
            lent: 0,
            nic,
            config,
        })
    }

    /// Something happened at a socket: threads that wait look again, and the tasks that wait at it are woken.
    pub(crate) fn wake(&mut self, id: SocketId) {
        self.news.wake();
        if self.waiting > 0 {
            for direction in [Direction::Read, Direction::Write] {
                self.take_waiting(id, direction).into_iter().for_each(|task| self.news.task(task));
            }
        }
    }

    /// Leaves the waker of a task that waits at a socket. To be followed by another look.
    pub(crate) fn leave_waker(&mut self, id: SocketId, direction: Direction, waker: &Waker) {
        let Some(socket) = self.sockets.peek_mut(id) else { return };
        let waiting = &mut socket.waiting[direction as usize];
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
            self.waiting += 1;
        }
    }

    /// Takes out the wakers of the tasks that wait at a socket.
    pub(crate) fn take_waiting(&mut self, id: SocketId, direction: Direction) -> Vec<Waker> {
        let Some(socket) = self.sockets.peek_mut(id) else { return Vec::new() };
        let waiting = std::mem::take(&mut socket.waiting[direction as usize]);
        self.waiting -= waiting.len();
        waiting
    }

    /// Takes in what came. Whether there was anything.
    pub(crate) fn handle(&mut self) -> bool {
        (0..BATCH).take_while(|_| self.handle_one()).count() > 0
    }

    /// Takes in one packet. Whether there was one.
    #[inline]
    pub(crate) fn handle_one(&mut self) -> bool {
        let Ok(Some(completion)) = self.nic.poll_cq(self.cq) else { return false };
        self.take_in(completion);
        true
    }

    pub(crate) fn take_in(&mut self, completion: Completion) {
        let id = SocketId(completion.descriptor.work().context);
        self.wake(id);
        let Some(socket) = self.sockets.get_mut(id) else {
            if completion.queue == Queue::Receive {
                self.pool.receives.give(completion.descriptor);
            }
            return;
        };
        match completion.queue {
            Queue::Send => socket.sent(completion),
            Queue::Receive => {
                self.handled += 1;
                socket.received(&mut self.nic, &mut self.pool, completion);
            }
        }
        if socket.ended {
            self.finish(id);
        }
    }

    /// A read: what is there.
    #[inline]
    pub(crate) fn read(&mut self, id: SocketId, into: &mut [u8], peek: bool) -> Outcome {
        let Some(socket) = self.sockets.get_mut(id) else { return Outcome::Failed(ErrorKind::NotConnected) };
        socket.read(&mut self.nic, &mut self.pool, into, peek)
    }

    /// A write.
    #[inline(never)]
    pub(crate) fn write(&mut self, id: SocketId, bytes: &[u8]) -> Outcome {
        let gone = Outcome::Failed(ErrorKind::NotConnected);
        let Some(mut socket) = self.sockets.get_mut(id) else { return gone };
        if socket.conn.as_ref().is_some_and(|conn| conn.would_ask(bytes.len())) {
            // Where its ring is, the peer usually says unasked.
            self.handle();
            match self.sockets.get_mut(id) {
                Some(again) => socket = again,
                None => return gone,
            }
        }
        let Written { outcome, starts_timer } = socket.write(&mut self.nic, bytes);
        socket.post_the_rest(&mut self.nic);
        if starts_timer {
            self.start_timer(id);
        }
        outcome
    }

    /// Packets that left from memory of the application's, lent for the time.
    pub(crate) fn lent(&mut self) -> u64 {
        self.lent + self.sockets.iter_mut().map(|(_, socket)| socket.out.lent).sum::<u64>()
    }

    /// How packets come to the end of a connection: into a ring where peers write into this memory at once, as messages
    /// elsewhere, unless the settings say otherwise (docs/adr/0016).
    fn greeting(&self, reach: Reach) -> Greeting {
        let ring = match self.config.path {
            Path::Auto => reach == Reach::Direct,
            Path::Messages => false,
            Path::Ring => true,
        };
        if ring { self.rung } else { self.plain }
    }

    /// Makes a socket with its receives posted, and a VI that is not connected.
    pub(crate) fn create(&mut self, peer: &NetAddress, ours: Greeting) -> Result<SocketId, Error> {
        let receives = Config::first_descriptors(&ours, &ours);
        let (sends, most) = (send_depth(&self.config), most_receives(&ours));
        let need = (self.sockets.len() + 1) * (most_receives(&self.rung) + sends) + 1;
        if need > self.entries {
            self.entries = need.next_power_of_two();
            self.nic.resize_cq(self.cq, self.entries)?;
        }
        let tag = match self.tags.pop() {
            Some(tag) => tag,
            None => self.nic.create_ptag()?,
        };
        let attributes = ViAttributes {
            rdma_write: ours.has_ring(),
            rdma_read: false,
            send_depth: sends,
            recv_depth: most,
            ..ViAttributes::new(tag).cq(self.cq)
        };
        let vi = self.nic.create_vi(attributes).inspect_err(|_| self.tags.push(tag))?;
        let (nic, pool, config) = (&mut self.nic, &mut self.pool, &self.config);
        let made = self.sockets.insert(|id| {
            let socket = Socket::new(id, vi, tag, ours, config, nic, peer.clone());
            socket.post_receives(nic, pool, receives).map(|()| socket)
        });
        made.map_err(|e| {
            let _ = self.nic.disconnect(vi);
            self.discard(vi, tag);
            e.into()
        })
    }

    /// Connects a socket to `peer`; [`Self::established`] follows when that has succeeded.
    pub(crate) fn connect_start(&mut self, peer: &NetAddress, limit: Duration) -> Result<SocketId, Error> {
        let greeting = self.greeting(self.nic.reach(peer));
        let id = self.create(peer, greeting)?;
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
        let Some(socket) = self.sockets.get_mut(id) else { return Err(Error::Closed) };
        let ours = socket.ours;
        let posted = Config::first_descriptors(&ours, &ours);
        let more = Config::first_descriptors(&ours, peer).saturating_sub(posted);
        if Config::descriptors(&ours, peer) > most_receives(&ours) {
            return Err(Error::Greeting {
                address: crate::address::display(&socket.peer),
                why: "it acknowledges far more often than this side expects",
            });
        }
        socket.post_receives(&mut self.nic, &mut self.pool, more)?;
        // Only now it is known of a peer that was called whether it keeps memory apart. If it does, each write into a ring
        // would be carried out by our control thread.
        let reach = self.nic.query_vi(socket.vi)?.reach;
        socket.no_ring |= self.config.path == Path::Auto && reach != Some(Reach::Direct);
        socket.open(&mut self.nic, &self.config, peer);
        // The first connections get at once what later ones get when they use it: few need not be sparing.
        if ours.has_ring() && self.pool.has_ring_to_spare() {
            let more = ours.window - ours.open();
            socket.welcome(&mut self.nic, &mut self.pool, more as usize);
        }
        for completion in std::mem::take(&mut socket.early) {
            socket.received(&mut self.nic, &mut self.pool, completion);
        }
        self.open += 1;
        // Closing connections are looked at less often from now on.
        self.news.poke();
        self.wake(id);
        Ok(())
    }

    /// Listens; the number of the port.
    pub(crate) fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<usize, Error> {
        let at = self.nic.listen(address, backlog)?;
        self.news.poke();
        let port = Some(Port { at, backlog, ready: VecDeque::new(), waiting: Vec::new() });
        match self.ports.iter().position(Option::is_none) {
            Some(free) => {
                self.ports[free] = port;
                Ok(free)
            }
            None => {
                self.ports.push(port);
                Ok(self.ports.len() - 1)
            }
        }
    }

    /// The port of a listener, which has it until [`Self::unlisten`].
    pub(crate) fn port(&mut self, port: usize) -> &mut Port {
        self.ports[port].as_mut().expect("a listener has its port until it is dropped")
    }

    /// The next request at a port whose backlog has room.
    fn next_request(&mut self, port: usize) -> Option<ConnRequest> {
        let port = self.ports[port].as_ref().filter(|port| port.ready.len() < port.backlog)?;
        self.nic.poll_listener(port.at).ok().flatten()
    }

    /// Accepts what asks, as far as the backlogs allow (the connection thread's work in the paper). Whether there was
    /// anything.
    pub(crate) fn accept_requests(&mut self) -> bool {
        let mut some = false;
        for at in 0..self.ports.len() {
            while let Some(request) = self.next_request(at) {
                some = true;
                let Ok(peer) = Greeting::decode(&request.remote().private_data) else {
                    let _ = self.nic.reject(request);
                    continue;
                };
                let from = request.from().clone();
                let greeting = self.greeting(request.reach());
                let Ok(id) = self.create(&from, greeting) else {
                    let _ = self.nic.reject(request);
                    continue;
                };
                let vi = self.sockets.get_mut(id).expect("just made").vi;
                if let Err(refused) = self.nic.accept_with(request, vi, &greeting.encode()) {
                    let _ = self.nic.reject(refused.request);
                    self.retire(id);
                    continue;
                }
                match self.established(id, &peer) {
                    Ok(()) => {
                        let port = self.port(at);
                        port.ready.push_back(id);
                        let waiting = std::mem::take(&mut port.waiting);
                        waiting.into_iter().for_each(|task| self.news.task(task));
                    }
                    Err(_) => self.retire(id),
                }
            }
        }
        some
    }

    pub(crate) fn unlisten(&mut self, port: usize) {
        let Some(port) = self.ports[port].take() else { return };
        let _ = self.nic.unlisten(port.at);
        port.ready.into_iter().for_each(|id| self.close(id));
        self.news.poke();
    }

    /// Starts the timer of a socket's combining buffer.
    /// There is one clock for all of them, which ticks while something is held: a reading of the time for each request
    /// would cost as much as sending it.
    #[inline]
    pub(crate) fn start_timer(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.held_at = Some(self.tick);
        if !std::mem::replace(&mut socket.listed, true) {
            self.holding.push(id);
        }
        self.held = true;
        if self.tick_at.is_none() {
            self.tick_at = Some(clock::now_ns() + self.tick_ns());
            self.news.poke();
        }
    }

    fn tick_ns(&self) -> u64 {
        (self.config.timer / TICKS).as_nanos() as u64
    }

    /// Sends what has waited long enough, and cuts off closed connections whose peers do not answer.
    fn expire(&mut self, now: u64) {
        if self.tick_at.is_some_and(|at| at <= now) {
            self.tick_timer(now);
        }
        if self.closing == 0 {
            return;
        }
        let late = |s: &Socket| s.cut_at.is_some_and(|at| at <= now);
        let cut: Vec<_> = self.sockets.iter_mut().filter(|(_, s)| late(s)).map(|(id, _)| id).collect();
        for id in cut {
            self.closing -= 1;
            self.retire(id);
        }
    }

    fn tick_timer(&mut self, now: u64) {
        self.tick += 1;
        // The application may be busy elsewhere, and the acknowledgement that opens the window be there.
        self.handle();
        let Engine { holding, sockets, nic, pool, tick, .. } = self;
        holding.retain(|id| {
            let Some(socket) = sockets.get_mut(*id) else { return false };
            if socket.held_at.is_some_and(|at| at + u64::from(TICKS) <= *tick) {
                socket.flush(nic, pool);
            }
            socket.listed = socket.held_at.is_some();
            socket.listed
        });
        let goes_on = std::mem::take(&mut self.held) || !self.holding.is_empty();
        self.tick_at = goes_on.then(|| now + self.tick_ns());
    }

    /// The application is through with a socket. The protocol goes on behind it.
    pub(crate) fn close(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if socket.closed {
            return;
        }
        socket.close(&mut self.nic, &mut self.pool);
        socket.cut_at = Some(clock::now_ns() + self.config.close_limit.as_nanos() as u64);
        self.open -= 1;
        self.closing += 1;
        self.news.poke();
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
    pub(crate) fn finish(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if !socket.ended {
            return;
        }
        if socket.closed {
            self.closing -= 1;
            self.retire(id);
        } else {
            let _ = self.nic.disconnect(socket.vi);
            self.wake(id);
        }
    }

    /// Takes a socket out of the table and gives back everything it has.
    pub(crate) fn retire(&mut self, id: SocketId) {
        self.wake(id);
        let Some(socket) = self.sockets.remove(id) else { return };
        let _ = self.nic.disconnect(socket.vi);
        let (vi, tag) = (socket.vi, socket.tag);
        self.lent += socket.out.lent;
        socket.give_back(&mut self.pool);
        self.discard(vi, tag);
    }

    fn discard(&mut self, vi: Vi, tag: ProtectionTag) {
        while let Ok(Some(_)) = self.nic.poll_send(vi) {}
        while let Ok(Some(completion)) = self.nic.poll_recv(vi) {
            self.pool.receives.give(completion.descriptor);
        }
        if self.nic.destroy_vi(vi).is_ok() {
            self.tags.push(tag);
        }
    }
}

impl Layer for Engine {
    const THREAD: &'static str = "sovia-service";

    #[inline(always)]
    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    #[inline(always)]
    fn news(&mut self) -> &mut News {
        &mut self.news
    }

    fn take_in(&mut self) {
        while self.handle() {}
    }

    /// The service thread is the paper's connection thread (it accepts connections that the application has not asked for),
    /// its close thread (it takes packets in while no socket is open and some are closing) and the timer of combining:
    /// sections 3.1.2, 3.2.3 and 3.3. Only as close thread does it sleep on the bell.
    fn tick(&mut self, now: u64) -> Rest {
        self.accept_requests();
        let more = self.closing > 0 && (0..ROUNDS).all(|_| self.handle());
        self.expire(now);
        if more {
            return Rest::parked().until(Some(now));
        }
        if self.closing == 0 {
            return Rest::parked().until(self.tick_at);
        }
        let cut = self.sockets.iter_mut().filter_map(|(_, s)| s.cut_at).min();
        let cut = cut.map(|at| at.max(now + SHORTEST.as_nanos() as u64));
        if self.open > 0 || self.config.handling == Handling::Handler {
            return Rest::parked().until(self.tick_at).until(Some(now + LOOK.as_nanos() as u64)).until(cut);
        }
        self.close_rounds += 1;
        Rest::on_bell().until(self.tick_at).until(cut)
    }
}

/// Receives that a socket may have: a peer with other settings may need some more than one with ours.
fn most_receives(ours: &Greeting) -> usize {
    Config::descriptors(ours, ours) + ours.window as usize + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn ports_of_listeners_that_are_gone_are_used_again() {
        let hub = viaduct_providers::loopback::Hub::new();
        let mut engine = Engine::new(Nic::open(hub.provider()).unwrap(), Config::default()).unwrap();
        let address = |n: usize| format!("port-{n}").parse().unwrap();
        let kept = engine.listen(&address(0), 1).unwrap();
        for n in 1..100 {
            let port = engine.listen(&address(n), 1).unwrap();
            assert_ne!(port, kept);
            engine.unlisten(port);
        }
        assert_eq!(engine.ports.len(), 2);
        assert!(engine.listen(&address(0), 1).is_err(), "the first one still listens");
    }
}
