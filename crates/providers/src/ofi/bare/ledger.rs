//! What is posted: every message until its completion has come, or its endpoint is closed.
//!
//! Contexts carry a number that changes with each use of a place, so that a completion which comes after its endpoint
//! was closed finds nothing.

use super::Message;

/// Messages that libfabric works on.
#[derive(Default)]
pub(super) struct Ledger {
    places: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    turn: u32,
    held: Option<PostedMessage>,
}

/// A posted message.
pub(super) struct PostedMessage {
    pub(super) message: Message,
    /// The endpoint it was posted to.
    pub(super) endpoint: usize,
    pub(super) receive: bool,
}

impl Ledger {
    /// Takes a message in; gives the context to post it with.
    #[inline]
    pub(super) fn put(&mut self, held: PostedMessage) -> u64 {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.places.push(Slot::default());
                self.places.len() as u32 - 1
            }
        };
        let place = &mut self.places[at as usize];
        place.turn = place.turn.wrapping_add(1);
        place.held = Some(held);
        u64::from(place.turn) << 32 | u64::from(at)
    }

    /// The message posted with a context, if it is still here.
    #[inline]
    pub(super) fn take(&mut self, context: u64) -> Option<PostedMessage> {
        let (turn, at) = ((context >> 32) as u32, context as u32);
        let place = self.places.get_mut(at as usize).filter(|place| place.turn == turn)?;
        let held = place.held.take()?;
        self.free.push(at);
        Some(held)
    }

    /// Whatever was posted to an endpoint that is closed.
    pub(super) fn take_all(&mut self, endpoint: usize) -> Vec<Message> {
        let mut all = Vec::new();
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Some(held) = place.held.take_if(|held| held.endpoint == endpoint) {
                all.push(held.message);
                self.free.push(at as u32);
            }
        }
        all
    }

    /// Messages that are posted.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.iter().filter(|place| place.held.is_some()).count()
    }
}
