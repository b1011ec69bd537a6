//! Standard input on its way to ranks, no faster than they take it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;

use viaduct_os::epoll::{Epoll, Interest};

use crate::plan;
use crate::wire::Order;

/// So much may be under way to a node.
const WINDOW: u64 = 256 << 10;
const PIECE: usize = 64 << 10;

/// Our standard input.
#[derive(Debug)]
pub(crate) struct Input {
    file: Option<File>,
    /// A plain file: always ready, and cannot be watched.
    plain: bool,
    armed: bool,
    under_way: Vec<u64>,
}

impl Input {
    /// Opens it if somebody wants it.
    pub(crate) fn new(wanted: Option<plan::Input>, nodes: usize, token: u64, epoll: &Epoll) -> Input {
        let wanted = wanted.is_some_and(|input| input != plan::Input::None);
        let own = || std::io::stdin().as_fd().try_clone_to_owned().ok().map(File::from);
        let file = wanted.then(own).flatten();
        let watched = file.as_ref().is_some_and(|file| epoll.add(file, token, Interest::Read).is_ok());
        let plain = file.is_some() && !watched;
        Input { file, plain, armed: watched, under_way: vec![0; nodes] }
    }

    /// Whether reading makes sense without having been told.
    pub(crate) fn is_always_ready(&self) -> bool {
        self.plain && self.file.is_some() && self.has_room()
    }

    /// The next order, if there is room for it.
    pub(crate) fn read(&mut self, epoll: &Epoll) -> Option<Order> {
        if !self.has_room() {
            return None;
        }
        let file = self.file.as_mut()?;
        let mut bytes = vec![0; PIECE];
        match file.read(&mut bytes) {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                self.under_way.iter_mut().for_each(|sum| *sum += n as u64);
                Some(Order::Input(bytes))
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // The end; or a terminal that belongs to somebody else at the moment.
            _ => {
                if self.armed {
                    let _ = epoll.del(&*file);
                }
                (self.file, self.armed) = (None, false);
                Some(Order::InputEnd)
            }
        }
    }

    /// A node has passed so much on.
    pub(crate) fn took(&mut self, node: usize, bytes: u64) {
        if let Some(sum) = self.under_way.get_mut(node) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// Watches it exactly while there is room.
    pub(crate) fn arm(&mut self, epoll: &Epoll, token: u64) {
        let wanted = self.has_room();
        if let (Some(file), false, true) = (&self.file, self.plain, wanted != self.armed) {
            self.armed = wanted;
            let _ = if wanted { epoll.add(file, token, Interest::Read) } else { epoll.del(file) };
        }
    }

    fn has_room(&self) -> bool {
        // The slowest decides: nobody is given more than others have taken.
        self.under_way.iter().all(|&sum| sum < WINDOW)
    }
}
