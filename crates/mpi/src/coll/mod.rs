//! Collective operations as schedules: what one rank sends, receives and computes, round by round. Pure.
//!
//! A schedule is made once, from rank, size and the shape of the data, and is then carried out by the call, which waits
//! for its end. All transfers of a round are posted together; when the last is done the round's local steps run in order, and the next
//! round begins. Ranks match because every rank derives its part from the same rule.
//!
//! | operation | short | long |
//! |---|---|---|
//! | barrier | dissemination | |
//! | broadcast | binomial tree | scatter, then ring |
//! | gather, scatter | binomial tree | straight to and from the root |
//! | allgather | doubling or Bruck | ring |
//! | alltoall | Bruck | straight, 32 at a time |
//! | reduce | binomial tree | halving, then gather |
//! | allreduce | doubling | halving, then doubling back |
//! | reduce-scatter | pairwise, or all at once if operands may not change places | |
//! | scan, exscan | doubling | |

mod allgather;
mod alltoall;
mod barrier;
mod bcast;
mod gather;
mod reduce;
mod scan;
mod schedule;

pub use allgather::{allgather, allgatherv};
pub use alltoall::{alltoall, alltoallv};
pub use barrier::barrier;
pub use bcast::bcast;
pub use gather::{gather, gatherv, scatter, scatterv};
pub use reduce::{allreduce, reduce, reduce_scatter};
pub use scan::{exscan, scan};
pub use schedule::{Chunk, Kind, Local, Place, Round, Schedule, Transfer};

use crate::datatype::Datatype;

/// Whose part of the operation is planned: a rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Me {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

impl Me {
    /// The rank `by` places further on, around the ring.
    fn after(self, by: usize) -> usize {
        (self.rank + by) % self.size
    }

    /// The rank `by` places back, around the ring. `by` is at most the size.
    fn before(self, by: usize) -> usize {
        (self.rank + self.size - by) % self.size
    }

    /// The place of this rank when the root is counted as 0.
    fn place(self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    /// The rank at a place that is counted from the root.
    fn at(self, place: usize, root: usize) -> usize {
        (place + root) % self.size
    }
}

/// The data of one side: `count` elements of a type.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// How many elements; for operations between all ranks, for each of them.
    pub count: usize,
    /// What they are.
    pub kind: &'a Datatype,
}

impl Data<'_> {
    /// In packed form.
    fn bytes(&self) -> usize {
        self.count * self.kind.size()
    }

    /// From one rank's elements to the next one's.
    fn stride(&self) -> i64 {
        self.count as i64 * self.kind.extent()
    }
}

/// Lengths at which one algorithm gives way to another, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Broadcasts from this length on are scattered first.
    pub bcast_long: usize,
    /// Gathers and scatters up to this length for each rank go by a tree.
    pub tree_short: usize,
    /// Allgathers up to this length in all double.
    pub allgather_short: usize,
    /// Alltoalls up to this length for each rank are Bruck's.
    pub alltoall_short: usize,
    /// Reductions from this length on are halved first.
    pub reduce_long: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bcast_long: 64 << 10,
            tree_short: 2 << 10,
            allgather_short: 64 << 10,
            alltoall_short: 256,
            reduce_long: 8 << 10,
        }
    }
}

/// `total` elements cut into `parts` consecutive blocks, the first ones an element longer: where block `index` begins
/// and how long it is.
fn block(total: usize, parts: usize, index: usize) -> (usize, usize) {
    let (len, longer) = (total / parts, total % parts);
    (index * len + index.min(longer), len + usize::from(index < longer))
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
