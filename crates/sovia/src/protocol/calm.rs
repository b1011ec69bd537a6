//! Fast paths through the protocol, for a connection that is *calm*: neither end closes, nothing is held or waited for,
//! and the whole window is open. Then a message is a count or two at each end, and nothing has to be done for it.
//!
//! SOVIA, section 5.2: what a small message costs above VIA is what happens between its arrival and the answer. Whether a
//! connection is calm is found out once; these methods keep it so, and after any other it has to be found out again.

use super::connection::Connection;
use super::state::State;
use crate::wire::{Kind, MAX_WINDOW, Packet};

/// The immediate data of a DATA packet that acknowledges nothing.
const DATA: u32 = Packet::new(Kind::Data, 0).encode();

impl Connection {
    /// Whether it is calm.
    pub fn is_calm(&self) -> bool {
        let open = self.state == State::Normal && self.awake && !self.fin_wanted && !self.peer_reads_no_more;
        open && !self.blocked && self.owed.shut() == 0 && self.combine.held() == 0
    }

    /// Longest request that a calm connection sends alone as a message.
    pub fn longest_alone(&self) -> usize {
        self.combine.longest_alone().min(self.small)
    }

    /// A request of 1 to [so many](Self::longest_alone) bytes: its packet, which is a message and goes now. None if it is
    /// combined with others, or the window is shut; then nothing was done.
    #[inline]
    pub fn send_calmly(&mut self) -> Option<Packet> {
        if self.credits.left() == 0 || !self.combine.passes_alone() {
            return None;
        }
        self.credits.take();
        if let Some(ring) = self.out.as_mut() {
            ring.pass();
        }
        Some(self.control(Kind::Data))
    }

    /// A message of `len` bytes came with this immediate data. False if it is not DATA as it should be; then nothing was
    /// done.
    #[inline(always)]
    pub fn came_calmly(&mut self, word: u32, len: usize) -> bool {
        let acks = word ^ DATA;
        let plain = acks <= MAX_WINDOW && len > 0 && len <= self.our_mtu;
        if !plain || !self.owed.has_room() || !self.credits.give(acks) {
            return false;
        }
        if let Some(out) = self.out.as_mut() {
            out.acknowledged(acks);
        }
        self.owed.on_allowed_packet();
        true
    }

    /// Whether the descriptor of the packet that came last may be posted a little later: the peer would not hear of it yet.
    #[inline]
    pub fn may_post_later(&self) -> bool {
        self.owed.is_below()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::protocol::{Came, WriteStep};

    /// Miri has time for a few steps.
    const MOST: usize = if cfg!(miri) { 10 } else { 200 };

    /// Two ends that have greeted, of which the first is calm.
    fn open(combining: bool) -> Connection {
        let config = Config { combining, ..Config::default() };
        let greeting = config.greeting(None);
        let (mut one, _) = Connection::open(&config, &greeting, &greeting);
        one.packet(Packet::new(Kind::Wakeup, 0), Came::Message(0)).unwrap();
        one.posted(0);
        assert!(one.is_calm());
        one
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: if cfg!(miri) { 2 } else { 256 },
            ..ProptestConfig::default()
        })]

        /// The short ways and the long ones end in the same state, whatever comes.
        #[test]
        fn a_short_way_is_the_long_one(
            combining: bool,
            steps in prop::collection::vec((0..4u8, 0..4u32, 0..3000usize), 1..MOST),
        ) {
            let (mut short, mut long) = (open(combining), open(combining));
            for (step, acks, len) in steps {
                match step {
                    0 => {
                        let word = Packet::new(Kind::Data, acks).encode();
                        if short.is_calm() && short.came_calmly(word, len) {
                            let taken = long.packet(Packet::new(Kind::Data, acks), Came::Message(len));
                            prop_assert!(taken.is_ok_and(|taken| taken.actions.is_empty()));
                            prop_assert_eq!(short.posted(0), long.posted(0));
                        }
                    }
                    1 => {
                        let may = len > 0 && len <= short.longest_alone();
                        if may && short.is_calm() && let Some(calm) = short.send_calmly() {
                            let WriteStep::Send(packet, sent, _) = long.write(len) else {
                                panic!("it was not sent");
                            };
                            prop_assert_eq!((packet, sent), (calm, len));
                        }
                    }
                    2 => {
                        short.reads();
                        long.reads();
                    }
                    _ => prop_assert_eq!(short.write(len.max(1)), long.write(len.max(1))),
                }
                prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
            }
        }

        #[test]
        fn only_data_is_taken_calmly(word: u32, len in 0..40_000usize) {
            let mut connection = open(false);
            let before = format!("{connection:?}");
            let data = Packet::decode(word).is_some_and(|p| p.kind == Kind::Data);
            let taken = connection.came_calmly(word, len);
            prop_assert!(!taken || data && len > 0);
            let after = format!("{connection:?}");
            prop_assert!(taken || after == before);
        }
    }
}
