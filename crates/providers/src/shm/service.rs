//! What the control thread does for peers: it hands out segments, notes that a lane is free, and carries out RDMA on
//! private memory that the peer cannot reach itself.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::copy::{copy, copy_release_tail};
use viaduct_os::error::OsError;
use viaduct_os::fdpass::close_apart;
use viaduct_os::point::point;
use viaduct_os::segment::{Access, Segment};
use viaduct_via::{Counter, MemHandle, Status, raw};

use super::lane::LaneId;
use super::nic::Core;
use super::outbox::{Broken, MOST_OWED};
use super::pair::{MAX_BOUNCES, MAX_SEGMENT, Pair, lock};
use super::wire::{Note, PIECE, SPARSE, WANT_DIRECTORY, WANT_SLAB, note};
use crate::parties::tags_go_together;

/// Pieces of what peers read that are sent in one turn, so that no other peer waits for long.
const PIECES: usize = 64;

/// Reads of a peer that are under way. Their bytes are copied when the channel has room for them: a peer that asks for
/// a gigabyte and does not fetch it costs no memory.
#[derive(Default)]
pub(crate) struct Reads(VecDeque<Read>);

impl Reads {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One of them.
struct Read {
    number: u64,
    lane: LaneId,
    handle: MemHandle,
    address: u64,
    len: u64,
    done: u64,
}

impl Core {
    /// Deals with one note. False if the peer broke the protocol.
    pub(crate) fn serve(self: &Arc<Core>, pair: &Arc<Pair>, message: &[u8], mut fds: Vec<OwnedFd>) -> bool {
        let Ok((n, payload)) = Note::parse(message) else {
            close_apart(fds);
            return false;
        };
        if !matches!(n.kind, note::SEGMENT | note::BOUNCES) {
            close_apart(std::mem::take(&mut fds));
        }
        match n.kind {
            note::DETACH => {
                let offset = n.b as u32;
                if n.c == 0 {
                    lock(&pair.lanes).peer_let_go(n.a, offset);
                }
                // A waiter for errors looks at the connection now.
                self.tell();
                true
            }
            note::WANT => self.hand_out(pair, &n),
            note::SEGMENT => self.take_in(pair, &n, fds.pop()),
            note::WAKE => {
                self.bell.signal_fd();
                true
            }
            note::BOUNCES => self.take_bounces(pair, &n, fds.pop()),
            note::FENCE => {
                // When it is said, no thread of ours relies on the peer's barrier any more.
                barrier::force_symmetric();
                pair.send(&Note::new(note::FENCED), &[]);
                true
            }
            note::FENCED => {
                pair.fences_itself();
                true
            }
            note::RDMA => self.carry_out(pair, &n, payload),
            note::RDMA_DONE => self.carried_out(pair, &n, payload),
            _ => false,
        }
    }

    /// The owner sleeps often, in a crowd: all senders are asked to fence themselves, ours first.
    pub(crate) fn ask_for_fences(&self) {
        barrier::force_symmetric();
        let pairs: Vec<_> = lock(&self.control).pairs.values().cloned().collect();
        pairs.iter().for_each(|pair| pair.ask_for_fences());
    }

    /// A peer asks for one of our segments. Returns false if no segment is called so, which ends the pair.
    fn hand_out(&self, pair: &Pair, wanted: &Note) -> bool {
        let segment = match wanted.a {
            // Only direct mode shows memory of the user's.
            WANT_SLAB if !pair.direct => None,
            WANT_SLAB => u32::try_from(wanted.b).ok().and_then(|slab| self.memory.segment(slab)),
            // Other users have the empty one.
            WANT_DIRECTORY if pair.foreign => None,
            WANT_DIRECTORY => lock(&self.directory).chunk(wanted.b as usize).cloned(),
            _ => return false,
        };
        let mut answer = Note::new(note::SEGMENT);
        (answer.a, answer.b) = (wanted.a, wanted.b);
        answer.c = if segment.as_ref().is_some_and(|s| s.is_sparse()) { SPARSE } else { 0 };
        point("service.before-hand-out");
        pair.send_segment(&answer, segment);
        point("service.handed-out");
        true
    }

    /// A segment we asked for. Returns false if it is none that we could have asked for or is malformed, which ends the pair.
    fn take_in(&self, pair: &Pair, n: &Note, fd: Option<OwnedFd>) -> bool {
        match n.a {
            WANT_SLAB => {
                let Ok(slab) = u32::try_from(n.b) else { return false };
                // Slabs come from a peer of our own user, which could punch holes into any of them: that it says so only
                // tells a segment that is meant to have some from a mistake.
                let open = if n.c == SPARSE { Segment::open_sparse } else { Segment::open };
                let mapped = fd.map(|fd| open(fd, Access::ReadWrite, MAX_SEGMENT));
                let mut maps = lock(&self.maps);
                let before = maps.evictions;
                match mapped {
                    Some(Ok(mut segment)) => {
                        segment.drop_fd();
                        maps.insert(pair.id, slab, Some(Arc::new(segment)));
                    }
                    Some(Err(OsError::BadSegment(_))) => return false,
                    Some(Err(e)) => {
                        tracing::warn!("slab {slab} of process {} could not be mapped: {e}", pair.pid);
                        maps.fail(pair.id, slab);
                    }
                    None => maps.insert(pair.id, slab, None),
                }
                self.counters.add(Counter::MapEvictions, maps.evictions - before);
            }
            WANT_DIRECTORY if !pair.set_directory(n.b as usize, fd) => return false,
            WANT_DIRECTORY => {}
            _ => return false,
        }
        point("service.taken-in");
        self.ring();
        true
    }

    /// The peer's bounce buffers. False if there is nothing to map, which ends the pair: what it sends through them
    /// could not be fetched.
    fn take_bounces(&self, pair: &Pair, n: &Note, fd: Option<OwnedFd>) -> bool {
        let (Ok(slab), Some(fd)) = (u32::try_from(n.b), fd) else { return false };
        point("service.before-bounces");
        let taken = match Segment::open(fd, Access::ReadWrite, MAX_BOUNCES) {
            Ok(mut segment) => {
                segment.drop_fd();
                pair.set_bounces(slab, Arc::new(segment))
            }
            Err(OsError::BadSegment(_)) => false,
            Err(e) => {
                tracing::warn!("bounce buffers of process {} could not be mapped: {e}", pair.pid);
                false
            }
        };
        point("service.bounces-taken");
        self.ring();
        taken
    }

    /// Carries out an RDMA operation on our memory for a peer. Returns false if there is no such operation, which ends the pair; a
    /// refused one is answered.
    fn carry_out(&self, pair: &Pair, n: &Note, payload: &[u8]) -> bool {
        let (op, theirs) = ((n.b >> 32) as u8, n.b >> 40 & 1 != 0);
        let lane = LaneId { ours: !theirs, slab: n.a, offset: n.b as u32 };
        let handle = MemHandle::from_number((n.e >> 32) as u32);
        let len = u64::from(n.e as u32);
        if op == 2 {
            read_later(pair, Read { number: n.c, lane, handle, address: n.d, len, done: 0 });
            return true;
        }
        let rights = lock(&self.lanes).get(&(pair.id, lane)).map(|l| (l.tag, l.rdma_write, l.rdma_read));
        let mut answer = Note::new(note::RDMA_DONE);
        answer.c = n.c;
        answer.f = 1;
        let mut refuse = |status: Status| {
            answer.d = status as u64;
            pair.send(&answer, &[]);
            true
        };
        let Some((tag, may_write, may_read)) = rights else { return refuse(Status::TransportError) };
        // Held while we copy, so that the region cannot be withdrawn meanwhile.
        let directory = lock(&self.directory);
        // Of a write in pieces all that is to come has to be inside, so that nothing of one that is not is written.
        let whole = if op == 1 { len.max(n.g) } else { len };
        let found = directory.find(handle).filter(|f| tags_go_together(f.tag, tag) && f.contains(n.d, whole));
        let Some(found) = found else { return refuse(Status::RdmaProtectionError) };
        let (write, read) = (found.write && may_write, found.read && may_read);
        let memory = n.d as *mut u8;
        point("service.rdma-checked");
        match op {
            1 if write && payload.len() as u64 == len => {
                // SAFETY: the range is registered memory of this process, kept by the lock on the directory.
                // The owner may spin on the last word.
                unsafe { copy_release_tail(memory, payload.as_ptr(), payload.len()) };
                point("service.rdma-written");
                if n.f == 0 {
                    return true;
                }
                refuse(Status::Success)
            }
            3 | 4 if read && write && len == 8 && n.d.is_multiple_of(8) => {
                // SAFETY: eight aligned bytes of registered memory, kept by the lock on the directory.
                let old = unsafe {
                    if op == 3 { raw::compare_swap(memory, n.f, n.g) } else { raw::fetch_add(memory, n.f) }
                };
                answer.d = 0;
                answer.f = 1;
                point("service.rdma-atomic");
                pair.send(&answer, &old.to_ne_bytes());
                true
            }
            1 | 3 | 4 => refuse(Status::RdmaProtectionError),
            _ => false,
        }
    }

    /// Sends what a peer reads, in turn, as far as the channel has room. Whether it could go on at once.
    pub(crate) fn send_pieces(&self, pair: &Pair) -> bool {
        for _ in 0..PIECES {
            if pair.is_backed_up() || pair.is_broken() {
                return false;
            }
            let Some(mut read) = lock(&pair.reads).0.pop_front() else { return false };
            if !self.send_piece(pair, &mut read) {
                lock(&pair.reads).0.push_back(read);
            }
            point("service.rdma-piece");
        }
        !lock(&pair.reads).0.is_empty()
    }

    /// Sends the next piece. Whether it was the last.
    fn send_piece(&self, pair: &Pair, read: &mut Read) -> bool {
        let mut answer = Note::new(note::RDMA_DONE);
        answer.c = read.number;
        answer.e = read.done;
        answer.f = 1;
        let rights = lock(&self.lanes).get(&(pair.id, read.lane)).map(|l| (l.tag, l.rdma_read));
        let Some((tag, may_read)) = rights else {
            answer.d = Status::TransportError as u64;
            pair.send(&answer, &[]);
            return true;
        };
        // Held while we copy, so that the region cannot be withdrawn meanwhile; it may have been between two pieces.
        let directory = lock(&self.directory);
        let found = directory
            .find(read.handle)
            .filter(|f| tags_go_together(f.tag, tag) && f.contains(read.address, read.len));
        if !found.is_some_and(|f| f.read && may_read) {
            answer.d = Status::RdmaProtectionError as u64;
            pair.send(&answer, &[]);
            return true;
        }
        let len = (read.len - read.done).min(PIECE as u64);
        let mut piece = vec![0u8; len as usize];
        // SAFETY: the range is registered memory of this process, kept by the lock on the directory.
        unsafe { copy(piece.as_mut_ptr(), (read.address + read.done) as *const u8, piece.len()) };
        read.done += len;
        answer.f = u64::from(read.done == read.len);
        pair.send(&answer, &piece);
        read.done == read.len
    }

    /// A peer has carried out an operation of ours, or a piece of it. Returns false if it answers with bytes that were not asked
    /// for, which ends the pair.
    fn carried_out(&self, pair: &Pair, n: &Note, payload: &[u8]) -> bool {
        let mut replies = lock(&pair.replies);
        // The connection that asked may be closed by now.
        let Some(reply) = replies.get_mut(&n.c) else { return true };
        if reply.payload.len() as u64 != n.e || payload.len() > reply.room - reply.payload.len() {
            return false;
        }
        reply.payload.extend_from_slice(payload);
        reply.status = n.d as u8;
        reply.complete = n.f == 1;
        drop(replies);
        point("service.rdma-heard");
        self.ring();
        true
    }
}

/// Puts a read in line. A peer has one under way on each of its connections; one that asks for too many is cut off.
fn read_later(pair: &Pair, read: Read) {
    let mut reads = lock(&pair.reads);
    reads.0.push_back(read);
    if reads.0.len() > MOST_OWED / size_of::<Read>() {
        reads.0.clear();
        pair.break_off(&Broken::Unread);
    }
}
