//! Names of nodes, workers and pages, and sets of the first two.

use std::fmt;

/// A node: processes that share frames (section 2.1). At most [`NodeSet::CAPACITY`] of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u8);

/// A worker of this node, counted from zero on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u8);

/// A page of the shared window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

impl PageId {
    /// The node that decides which node touched this page first.
    pub fn manager(self, nodes: u8) -> NodeId {
        NodeId((self.0 % u32::from(nodes)) as u8)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

macro_rules! set {
    ($(#[$doc:meta])* $name:ident of $item:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u64);

        impl $name {
            /// How many different members there can be.
            pub const CAPACITY: u8 = 64;
            /// The set without members.
            pub const EMPTY: $name = $name(0);

            /// The set with one member.
            pub fn of(item: $item) -> $name {
                $name(1 << item.0)
            }

            /// Whether `item` is a member.
            pub fn contains(self, item: $item) -> bool {
                self.0 & (1 << item.0) != 0
            }

            /// Makes `item` a member.
            pub fn insert(&mut self, item: $item) {
                self.0 |= 1 << item.0;
            }

            /// Makes `item` no member.
            pub fn remove(&mut self, item: $item) {
                self.0 &= !(1 << item.0);
            }

            /// This set and `item`.
            #[must_use]
            pub fn with(mut self, item: $item) -> $name {
                self.insert(item);
                self
            }

            /// This set but `item`.
            #[must_use]
            pub fn without(mut self, item: $item) -> $name {
                self.remove(item);
                self
            }

            /// The members of either set.
            #[must_use]
            pub fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Whether there are no members.
            pub fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// How many members there are.
            pub fn len(self) -> u32 {
                self.0.count_ones()
            }

            /// The members as bits, for memory and messages.
            pub fn to_bits(self) -> u64 {
                self.0
            }

            /// The set of these bits.
            pub fn from_bits(bits: u64) -> $name {
                $name(bits)
            }

            /// The members in rising order.
            pub fn iter(self) -> impl Iterator<Item = $item> {
                let mut left = self.0;
                std::iter::from_fn(move || {
                    let next = left.trailing_zeros();
                    left &= left.wrapping_sub(1);
                    (next < 64).then_some($item(next as u8))
                })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.iter().map(|item| item.0)).finish()
            }
        }
    };
}

set! {
    /// A set of nodes: the sharing set of a page.
    NodeSet of NodeId
}
set! {
    /// A set of workers of one node: those with a mapping of a page.
    WorkerSet of WorkerId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_its_members_in_order() {
        let set = NodeSet::of(NodeId(63)).with(NodeId(0)).with(NodeId(5)).with(NodeId(0));
        assert_eq!(set.iter().map(|node| node.0).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(
            (set.len(), set.contains(NodeId(5)), set.without(NodeId(5)).contains(NodeId(5))),
            (3, true, false)
        );
        assert_eq!(NodeSet::from_bits(set.to_bits()), set);
    }

    #[test]
    fn the_empty_set_lists_nothing() {
        assert_eq!(WorkerSet::EMPTY.iter().count(), 0);
        assert!(WorkerSet::of(WorkerId(3)).without(WorkerId(3)).is_empty());
    }
}
