//! One session: a NIC connects, goes through a plan with its partner and tidies up, whatever becomes of the partner.
//!
//! The survivor of a fault and its victim run the same code. Wrong data is a panic at once; an end of the connection is
//! a [`Stop`], after which everything posted must still come back.

use std::time::Duration;

use viaduct_via::{
    Buffer, Completion, Descriptor, Error, Listener, MemAttributes, MemHandle, NetAddress, Nic,
    ProtectionTag, Queue, Reliability, RemoteAddress, Status, ViAttributes,
};

use crate::ledger::{Account, Stop};
use crate::node::{Mode, Place};
use crate::plan::{Kind, Role, Step, pattern};

/// How long a look for somebody who has not come yet lasts.
const TICK: Duration = Duration::from_millis(5);
/// Bytes of a window, and where its counter is.
const WINDOW: usize = 128 << 10;
const COUNTER: usize = 100 << 10;

/// The process at the other end, as far as this one knows.
pub trait Partner {
    /// How long one wait lasts. `None`: until there is an answer, so that only the library can end it.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// A wait was in vain. Whether it is worth another one.
    fn is_there(&mut self) -> bool;
}

/// A partner that will come.
pub struct Sure;

impl Partner for Sure {
    fn is_there(&mut self) -> bool {
        true
    }
}

/// How a session ended.
#[derive(Debug)]
pub struct Report {
    /// Whether the plan was carried out.
    pub result: Result<(), Stop>,
    /// Descriptors that came back: all that were posted.
    pub descriptors: u64,
}

/// Goes through `plan` as `role`.
pub fn run(nic: &mut Nic, place: Place<'_>, role: Role, plan: &[Step], partner: &mut dyn Partner) -> Report {
    let tag = nic.create_ptag().expect("a tag");
    let window = MemAttributes::remote(tag);
    let windows = [
        nic.alloc(WINDOW, window).expect("shared memory"),
        nic.register(vec![0; WINDOW], window).expect("registered memory"),
    ];
    let level =
        if place.mode == Mode::Copy { Reliability::ReliableReception } else { Reliability::ReliableDelivery };
    let attributes = ViAttributes::new(tag).reliability(level);
    let main = Account::new(nic.create_vi(attributes.clone()).expect("a VI"), None);
    let theirs = [RemoteAddress { addr: 0, handle: MemHandle::NONE }; 2];
    let mut session = Session {
        nic,
        place,
        role,
        partner,
        tag,
        attributes,
        main,
        second: None,
        windows,
        theirs,
        listener: None,
        adds: [0; 2],
    };
    let result = session.talk(plan);
    let descriptors = session.end(result.is_err());
    Report { result, descriptors }
}

struct Session<'a> {
    nic: &'a mut Nic,
    place: Place<'a>,
    role: Role,
    partner: &'a mut dyn Partner,
    tag: ProtectionTag,
    attributes: ViAttributes,
    main: Account,
    second: Option<Account>,
    windows: [Buffer; 2],
    theirs: [RemoteAddress; 2],
    listener: Option<Listener>,
    adds: [u64; 2],
}

impl Session<'_> {
    fn talk(&mut self, plan: &[Step]) -> Result<(), Stop> {
        // Receives are posted before the connection stands: addresses, the plan, the last word or the end.
        self.expect(24, Kind::Shared)?;
        for step in plan {
            match *step {
                Step::Message(from, len, _, kind) if from != self.role => self.expect(len, kind)?,
                Step::Tiny(from, len) if from != self.role => self.expect(len, Kind::Heap)?,
                Step::Write(by, _, _, true) if by != self.role => self.expect(1, Kind::Shared)?,
                _ => {}
            }
        }
        self.expect(8, Kind::Shared)?;
        self.connect()?;
        self.exchange_addresses()?;
        for (number, step) in plan.iter().enumerate() {
            self.step(number, *step)?;
        }
        match self.role {
            Role::Server => {
                self.send(pattern(7, 8), Kind::Shared)?;
                let last = self.next(Queue::Receive)?;
                assert_eq!(last.status, Status::Flushed, "the client disconnects and sends nothing more");
            }
            Role::Client => {
                self.receive(pattern(7, 8))?;
                self.nic.disconnect(self.main.vi)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, number: usize, step: Step) -> Result<(), Stop> {
        match step {
            Step::Message(from, len, kind, _) if from == self.role => self.send(pattern(number, len), kind),
            Step::Tiny(from, len) if from == self.role => self.send_tiny(pattern(number, len)),
            Step::Message(_, len, ..) | Step::Tiny(_, len) => self.receive(pattern(number, len)),
            Step::Write(by, len, kind, announced) if by == self.role => {
                self.write(number, len, kind, announced)
            }
            Step::Write(_, len, kind, true) => {
                let came = self.success(Queue::Receive)?;
                assert_eq!((came.immediate, came.length), (Some(number as u32), len as u32));
                let window = &self.windows[at(kind)];
                assert!(
                    window.to_vec(len) == pattern(number, len),
                    "step {number}: the window holds other bytes"
                );
                Ok(())
            }
            Step::Write(..) => Ok(()),
            Step::Add(by, kind) if by == self.role => self.add(kind),
            Step::Add(..) => Ok(()),
            Step::Second => self.second(number),
            Step::Reject => self.reject(),
            Step::Memory => self.memory(),
            Step::Neighbour => self.neighbour(),
        }
    }

    fn connect(&mut self) -> Result<(), Stop> {
        let (low, high) = ("faults-a".parse::<NetAddress>()?, "faults-b".parse::<NetAddress>()?);
        if self.place.mode == Mode::Peer {
            let (local, remote) = if self.role == Role::Server { (&low, &high) } else { (&high, &low) };
            self.nic.connect_peer_request(self.main.vi, local, remote, None)?;
            return self.connected(true).map_err(Stop::from);
        }
        if self.role == Role::Server {
            self.listener = Some(self.nic.listen(&low, 4)?);
            return self.accept();
        }
        loop {
            self.nic.connect_start(self.main.vi, None, &low, &[], None)?;
            match self.connected(false) {
                // The server has not come yet, or never will.
                Err(Error::NoMatch(_)) if self.partner.is_there() => std::thread::sleep(TICK / 5),
                other => return other.map_err(Stop::from),
            }
        }
    }

    /// Waits for the answer to a request of the newest VI.
    fn connected(&mut self, may_never_come: bool) -> Result<(), Error> {
        let vi = self.second.as_ref().unwrap_or(&self.main).vi;
        let tick = if may_never_come { Some(TICK / 5) } else { self.partner.patience() };
        let Some(tick) = tick else { return self.nic.connect_finish(vi).map(drop) };
        loop {
            if self.nic.connect_poll(vi)?.is_some() {
                return Ok(());
            }
            std::thread::sleep(tick);
            if !self.partner.is_there() {
                self.nic.disconnect(vi)?;
                return Err(Error::Timeout);
            }
        }
    }

    fn accept(&mut self) -> Result<(), Stop> {
        let request = self.request()?;
        let vi = self.second.as_ref().unwrap_or(&self.main).vi;
        self.nic.accept(request, vi).map_err(|(error, request)| {
            let _ = self.nic.reject(request);
            Stop::from(error)
        })
    }

    fn request(&mut self) -> Result<viaduct_via::ConnRequest, Stop> {
        let listener = self.listener.expect("the server listens");
        loop {
            match self.nic.wait_listener(listener, Some(TICK)) {
                Err(Error::Timeout) if self.partner.is_there() => {}
                other => return other.map_err(Stop::from),
            }
        }
    }

    fn exchange_addresses(&mut self) -> Result<(), Stop> {
        let mut ours = Vec::with_capacity(24);
        for place in self.windows.iter().map(|window| window.remote(0)) {
            ours.extend(place.addr.to_ne_bytes());
            ours.extend(place.handle.number().to_ne_bytes());
        }
        if self.role == Role::Client {
            self.send(&ours, Kind::Shared)?;
        }
        let came = self.success(Queue::Receive)?.data();
        if self.role == Role::Server {
            self.send(&ours, Kind::Shared)?;
        }
        for (place, bytes) in self.theirs.iter_mut().zip(came.chunks_exact(12)) {
            let (addr, handle) = (bytes[..8].try_into().expect("8"), bytes[8..].try_into().expect("4"));
            place.addr = u64::from_ne_bytes(addr);
            place.handle = MemHandle::from_number(u32::from_ne_bytes(handle));
        }
        Ok(())
    }

    fn expect(&mut self, len: usize, kind: Kind) -> Result<(), Stop> {
        let buffer = self.buffer(len, kind)?;
        self.main.post(self.nic, Queue::Receive, Descriptor::recv(buffer))
    }

    fn send(&mut self, bytes: &[u8], kind: Kind) -> Result<(), Stop> {
        let mut buffer = self.buffer(bytes.len(), kind)?;
        buffer.write(0, bytes);
        self.main.post(self.nic, Queue::Send, Descriptor::send(buffer))?;
        self.success(Queue::Send).map(drop)
    }

    fn send_tiny(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        loop {
            match self.nic.send_inline(self.main.vi, bytes, None) {
                Err(Error::Busy) => drop(self.nic.query_vi(self.main.vi)?),
                other => return Ok(other?),
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let came = self.success(Queue::Receive)?;
        assert!(came.data() == bytes, "{} bytes came, and not the right ones", came.length);
        Ok(())
    }

    fn write(&mut self, number: usize, len: usize, kind: Kind, announced: bool) -> Result<(), Stop> {
        let mut buffer = self.buffer(len, kind)?;
        buffer.write(0, pattern(number, len));
        let mut write = Descriptor::rdma_write(buffer, self.theirs[at(kind)]);
        if announced {
            write = write.immediate(number as u32);
        }
        self.main.post(self.nic, Queue::Send, write)?;
        drop(self.success(Queue::Send)?);
        let back = self.buffer(len, kind)?;
        self.main.post(self.nic, Queue::Send, Descriptor::rdma_read(back, self.theirs[at(kind)]))?;
        let back = self.success(Queue::Send)?;
        assert!(back.data() == pattern(number, len), "step {number}: other bytes were read back");
        Ok(())
    }

    fn add(&mut self, kind: Kind) -> Result<(), Stop> {
        let old = self.buffer(8, Kind::Shared)?;
        let place = self.theirs[at(kind)].offset(COUNTER as u64);
        self.main.post(self.nic, Queue::Send, Descriptor::fetch_add(old, place, 3))?;
        let old = self.success(Queue::Send)?.data();
        assert_eq!(old, self.adds[at(kind)].to_ne_bytes(), "nobody else adds to this counter");
        self.adds[at(kind)] += 3;
        Ok(())
    }

    fn second(&mut self, number: usize) -> Result<(), Stop> {
        let cq = self.nic.create_cq(8)?;
        let vi = self.nic.create_vi(self.attributes.clone().cq(cq))?;
        let mut account = Account::new(vi, Some(cq));
        for _ in 0..2 {
            let buffer = self.buffer(2_000, Kind::Shared)?;
            account.post(self.nic, Queue::Receive, Descriptor::recv(buffer))?;
        }
        self.second = Some(account);
        match self.role {
            Role::Server => self.accept()?,
            Role::Client => {
                self.nic.connect_start(vi, None, &"faults-a".parse()?, &[], None)?;
                self.connected(false)?;
            }
        }
        let mut message = self.buffer(2_000, Kind::Shared)?;
        message.write(0, pattern(number, 2_000));
        let account = self.second.as_mut().expect("just made");
        account.post(self.nic, Queue::Send, Descriptor::send(message))?;
        // Both send; the order in which a send and a receive end is free.
        for _ in 0..2 {
            let came = self.success(Queue::Receive)?;
            assert!(came.queue == Queue::Send || came.data() == pattern(number, 2_000), "other bytes came");
        }
        match self.role {
            Role::Client => self.nic.disconnect(vi)?,
            Role::Server => assert_eq!(self.next(Queue::Receive)?.status, Status::Flushed),
        }
        let account = self.second.take().expect("made above");
        self.main.returned += account.close(self.nic);
        Ok(())
    }

    fn reject(&mut self) -> Result<(), Stop> {
        if self.role == Role::Server {
            let request = self.request()?;
            assert_eq!(request.remote().private_data, b"may I?");
            return Ok(self.nic.reject_with(request, b"no")?);
        }
        let vi = self.nic.create_vi(self.attributes.clone())?;
        self.second = Some(Account::new(vi, None));
        self.nic.connect_start(vi, None, &"faults-a".parse()?, b"may I?", None)?;
        match self.connected(false) {
            Err(Error::Rejected(why)) => assert_eq!(why, b"no"),
            Err(error) => return Err(error.into()),
            Ok(()) => panic!("a request that was turned down stands"),
        }
        self.second.take().expect("made above").close(self.nic);
        Ok(())
    }

    fn memory(&mut self) -> Result<(), Stop> {
        let shared = self.buffer(50_000, Kind::Shared)?;
        assert!(self.nic.deregister(shared)?.is_none());
        let heap = self.buffer(5_000, Kind::Heap)?;
        assert_eq!(self.nic.deregister(heap)?.map(|bytes| bytes.len()), Some(5_000));
        drop(self.buffer(3_000, Kind::Shared)?);
        Ok(())
    }

    fn neighbour(&mut self) -> Result<(), Stop> {
        let [here, there] = ["to", "from"].map(|what| format!("faults-{what}-{}", self.role.name()));
        let (here, there): (NetAddress, NetAddress) = (here.parse()?, there.parse()?);
        let vi = self.nic.create_vi(self.attributes.clone())?;
        self.nic.connect_peer_request(vi, &here, &there, None)?;
        self.nic.disconnect(vi)?;
        self.second = Some(Account::new(vi, None));
        let buffer = self.buffer(100, Kind::Shared)?;
        let account = self.second.as_mut().expect("just put there");
        account.post(self.nic, Queue::Receive, Descriptor::recv(buffer))?;
        let mut neighbour = self.place.open();
        let tag = neighbour.create_ptag()?;
        let other = neighbour.create_vi(ViAttributes::new(tag).reliability(self.attributes.reliability))?;
        let listener = neighbour.listen(&here, 1)?;
        self.nic.connect_start(vi, None, &here, &[], None)?;
        let request = neighbour.wait_listener(listener, None)?;
        neighbour.accept(request, other).map_err(|(error, _)| error)?;
        self.nic.connect_finish(vi)?;
        drop(neighbour);
        assert_eq!(self.next(Queue::Receive)?.status, Status::Flushed, "the neighbour is gone");
        self.main.returned += self.second.take().expect("put there above").close(self.nic);
        Ok(())
    }

    fn buffer(&mut self, len: usize, kind: Kind) -> Result<Buffer, Stop> {
        let attributes = MemAttributes::local(self.tag);
        Ok(match kind {
            Kind::Shared => self.nic.alloc(len, attributes)?,
            Kind::Heap => self.nic.register(vec![0; len], attributes)?,
            Kind::Implicit => vec![0; len].into(),
        })
    }

    /// The next completion of the newest VI, which has to be a good one.
    fn success(&mut self, queue: Queue) -> Result<Completion, Stop> {
        let completion = self.next(queue)?;
        if completion.status.is_success() { Ok(completion) } else { Err(Stop(completion.status.to_string())) }
    }

    fn next(&mut self, queue: Queue) -> Result<Completion, Stop> {
        loop {
            let account = self.second.as_mut().unwrap_or(&mut self.main);
            match account.next(self.nic, queue, self.partner.patience())? {
                Some(completion) => return Ok(completion),
                None if self.partner.is_there() => {}
                None => return Err(Stop("the partner is gone, and the wait went on".into())),
            }
        }
    }

    /// Tidies up, checking that every descriptor came back. How many did.
    fn end(self, stopped: bool) -> u64 {
        let Session { nic, tag, main, second, windows, listener, .. } = self;
        let mut descriptors = 0;
        for account in [Some(main), second].into_iter().flatten() {
            if stopped {
                account.is_over(nic);
            }
            descriptors += account.close(nic);
        }
        if let Some(listener) = listener {
            nic.unlisten(listener).expect("a listener of ours");
        }
        drop(windows);
        nic.destroy_ptag(tag).expect("nothing uses the tag any more");
        descriptors
    }
}

fn at(kind: Kind) -> usize {
    usize::from(kind != Kind::Shared)
}
