//! Graphs of processes: those that every process lists in full, and those of which each knows its own edges.

use crate::error::{Class, Error, Result};

/// A graph in the form of `MPI_Graph_create`: all neighbours in one list, and where the list of each rank ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    index: Vec<i32>,
    edges: Vec<i32>,
}

impl Graph {
    /// Checks the lists.
    ///
    /// # Errors
    /// [`Class::Topology`]: the ends fall, or an edge leads out of the graph.
    pub fn new(index: &[i32], edges: &[i32]) -> Result<Graph> {
        let falls =
            index.windows(2).any(|pair| pair[1] < pair[0]) || index.first().is_some_and(|first| *first < 0);
        if falls {
            return Err(Error::new(Class::Topology, "the ends of the lists of neighbours fall"));
        }
        let used = index.last().map_or(0, |last| *last as usize);
        let Some(edges) = edges.get(..used) else {
            return Err(Error::new(
                Class::Topology,
                format!("{used} edges are named, {} given", edges.len()),
            ));
        };
        let nodes = index.len() as i32;
        if let Some(edge) = edges.iter().find(|edge| !(0..nodes).contains(*edge)) {
            return Err(Error::new(Class::Topology, format!("an edge to {edge} in a graph of {nodes}")));
        }
        Ok(Graph { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// Where the list of each rank ends.
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// All neighbours.
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// The neighbours of a rank.
    ///
    /// # Errors
    /// [`Class::Rank`]: the graph has no such rank.
    pub fn neighbours(&self, rank: i32) -> Result<&[i32]> {
        let known = usize::try_from(rank).ok().filter(|rank| *rank < self.index.len());
        let rank =
            known.ok_or_else(|| Error::new(Class::Rank, format!("rank {rank} of {}", self.index.len())))?;
        let first = if rank == 0 { 0 } else { self.index[rank - 1] as usize };
        Ok(&self.edges[first..self.index[rank] as usize])
    }
}

/// The edges of one process in a distributed graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjacent {
    /// Ranks that have an edge to this process.
    pub sources: Vec<i32>,
    /// Ranks that this process has an edge to.
    pub destinations: Vec<i32>,
    /// The weights of both, if there are any.
    pub weights: Option<(Vec<i32>, Vec<i32>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_from_the_common_list() {
        let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        assert_eq!(graph.neighbours(0).unwrap(), [1, 3]);
        assert_eq!(graph.neighbours(3).unwrap(), [0, 2]);
        assert_eq!(graph.neighbours(4).unwrap_err().class(), Class::Rank);
    }

    #[test]
    fn bad_lists_are_refused() {
        assert!(Graph::new(&[2, 1], &[0, 1]).is_err());
        assert!(Graph::new(&[1, 2], &[0]).is_err());
        assert!(Graph::new(&[1], &[1]).is_err());
        assert!(Graph::new(&[-1], &[]).is_err());
        assert!(Graph::new(&[], &[]).is_ok());
    }
}
