//! One end of a connection to an agent, with the node it runs and the nodes behind it: the launcher's, or that of an agent
//! that passes things on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use viaduct_agent::Link;
use viaduct_agent::serve::first_message;
use viaduct_os::epoll::{self, Epoll};

use crate::far::Far;
use crate::role::ROLE;
use crate::stage::{Incoming, Outgoing, Piece, Pump};
use crate::wire::{End, Event, Order, Start};

/// A silence that is longer counts only so much: a process that slept itself cannot complain about the other.
const MOST_AT_ONCE: Duration = Duration::from_secs(1);
/// When so much waits for room, no more is read from files, ranks or others.
pub(crate) const ENOUGH: usize = 1 << 20;

/// Counts how long nothing was heard, in time that we were awake.
#[derive(Debug)]
pub(crate) struct Silence {
    since: Duration,
    looked: Instant,
}

impl Silence {
    pub(crate) fn new() -> Silence {
        Silence { since: Duration::ZERO, looked: Instant::now() }
    }

    /// Something came.
    pub(crate) fn broken(&mut self) {
        self.since = Duration::ZERO;
    }

    /// How long nothing came.
    pub(crate) fn look(&mut self) -> Duration {
        self.since += self.looked.elapsed().min(MOST_AT_ONCE);
        self.looked = Instant::now();
        self.since
    }
}

/// Files on both ways.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Those that may be needed there.
    pub put: Vec<Outgoing>,
    /// Where those go that come back, for each node; none if they are passed on.
    pub get: Option<BTreeMap<u32, Vec<PathBuf>>>,
}

/// A node behind the connection.
#[derive(Debug)]
struct Behind {
    ranks: Vec<(u32, bool)>,
    done: bool,
    incoming: Option<(u32, Incoming)>,
}

/// Nodes on other hosts, behind one connection.
#[derive(Debug)]
pub struct Remote {
    link: Link,
    /// The node at the other end.
    next: u32,
    nodes: BTreeMap<u32, Behind>,
    lease: Duration,
    silence: Silence,
    told: Instant,
    /// Whether a rank behind it gets standard input.
    wants_input: bool,
    paused: bool,
    over: bool,
    broken: Option<String>,
    files: Files,
    pump: Pump,
}

impl Remote {
    /// Tells the agent at the other end what to start; `bytes` is `start` as it travels: an agent that passes it on must not change it.
    pub fn start(mut link: Link, start: &Start, bytes: &[u8], files: Files) -> Remote {
        let broken = link.say(&first_message(ROLE, bytes)).err().map(|why| why.to_string());
        let behind = |ranks: Vec<u32>| Behind {
            ranks: ranks.into_iter().map(|rank| (rank, false)).collect(),
            done: false,
            incoming: None,
        };
        Remote {
            link,
            next: start.plan.node.0,
            nodes: start.nodes().into_iter().map(|(node, ranks)| (node, behind(ranks))).collect(),
            lease: Duration::from_millis(start.lease),
            silence: Silence::new(),
            told: Instant::now(),
            wants_input: start
                .nodes()
                .iter()
                .flat_map(|(_, ranks)| ranks)
                .any(|&rank| start.plan.input.reaches(rank)),
            paused: false,
            over: false,
            broken,
            files,
            pump: Pump::default(),
        }
    }

    /// Whether all nodes behind it have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    fn say(&mut self, order: &Order) {
        let bytes = postcard::to_stdvec(order).unwrap_or_default();
        if let (None, Err(why)) = (&self.broken, self.link.say(&bytes)) {
            self.broken = Some(why.to_string());
        }
        self.told = Instant::now();
    }

    /// Sends of files what there is room for.
    fn pump(&mut self) {
        while self.link.backlog() < ENOUGH {
            match self.pump.piece() {
                Some(Ok(Piece { index, bytes, last })) => self.say(&Order::File(index, bytes, last)),
                Some(Err(why)) => self.broken = Some(why),
                None => return,
            }
        }
    }

    fn lose(&mut self, why: &str, events: &mut Vec<(usize, Event)>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        for (&node, behind) in self.nodes.iter_mut().filter(|(_, behind)| !behind.done) {
            for (rank, _) in behind.ranks.iter().filter(|(_, ended)| !ended) {
                events.push((node as usize, Event::Exited(*rank, End::Lost(why.to_owned()), 0)));
            }
            events.push((node as usize, Event::Done));
        }
    }

    fn own(&self, mut nodes: Vec<u32>) -> Vec<u32> {
        nodes.retain(|node| self.nodes.contains_key(node));
        nodes
    }

    fn heard(&mut self, node: u32, event: Event, events: &mut Vec<(usize, Event)>) {
        // An agent speaks for itself and for those behind it, and for no other.
        let event = match event {
            Event::Arrive(nodes, pairs) => Event::Arrive(self.own(nodes), pairs),
            Event::Unreached(why, nodes) => Event::Unreached(why, self.own(nodes)),
            event => event,
        };
        let Some(behind) = self.nodes.get_mut(&node) else { return };
        if !behind.may_say(&event) {
            return;
        }
        match event {
            Event::Need(list) if node == self.next => {
                for index in list {
                    if let Some(file) = self.files.put.get(index as usize) {
                        self.pump.add(index, file.path.clone());
                    }
                }
            }
            Event::Need(_) => {}
            Event::File(index, bytes, last) => match &self.files.get {
                Some(places) => {
                    let Some(path) = places.get(&node).and_then(|list| list.get(index as usize)) else {
                        return;
                    };
                    if let Err(why) = behind.keep(path, index, &bytes, last) {
                        let rank = behind.ranks.first().map_or(0, |(rank, _)| *rank);
                        let why = format!("{}: {why}", path.display());
                        events.push((node as usize, Event::Abort(rank, 2, why)));
                    }
                }
                None => events.push((node as usize, Event::File(index, bytes, last))),
            },
            Event::Refused(why) => self.lose(&why, events),
            event => {
                match &event {
                    Event::Exited(rank, ..) => {
                        let ranks = behind.ranks.iter_mut().filter(|(other, _)| other == rank);
                        ranks.for_each(|(_, ended)| *ended = true);
                    }
                    Event::Done => behind.done = true,
                    // The receiver of this takes them over.
                    Event::Unreached(_, nodes) => self.nodes.retain(|node, _| !nodes.contains(node)),
                    _ => {}
                }
                self.over |= self.nodes.values().all(|behind| behind.done);
                events.push((node as usize, event));
            }
        }
    }
}

impl Behind {
    /// Whether an event is the node's to tell: of its own ranks, and of the end of each only once.
    fn may_say(&self, event: &Event) -> bool {
        let own = |rank: &u32| self.ranks.iter().any(|(other, _)| other == rank);
        match event {
            Event::Exited(rank, ..) => self.ranks.contains(&(*rank, false)),
            Event::Started(rank, _)
            | Event::Bound(rank, _)
            | Event::Output(rank, ..)
            | Event::OutputEnd(rank, _)
            | Event::Abort(rank, ..) => own(rank),
            _ => !self.done,
        }
    }

    /// A piece of a file that comes back.
    fn keep(&mut self, path: &std::path::Path, index: u32, bytes: &[u8], last: bool) -> std::io::Result<()> {
        if self.incoming.as_ref().is_none_or(|(current, _)| *current != index) {
            self.incoming = Some((index, Incoming::new(path, 0o644, None)?));
        }
        let done = self.incoming.as_mut().map_or(Ok(()), |(_, incoming)| incoming.put(bytes, last));
        self.incoming.take_if(|_| last);
        done
    }
}

impl Far for Remote {
    fn send(&mut self, order: &Order, epoll: &Epoll, token: u64) {
        let for_it = self.wants_input || !matches!(order, Order::Input(_) | Order::InputEnd);
        if !self.over && for_it {
            self.say(order);
            self.link.arm(epoll, token, !self.paused);
        }
    }

    fn ready(&mut self, _: epoll::Event, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>) {
        let mut messages = Vec::new();
        let good = match self.paused {
            true => self.link.write().map(|()| true),
            false => self.link.read(&|_, _| false, &mut messages),
        };
        for message in messages {
            self.silence.broken();
            match postcard::from_bytes::<(u32, Event)>(&message) {
                Ok((node, event)) => self.heard(node, event, events),
                Err(_) => self.lose("its agent speaks another language; is it another version?", events),
            }
        }
        self.pump();
        match good {
            Ok(true) => self.link.arm(epoll, token, !self.paused && !self.over),
            Ok(false) => self.lose("the connection to its agent was closed", events),
            Err(why) => self.lose(&why.to_string(), events),
        }
        if self.over {
            self.link.hang_up(epoll);
        }
    }

    fn tick(&mut self, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>) {
        if self.over {
            return;
        }
        if self.told.elapsed() >= self.lease / 5 {
            self.say(&Order::Alive);
            self.link.arm(epoll, token, !self.paused);
        }
        // While we do not read we cannot hear.
        if self.paused {
            self.silence.broken();
        }
        if self.silence.look() >= self.lease {
            let lease = self.lease.as_secs_f64();
            self.broken = Some(format!("nothing was heard of it for {lease} s; --silence allows more"));
        }
        if let Some(why) = self.broken.clone() {
            self.lose(&why, events);
            self.link.hang_up(epoll);
        }
    }

    fn pause(&mut self, pause: bool, epoll: &Epoll, token: u64) {
        self.paused = pause;
        if !self.over {
            self.link.arm(epoll, token, !pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use viaduct_agent::Identity;
    use viaduct_job::Token;

    use super::*;
    use crate::output::Stream;
    use crate::tree::Place;

    #[test]
    fn an_event_of_another_host_s_rank_goes_no_further() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let link = Link::answer(stream, &Identity::from_token(&Token::random())).unwrap();
        let start = Place::for_test(3, None).start;
        let mut remote = Remote::start(link, &start, &[], Files::default());
        let output = |rank| Event::Output(rank, Stream::Out, b"x".to_vec());
        let exit = |rank| Event::Exited(rank, End::Code(0), 1);
        let mut events = Vec::new();
        // Rank 0 and node 0 are another host's.
        for forged in [output(0), Event::Started(0, 1), exit(0), Event::Abort(0, 1, String::new())] {
            remote.heard(3, forged, &mut events);
        }
        remote.heard(0, output(3), &mut events);
        assert_eq!(events, []);
        remote.heard(3, Event::Arrive(vec![0, 3], Vec::new()), &mut events);
        remote.heard(3, exit(3), &mut events);
        // It has ended once.
        remote.heard(3, exit(3), &mut events);
        assert_eq!(events, [(3, Event::Arrive(vec![3], Vec::new())), (3, exit(3))]);
    }

    #[test]
    fn a_node_speaks_for_its_own_ranks_and_of_each_end_once() {
        let behind = Behind { ranks: vec![(3, false), (4, true)], done: false, incoming: None };
        let exit = |rank| Event::Exited(rank, End::Code(0), 1);
        assert!(behind.may_say(&exit(3)) && !behind.may_say(&exit(4)) && !behind.may_say(&exit(0)));
        for rank in [0, 3, 4] {
            let own = rank != 0;
            assert_eq!(behind.may_say(&Event::Output(rank, Stream::Out, b"x".to_vec())), own);
            assert_eq!(behind.may_say(&Event::OutputEnd(rank, Stream::Err)), own);
            assert_eq!(behind.may_say(&Event::Started(rank, 1)), own);
            assert_eq!(behind.may_say(&Event::Bound(rank, vec![0])), own);
            assert_eq!(behind.may_say(&Event::Abort(rank, 0, String::new())), own);
        }
        assert!(behind.may_say(&Event::Alive) && behind.may_say(&Event::Done));
    }
}
