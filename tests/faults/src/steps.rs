//! The steps of a session: messages, RDMA, further connections, memory.

use std::sync::Arc;

use viaduct_os::segment::Segment;
use viaduct_via::{
    Buffer, Descriptor, Error, MemAttributes, MemHandle, NetAddress, Queue, Status, ViAttributes,
};

use crate::ledger::{Account, Stop};
use crate::plan::{Kind, Role, pattern};
use crate::session::Session;

/// Where the counter of a window is.
const COUNTER: usize = 100 << 10;

impl Session<'_> {
    pub(crate) fn exchange_addresses(&mut self) -> Result<(), Stop> {
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

    pub(crate) fn expect(&mut self, len: usize, kind: Kind) -> Result<(), Stop> {
        let buffer = self.buffer(len, kind)?;
        self.main.post(self.nic, Queue::Receive, Descriptor::recv(buffer))
    }

    pub(crate) fn send(&mut self, bytes: &[u8], kind: Kind) -> Result<(), Stop> {
        let mut buffer = self.buffer(bytes.len(), kind)?;
        buffer.write(0, bytes);
        self.main.post(self.nic, Queue::Send, Descriptor::send(buffer))?;
        self.success(Queue::Send).map(drop)
    }

    pub(crate) fn send_tiny(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        loop {
            match self.nic.send_inline(self.main.vi, bytes, None) {
                Err(Error::Busy) => drop(self.nic.query_vi(self.main.vi)?),
                other => return Ok(other?),
            }
        }
    }

    pub(crate) fn send_value(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (head, rest) = bytes.split_at(40);
        loop {
            match self.nic.send_value(self.main.vi, &[head, rest], None) {
                Err(Error::Busy) => drop(self.nic.query_vi(self.main.vi)?),
                other => {
                    other?;
                    return Ok(self.nic.nudge(self.main.vi)?);
                }
            }
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let came = self.success(Queue::Receive)?;
        assert!(came.data() == bytes, "{} bytes came, and not the right ones", came.length);
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        number: usize,
        len: usize,
        kind: Kind,
        announced: bool,
    ) -> Result<(), Stop> {
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

    pub(crate) fn add(&mut self, kind: Kind) -> Result<(), Stop> {
        let old = self.buffer(8, Kind::Shared)?;
        let place = self.theirs[at(kind)].offset(COUNTER as u64);
        self.main.post(self.nic, Queue::Send, Descriptor::fetch_add(old, place, 3))?;
        let old = self.success(Queue::Send)?.data();
        assert_eq!(old, self.adds[at(kind)].to_ne_bytes(), "no other process adds to this counter");
        self.adds[at(kind)] += 3;
        Ok(())
    }

    pub(crate) fn second(&mut self, number: usize) -> Result<(), Stop> {
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

    pub(crate) fn reject(&mut self) -> Result<(), Stop> {
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

    pub(crate) fn memory(&mut self) -> Result<(), Stop> {
        let shared = self.buffer(50_000, Kind::Shared)?;
        assert!(self.nic.deregister(shared)?.is_none());
        let heap = self.buffer(5_000, Kind::Heap)?;
        assert_eq!(self.nic.deregister(heap)?.map(|bytes| bytes.len()), Some(5_000));
        drop(self.buffer(3_000, Kind::Shared)?);
        let segment = Arc::new(Segment::create_sparse("faults", 1 << 20).map_err(Error::from)?);
        let rights = MemAttributes::remote(self.attributes.ptag);
        let region = self.nic.register_segment(&segment, 4096..8192, rights)?;
        assert!(self.nic.deregister(region)?.is_none());
        Ok(())
    }

    pub(crate) fn neighbour(&mut self) -> Result<(), Stop> {
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
        neighbour.accept(request, other)?;
        self.nic.connect_finish(vi)?;
        drop(neighbour);
        assert_eq!(self.next(Queue::Receive)?.status, Status::Flushed, "the neighbour is gone");
        self.main.returned += self.second.take().expect("put there above").close(self.nic);
        Ok(())
    }

    pub(crate) fn buffer(&mut self, len: usize, kind: Kind) -> Result<Buffer, Stop> {
        let attributes = MemAttributes::local(self.tag);
        Ok(match kind {
            Kind::Shared => self.nic.alloc(len, attributes)?,
            Kind::Heap => self.nic.register(vec![0; len], attributes)?,
            Kind::Implicit => vec![0; len].into(),
        })
    }
}

/// Which of the two windows has memory of this kind.
pub(crate) fn at(kind: Kind) -> usize {
    usize::from(kind != Kind::Shared)
}
