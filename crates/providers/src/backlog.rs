//! Whether a listener takes one more request: the one rule of all providers.

/// What there is for a client that asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Its request waits for the owner.
    ForOneMore,
    /// As many wait as the backlog allows.
    Full,
    /// No process listens there.
    NoListener,
}

/// Room at a listener at which `queued` requests wait. One without a backlog is VIA's own way to listen: it is there while
/// a call waits (`waiting`), and for the first client that asks.
pub(crate) fn room(queued: usize, backlog: usize, waiting: bool) -> Room {
    match backlog {
        0 if waiting && queued == 0 => Room::ForOneMore,
        0 => Room::NoListener,
        _ if queued < backlog => Room::ForOneMore,
        _ => Room::Full,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_backlog_is_not_a_missing_listener() {
        assert_eq!(room(1, 2, false), Room::ForOneMore);
        assert_eq!(room(2, 2, false), Room::Full);
        assert_eq!(room(0, 0, true), Room::ForOneMore);
        assert_eq!(room(1, 0, true), Room::NoListener);
        assert_eq!(room(0, 0, false), Room::NoListener);
    }
}
