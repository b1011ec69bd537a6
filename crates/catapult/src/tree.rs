//! The tree in which agents start each other: which host is below which, and what each is given for those below. Pure.
//!
//! ```text
//!   launcher ─┬─ 0 ─┬─ 2         hosts in a row, the first ones directly below the launcher;
//!             │     └─ 3         with an arity of two, 2 and 3 are below 0, 4 and 5 below 1
//!             └─ 1 ─┬─ 4
//!                   └─ 5
//! ```
//!
//! The launcher gives each agent what those below it are to be told, word for word, and a ticket for each (see
//! `viaduct_agent::ticket`). Hosts whose agents are known come first, so that an agent that is to show a ticket has a key that
//! the launcher knows; where nothing is known, agents bring up those below by ssh.

use std::ops::Range;

use viaduct_agent::known::Known;
use viaduct_agent::serve::first_message;
use viaduct_agent::{Identity, Ticket};

use crate::role::ROLE;
use crate::wire::{Branch, Start};

/// The places below `place` (below the launcher if it is none) of `count` in a row.
pub fn below(place: Option<usize>, arity: usize, count: usize) -> Range<usize> {
    let arity = arity.max(1);
    let first = place.map_or(0, |place| arity.saturating_mul(place + 1));
    first.min(count)..first.saturating_add(arity).min(count)
}

/// A host of the job, with what is known of its agent.
#[derive(Debug)]
pub struct Place {
    /// What it is to start with, without anything below.
    pub start: Start,
    /// Its agent, if there is one.
    pub known: Option<Known>,
}

/// All hosts of a job but the launcher's own, in the order of the tree.
#[derive(Debug)]
pub struct Tree {
    places: Vec<Place>,
    arity: usize,
}

impl Tree {
    /// Puts known hosts first; otherwise the order stays.
    pub fn new(mut places: Vec<Place>, arity: usize) -> Tree {
        places.sort_by_key(|place| place.known.is_none());
        Tree { places, arity }
    }

    /// The places below one, or below the launcher.
    pub fn below(&self, place: Option<usize>) -> Range<usize> {
        below(place, self.arity, self.places.len())
    }

    /// The place of a node.
    pub fn place_of(&self, node: u32) -> Option<usize> {
        self.places.iter().position(|place| place.start.plan.node.0 == node)
    }

    /// Its host.
    pub fn host(&self, place: usize) -> &str {
        &self.places[place].start.plan.host
    }

    /// The number of its node.
    pub fn node(&self, place: usize) -> u32 {
        self.places[place].start.plan.node.0
    }

    /// Whether an agent of a place is known.
    pub fn is_known(&self, place: usize) -> bool {
        self.places[place].known.is_some()
    }

    /// The agent of a place is another one than was known.
    pub fn learn(&mut self, place: usize, known: Option<Known>) {
        self.places[place].known = known;
    }

    /// What a place is to start with, and all those below it.
    pub fn start(&self, place: usize, launcher: &Identity) -> Start {
        let branch = |child: usize| {
            let start = postcard::to_stdvec(&self.start(child, launcher)).unwrap_or_default();
            let agent = match (&self.places[place].known, &self.places[child].known) {
                (Some(bearer), Some(agent)) => {
                    let message = first_message(ROLE, &start);
                    let ticket = Ticket::new(launcher, bearer.key, agent.key, &message);
                    Some((agent.address.clone(), agent.key.0, ticket.to_bytes()))
                }
                _ => None,
            };
            Branch { host: self.host(child).to_owned(), agent, launcher: launcher.public().0, start }
        };
        let below = self.below(Some(place)).map(branch).collect();
        Start { below, ..self.places[place].start.clone() }
    }
}

#[cfg(test)]
impl Place {
    /// Host `hN` with rank N.
    pub(crate) fn for_test(node: u32, known: Option<Known>) -> Place {
        use crate::plan::{NodePlan, Rank};
        let plan = NodePlan {
            job: "j".into(),
            size: 9,
            node: (node, 9),
            host: format!("h{node}"),
            ranks: vec![Rank { rank: node, app: 0 }],
            ..NodePlan::default()
        };
        let start = Start {
            version: crate::wire::VERSION,
            plan,
            put: Vec::new(),
            get: Vec::new(),
            folder: String::new(),
            lease: 1,
            limit: 1,
            allow_root: false,
            below: Vec::new(),
        };
        Place { start, known }
    }
}

#[cfg(test)]
mod tests {
    use viaduct_agent::PublicKey;
    use viaduct_job::Token;

    use super::*;

    fn place(node: u32, known: bool) -> Place {
        let key = PublicKey([node as u8 + 1; 32]);
        let agent = Known { host: format!("h{node}"), address: format!("10.0.0.{node}:1"), key };
        Place::for_test(node, known.then_some(agent))
    }

    #[test]
    fn every_place_is_below_exactly_one() {
        for (arity, count) in [(1, 5), (2, 6), (2, 0), (3, 40), (16, 16), (16, 300), (0, 3), (usize::MAX, 4)]
        {
            let mut seen: Vec<usize> = below(None, arity, count).collect();
            assert!(seen.len() <= arity.max(1));
            for place in 0..count {
                let children = below(Some(place), arity, count);
                assert!(children.clone().all(|child| child > place));
                seen.extend(children);
            }
            assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{arity} {count}");
        }
    }

    #[test]
    fn the_hosts_below_travel_word_for_word_and_tickets_fit() {
        let launcher = Identity::from_token(&Token::random());
        let tree = Tree::new((0..7).map(|node| place(node, node != 0)).collect(), 2);
        assert_eq!(tree.host(6), "h0", "the one that is not known comes last");
        let start = tree.start(0, &launcher);
        assert_eq!(start.nodes(), [(1, vec![1]), (3, vec![3]), (0, vec![0]), (4, vec![4])]);
        for branch in &start.below {
            let below = branch.read().unwrap();
            let (_, key, ticket) = branch.agent.clone().unwrap();
            let ticket = Ticket::parse(&ticket).unwrap();
            assert!(
                ticket.is_for(&first_message(ROLE, &branch.start)) && ticket.giver() == launcher.public()
            );
            assert_eq!(key, [below.plan.node.0 as u8 + 1; 32]);
        }
        let last = start.below[0].read().unwrap();
        assert_eq!(last.below[0].agent, None, "nothing is known of it, so it is brought up from there");
    }
}
