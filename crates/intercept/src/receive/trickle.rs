//! When a receiver looks away: many small messages in a row, and no send in between.
//!
//! A receiver that is faster than its sender takes each message by itself, and costs the sender the lines of the ring and of its
//! words for each of them. One that looks away for some microseconds takes many at a time; a sender of eight bytes is four times as
//! fast then. How long it looks away is learned from what comes meanwhile. A send, a receive of much and a look that finds nothing
//! end it, so that one that answers never waits.

/// A receive that takes fewer bytes took little.
const LITTLE: u64 = 8192;
/// One that takes so many took much: this is no row of small messages.
const MUCH: u64 = 64 << 10;
/// After so many receives of little in a row the receiver looks away.
const ROW: u32 = 16;
/// What comes while it looks away, if messages are dense: then it looks away for longer.
const DENSE: u64 = 128;
/// Up to so many times as long.
const MOST_STEPS: u32 = 7;

/// How many times the shortest time a receiver looks away, if it does.
pub(super) fn steps(row: u32) -> Option<u32> {
    (row >= ROW).then(|| (row - ROW + 1).min(MOST_STEPS))
}

/// The row after a receive of `count` bytes.
pub(super) fn after_receive(row: u32, count: u64) -> u32 {
    match count {
        MUCH.. => 0,
        _ if row >= ROW => row,
        LITTLE.. => 0,
        _ => row + 1,
    }
}

/// The row after a look at what came meanwhile.
pub(super) fn after_linger(row: u32, bytes: u64) -> u32 {
    match bytes {
        0 => 0,
        1..DENSE => ROW,
        DENSE..LITTLE => (row + 1).min(ROW + MOST_STEPS - 1),
        _ => row.saturating_sub(1).max(ROW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_looks_away_after_a_row_of_small_receives() {
        let after = |counts: &[u64]| counts.iter().fold(0, |row, &count| after_receive(row, count));
        assert_eq!(
            (steps(after(&[8; 15])), steps(after(&[8; 16])), steps(after(&[8; 99]))),
            (None, Some(1), Some(1))
        );
        assert_eq!((after(&[LITTLE; 40]), after(&[8, 8, LITTLE, 8])), (0, 1));
        assert_eq!((after_receive(ROW, LITTLE), after_receive(ROW + 3, MUCH)), (ROW, 0));
    }

    #[test]
    fn it_looks_away_for_longer_where_messages_are_dense() {
        let after = |looks: &[u64]| steps(looks.iter().fold(ROW, |row, &bytes| after_linger(row, bytes)));
        assert_eq!(
            (after(&[DENSE]), after(&[DENSE; 50]), after(&[DENSE, DENSE, 8])),
            (Some(2), Some(MOST_STEPS), Some(1))
        );
        assert_eq!(
            (after(&[DENSE, DENSE, LITTLE]), after(&[LITTLE; 9]), after(&[DENSE, 0])),
            (Some(2), Some(1), None)
        );
        assert_eq!(after(&[u64::MAX]), Some(1), "a position that makes no sense is seen by the receive");
    }
}
