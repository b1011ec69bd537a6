//! Two cores of the protocol with a simulated link between them: in order, as slow as one likes, with an engine that
//! keeps the books (descriptors posted, bytes written and read) and fails when a rule is broken.

use std::collections::VecDeque;

use viaduct_sovia::Config;
use viaduct_sovia::protocol::{Action, Actions, Connection, State, WriteStep};
use viaduct_sovia::wire::{Kind, Packet};

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
    recvq: VecDeque<(Vec<u8>, usize)>,
    /// On its way to the peer.
    pub(crate) link: VecDeque<(Packet, Vec<u8>)>,
    pub(crate) written: Vec<u8>,
    pub(crate) read: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) shut: bool,
    pub(crate) eof: bool,
    pub(crate) sent: [usize; 6],
    pub(crate) fin_was_deaf: bool,
}

pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
}

impl Pair {
    pub(crate) fn new(a: &Config, b: &Config) -> Pair {
        a.check().unwrap();
        b.check().unwrap();
        let end = |ours: &Config, theirs: &Config| {
            let (conn, first) = Connection::open(ours, &theirs.greeting());
            let most = ours.descriptors(&theirs.greeting());
            let mut end = End {
                conn,
                config: ours.clone(),
                posted: most,
                most,
                least: most,
                held: Vec::new(),
                recvq: VecDeque::new(),
                link: VecDeque::new(),
                written: Vec::new(),
                read: Vec::new(),
                closed: false,
                shut: false,
                eof: false,
                sent: [0; 6],
                fin_was_deaf: false,
            };
            end.send(first, Vec::new());
            end
        };
        Pair { ends: [end(a, b), end(b, a)] }
    }

    /// Lets one packet to `to` arrive. It arrives in the sense of VIA, that is it takes a descriptor, when it is put on
    /// the link; the receiver looks at it now. Whether there was one.
    pub(crate) fn deliver(&mut self, to: usize) -> bool {
        let Some((packet, bytes)) = self.ends[1 - to].link.pop_front() else { return false };
        self.ends[to].take(packet, bytes);
        true
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
        self.check_posted();
        n
    }

    pub(crate) fn read(&mut self, at: usize, len: usize) -> usize {
        let n = self.ends[at].read(len);
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
            }
            // A read flushes too.
            if !moved && self.ends.iter().all(|e| e.link.is_empty()) {
                return;
            }
        }
    }
}

impl End {
    fn send(&mut self, packet: Packet, bytes: Vec<u8>) {
        assert_eq!(packet.kind == Kind::Data, !bytes.is_empty());
        assert!(bytes.len() <= self.config.mtu);
        self.sent[packet.kind as usize] += 1;
        self.fin_was_deaf |= packet.deaf;
        // What is read off the wire is what was put on it.
        let packet = Packet::decode(packet.encode()).expect("a packet of ours");
        self.link.push_back((packet, bytes));
    }

    fn act(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Control(packet) => self.send(packet, Vec::new()),
                Action::Held(packet, len) => {
                    let bytes = std::mem::take(&mut self.held);
                    assert_eq!(bytes.len(), len);
                    self.send(packet, bytes);
                }
                Action::End => assert_eq!(self.conn.state(), State::Closed),
            }
        }
    }

    fn take(&mut self, packet: Packet, bytes: Vec<u8>) {
        assert!(self.posted > 0, "the pre-posting constraint");
        self.posted -= 1;
        let actions = self.conn.packet(packet, bytes.len()).expect("the peer keeps the rules");
        self.act(actions);
        match packet.kind {
            Kind::Data if !self.closed => self.recvq.push_back((bytes, 0)),
            Kind::Data | Kind::Wakeup => self.repost(true),
            _ => self.repost(false),
        }
        self.eof |= packet.kind == Kind::Fin;
    }

    fn repost(&mut self, counted: bool) {
        self.posted += 1;
        if counted {
            let actions = self.conn.posted();
            self.act(actions);
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
                WriteStep::Flush(packet, n) => {
                    let bytes = std::mem::take(&mut self.held);
                    assert_eq!(bytes.len(), n);
                    self.send(packet, bytes);
                    0
                }
                WriteStep::Send(packet, n) => {
                    assert!(self.held.is_empty(), "overtakes what is held");
                    self.send(packet, rest[..n].to_vec());
                    n
                }
                WriteStep::Wait | WriteStep::Shut => return done,
            };
            self.written.extend(&rest[..taken]);
            done += taken;
        }
        done
    }

    pub(crate) fn read(&mut self, len: usize) -> usize {
        let actions = self.conn.flush();
        self.act(actions);
        let mut done = 0;
        while done < len {
            let Some((bytes, at)) = self.recvq.front_mut() else { break };
            let n = (bytes.len() - *at).min(len - done);
            self.read.extend(&bytes[*at..*at + n]);
            (*at, done) = (*at + n, done + n);
            if *at == bytes.len() {
                self.recvq.pop_front();
                self.repost(true);
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
        while self.recvq.pop_front().is_some() {
            self.repost(true);
        }
        let actions = self.conn.close();
        self.act(actions);
    }
}
