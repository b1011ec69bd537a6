//! An opened provider of libfabric's: fabric, domain and queues as owned values, closed when dropped. No protocol here.
//!
//! Nothing in this file locks. The objects of one NIC are used under its engine's lock alone, which is what the threading
//! model that we ask for (`FI_THREAD_DOMAIN`) means.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use viaduct_os::poll::{self, Watched};
use viaduct_via::Error;

use super::abi::*;
use super::endpoint::{Active, Passive, Registered};
use super::info::Info;
use super::sys::Fi;

/// An error of a call.
pub(crate) fn failed(fi: &Fi, call: &'static str, code: i64) -> Error {
    Error::Transport { provider: "ofi", call, why: fi.explain(code) }
}

/// Closes an object. A failure has no consequence, so it is not reported.
///
/// # Safety
/// The object is open, is not used afterwards, and nothing that is still open depends on it.
pub(super) unsafe fn close(fid: *mut Fid) {
    // SAFETY: an open object has its table.
    unsafe { ((*(*fid).ops).close)(fid) };
}

/// An opened provider: fabric and domain, the queues of all endpoints, and the descriptor to sleep on.
pub(crate) struct Fabric {
    pub(crate) fi: &'static Fi,
    pub(crate) info: Info,
    pub(super) fabric: *mut FidFabric,
    pub(super) domain: *mut FidDomain,
    cq: *mut FidCq,
    pub(super) eq: *mut FidEq,
    /// The completion queue has a list of descriptors, not one: all but these, which are always ready (`find_stuck`).
    listed: Option<Vec<RawFd>>,
}

// SAFETY: used by one thread at a time, under the engine's lock.
unsafe impl Send for Fabric {}

/// What an event queue tells.
pub(crate) enum News {
    /// A client connects to a listening endpoint; the information is for the endpoint that takes it.
    Asked { at: usize, info: Info },
    /// A connection stands.
    Connected { ep: usize },
    /// A connection is over.
    Over { ep: usize, errno: i32 },
}

/// A finished operation, as it was named when it was posted.
pub(crate) struct Done {
    pub(crate) context: u64,
    pub(crate) len: usize,
    /// 0 is success.
    pub(crate) errno: i32,
}

/// Completions fetched in one go.
pub(crate) const BATCH: usize = 16;

impl Fabric {
    /// Opens a provider, with a list of descriptors to sleep on if that is wanted and there.
    pub(crate) fn open(fi: &'static Fi, info: Info, listed: bool) -> Result<Fabric, Error> {
        let mut this = Fabric {
            fi,
            info,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            cq: ptr::null_mut(),
            eq: ptr::null_mut(),
            listed: None,
        };
        let check = |call, code: c_int| if code == 0 { Ok(()) } else { Err(failed(fi, call, code.into())) };
        let none = ptr::null_mut();
        // SAFETY: objects are opened from the top down, each from one that was just opened; what was opened before a
        // failure is closed by drop.
        unsafe {
            let entry = this.info.ptr;
            check("fi_fabric", (fi.fabric)((*entry).fabric_attr, &raw mut this.fabric, none))?;
            let ops = &*(*this.fabric).ops;
            check("fi_domain", (ops.domain)(this.fabric, entry, &raw mut this.domain, none))?;
            let mut eq = EqAttr {
                size: 1024,
                flags: 0,
                wait_obj: FI_WAIT_FD,
                signaling_vector: 0,
                wait_set: ptr::null_mut(),
            };
            check("fi_eq_open", (ops.eq_open)(this.fabric, &raw mut eq, &raw mut this.eq, none))?;
        }
        if listed && this.open_cq(FI_WAIT_POLLFD) == 0 {
            this.listed = this.find_stuck();
        }
        if this.listed.is_none() {
            if !this.cq.is_null() {
                // SAFETY: open, closed once, and nothing depends on it.
                unsafe { close(std::mem::replace(&mut this.cq, ptr::null_mut()).cast()) };
            }
            check("fi_cq_open", this.open_cq(FI_WAIT_FD))?;
        }
        Ok(this)
    }

    fn open_cq(&mut self, wait_obj: u32) -> c_int {
        let mut cq = CqAttr {
            size: 16_384,
            flags: 0,
            format: FI_CQ_FORMAT_MSG,
            wait_obj,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        // SAFETY: an open domain; a queue that could not be opened leaves nothing behind.
        let code = unsafe {
            ((*(*self.domain).ops).cq_open)(self.domain, &raw mut cq, &raw mut self.cq, ptr::null_mut())
        };
        if code != 0 {
            self.cq = ptr::null_mut();
        }
        code
    }

    /// Whether the completion queue has a list of descriptors.
    pub(crate) fn has_list(&self) -> bool {
        self.listed.is_some()
    }

    /// The completion queue's descriptors, as they are now. False if there is something in the queue: it need not be in
    /// one of them any more, so no thread may sleep on them.
    pub(crate) fn list(&self, into: &mut Vec<Watched>) -> bool {
        let empty = self.refresh_list();
        // Without any, nothing wakes the control thread but the signs of life, a few times a second.
        let _ = self.fill_list(into);
        if let Some(stuck) = &self.listed {
            into.retain(|w| !stuck.contains(&w.fd));
        }
        empty
    }

    fn fill_list(&self, into: &mut Vec<Watched>) -> Result<(), c_int> {
        let mut room = into.capacity().max(8);
        loop {
            into.resize(room, Watched::read(-1));
            let there = self.get_list(into).inspect_err(|_| into.clear())?;
            if there <= room {
                into.truncate(there);
                return Ok(());
            }
            room = there;
        }
    }

    /// The provider puts off changes of its list until it next looks at it: it does so now, and may find something to do.
    /// Whether there is nothing in the queue afterwards.
    fn refresh_list(&self) -> bool {
        let mut nothing = CqMsgEntry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        // SAFETY: an open queue; nothing is fetched from it.
        let n = unsafe { ((*(*self.cq).ops).read)(self.cq, (&raw mut nothing).cast(), 0) };
        n == -(FI_EAGAIN as isize)
    }

    /// Descriptors that are ready although there is nothing in the fresh queue: in 1.17 the provider `tcp` has one by which it
    /// wakes itself, and never reads it. `None` if there is no list, or no telling whether the queue is empty.
    fn find_stuck(&self) -> Option<Vec<RawFd>> {
        if !self.refresh_list() {
            return None;
        }
        let mut list = Vec::new();
        self.fill_list(&mut list).ok()?;
        poll::wait(&mut list, Some(Duration::ZERO)).ok()?;
        Some(list.iter().filter(|w| w.found != 0).map(|w| w.fd).collect())
    }

    /// How many descriptors there are; if there is room for them, they are in it.
    fn get_list(&self, room: &mut [Watched]) -> Result<usize, c_int> {
        let mut list = WaitPollFd { change_index: 0, nfds: room.len(), fd: room.as_mut_ptr().cast() };
        // SAFETY: an open queue that was made with a list, and as much room as is said.
        let code = unsafe {
            let fid = &raw mut (*self.cq).fid;
            ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut list).cast())
        };
        if code == 0 || code == -FI_ETOOSMALL { Ok(list.nfds) } else { Err(code) }
    }

    /// The descriptors that become readable when there is something in the queues: of events, and of completions if it has
    /// but one.
    pub(crate) fn wait_fds(&self) -> Result<(BorrowedFd<'_>, Option<BorrowedFd<'_>>), Error> {
        let of = |fid: *mut Fid| {
            let mut fd: RawFd = -1;
            // SAFETY: an open queue that was made with a descriptor to wait on.
            let code = unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
            if code != 0 || fd < 0 {
                return Err(failed(self.fi, "fi_control(FI_GETWAIT)", code.into()));
            }
            // SAFETY: the descriptor is the queue's, which lives as long as self.
            Ok(unsafe { BorrowedFd::borrow_raw(fd) })
        };
        // SAFETY: both queues are open.
        unsafe {
            let messages = if self.has_list() { None } else { Some(of(&raw mut (*self.cq).fid)?) };
            Ok((of(&raw mut (*self.eq).fid)?, messages))
        }
    }

    /// Whether one may sleep on the descriptors now; false if there is something in the queues already.
    pub(crate) fn may_sleep(&self) -> bool {
        // SAFETY: open objects.
        unsafe {
            let mut fids = [&raw mut (*self.cq).fid, &raw mut (*self.eq).fid];
            ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 2) == 0
        }
    }

    /// Fetches completions; moves the transport on.
    pub(crate) fn read_cq(&self, into: &mut Vec<Done>) {
        let mut entries = [CqMsgEntry { op_context: ptr::null_mut(), flags: 0, len: 0 }; BATCH];
        // SAFETY: an open queue, and room for as many entries of its format as are asked for.
        let n = unsafe { ((*(*self.cq).ops).read)(self.cq, entries.as_mut_ptr().cast(), BATCH) };
        if n > 0 {
            let done = |e: &CqMsgEntry| Done { context: e.op_context as u64, len: e.len, errno: 0 };
            into.extend(entries.iter().take(n as usize).map(done));
        } else if n == -(FI_EAVAIL as isize) {
            // SAFETY: zero is a value of every field.
            let mut error: CqErrEntry = unsafe { std::mem::zeroed() };
            // SAFETY: an open queue with an error in it.
            let n = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &raw mut error, 0) };
            if n > 0 {
                into.push(Done { context: error.op_context as u64, len: error.len, errno: error.err.max(1) });
            }
        }
    }

    /// Fetches one event.
    pub(crate) fn read_eq(&self) -> Option<News> {
        // Room for the data that may come with a connection, which we do not use.
        #[repr(C)]
        struct Room(EqCmEntry, [u8; 512]);
        // SAFETY: zero is a value of every field.
        let mut room: Room = unsafe { std::mem::zeroed() };
        let mut event = 0;
        // SAFETY: an open queue and as much room as is said.
        let n = unsafe {
            ((*(*self.eq).ops).read)(self.eq, &raw mut event, (&raw mut room).cast(), size_of::<Room>(), 0)
        };
        if n == -(FI_EAVAIL as isize) {
            // SAFETY: zero is a value of every field.
            let mut error: EqErrEntry = unsafe { std::mem::zeroed() };
            // SAFETY: an open queue with an error in it.
            let n = unsafe { ((*(*self.eq).ops).readerr)(self.eq, &raw mut error, 0) };
            return (n > 0).then_some(News::Over { ep: error.fid as usize, errno: error.err.max(1) });
        }
        if n < size_of::<*mut Fid>() as isize {
            return None;
        }
        let fid = room.0.fid as usize;
        match event {
            FI_CONNREQ if !room.0.info.is_null() => {
                Some(News::Asked { at: fid, info: Info { fi: self.fi, ptr: room.0.info } })
            }
            FI_CONNECTED => Some(News::Connected { ep: fid }),
            FI_SHUTDOWN => Some(News::Over { ep: fid, errno: 0 }),
            _ => None,
        }
    }

    /// Listens at an address.
    pub(crate) fn listen(&self, address: SocketAddr) -> Result<Passive, i32> {
        let info = self.info.listening_at(address);
        let mut pep = ptr::null_mut();
        // SAFETY: open objects; the endpoint is closed by drop, whatever fails after it was opened.
        unsafe {
            let code =
                ((*(*self.fabric).ops).passive_ep)(self.fabric, info.ptr, &raw mut pep, ptr::null_mut());
            if code != 0 {
                return Err(-code);
            }
            let passive = Passive { pep };
            let ops = &*(*pep).fid.ops;
            let code = (ops.bind)(&raw mut (*pep).fid, &raw mut (*self.eq).fid, 0);
            if code != 0 {
                return Err(-code);
            }
            match ((*(*pep).cm).listen)(pep) {
                0 => Ok(passive),
                code => Err(-code),
            }
        }
    }

    /// An endpoint of its own for an address, or for a request.
    pub(crate) fn endpoint(&self, info: &Info) -> Result<Active, Error> {
        let check = |call, code: c_int| {
            if code == 0 { Ok(()) } else { Err(failed(self.fi, call, code.into())) }
        };
        let mut ep = ptr::null_mut();
        // SAFETY: open objects; the endpoint is closed by drop, whatever fails after it was opened.
        unsafe {
            let ops = &*(*self.domain).ops;
            check("fi_endpoint", (ops.endpoint)(self.domain, info.ptr, &raw mut ep, ptr::null_mut()))?;
            let active = Active { ep };
            let ops = &*(*ep).fid.ops;
            let fid = &raw mut (*ep).fid;
            check("fi_ep_bind", (ops.bind)(fid, &raw mut (*self.eq).fid, 0))?;
            check("fi_ep_bind", (ops.bind)(fid, &raw mut (*self.cq).fid, FI_SEND | FI_RECV))?;
            check("fi_enable", (ops.control)(fid, FI_ENABLE, ptr::null_mut()))?;
            Ok(active)
        }
    }

    /// Registers memory for sends and receives.
    ///
    /// # Safety
    /// The memory stays until the registration is dropped.
    pub(crate) unsafe fn register(&self, memory: *mut u8, len: usize) -> Result<Registered, Error> {
        // Providers that do not choose keys themselves want another one each time.
        static KEYS: AtomicU64 = AtomicU64::new(1);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let mut mr = ptr::null_mut();
        // SAFETY: open domain; the caller keeps the memory.
        let code = unsafe {
            ((*(*self.domain).mr).reg)(
                &raw mut (*self.domain).fid,
                memory.cast(),
                len,
                FI_SEND | FI_RECV,
                0,
                key,
                0,
                &raw mut mr,
                ptr::null_mut(),
            )
        };
        if code != 0 {
            return Err(failed(self.fi, "fi_mr_reg", code.into()));
        }
        Ok(Registered { mr })
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: whatever was opened is closed once, from the bottom up; endpoints were closed before.
        unsafe {
            for fid in
                [self.cq.cast::<Fid>(), self.eq.cast(), self.domain.cast(), self.fabric.cast()].into_iter()
            {
                if !fid.is_null() {
                    close(fid);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use viaduct_kit::effort::scaled;
    use viaduct_kit::packages::skip;
    use viaduct_os::epoll::{Epoll, Interest};

    use super::*;
    use crate::config::OfiConfig;

    fn open() -> Option<Fabric> {
        let fi = match Fi::load(&OfiConfig::default().library) {
            Ok(fi) => fi,
            Err(e) => {
                skip(&e.to_string());
                return None;
            }
        };
        let list = Info::find(fi, Some("tcp"), FI_MSG).unwrap();
        Some(Fabric::open(fi, list.first_of("tcp").unwrap(), false).unwrap())
    }

    /// Sleeps on the descriptors of both until `look` finds something.
    fn until<T>(a: &Fabric, b: &Fabric, mut look: impl FnMut() -> Option<T>) -> T {
        let epoll = Epoll::new().unwrap();
        for (events, messages) in [a, b].map(|f| f.wait_fds().unwrap()) {
            epoll.add(events, 0, Interest::Read).unwrap();
            epoll.add(messages.unwrap(), 0, Interest::Read).unwrap();
        }
        let end = Instant::now() + scaled(Duration::from_secs(30));
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "nothing came");
            if a.may_sleep() && b.may_sleep() {
                // Longer than the test may take: a wake-up that is missing shows.
                epoll.wait(&mut Vec::new(), Some(scaled(Duration::from_secs(60)))).unwrap();
            }
        }
    }

    fn connected(fabric: &Fabric, ep: &Active) -> bool {
        matches!(fabric.read_eq(), Some(News::Connected { ep: key }) if key == ep.key())
    }

    #[test]
    #[cfg_attr(miri, ignore = "uses a library")]
    fn two_fabrics_connect_talk_and_part_without_a_busy_loop() {
        let (Some(a), Some(b)) = (open(), open()) else { return };
        let at = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = at.address().unwrap();
        let ep = a.endpoint(&a.info.leading_to(address)).unwrap();
        ep.connect(address).unwrap();
        let info = until(&a, &b, || {
            assert!(a.read_eq().is_none());
            match b.read_eq()? {
                News::Asked { at: key, info } if key == at.key() => Some(info),
                _ => panic!("something else"),
            }
        });
        let other = b.endpoint(&info).unwrap();
        let mut memory = [0u8; 64];
        // SAFETY: the memory lives to the end of the test, and is read when the receive is done.
        assert_eq!(unsafe { other.recv(memory.as_mut_ptr(), 64, ptr::null_mut(), 7) }, 0);
        other.accept().unwrap();
        let (mut here, mut there) = (false, false);
        until(&a, &b, || {
            here |= connected(&a, &ep);
            there |= connected(&b, &other);
            (here && there).then_some(())
        });
        let text = *b"hello";
        // SAFETY: the text lives to the end of the test.
        assert_eq!(unsafe { ep.send(text.as_ptr(), 5, ptr::null_mut(), 9) }, 0);
        let mut done = Vec::new();
        until(&a, &b, || {
            a.read_cq(&mut done);
            b.read_cq(&mut done);
            (done.len() == 2).then_some(())
        });
        done.sort_by_key(|d| d.context);
        assert_eq!((done[0].context, done[0].len, done[0].errno), (7, 5, 0));
        assert_eq!((done[1].context, done[1].errno), (9, 0));
        assert_eq!(memory[..5], text);
        ep.shut_down();
        drop(ep);
        until(&a, &b, || match b.read_eq()? {
            News::Over { ep, .. } if ep == other.key() => Some(()),
            _ => panic!("something else"),
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "uses a library")]
    fn a_missing_listener_and_a_port_that_is_taken_are_errors() {
        let (Some(a), Some(b)) = (open(), open()) else { return };
        let at = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = at.address().unwrap();
        assert_eq!(a.listen(address).err(), Some(FI_EADDRINUSE));
        drop(at);
        let ep = a.endpoint(&a.info.leading_to(address)).unwrap();
        ep.connect(address).unwrap();
        until(&a, &b, || match a.read_eq()? {
            News::Over { ep: key, errno: FI_ECONNREFUSED } if key == ep.key() => Some(()),
            _ => panic!("something else"),
        });
    }
}
