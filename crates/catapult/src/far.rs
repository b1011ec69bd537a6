//! Nodes behind a connection, as the launcher's loop sees them.

use viaduct_os::epoll::{self, Epoll};

use crate::wire::{Event, Order};

/// A connection to one node or, through it, to several.
pub trait Far {
    /// An order for every node behind it.
    fn send(&mut self, order: &Order, epoll: &Epoll, token: u64);

    /// Something came, or there is room: what the nodes said, with their numbers.
    fn ready(&mut self, event: epoll::Event, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>);

    /// Called now and then: says that we live, and notices if the others do not.
    fn tick(&mut self, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>);

    /// Stops, begins or goes on reading.
    fn pause(&mut self, pause: bool, epoll: &Epoll, token: u64);
}
