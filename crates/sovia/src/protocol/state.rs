//! The state diagram of figure 8: TCP's, without its waiting time at the end, because packets do not wander here.
//!
//! ```text
//!                        NORMAL
//!         close / FIN  ┌────┴────┐  FIN / FINACK
//!                 FIN_WAIT_1   CLOSE_WAIT
//!        FINACK ┌──────┴──────┐ FIN / FINACK  │ close / FIN
//!         FIN_WAIT_2       CLOSING         LAST_ACK
//!  FIN / FINACK └──────┬──────┘ FINACK        │ FINACK
//!                   CLOSED ◀──────────────────┘
//! ```

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Both directions are open.
    Normal,
    /// We closed our direction; the peer does not know yet.
    FinWait1,
    /// The peer knows, and may go on sending.
    FinWait2,
    /// Both closed at once; the peer does not know yet.
    Closing,
    /// The peer closed its direction; we may go on sending.
    CloseWait,
    /// We closed too; the peer does not know yet.
    LastAck,
    /// Over.
    Closed,
}

impl State {
    /// Our direction closes: a FIN goes out.
    pub(super) fn fin_sent(self) -> Option<State> {
        match self {
            State::Normal => Some(State::FinWait1),
            State::CloseWait => Some(State::LastAck),
            _ => None,
        }
    }

    /// The peer's FIN came: a FINACK goes out.
    pub(super) fn fin_came(self) -> Option<State> {
        match self {
            State::Normal => Some(State::CloseWait),
            State::FinWait1 => Some(State::Closing),
            State::FinWait2 => Some(State::Closed),
            _ => None,
        }
    }

    /// The peer's FINACK came.
    pub(super) fn finack_came(self) -> Option<State> {
        match self {
            State::FinWait1 => Some(State::FinWait2),
            State::Closing | State::LastAck => Some(State::Closed),
            _ => None,
        }
    }

    /// Whether the peer may still send.
    pub fn hears(self) -> bool {
        matches!(self, State::Normal | State::FinWait1 | State::FinWait2)
    }

    /// Whether we may still send.
    pub fn speaks(self) -> bool {
        matches!(self, State::Normal | State::CloseWait)
    }

    /// Whether all bytes of both directions have arrived, so that an end of the connection loses nothing: only a FINACK
    /// is missing.
    pub fn is_spent(self) -> bool {
        matches!(self, State::Closing | State::LastAck | State::Closed)
    }
}
