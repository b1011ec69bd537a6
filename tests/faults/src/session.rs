//! One session: a NIC connects, goes through a plan with its partner and tidies up, whatever becomes of the partner.
//!
//! The survivor of a fault and its victim run the same code. Wrong data is a panic at once; an end of the connection is
//! a [`Stop`], after which everything posted must still come back.

use std::time::Duration;

use viaduct_via::{
    Buffer, Completion, Error, Listener, MemAttributes, MemHandle, NetAddress, Nic, ProtectionTag, Queue,
    Reliability, RemoteAddress, Status, ViAttributes,
};

use crate::ledger::{Account, Stop};
use crate::node::{Mode, Place};
use crate::plan::{Kind, Role, Step, pattern};
use crate::steps::at;

/// How long a look for a peer that has not come yet lasts.
const TICK: Duration = Duration::from_millis(5);
/// Bytes of a window.
const WINDOW: usize = 128 << 10;

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

pub(crate) struct Session<'a> {
    pub(crate) nic: &'a mut Nic,
    pub(crate) place: Place<'a>,
    pub(crate) role: Role,
    pub(crate) partner: &'a mut dyn Partner,
    pub(crate) tag: ProtectionTag,
    pub(crate) attributes: ViAttributes,
    pub(crate) main: Account,
    pub(crate) second: Option<Account>,
    pub(crate) windows: [Buffer; 2],
    pub(crate) theirs: [RemoteAddress; 2],
    pub(crate) listener: Option<Listener>,
    pub(crate) adds: [u64; 2],
}

impl Session<'_> {
    fn talk(&mut self, plan: &[Step]) -> Result<(), Stop> {
        // Receives are posted before the connection stands: addresses, the plan, the last word or the end.
        self.expect(24, Kind::Shared)?;
        for step in plan {
            match *step {
                Step::Message(from, len, _, kind) if from != self.role => self.expect(len, kind)?,
                Step::Tiny(from, len) if from != self.role => self.expect(len, Kind::Heap)?,
                Step::Value(from, len, kind) if from != self.role => self.expect(len, kind)?,
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
            Step::Value(from, len, _) if from == self.role => self.send_value(pattern(number, len)),
            Step::Message(_, len, ..) | Step::Tiny(_, len) | Step::Value(_, len, _) => {
                self.receive(pattern(number, len))
            }
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
                Err(Error::NoMatch(_) | Error::NoRoom { .. }) if self.partner.is_there() => {
                    std::thread::sleep(TICK / 5)
                }
                other => return other.map_err(Stop::from),
            }
        }
    }

    /// Waits for the answer to a request of the newest VI.
    pub(crate) fn connected(&mut self, may_never_come: bool) -> Result<(), Error> {
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

    pub(crate) fn accept(&mut self) -> Result<(), Stop> {
        let request = self.request()?;
        let vi = self.second.as_ref().unwrap_or(&self.main).vi;
        self.nic.accept(request, vi).map_err(|refused| {
            let _ = self.nic.reject(refused.request);
            Stop::from(refused.error)
        })
    }

    pub(crate) fn request(&mut self) -> Result<viaduct_via::ConnRequest, Stop> {
        let listener = self.listener.expect("the server listens");
        loop {
            match self.nic.wait_listener(listener, Some(TICK)) {
                Err(Error::Timeout) if self.partner.is_there() => {}
                other => return other.map_err(Stop::from),
            }
        }
    }

    /// The next completion of the newest VI, which has to be a good one.
    pub(crate) fn success(&mut self, queue: Queue) -> Result<Completion, Stop> {
        let completion = self.next(queue)?;
        if completion.status.is_success() { Ok(completion) } else { Err(Stop(completion.status.to_string())) }
    }

    pub(crate) fn next(&mut self, queue: Queue) -> Result<Completion, Stop> {
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
