//! Two cores of the protocol with a simulated link between them: in order, as slow as one likes, with an engine that
//! keeps the books (descriptors posted, bytes written and read) and fails when a rule is broken.

use std::collections::VecDeque;

use viaduct_sovia::protocol::{Action, Actions, Came, Connection, State, Way, WriteStep};
use viaduct_sovia::wire::{Greeting, Kind, Packet, RING_LEN};
use viaduct_sovia::{Config, Path};

/// Longest message of an end with a ring.
const SMALL: usize = 24;

/// What an end tells the other.
pub(crate) fn greeting(config: &Config) -> Greeting {
    config.greeting((config.path == Path::Ring).then_some(SMALL))
}

/// A packet that was not read, or not to its end.
struct Unread {
    bytes: Vec<u8>,
    /// Where in the ring the bytes are, if they are there.
    ring: Option<usize>,
    len: usize,
    at: usize,
    room: usize,
}

/// One side: what an engine does, with vectors.
pub(crate) struct End {
    pub(crate) conn: Connection,
    pub(crate) config: Config,
    /// Receive descriptors posted, of `most`.
    posted: usize,
    most: usize,
    /// Fewest that were ever left.
    pub(crate) least: usize,
    held: Vec<u8>,
    /// Packets with data that were not read yet.
    recvq: VecDeque<Unread>,
    /// Memory that the peer writes.
    ring: Vec<u8>,
    /// On its way to the peer. Bytes for the ring are there already: only their number travels.
    pub(crate) link: VecDeque<(Packet, Vec<u8>, Option<usize>)>,
    /// Written into the peer's ring, where and what, before the packet that tells of it.
    writes: Vec<(usize, Vec<u8>)>,
    pub(crate) written: Vec<u8>,
    pub(crate) read: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) shut: bool,
    pub(crate) eof: bool,
    pub(crate) sent: [usize; 8],
    pub(crate) fin_says_no_more_reads: bool,
}

pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
}

impl Pair {
    pub(crate) fn new(a: &Config, b: &Config) -> Pair {
        a.check().unwrap();
        b.check().unwrap();
        let end = |ours: &Config, theirs: &Config| {
            let (us, them) = (greeting(ours), greeting(theirs));
            let (conn, first) = Connection::open(ours, &us, &them);
            let (first_posted, most) =
                (Config::first_descriptors(&us, &them), Config::descriptors(&us, &them));
            let mut end = End {
                conn,
                config: ours.clone(),
                posted: first_posted,
                most,
                least: first_posted,
                held: Vec::new(),
                recvq: VecDeque::new(),
                ring: Vec::new(),
                writes: Vec::new(),
                link: VecDeque::new(),
                written: Vec::new(),
                read: Vec::new(),
                closed: false,
                shut: false,
                eof: false,
                sent: [0; 8],
                fin_says_no_more_reads: false,
            };
            end.send(first, Vec::new(), Way::Message);
            if ours.path == Path::Ring && us.small != us.mtu && ours.ring <= ours.ring_memory {
                end.welcome((us.window - us.open()) as usize);
            }
            end
        };
        Pair { ends: [end(a, b), end(b, a)] }
    }

    /// Lets one packet to `to` arrive. It arrives in the sense of VIA, that is it takes a descriptor, when it is put on
    /// the link; the receiver looks at it now. Whether there was one.
    pub(crate) fn deliver(&mut self, to: usize) -> bool {
        self.carry(1 - to);
        let Some((packet, bytes, written)) = self.ends[1 - to].link.pop_front() else { return false };
        self.ends[to].take(packet, bytes, written);
        self.carry(to);
        true
    }

    /// What was written into the other end's memory is there at once, as the fastest provider has it.
    fn carry(&mut self, from: usize) {
        for (at, bytes) in std::mem::take(&mut self.ends[from].writes) {
            self.ends[1 - from].ring[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// How many descriptors of `to` are used up by what was sent and not looked at, or looked at and not read.
    pub(crate) fn check_posted(&mut self) {
        for to in 0..2 {
            let under_way = self.ends[1 - to].link.len();
            let end = &mut self.ends[to];
            assert!(under_way <= end.posted, "{under_way} packets for {} descriptors", end.posted);
            end.least = end.least.min(end.posted - under_way);
            assert!(end.posted <= end.most);
        }
    }

    pub(crate) fn write(&mut self, at: usize, len: usize) -> usize {
        let n = self.ends[at].write(len);
        self.carry(at);
        self.check_posted();
        n
    }

    pub(crate) fn read(&mut self, at: usize, len: usize) -> usize {
        let n = self.ends[at].read(len);
        self.carry(at);
        self.check_posted();
        n
    }

    pub(crate) fn state(&self, at: usize) -> State {
        self.ends[at].conn.state()
    }

    /// Delivers and reads until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut moved = false;
            for at in 0..2 {
                moved |= self.deliver(at);
                self.check_posted();
                moved |= self.read(at, 1 << 20) > 0;
                moved |= self.ends[at].expire();
                self.carry(at);
            }
            // A read flushes too.
            if !moved && self.ends.iter().all(|e| e.link.is_empty()) {
                return;
            }
        }
    }
}

impl End {
    fn send(&mut self, packet: Packet, bytes: Vec<u8>, way: Way) {
        assert_eq!(matches!(packet.kind, Kind::Data | Kind::Ring), !bytes.is_empty());
        assert!(bytes.len() <= self.config.mtu.max(RING_LEN));
        self.sent[packet.kind as usize] += 1;
        self.fin_says_no_more_reads |= packet.reads_no_more;
        // What is read off the wire is what was put on it.
        let packet = Packet::decode(packet.encode()).expect("a packet of ours");
        match way {
            Way::Message => self.link.push_back((packet, bytes, None)),
            Way::Ring(at) => {
                self.link.push_back((packet, Vec::new(), Some(bytes.len())));
                self.writes.push((at, bytes));
            }
        }
    }

    /// What the first connections of a library do before anybody asks.
    fn welcome(&mut self, more: usize) {
        self.open(more);
        self.offer();
    }

    fn open(&mut self, more: usize) {
        self.posted += more;
        let actions = self.conn.opened();
        self.act(actions);
    }

    fn offer(&mut self) {
        self.ring = vec![0; self.config.ring];
        let packet = self.conn.offer(self.config.ring);
        let len = (self.config.ring as u32).to_le_bytes();
        self.send(packet, [[0; 4], [0; 4], [0; 4], len].concat(), Way::Message);
    }

    fn act(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Control(packet) => self.send(packet, Vec::new(), Way::Message),
                Action::Held(packet, len, way) => {
                    let bytes = std::mem::take(&mut self.held);
                    assert_eq!(bytes.len(), len);
                    self.send(packet, bytes, way);
                }
                Action::Open(more) => self.open(more as usize),
                Action::Offer => self.offer(),
                Action::End => assert_eq!(self.conn.state(), State::Closed),
            }
        }
    }

    fn take(&mut self, packet: Packet, bytes: Vec<u8>, written: Option<usize>) {
        assert!(self.posted > 0, "the pre-posting constraint");
        self.posted -= 1;
        let came = written.map_or(Came::Message(bytes.len()), Came::Ring);
        let taken = self.conn.packet(packet, came).expect("the peer keeps the rules");
        self.act(taken.actions);
        let (at, room) = taken.at.unzip();
        match packet.kind {
            Kind::Data if !self.closed => {
                let len = written.unwrap_or(bytes.len());
                self.recvq.push_back(Unread { bytes, ring: at, len, at: 0, room: room.unwrap_or(0) });
            }
            Kind::Data | Kind::Wakeup => self.repost(Some(room.unwrap_or(0))),
            kind => {
                if kind == Kind::Ring {
                    let len = u32::from_le_bytes(bytes[12..].try_into().unwrap());
                    let actions = self.conn.ring_came(len as usize);
                    self.act(actions);
                }
                self.repost(None);
            }
        }
        self.eof |= packet.kind == Kind::Fin;
    }

    fn repost(&mut self, counted: Option<usize>) {
        self.posted += 1;
        if let Some(room) = counted
            && let Some(ack) = self.conn.posted(room)
        {
            self.send(ack, Vec::new(), Way::Message);
        }
    }

    /// Writes as much of `len` bytes as goes without waiting. The bytes are the low bytes of their position.
    pub(crate) fn write(&mut self, len: usize) -> usize {
        let mut done = 0;
        while done < len {
            let at = self.written.len();
            let rest: Vec<u8> = (at..at + len - done).map(|i| (i % 251) as u8).collect();
            let taken = match self.conn.write(rest.len()) {
                WriteStep::Hold { .. } => {
                    self.held.extend(&rest);
                    rest.len()
                }
                WriteStep::Flush(packet, n, way) => {
                    let bytes = std::mem::take(&mut self.held);
                    assert_eq!(bytes.len(), n);
                    self.send(packet, bytes, way);
                    0
                }
                WriteStep::Send(packet, n, way) => {
                    assert!(self.held.is_empty(), "overtakes what is held");
                    self.send(packet, rest[..n].to_vec(), way);
                    n
                }
                WriteStep::Ask(packet) => {
                    self.send(packet, Vec::new(), Way::Message);
                    0
                }
                WriteStep::Wait | WriteStep::Shut => return done,
            };
            self.written.extend(&rest[..taken]);
            done += taken;
        }
        done
    }

    pub(crate) fn read(&mut self, len: usize) -> usize {
        if let Some((packet, n, way)) = self.conn.release_held() {
            let bytes = std::mem::take(&mut self.held);
            assert_eq!(bytes.len(), n);
            self.send(packet, bytes, way);
        }
        let actions = self.conn.flush();
        self.act(actions);
        let mut done = 0;
        while done < len {
            let Some(packet) = self.recvq.front_mut() else { break };
            let n = (packet.len - packet.at).min(len - done);
            match packet.ring {
                Some(place) => self.read.extend(&self.ring[place + packet.at..place + packet.at + n]),
                None => self.read.extend(&packet.bytes[packet.at..packet.at + n]),
            }
            packet.at += n;
            done += n;
            if packet.at == packet.len {
                let room = packet.room;
                self.recvq.pop_front();
                self.repost(Some(room));
            }
        }
        done
    }

    /// The timer runs out. Whether that sent something.
    pub(crate) fn expire(&mut self) -> bool {
        let before = self.held.len();
        let actions = self.conn.flush();
        self.act(actions);
        before > 0 && self.held.is_empty()
    }

    pub(crate) fn set_combining(&mut self, on: bool) {
        let actions = self.conn.set_combining(on);
        self.act(actions);
    }

    pub(crate) fn shutdown_write(&mut self) {
        self.shut = true;
        let actions = self.conn.shutdown_write();
        self.act(actions);
    }

    /// What was not read is dropped.
    pub(crate) fn close(&mut self) {
        (self.closed, self.shut) = (true, true);
        while let Some(packet) = self.recvq.pop_front() {
            self.repost(Some(packet.room));
        }
        let actions = self.conn.close();
        self.act(actions);
    }
}
