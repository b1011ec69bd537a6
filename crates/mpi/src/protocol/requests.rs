//! Requests: sends and receives that are under way, or done and not yet taken.

use std::any::Any;
use std::mem;
use std::sync::Arc;

use super::core::Manner;
use crate::error::Error;
use crate::group::Group;
use crate::handle;
use crate::matching::{Entry, Envelope};
use crate::raw::Span;

/// Names a request until it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub(super) index: u32,
    generation: u32,
}

impl Request {
    /// That of every send that was done before it had a request. It has no place, and is done however often it is taken.
    pub const SENT: Request = Request { index: u32::MAX, generation: 0 };

    /// As a handle of the program. None: there are too many requests, so that this one needs a table.
    #[inline]
    pub fn to_handle(self) -> Option<u32> {
        handle::of_place(self.index, self.generation)
    }

    /// From its handle, if it is one without a table.
    #[inline]
    pub fn from_handle(handle: u32) -> Option<Request> {
        let (index, generation) = handle::place_of(handle)?;
        Some(Request { index, generation })
    }

    /// As a number, for tables of handles.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// From its number.
    pub fn from_bits(bits: u64) -> Request {
        Request { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// What is known of a message that was received, or found by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender's rank in the communicator.
    pub source: i32,
    /// The tag.
    pub tag: i32,
    /// How many bytes.
    pub bytes: u64,
    /// Whether the request was cancelled instead.
    pub cancelled: bool,
}

impl Status {
    /// That of a send, and of a request that is none: any source, any tag, no bytes.
    pub const EMPTY: Status = Status { source: -2, tag: -1, bytes: 0, cancelled: false };
    /// That of a receive from no process.
    pub const PROC_NULL: Status = Status { source: -1, tag: -1, bytes: 0, cancelled: false };

    pub(super) fn of(envelope: &Envelope, bytes: usize) -> Status {
        Status { source: envelope.source, tag: envelope.tag, bytes: bytes as u64, cancelled: false }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What the program sees.
    pub status: Status,
    /// What went wrong, if anything did.
    pub error: Option<Error>,
}

impl Done {
    pub(super) fn well(status: Status) -> Done {
        Done { status, error: None }
    }
}

/// A message to be sent.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) span: Span,
    pub(super) to: usize,
    pub(super) envelope: Envelope,
    pub(super) manner: Manner,
    pub(super) stage: Stage,
}

/// How far a message to be sent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its first packet waits for credits.
    Queued,
    /// The receiver has its envelope and has to answer.
    Announced,
    /// The receiver asked for the bytes.
    Streaming,
}

/// A message to be received.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) span: Span,
    /// The processes that it may come from: one, or those of a communicator.
    pub(super) from: Senders,
    /// Its place among the posted receives, until it is matched.
    pub(super) entry: Option<Entry>,
    /// Once matched: which message, and the process that sends it.
    pub(super) matched: Option<Matched>,
}

/// A long message that a receive has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched {
    pub(super) peer: usize,
    pub(super) envelope: Envelope,
    /// How many bytes the message has.
    pub(super) len: usize,
    /// How many of them are wanted.
    pub(super) want: usize,
    /// How many are there.
    pub(super) got: usize,
    /// The sender's request.
    pub(super) request: u32,
}

/// Processes that a message may come from.
#[derive(Clone, Debug)]
pub(super) enum Senders {
    One(usize),
    Any(Group),
}

impl Senders {
    pub(super) fn has(&self, peer: usize) -> bool {
        match self {
            Senders::One(one) => *one == peer,
            Senders::Any(group) => group.rank(peer as u32).is_some(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Work {
    Send(Sending),
    Recv(Receiving),
    /// Nothing is left to do.
    Over,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    used: bool,
    /// No caller takes it: it goes when it is done.
    detached: bool,
    done: Option<Done>,
    /// What the library above has noted; 0 at first.
    label: u32,
    work: Work,
    /// What the request keeps alive, such as its communicator.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// All requests of a process.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Requests done since this was last looked at.
    pub(super) finished: u64,
}

impl Requests {
    #[inline]
    pub(super) fn insert(&mut self, work: Work, keep: Option<Arc<dyn Any + Send + Sync>>) -> Request {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let fresh = Slot {
                    generation: 0,
                    used: false,
                    detached: false,
                    done: None,
                    label: 0,
                    work: Work::Over,
                    keep: None,
                };
                self.slots.push(fresh);
                u32::try_from(self.slots.len() - 1)
                    .expect("memory ends before four thousand million requests")
            }
        };
        let slot = &mut self.slots[index as usize];
        (slot.used, slot.detached, slot.label) = (true, false, 0);
        // What was there is over: there is nothing to be dropped.
        mem::forget((
            slot.done.take(),
            mem::replace(&mut slot.work, work),
            mem::replace(&mut slot.keep, keep),
        ));
        Request { index, generation: slot.generation }
    }

    /// A request that is done already.
    pub(super) fn finished(&mut self, done: Done) -> Request {
        let request = self.insert(Work::Over, None);
        self.finish(request.index, done);
        request
    }

    fn slot(&self, request: Request) -> Option<&Slot> {
        self.slots
            .get(request.index as usize)
            .filter(|slot| slot.used && slot.generation == request.generation)
    }

    /// The work of a request by its place, which a peer may have named.
    pub(super) fn work(&mut self, index: u32) -> Option<&mut Work> {
        self.slots
            .get_mut(index as usize)
            .filter(|slot| slot.used && slot.done.is_none())
            .map(|slot| &mut slot.work)
    }

    pub(super) fn sending(&mut self, index: u32) -> Option<&mut Sending> {
        match self.work(index)? {
            Work::Send(sending) => Some(sending),
            _ => None,
        }
    }

    pub(super) fn receiving(&mut self, index: u32) -> Option<&mut Receiving> {
        match self.work(index)? {
            Work::Recv(receiving) => Some(receiving),
            _ => None,
        }
    }

    /// A receive that is not done, by its name.
    pub(super) fn receive_of(&mut self, request: Request) -> Option<&mut Receiving> {
        self.slot(request)?;
        self.receiving(request.index)
    }

    /// The name of the request at a place.
    pub(super) fn request_at(&self, index: u32) -> Option<Request> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.used)?;
        Some(Request { index, generation: slot.generation })
    }

    #[inline]
    pub(super) fn finish(&mut self, index: u32, done: Done) {
        let slot = &mut self.slots[index as usize];
        self.finished += 1;
        slot.work = Work::Over;
        slot.keep = None;
        if slot.detached {
            self.release(index);
        } else {
            slot.done = Some(done);
        }
    }

    #[inline]
    fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(matches!(slot.work, Work::Over) && slot.keep.is_none(), "it was finished");
        (slot.used, slot.done) = (false, None);
        slot.generation = (slot.generation + 1) % handle::GENERATIONS;
        self.free.push(index);
    }

    /// Whether a request is done, or there is none of this name.
    pub(super) fn is_done(&self, request: Request) -> bool {
        self.slot(request).is_none_or(|slot| slot.done.is_some())
    }

    /// The status of a request that is done.
    pub(super) fn status(&self, request: Request) -> Option<Status> {
        if request == Request::SENT {
            return Some(Status::EMPTY);
        }
        self.slot(request)?.done.as_ref().map(|done| done.status)
    }

    /// The end of a request that is done; the request is gone.
    #[inline]
    pub(super) fn take(&mut self, request: Request) -> Option<Done> {
        if request == Request::SENT {
            return Some(Done::well(Status::EMPTY));
        }
        self.slot(request)?.done.as_ref()?;
        let done = self.slots[request.index as usize].done.take();
        self.release(request.index);
        done
    }

    /// The end of a request that is done, with its label; the request is gone. None: it is not done. Some of none: there is no
    /// such request.
    #[inline]
    pub(super) fn end(&mut self, request: Request) -> Option<Option<(Done, u32)>> {
        let slot = self.slots.get_mut(request.index as usize);
        let Some(slot) = slot.filter(|slot| slot.used && slot.generation == request.generation) else {
            return Some(None);
        };
        let (done, label) = (slot.done.take()?, slot.label);
        self.release(request.index);
        Some(Some((done, label)))
    }

    /// What was noted of a request. None: there is no such request.
    pub(super) fn label(&self, request: Request) -> Option<u32> {
        self.slot(request).map(|slot| slot.label)
    }

    pub(super) fn set_label(&mut self, request: Request, label: u32) {
        if self.slot(request).is_some() {
            self.slots[request.index as usize].label = label;
        }
    }

    /// The request goes when it is done, or now.
    pub(super) fn detach(&mut self, request: Request) {
        let Some(slot) = self.slot(request) else { return };
        if slot.done.is_some() {
            self.release(request.index);
        } else {
            self.slots[request.index as usize].detached = true;
        }
    }

    /// The place of a request that exists.
    pub(super) fn place(&self, request: Request) -> Option<u32> {
        self.slot(request).map(|_| request.index)
    }

    /// The places of all requests that are not done.
    pub(super) fn open(&self) -> Vec<u32> {
        let open = self.slots.iter().enumerate().filter(|(_, slot)| slot.used && slot.done.is_none());
        open.map(|(index, _)| index as u32).collect()
    }
}
