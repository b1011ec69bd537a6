//! Standard input on its way to ranks, no faster than they take it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;

use viaduct_os::epoll::{Epoll, Interest};

use crate::plan::NodePlan;
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
    /// Bytes on the way to each node that wants input; none for the other nodes, and for one that has ended.
    under_way: Vec<Option<u64>>,
}

impl Input {
    /// Opens it if a rank wants it.
    pub(crate) fn new(plans: &[NodePlan], token: u64, epoll: &Epoll) -> Input {
        let wants = |plan: &NodePlan| plan.ranks.iter().any(|rank| plan.input.reaches(rank.rank));
        let under_way: Vec<Option<u64>> = plans.iter().map(|plan| wants(plan).then_some(0)).collect();
        let wanted = under_way.iter().any(Option::is_some);
        let own = || std::io::stdin().as_fd().try_clone_to_owned().ok().map(File::from);
        let file = wanted.then(own).flatten();
        let watched = file.as_ref().is_some_and(|file| epoll.add(file, token, Interest::Read).is_ok());
        let plain = file.is_some() && !watched;
        Input { file, plain, armed: watched, under_way }
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
                self.under_way.iter_mut().flatten().for_each(|sum| *sum += n as u64);
                Some(Order::Input(bytes))
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // The end; or a terminal that belongs to another process group at the moment.
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
        if let Some(Some(sum)) = self.under_way.get_mut(node) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// A node has ended: it takes nothing more, and holds up no other node.
    pub(crate) fn ended(&mut self, node: usize) {
        if let Some(sum) = self.under_way.get_mut(node) {
            *sum = None;
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
        // The slowest node that still wants input decides. Where none does, nothing more is read.
        let mut wanting = self.under_way.iter().flatten().peekable();
        wanting.peek().is_some() && wanting.all(|&sum| sum < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Rank};

    fn plan(node: u32, input: plan::Input) -> NodePlan {
        NodePlan { ranks: vec![Rank { rank: node, app: 0 }], input, ..NodePlan::default() }
    }

    fn with(input: plan::Input) -> Input {
        let plans: Vec<NodePlan> = (0..3).map(|node| plan(node, input)).collect();
        let epoll = Epoll::new().unwrap();
        let mut source = Input::new(&plans, 0, &epoll);
        source.under_way.iter_mut().flatten().for_each(|sum| *sum = WINDOW);
        source
    }

    #[test]
    fn only_nodes_that_want_input_hold_it_up() {
        let mut one = with(plan::Input::One(1));
        assert!(!one.has_room());
        one.took(0, WINDOW);
        assert!(!one.has_room(), "node 0 gets nothing");
        one.took(1, 1);
        assert!(one.has_room());
    }

    #[test]
    fn a_node_that_has_ended_holds_up_no_other() {
        let mut all = with(plan::Input::All);
        all.took(0, WINDOW);
        all.ended(1);
        assert!(!all.has_room());
        all.ended(2);
        assert!(all.has_room());
        all.ended(0);
        assert!(!all.has_room(), "no rank is left that wants any");
    }
}
