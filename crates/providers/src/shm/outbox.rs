//! Notes the channel of a pair had no room for, or that came before the set-up of the connection was over.
//!
//! The channel of a new pair is the socket of its first connection, where the other end still expects an answer or the last
//! word: a note ahead of that would be taken for it, and end the connection. So a new outbox keeps what is posted until it is
//! opened.
//!
//! A peer that never reads must not make us keep notes without end, and none may be lost: beyond a bound the pair is
//! broken, as if the peer were gone. What our own RDMA operations put here is not counted. They are as many as there
//! are connections and as long as their descriptors: the owner's doing, not the peer's.

use std::collections::VecDeque;
use std::sync::Arc;

use viaduct_os::error::OsError;
use viaduct_os::fdpass::Channel;
use viaduct_os::segment::Segment;

/// Bytes a peer may leave unread. One that plays by the rules is owed an answer and a DETACH for each of its
/// connections at the most, which is 13 MiB with 65,536 of them.
pub(crate) const MOST_OWED: usize = 16 << 20;

/// A message on its way to the peer, with a segment to hand over.
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment: Option<Arc<Segment>>,
    /// It brings the peer the segment of our bounce buffers.
    pub(crate) announces: bool,
    /// Whether the peer had a part in it, so that it counts.
    pub(crate) counts: bool,
}

impl Message {
    fn send(&self, channel: &Channel) -> Result<bool, OsError> {
        let fd = self.segment.as_ref().and_then(|s| s.fd());
        channel.send(&self.bytes, fd.as_slice())
    }

    fn cost(&self) -> usize {
        if self.counts { self.bytes.len() + size_of::<Message>() } else { 0 }
    }
}

/// Why no more notes can be sent.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer left too much unread.
    Unread,
    /// The channel failed.
    Channel(OsError),
}

/// What waits for room.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Message>,
    owed: usize,
    /// Our last word of the connection's set-up has not been sent: notes wait for that.
    closed: bool,
    /// Nothing is sent any more; the pair is about to end.
    shut: bool,
    announcement: Announcement,
    /// The last message could not be sent because too many descriptors of this user are on their way.
    crowded: bool,
}

/// What became of the messages that waited for room.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Flushed {
    /// Something still waits.
    pub(crate) more: bool,
    /// The announcement of our bounce buffers has gone out just now: the owner may wait for that.
    pub(crate) announced: bool,
}

/// Whether the peer has the segment of our bounce buffers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Announcement {
    #[default]
    Unsent,
    /// It waits for room in the channel.
    Waits,
    /// The kernel has it: the peer gets it, whatever becomes of this process.
    Sent,
}

impl Outbox {
    /// The outbox of a pair whose connection is being set up: it sends nothing until it is opened.
    pub(crate) fn closed() -> Outbox {
        Outbox { closed: true, ..Outbox::default() }
    }

    /// Our last word of the connection's set-up was sent, and notes may follow it. Whether there are some for `flush`.
    pub(crate) fn open(&mut self) -> bool {
        self.closed = false;
        !self.waiting.is_empty()
    }

    /// Whether messages wait for room in the channel, and not for the outbox to be opened.
    pub(crate) fn is_backed_up(&self) -> bool {
        !self.closed && !self.waiting.is_empty()
    }

    /// Whether the next message waits for descriptors of this user to arrive, of which too many are on their way. The
    /// channel does not show when that is over.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// How far the announcement of our bounce buffers has got.
    pub(crate) fn announcement(&self) -> Announcement {
        self.announcement
    }

    /// Sends a message, now or when there is room and the outbox is open. Whether it has to wait.
    pub(crate) fn post(&mut self, message: Message, channel: &Channel) -> Result<bool, Broken> {
        if self.shut {
            return Ok(false);
        }
        if self.waiting.is_empty() && !self.closed {
            match message.send(channel) {
                Ok(true) => {
                    self.sent(message.announces);
                    return Ok(false);
                }
                Ok(false) => {}
                Err(e) if e.is_crowded() => {}
                Err(e) => return Err(self.shut(Broken::Channel(e))),
            }
        }
        if message.announces {
            self.announcement = Announcement::Waits;
        }
        self.owed += message.cost();
        if self.owed > MOST_OWED {
            return Err(self.shut(Broken::Unread));
        }
        self.waiting.push_back(message);
        Ok(true)
    }

    /// Sends what waited, as far as there is room. Nothing if the outbox is not open.
    pub(crate) fn flush(&mut self, channel: &Channel) -> Result<Flushed, Broken> {
        self.crowded = false;
        if self.closed {
            return Ok(Flushed::default());
        }
        let mut announced = false;
        while let Some(message) = self.waiting.front() {
            match message.send(channel) {
                Ok(true) => {
                    self.owed -= message.cost();
                    let announces = message.announces;
                    announced |= announces;
                    self.waiting.pop_front();
                    self.sent(announces);
                }
                Ok(false) => return Ok(Flushed { more: true, announced }),
                Err(e) if e.is_crowded() => {
                    self.crowded = true;
                    return Ok(Flushed { more: true, announced });
                }
                Err(e) => return Err(self.shut(Broken::Channel(e))),
            }
        }
        Ok(Flushed { more: false, announced })
    }

    fn sent(&mut self, announces: bool) {
        if announces {
            self.announcement = Announcement::Sent;
        }
    }

    fn shut(&mut self, why: Broken) -> Broken {
        *self = Outbox { shut: true, ..Outbox::default() };
        why
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use viaduct_os::fdpass::Recv;

    fn message(len: usize, counts: bool) -> Message {
        Message { bytes: vec![7; len], segment: None, announces: false, counts }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn waiting_messages_are_sent_in_order_and_too_many_end_the_channel() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut outbox = Outbox::default();
        let mut posted = 0;
        while !outbox.post(message(1 + posted % 1_000, true), &ours).unwrap() || posted < 5_000 {
            posted += 1;
        }
        let (mut buffer, mut fds) = (vec![0; 2_000], Vec::new());
        for n in 0..=posted {
            outbox.flush(&ours).unwrap();
            assert_eq!(theirs.recv(&mut buffer, &mut fds, 0).unwrap(), Recv::Message(1 + n % 1_000));
        }
        assert!(!outbox.is_backed_up() && outbox.owed == 0);
        // An announcement counts as sent when the channel has taken it, not before.
        while !outbox.post(message(1_000, true), &ours).unwrap() {}
        assert!(outbox.post(Message { announces: true, ..message(64, true) }, &ours).unwrap());
        assert_eq!(outbox.announcement(), Announcement::Waits);
        // It is told once, by the flush that sends it, whatever waits behind it.
        for _ in 0..5_000 {
            outbox.post(message(1_000, true), &ours).unwrap();
        }
        let mut told = 0;
        while outbox.announcement() == Announcement::Waits {
            assert_eq!(told, 0);
            theirs.recv(&mut buffer, &mut fds, 0).unwrap();
            let flushed = outbox.flush(&ours).unwrap();
            assert!(flushed.more && flushed.announced == (outbox.announcement() == Announcement::Sent));
            told += usize::from(flushed.announced);
        }
        assert_eq!((outbox.announcement(), told), (Announcement::Sent, 1));
        while outbox.flush(&ours).unwrap() != Flushed::default() {
            theirs.recv(&mut buffer, &mut fds, 0).unwrap();
        }
        // Our own operations are not the peer's fault.
        for _ in 0..2 * MOST_OWED / 32_768 {
            outbox.post(message(32_768, false), &ours).unwrap();
        }
        let end = (0..).find_map(|_| outbox.post(message(32_768, true), &ours).err());
        assert!(matches!(end, Some(Broken::Unread)));
        assert!(!outbox.is_backed_up() && matches!(outbox.post(message(1, true), &ours), Ok(false)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn no_note_goes_ahead_of_the_last_word_of_the_set_up() {
        let (ours, theirs) = Channel::pair().unwrap();
        let mut outbox = Outbox::closed();
        let announcement = Message { announces: true, ..message(64, true) };
        assert!(outbox.post(announcement, &ours).unwrap() && outbox.post(message(7, true), &ours).unwrap());
        assert_eq!(outbox.announcement(), Announcement::Waits);
        assert_eq!(outbox.flush(&ours).unwrap(), Flushed::default());
        assert!(!outbox.is_backed_up(), "room in the channel would change nothing");
        assert!(ours.send(&[1; 400], &[]).unwrap());
        assert!(outbox.open() && outbox.is_backed_up());
        assert_eq!(outbox.flush(&ours).unwrap(), Flushed { more: false, announced: true });
        assert!(!outbox.post(message(8, true), &ours).unwrap(), "from now on at once");
        let (mut buffer, mut fds) = (vec![0; 2_000], Vec::new());
        for len in [400, 64, 7, 8] {
            assert_eq!(theirs.recv(&mut buffer, &mut fds, 0).unwrap(), Recv::Message(len));
        }
        // The bound holds meanwhile, too.
        let mut outbox = Outbox::closed();
        let end = (0..).find_map(|_| outbox.post(message(32_768, true), &ours).err());
        assert!(matches!(end, Some(Broken::Unread)));
    }
}
