//! Work queues: the ledger of every posted descriptor (VIA's send and receive queue).
//!
//! A descriptor enters at the tail, is handed to the transport at the cursor and leaves at the head, completed or
//! flushed, exactly once and in posting order, whatever the transport does. The ring is made when the VI is, so that
//! posting allocates nothing.

use crate::descriptor::{Descriptor, Op, Status, Work};
use crate::raw::Places;

/// A ring of posted descriptors.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    entries: Places<Entry>,
    /// Oldest descriptor not yet given back.
    head: u32,
    /// First descriptor whose completion was not announced to the completion queue.
    announced: u32,
    /// First descriptor not yet handed to the transport.
    cursor: u32,
    /// Where the next descriptor goes.
    tail: u32,
    depth: u32,
}

/// How a descriptor ended. It lies in the ledger, so that completing does not write to the descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// What was done: a receive may have met an RDMA write.
    pub(crate) op: Op,
    pub(crate) status: Status,
    pub(crate) length: u32,
    /// Immediate data that arrived.
    pub(crate) immediate: Option<u32>,
}

/// The outcome lies in fields that are read as they were written: what is written in parts and read as a whole has to
/// leave the store buffer first, which the message before it in there may keep from it for as long as a line travels.
#[derive(Debug)]
struct Entry {
    descriptor: Option<Descriptor>,
    length: u32,
    immediate: u32,
    has_immediate: bool,
    op: Op,
    status: Status,
    done: bool,
}

impl Entry {
    #[inline(always)]
    fn finish(&mut self, Outcome { op, status, length, immediate }: Outcome) {
        if !status.is_success() {
            self.doubt();
        }
        (self.op, self.status, self.length) = (op, status, length);
        self.has_immediate = immediate.is_some();
        if let Some(immediate) = immediate {
            self.immediate = immediate;
        }
        self.done = true;
    }

    #[cold]
    fn doubt(&mut self) {
        if let Some(descriptor) = self.descriptor.as_mut() {
            descriptor.doubt();
        }
    }

    #[inline(always)]
    fn outcome(&self) -> Outcome {
        let immediate = self.has_immediate.then_some(self.immediate);
        Outcome { op: self.op, status: self.status, length: self.length, immediate }
    }

    #[inline(always)]
    fn put(&mut self, descriptor: Descriptor) {
        let old = self.descriptor.replace(descriptor);
        debug_assert!(old.is_none(), "ring slot in use");
        // Nothing is there to be dropped, which the compiler cannot know.
        std::mem::forget(old);
    }
}

impl WorkQueue {
    pub(crate) fn new(depth: usize) -> WorkQueue {
        let entries = Places::new(depth, || Entry {
            descriptor: None,
            length: 0,
            immediate: 0,
            has_immediate: false,
            op: Op::Send,
            status: Status::Success,
            done: false,
        });
        WorkQueue { entries, head: 0, announced: 0, cursor: 0, tail: 0, depth: depth as u32 }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Descriptors posted and not yet given back.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.depth
    }

    /// Descriptors not yet handed to the transport.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.tail.wrapping_sub(self.cursor)
    }

    /// Adds a descriptor; the caller has checked [`is_full`](Self::is_full). Gives its index.
    #[inline]
    pub(crate) fn push(&mut self, descriptor: Descriptor) -> u32 {
        let index = self.tail;
        let slot = self.slot_mut(index);
        slot.put(descriptor);
        slot.done = false;
        self.tail = index.wrapping_add(1);
        index
    }

    /// Adds a descriptor that was carried out already; nothing waits before it.
    #[inline]
    pub(crate) fn push_done(&mut self, descriptor: Descriptor) {
        debug_assert_eq!(self.cursor, self.tail, "something waits before it");
        let index = self.tail;
        let slot = self.slot_mut(index);
        let work = descriptor.work();
        slot.finish(Outcome { op: work.op, status: Status::Success, length: work.total, immediate: None });
        slot.put(descriptor);
        self.tail = index.wrapping_add(1);
        self.cursor = self.tail;
    }

    /// Index the next descriptor will have.
    #[inline]
    pub(crate) fn next_index(&self) -> u32 {
        self.tail
    }

    /// Completes the descriptor at the cursor and moves on.
    #[inline]
    pub(crate) fn finish_cursor(&mut self, outcome: Outcome) {
        if self.cursor == self.tail {
            return;
        }
        let cursor = self.cursor;
        self.cursor = cursor.wrapping_add(1);
        self.slot_mut(cursor).finish(outcome);
    }

    /// Whether nothing in the ledger was handed to the transport or done: what comes next is for the oldest descriptor.
    #[inline]
    pub(crate) fn nothing_done(&self) -> bool {
        self.head == self.cursor
    }

    /// Takes the descriptor at the cursor while [nothing is done](Self::nothing_done); the caller knows its outcome.
    #[inline]
    pub(crate) fn pop_fresh(&mut self) -> Option<Descriptor> {
        debug_assert!(self.head == self.cursor && self.head != self.tail, "no fresh head");
        let head = self.head;
        self.head = head.wrapping_add(1);
        self.cursor = self.head;
        self.slot_mut(head).descriptor.take()
    }

    /// The descriptor at the cursor.
    #[inline]
    pub(crate) fn at_cursor(&mut self) -> Option<&mut Work> {
        if self.cursor == self.tail {
            return None;
        }
        let cursor = self.cursor;
        self.slot_mut(cursor).descriptor.as_mut().map(Descriptor::work_mut)
    }

    #[inline]
    pub(crate) fn cursor(&self) -> u32 {
        self.cursor
    }

    /// The descriptor at the cursor is with the transport now.
    #[inline]
    pub(crate) fn advance(&mut self) {
        debug_assert_ne!(self.cursor, self.tail, "nothing to advance over");
        self.cursor = self.cursor.wrapping_add(1);
    }

    /// The words of a descriptor that is with the transport and not done.
    #[inline]
    pub(crate) fn in_flight(&mut self, index: u32) -> Option<&mut Work> {
        let live = index.wrapping_sub(self.head) < self.cursor.wrapping_sub(self.head);
        let slot = self.slot_mut(index);
        if !live || slot.done {
            return None;
        }
        slot.descriptor.as_mut().map(Descriptor::work_mut)
    }

    /// Marks a descriptor done. A second completion of the same descriptor is ignored and told by `false`.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32, status: Status, length: u32) -> bool {
        let live = index.wrapping_sub(self.head) < self.len();
        let slot = self.slot_mut(index);
        if !live || slot.done {
            return false;
        }
        let Some(descriptor) = slot.descriptor.as_ref() else { return false };
        let op = descriptor.work().op;
        slot.finish(Outcome { op, status, length, immediate: None });
        true
    }

    /// Marks everything not yet done as flushed, and what came after it: the application has no completion of that yet,
    /// and must not take a message for delivered when one before it was not. The cursor goes to the end.
    pub(crate) fn flush(&mut self) {
        let mut i = self.head;
        let mut flushed = false;
        while i != self.tail {
            if flushed {
                self.slot_mut(i).done = false;
            }
            flushed |= self.finish(i, Status::Flushed, 0);
            i = i.wrapping_add(1);
        }
        self.cursor = self.tail;
    }

    /// Next descriptor that is done in order and not yet announced: whether it wants an entry in the completion queue.
    #[inline]
    pub(crate) fn announce_next(&mut self) -> Option<bool> {
        // What was taken without having been announced is past.
        if (self.head.wrapping_sub(self.announced) as i32) > 0 {
            self.announced = self.head;
        }
        if self.announced == self.tail {
            return None;
        }
        let announced = self.announced;
        let slot = self.slot_mut(announced);
        if !slot.done {
            return None;
        }
        let work = slot.descriptor.as_ref()?.work();
        let wanted = !(work.unsignalled && slot.status.is_success());
        self.announced = announced.wrapping_add(1);
        Some(wanted)
    }

    /// Announces the newest descriptor, if it is done and all before it were announced or taken: whether it wants an entry
    /// in the completion queue. None if not; then nothing was done.
    #[inline]
    pub(crate) fn announce_newest(&mut self) -> Option<bool> {
        let newest = self.tail.wrapping_sub(1);
        if self.announced != newest && self.head != newest {
            return None;
        }
        let slot = self.slot_mut(newest);
        if !slot.done {
            return None;
        }
        let work = slot.descriptor.as_ref()?.work();
        let wanted = !(work.unsignalled && slot.status.is_success());
        self.announced = self.tail;
        Some(wanted)
    }

    /// Takes the oldest descriptor if it is done.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Descriptor, Outcome)> {
        if self.head == self.tail {
            return None;
        }
        let head = self.head;
        let slot = self.slot_mut(head);
        if !slot.done {
            return None;
        }
        let taken = slot.descriptor.take().map(|descriptor| (descriptor, slot.outcome()));
        slot.done = false;
        self.head = head.wrapping_add(1);
        taken
    }

    /// Whether the oldest descriptor is done.
    #[inline]
    pub(crate) fn head_done(&self) -> bool {
        self.head != self.tail && self.slot(self.head).done
    }

    /// Whether the oldest descriptor is a copy that the NIC has made, and was sent.
    pub(crate) fn head_is_sent_copy(&self) -> bool {
        let slot = self.slot(self.head);
        let is_copy = slot.descriptor.as_ref().is_some_and(|descriptor| descriptor.work().is_copy);
        self.head_done() && slot.status.is_success() && is_copy
    }

    /// The words of a posted descriptor.
    pub(crate) fn peek(&self, index: u32) -> Option<&Work> {
        self.slot(index).descriptor.as_ref().map(Descriptor::work)
    }

    /// Shows every descriptor not yet handed to the transport.
    pub(crate) fn for_each_waiting(&self, mut f: impl FnMut(&Work)) {
        let mut i = self.cursor;
        while i != self.tail {
            if let Some(d) = &self.slot(i).descriptor {
                f(d.work());
            }
            i = i.wrapping_add(1);
        }
    }

    /// Whether some descriptor is not done yet.
    #[inline]
    pub(crate) fn unfinished(&self) -> bool {
        // In posting order the newest is usually the last to finish.
        self.head != self.tail
            && (self.waiting() > 0 || !self.slot(self.tail.wrapping_sub(1)).done || !self.head_done())
    }

    /// Descriptors that are not done.
    pub(crate) fn not_done(&self) -> u32 {
        (0..self.len()).filter(|i| !self.slot(self.head.wrapping_add(*i)).done).count() as u32
    }

    #[inline]
    fn slot(&self, index: u32) -> &Entry {
        self.entries.at(index)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut Entry {
        self.entries.at_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::test_runner::Config;

    fn numbered(n: u64) -> Descriptor {
        Descriptor::new(Op::Send).context(n)
    }

    #[test]
    fn comes_back_once_and_in_order() {
        let mut q = WorkQueue::new(4);
        for n in 0..4 {
            q.push(numbered(n));
            q.advance();
        }
        assert!(q.is_full());
        assert!(q.finish(1, Status::Success, 8));
        assert!(!q.finish(1, Status::TransportError, 0), "second completion is ignored");
        assert!(q.pop().is_none(), "the first one is not done yet");
        assert!(q.finish(0, Status::Success, 8));
        assert_eq!(q.announce_next(), Some(true));
        assert_eq!(q.announce_next(), Some(true));
        assert_eq!(q.announce_next(), None);
        q.flush();
        let back: Vec<_> =
            std::iter::from_fn(|| q.pop()).map(|(d, end)| (d.work().context, end.status)).collect();
        use Status::{Flushed, Success};
        assert_eq!(back, [(0, Success), (1, Success), (2, Flushed), (3, Flushed)]);
        assert!(!q.finish(2, Status::Success, 0), "a late completion of a returned descriptor is ignored");
    }

    #[test]
    fn nothing_succeeds_behind_a_flushed_one() {
        let mut q = WorkQueue::new(4);
        for n in 0..4 {
            q.push(numbered(n));
            q.advance();
        }
        for done in [0, 2, 3] {
            assert!(q.finish(done, Status::Success, 8));
        }
        q.flush();
        let back: Vec<_> = std::iter::from_fn(|| q.pop()).map(|(_, end)| (end.status, end.length)).collect();
        use Status::{Flushed, Success};
        assert_eq!(back, [(Success, 8), (Flushed, 0), (Flushed, 0), (Flushed, 0)]);
    }

    proptest::proptest! {
        // Miri is slow, and has no files to keep failures in.
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// Any mix of posts, completions in any order and flushes gives every descriptor back once, in order.
        #[test]
        fn ledger_holds(steps in proptest::collection::vec((0u8..5, 0u32..8), 0..400)) {
            let mut q = WorkQueue::new(8);
            let (mut posted, mut returned) = (0u64, 0u64);
            for (what, arg) in steps {
                match what {
                    0 | 1 if !q.is_full() => { q.push(numbered(posted)); q.advance(); posted += 1; }
                    2 => { q.finish((returned as u32).wrapping_add(arg), Status::Success, 1); }
                    3 if arg == 0 => q.flush(),
                    _ => while let Some((d, _)) = q.pop() {
                        proptest::prop_assert_eq!(d.work().context, returned);
                        returned += 1;
                    },
                }
                while q.announce_next().is_some() {}
            }
            q.flush();
            while let Some((d, _)) = q.pop() {
                proptest::prop_assert_eq!(d.work().context, returned);
                returned += 1;
            }
            proptest::prop_assert_eq!(posted, returned);
        }
    }
}
