//! Process topologies (chapter 7 of the standard): grids and graphs over the ranks of a communicator. Pure.

mod cart;
mod dims;
mod graph;

pub use cart::Cart;
pub use dims::dims_create;
pub use graph::{Adjacent, Graph};

/// What a communicator's ranks are arranged in. The values are those of MPICH's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Edges listed in full by every process.
    Graph(Graph),
    /// A grid.
    Cart(Cart),
    /// Edges of which every process knows its own.
    DistGraph(Adjacent),
}

impl Topology {
    /// What `MPI_Topo_test` answers.
    pub fn status(&self) -> i32 {
        match self {
            Topology::Graph(_) => 1,
            Topology::Cart(_) => 2,
            Topology::DistGraph(_) => 3,
        }
    }
}
