//! A pair: everything two connected NICs share, however many connections they have.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use viaduct_os::barrier::LightPeer;
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fdpass::{Channel, close_apart};
use viaduct_os::segment::{Access, Segment};
use viaduct_via::{Error, MemHandle, Reach};
use zerocopy::IntoBytes;

use super::directory::{CHUNKS, Found, chunk_len, chunk_of};
use super::lane::Lanes;
use super::map::Why;
use super::outbox::{Announcement, Broken, Flushed, Message, Outbox};
use super::probe;
use super::service::Reads;
use super::shared::{Entries, NicPage, View};
use super::wire::{Hello, Note, WANT_DIRECTORY, hello, note};

/// How the ends of a pair reach each other, by whether they map each other's memory.
pub(crate) fn reach(direct: bool) -> Reach {
    if direct { Reach::Direct } else { Reach::Copied }
}

/// What a look at the peer's directory gave.
pub(crate) enum Directed {
    Found(Found),
    /// No such region.
    Unknown,
    /// That part of the directory is on its way.
    Asked,
    /// It has come, and could not be mapped here.
    Failed,
}

/// Our view of a peer NIC.
pub(crate) struct Pair {
    pub(crate) id: u64,
    pub(crate) pid: i32,
    pub(crate) channel: Channel,
    pub(crate) pidfd: OwnedFd,
    pub(crate) page: View<NicPage>,
    /// What wakes the peer's owner out of poll or epoll. None for another user: its file and ours stay apart, because
    /// flags of an open file belong to all its holders, and a write to it could be made to block.
    bell_fd: Option<EventFd>,
    dead: AtomicBool,
    /// A peer of another user: nothing of ours but what is made for the two of us is shown to it.
    pub(crate) foreign: bool,
    /// Peers of one user copy straight into each other's memory.
    pub(crate) direct: bool,
    /// The kernel lets us reach its private memory.
    pub(crate) vm: bool,
    pub(crate) lanes: Mutex<Lanes>,
    /// The parts of the peer's directory that have come: read by every RDMA operation, without a lock.
    directory: [OnceLock<Entries>; CHUNKS],
    /// What is known of those that have not.
    absent: Mutex<[Absent; CHUNKS]>,
    /// Outcomes of operations the peer carries out for us, by operation number: those we asked for and no others.
    pub(crate) replies: Mutex<HashMap<u64, Reply>>,
    /// Messages the channel had no room for.
    outbox: Mutex<Outbox>,
    /// The slab of the peer's bounce buffers, which it gives us before it offers anything in them. Kept beyond its
    /// death: what it sent before can still be fetched.
    bounces: OnceLock<(u32, Arc<Segment>)>,
    /// What the peer reads from our memory through us, and has not got yet.
    pub(crate) reads: Mutex<Reads>,
    /// The channel is of no use any more: the control thread ends the pair.
    broken: AtomicBool,
    /// When a copy of the peer's last did not end in time.
    stuck: AtomicU64,
    /// Whether the control thread watches for room.
    pub(crate) wants_room: AtomicBool,
    /// Wakes the control thread.
    wake: Arc<EventFd>,
    /// The peer's senders leave the fence to our sleepers.
    light: Mutex<Option<LightPeer>>,
}

/// A part of the directory that is not here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Unasked,
    Asked,
    /// The peer has said that there is no such part; asked again if another operation wants it.
    Missing,
    /// It could not be mapped; asked for again likewise.
    Failed,
}

/// Outcome of an operation the peer carried out for us.
#[derive(Default)]
pub(crate) struct Reply {
    /// Bytes that were asked for.
    pub(crate) room: usize,
    pub(crate) status: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) complete: bool,
}

/// The descriptors that come with a request or its answer.
pub(crate) struct Passed {
    pub(crate) page: OwnedFd,
    pub(crate) directory: OwnedFd,
    /// Not from a peer that treats us as another user.
    pub(crate) bell: Option<OwnedFd>,
    /// The lane's segment, with an answer.
    pub(crate) lane: Option<OwnedFd>,
}

impl Passed {
    /// Sorts what came with a hello. A wrong number, or another kind of file, is an error.
    pub(crate) fn sort(fds: Vec<OwnedFd>, hello: &Hello) -> Result<Passed, Error> {
        let expected = 2 + usize::from(!hello.isolated()) + usize::from(hello.kind == hello::ACCEPT);
        if fds.len() != expected {
            close_apart(fds);
            return Err(Error::Protocol("a wrong number of descriptors"));
        }
        let bell = if hello.isolated() { None } else { Some(2) };
        let is_right = |(at, fd): (usize, &OwnedFd)| {
            if Some(at) == bell { EventFd::is_one(fd.as_fd()) } else { Segment::is_one(fd.as_fd()) }
        };
        if !fds.iter().enumerate().all(is_right) {
            close_apart(fds);
            return Err(Error::Protocol("a descriptor of the wrong kind"));
        }
        let mut fds = fds.into_iter();
        let mut next = || fds.next().expect("counted above");
        let (page, directory) = (next(), next());
        let bell = bell.map(|_| next());
        Ok(Passed { page, directory, bell, lane: fds.next() })
    }
}

/// How two NICs deal with each other, as far as it is ours to say.
pub(crate) struct Modes {
    pub(crate) foreign: bool,
    pub(crate) direct: bool,
    pub(crate) vm: bool,
}

/// Largest segment accepted from a peer.
pub(crate) const MAX_SEGMENT: usize = 1 << 40;
/// Largest slab of bounce buffers accepted from a peer.
pub(crate) const MAX_BOUNCES: usize = 64 << 20;

impl Pair {
    /// Looks at what a peer sent and makes its view. No note goes out before [`introduced`](Pair::introduced).
    pub(crate) fn open(
        id: u64,
        channel: &mut Option<Channel>,
        hello: &Hello,
        passed: Passed,
        slots: usize,
        modes: Modes,
        wake: Arc<EventFd>,
    ) -> Result<Pair, Error> {
        let socket = channel.as_ref().ok_or(Error::Protocol("a pair without a channel"))?;
        let cred = socket.peer()?;
        let gone = || Error::NotReachable(format!("process {} is gone", cred.pid));
        let pidfd = socket.peer_pidfd()?.ok_or_else(gone)?;
        let page = Arc::new(Segment::open(passed.page, Access::ReadWrite, 1 << 20)?);
        let page = View::nic_page(&page).ok_or(Error::Protocol("the NIC's page is too small"))?;
        let directory = Segment::open(passed.directory, Access::ReadOnly, 1 << 30)?;
        if directory.len() < chunk_len(0) {
            return Err(Error::Protocol("the directory is too small"));
        }
        let first = Entries::of(&Arc::new(directory));
        let mut chunks: [OnceLock<Entries>; CHUNKS] = Default::default();
        chunks[0] = OnceLock::from(first);
        let foreign = modes.foreign;
        let bell_fd = match passed.bell {
            Some(fd) if !foreign => Some(EventFd::from_peer(fd)?),
            None if !foreign => return Err(Error::Protocol("the bell is missing")),
            _ => None,
        };
        let direct = modes.direct && hello.direct() && !foreign;
        Ok(Pair {
            id,
            pid: cred.pid,
            pidfd,
            page,
            bell_fd,
            dead: AtomicBool::new(false),
            foreign,
            direct,
            vm: modes.vm && direct && probe::vm_works(cred.pid, hello.uid, hello.uid_address),
            lanes: Mutex::new(Lanes::new(slots)),
            directory: chunks,
            absent: Mutex::new([Absent::Unasked; CHUNKS]),
            replies: Mutex::new(HashMap::new()),
            outbox: Mutex::new(Outbox::closed()),
            bounces: OnceLock::new(),
            reads: Mutex::new(Reads::default()),
            broken: AtomicBool::new(false),
            stuck: AtomicU64::new(0),
            wants_room: AtomicBool::new(false),
            wake,
            light: Mutex::new(hello.asymmetric().then(LightPeer::new)),
            channel: channel.take().ok_or(Error::Protocol("a pair without a channel"))?,
        })
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Whether copies of the peer are waited for: not for a second after one did not end in time.
    pub(crate) fn has_patience(&self, now: u64) -> bool {
        now.saturating_sub(self.stuck.load(Ordering::Relaxed)) > 1_000_000_000
    }

    /// A copy of the peer did not end in time.
    pub(crate) fn lose_patience(&self, now: u64) {
        self.stuck.store(now, Ordering::Relaxed);
    }

    pub(crate) fn set_dead(&self) {
        self.dead.store(true, Ordering::Release);
        self.fences_itself(); // it sends no more
    }

    /// Asks the peer's senders to fence themselves, unless they do.
    pub(crate) fn ask_for_fences(&self) {
        if lock(&self.light).is_some() {
            self.send(&Note::new(note::FENCE), &[]);
        }
    }

    /// The peer's senders fence themselves from now on.
    pub(crate) fn fences_itself(&self) {
        drop(lock(&self.light).take());
    }

    /// Our last word of the set-up was sent over the pair's channel, so that the other end takes what follows for notes.
    pub(crate) fn introduced(&self) {
        if lock(&self.outbox).open() {
            self.wake.signal(); // the control thread sends them
        }
    }

    /// Wakes the peer if it sleeps. What it should see was published before.
    #[inline]
    pub(crate) fn ring(&self) {
        match &self.bell_fd {
            Some(fd) => self.page.bell.ring(Some(fd.as_fd())),
            None => self.page.bell.ring_by(|| self.send(&Note::new(note::WAKE), &[])),
        }
    }

    /// Sends a note, now or when the channel has room.
    pub(crate) fn send(&self, note: &Note, payload: &[u8]) {
        let bytes = if payload.is_empty() { note.as_bytes().to_vec() } else { note.with(payload) };
        self.post(Message { bytes, segment: None, announces: false, counts: note.kind != note::RDMA });
    }

    /// Sends a note with a segment, now or when the channel has room.
    pub(crate) fn send_segment(&self, note: &Note, segment: Option<Arc<Segment>>) {
        self.post(Message { bytes: note.as_bytes().to_vec(), segment, announces: false, counts: true });
    }

    /// Gives the peer the slab of our bounce buffers, once. Whether it is out of our hands: until then nothing in the
    /// slab may be offered, because a peer could not fetch it once we are gone.
    pub(crate) fn announce(&self, slab: u32, segment: &Arc<Segment>) -> bool {
        let mut outbox = lock(&self.outbox);
        if outbox.announcement() == Announcement::Unsent {
            let mut note = Note::new(note::BOUNCES);
            note.b = u64::from(slab);
            let (bytes, segment) = (note.as_bytes().to_vec(), Some(segment.clone()));
            let posted =
                outbox.post(Message { bytes, segment, announces: true, counts: true }, &self.channel);
            self.posted(posted);
        }
        outbox.announcement() == Announcement::Sent
    }

    /// The slab of the peer's bounce buffers: here, on its way (`None`), or not to be had.
    pub(crate) fn bounces(&self, slab: u32) -> Result<Option<Arc<Segment>>, Why> {
        // Before the look: the control thread takes in all that the peer sent before it calls it dead.
        let dead = self.dead.load(Ordering::Acquire);
        match self.bounces.get() {
            Some((number, segment)) if *number == slab => Ok(Some(segment.clone())),
            Some(_) => Err(Why::Gone),
            None if dead => Err(Why::Failed),
            None => Ok(None),
        }
    }

    /// The peer's bounce buffers have come. False if they came before.
    pub(crate) fn set_bounces(&self, slab: u32, segment: Arc<Segment>) -> bool {
        self.bounces.set((slab, segment)).is_ok()
    }

    fn post(&self, message: Message) {
        let posted = lock(&self.outbox).post(message, &self.channel);
        self.posted(posted);
    }

    fn posted(&self, outcome: Result<bool, Broken>) {
        match outcome {
            Ok(false) => {}
            // The control thread sends the rest.
            Ok(true) => self.wake.signal(),
            Err(why) => self.break_off(&why),
        }
    }

    /// Sends what waited, as far as there is room.
    pub(crate) fn flush(&self) -> Flushed {
        let flushed = lock(&self.outbox).flush(&self.channel);
        flushed.unwrap_or_else(|why| {
            self.break_off(&why);
            Flushed::default()
        })
    }

    /// Whether messages wait although the channel has room: too many descriptors of this user are on their way.
    pub(crate) fn is_crowded(&self) -> bool {
        lock(&self.outbox).is_crowded()
    }

    /// Whether messages wait for room in the channel.
    pub(crate) fn is_backed_up(&self) -> bool {
        lock(&self.outbox).is_backed_up()
    }

    /// Whether the control thread has something to send, or an end to make.
    pub(crate) fn has_work(&self) -> bool {
        self.is_broken() || self.is_backed_up() || !lock(&self.reads).is_empty()
    }

    /// Whether the pair is to be ended.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Notes are lost from here on, so the connections end. The control thread does it: we may be anywhere.
    pub(crate) fn break_off(&self, why: &Broken) {
        match why {
            Broken::Unread => tracing::warn!("process {}: too many notes unread, cut off", self.pid),
            // The peer is gone, which is noticed elsewhere, when what it sent before is read.
            Broken::Channel(e) if is_hangup(e) => return,
            Broken::Channel(e) => tracing::warn!("process {}: a note could not be sent: {e}", self.pid),
        }
        self.broken.store(true, Ordering::Release);
        self.wake.signal();
    }

    /// Looks up a region of the peer.
    pub(crate) fn find(&self, handle: MemHandle) -> Directed {
        let (chunk, at) = chunk_of(handle.index());
        match self.directory.get(chunk).map(OnceLock::get) {
            Some(Some(entries)) => match entries.get(at).and_then(|e| e.read(handle)) {
                Some(found) => Directed::Found(found),
                None => Directed::Unknown,
            },
            Some(None) => self.ask_for_directory(chunk),
            None => Directed::Unknown,
        }
    }

    #[cold]
    fn ask_for_directory(&self, chunk: usize) -> Directed {
        let mut absent = lock(&self.absent);
        match absent[chunk] {
            // If it has come meanwhile, the next try finds it.
            Absent::Asked => Directed::Asked,
            Absent::Missing => {
                absent[chunk] = Absent::Unasked;
                Directed::Unknown
            }
            Absent::Failed => {
                absent[chunk] = Absent::Unasked;
                Directed::Failed
            }
            Absent::Unasked => {
                let mut ask = Note::new(note::WANT);
                ask.a = WANT_DIRECTORY;
                ask.b = chunk as u64;
                self.send(&ask, &[]);
                absent[chunk] = Absent::Asked;
                Directed::Asked
            }
        }
    }

    /// A part of the directory has come, or there is no such part (then it may be asked for again). False if it is no
    /// directory.
    pub(crate) fn set_directory(&self, chunk: usize, fd: Option<OwnedFd>) -> bool {
        let Some(slot) = self.directory.get(chunk) else { return true };
        let mut absent = lock(&self.absent);
        // What was not asked for, or came twice, is ignored.
        if absent[chunk] != Absent::Asked || slot.get().is_some() {
            return true;
        }
        absent[chunk] = match fd.map(|fd| Segment::open(fd, Access::ReadOnly, 1 << 30)) {
            Some(Ok(segment)) => {
                let _ = slot.set(Entries::of(&Arc::new(segment)));
                Absent::Asked
            }
            Some(Err(OsError::BadSegment(_))) => return false,
            Some(Err(e)) => {
                tracing::warn!("directory of process {} could not be mapped: {e}", self.pid);
                Absent::Failed
            }
            None => Absent::Missing,
        };
        true
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether a message could not be sent because the other end is gone.
pub(crate) fn is_hangup(error: &OsError) -> bool {
    let gone = |kind| matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
    matches!(error, OsError::Sys { source, .. } if gone(source.kind()))
}
