//! What is to run where: programs and hosts become nodes with ranks. Pure.
//!
//! Ranks fill a host before they go on to the next, as `mpiexec` does. More ranks than slots start again at the first
//! host, so that oversubscription is even.

use serde::{Deserialize, Serialize};
use viaduct_job::pmi::server::mapping;

use crate::error::Error;
use crate::hosts::Host;

/// A program of the job, with what is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name and arguments, as bytes: they need not be text.
    pub command: Vec<Vec<u8>>,
    /// Variables beyond those of the launcher.
    pub variables: Vec<(String, String)>,
    /// Where it runs.
    pub folder: Option<String>,
}

/// How many ranks of a program are wanted, and on which hosts if not on those of the job.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The program.
    pub program: Program,
    /// Ranks; as many as there are slots if not said.
    pub count: Option<usize>,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Its number in the job.
    pub rank: u32,
    /// Which program.
    pub app: u32,
}

/// Where standard input goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// To nobody.
    None,
    /// To one rank.
    One(u32),
    /// To all.
    All,
}

impl Input {
    /// Whether this rank gets it.
    pub fn reaches(self, rank: u32) -> bool {
        self == Input::All || self == Input::One(rank)
    }
}

/// What one node has to do: this goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// The job.
    pub job: String,
    /// Ranks of the whole job.
    pub size: u32,
    /// Number of this node, and of all.
    pub node: (u32, u32),
    /// How this host is called.
    pub host: String,
    /// The ranks of this node.
    pub ranks: Vec<Rank>,
    /// The programs of the job.
    pub programs: Vec<Program>,
    /// Variables for all ranks.
    pub variables: Vec<(String, String)>,
    /// Which ranks are together, as PMI tells it.
    pub mapping: String,
    /// Where input goes.
    pub input: Input,
    /// The rank that runs in a debugger.
    pub debug: Option<u32>,
    /// End everything when a rank ends badly.
    pub strict: bool,
}

/// Ranks on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The hosts that got a rank, in order.
    pub hosts: Vec<Host>,
    /// The ranks of each of them.
    pub nodes: Vec<Vec<Rank>>,
}

impl Placement {
    /// Distributes the ranks of all programs over the hosts. `per_node` overrides the slots.
    ///
    /// # Errors
    /// If there is nothing to run, or nowhere.
    pub fn new(wishes: &[Wish], hosts: &[Host], per_node: Option<usize>) -> Result<Placement, Error> {
        let slots = |host: &Host| per_node.unwrap_or(host.slots);
        let all: usize = hosts.iter().map(slots).sum();
        if wishes.is_empty() || all == 0 {
            return Err(Error::Usage("there is nothing to run, or no host to run it on".to_owned()));
        }
        let unsaid = wishes.iter().filter(|wish| wish.count.is_none()).count();
        let said: usize = wishes.iter().filter_map(|wish| wish.count).sum();
        if unsaid > 1 {
            return Err(Error::Usage("of several programs at most one goes without -n".to_owned()));
        }
        let rest = all.saturating_sub(said).max(1);
        let counts = wishes.iter().map(|wish| wish.count.unwrap_or(rest));
        let apps = counts.enumerate().flat_map(|(app, count)| std::iter::repeat_n(app as u32, count));
        // The node of each slot, again and again.
        let seats = hosts.iter().enumerate().flat_map(|(node, host)| std::iter::repeat_n(node, slots(host)));
        let seats: Vec<usize> = seats.collect();
        let mut nodes: Vec<Vec<Rank>> = vec![Vec::new(); hosts.len()];
        let apps: Vec<u32> = apps.collect();
        if apps.is_empty() {
            return Err(Error::Usage("at least one rank is needed".to_owned()));
        }
        // A second time around is dealt to the nodes first, so that ranks of a node have numbers in a row.
        let mut shares = vec![0usize; hosts.len()];
        for at in 0..apps.len() {
            shares[seats[at % seats.len()]] += 1;
        }
        let mut next = apps.iter().enumerate().map(|(rank, &app)| Rank { rank: rank as u32, app });
        for (node, share) in shares.iter().enumerate() {
            nodes[node].extend(next.by_ref().take(*share));
        }
        let used = |pair: &(Host, Vec<Rank>)| !pair.1.is_empty();
        let (hosts, nodes) = hosts.iter().cloned().zip(nodes).filter(used).unzip();
        Ok(Placement { hosts, nodes })
    }

    /// Ranks in all.
    pub fn size(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// Which ranks are together, as PMI tells it.
    pub fn mapping(&self) -> String {
        mapping(&self.nodes.iter().map(Vec::len).collect::<Vec<_>>())
    }

    /// The host of every rank, in the order of ranks.
    pub fn host_of_ranks(&self) -> Vec<&str> {
        self.hosts
            .iter()
            .zip(&self.nodes)
            .flat_map(|(host, ranks)| ranks.iter().map(|_| &*host.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(count: Option<usize>) -> Wish {
        Wish { count, ..Wish::default() }
    }

    fn hosts(list: &[(&str, usize)]) -> Vec<Host> {
        list.iter().map(|(name, slots)| Host { name: (*name).to_owned(), slots: *slots }).collect()
    }

    fn shape(wishes: &[Wish], list: &[(&str, usize)], per_node: Option<usize>) -> Vec<usize> {
        Placement::new(wishes, &hosts(list), per_node).unwrap().nodes.iter().map(Vec::len).collect()
    }

    #[test]
    fn hosts_are_filled_in_order() {
        assert_eq!(shape(&[wish(Some(3))], &[("a", 2), ("b", 2)], None), [2, 1]);
        assert_eq!(shape(&[wish(None)], &[("a", 2), ("b", 2)], None), [2, 2]);
        assert_eq!(shape(&[wish(Some(2))], &[("a", 2), ("b", 2)], Some(1)), [1, 1]);
        assert_eq!(
            shape(&[wish(Some(1))], &[("a", 2), ("b", 2)], None),
            [1],
            "a host without ranks is not used"
        );
    }

    #[test]
    fn too_many_ranks_are_spread_evenly_and_numbered_in_a_row() {
        let placement = Placement::new(&[wish(Some(7))], &hosts(&[("a", 2), ("b", 1)]), None).unwrap();
        let ranks: Vec<Vec<u32>> =
            placement.nodes.iter().map(|node| node.iter().map(|rank| rank.rank).collect()).collect();
        assert_eq!(ranks, [vec![0, 1, 2, 3, 4], vec![5, 6]]);
        assert_eq!(placement.mapping(), "(vector,(0,1,5),(1,1,2))");
        assert_eq!(placement.host_of_ranks()[4..], ["a", "b", "b"]);
    }

    #[test]
    fn several_programs_share_the_ranks() {
        let placement = Placement::new(&[wish(Some(1)), wish(None)], &hosts(&[("a", 4)]), None).unwrap();
        let apps: Vec<u32> = placement.nodes[0].iter().map(|rank| rank.app).collect();
        assert_eq!(apps, [0, 1, 1, 1]);
        assert!(Placement::new(&[wish(None), wish(None)], &hosts(&[("a", 4)]), None).is_err());
        assert!(Placement::new(&[wish(Some(0))], &hosts(&[("a", 4)]), None).is_err());
        assert!(Placement::new(&[wish(Some(1))], &[], None).is_err());
    }
}
