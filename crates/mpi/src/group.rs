//! Groups: ordered sets of processes, and the algebra of section 6.3 of the standard.
//!
//! A process is the number it has in the job; a rank is its place in a group.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Class, Error, Result};

/// How two groups, or the groups of two communicators, relate. The values are those of MPICH's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Comparison {
    /// One and the same object.
    Ident = 0,
    /// Equal members in equal order, in different communicators.
    Congruent = 1,
    /// Equal members in another order.
    Similar = 2,
    /// Different members.
    Unequal = 3,
}

/// An ordered set of processes. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    members: Arc<[u32]>,
}

/// Ranks from the first to the last, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first rank.
    pub first: i32,
    /// The last one, if the steps meet it.
    pub last: i32,
    /// The step, negative for falling ranks.
    pub stride: i32,
}

impl Group {
    /// The group of these processes. They are different from each other.
    pub fn new(members: impl IntoIterator<Item = u32>) -> Group {
        Group { members: members.into_iter().collect() }
    }

    /// The group without processes.
    pub fn empty() -> Group {
        Group::new([])
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The process with this rank.
    pub fn process(&self, rank: usize) -> Option<u32> {
        self.members.get(rank).copied()
    }

    /// The rank of a process.
    pub fn rank(&self, process: u32) -> Option<usize> {
        // A world or a part of it that kept its order has most processes at their own number.
        let guess = process as usize;
        if self.members.get(guess) == Some(&process) {
            return Some(guess);
        }
        self.members.iter().position(|member| *member == process)
    }

    /// The processes, by rank.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Whether members and order are equal, members alone, or neither. Never [`Comparison::Congruent`].
    pub fn compare(&self, other: &Group) -> Comparison {
        if self == other {
            return Comparison::Ident;
        }
        let sorted = |group: &Group| {
            let mut members = group.members.to_vec();
            members.sort_unstable();
            members
        };
        if sorted(self) == sorted(other) { Comparison::Similar } else { Comparison::Unequal }
    }

    /// The members of this group, then those of the other that are not in it.
    pub fn union(&self, other: &Group) -> Group {
        let own = self.index();
        let added = other.members.iter().filter(|member| !own.contains_key(*member));
        Group::new(self.members.iter().chain(added).copied())
    }

    /// The members that are in both, in the order of this group.
    pub fn intersection(&self, other: &Group) -> Group {
        let theirs = other.index();
        Group::new(self.members.iter().filter(|member| theirs.contains_key(*member)).copied())
    }

    /// The members that the other group does not have.
    pub fn difference(&self, other: &Group) -> Group {
        let theirs = other.index();
        Group::new(self.members.iter().filter(|member| !theirs.contains_key(*member)).copied())
    }

    /// The members with these ranks, in that order.
    pub fn include(&self, ranks: &[i32]) -> Result<Group> {
        let ranks = self.distinct(ranks)?;
        Ok(Group::new(ranks.into_iter().map(|rank| self.members[rank])))
    }

    /// The other members, in their order.
    pub fn exclude(&self, ranks: &[i32]) -> Result<Group> {
        let mut out = vec![false; self.size()];
        for rank in self.distinct(ranks)? {
            out[rank] = true;
        }
        Ok(Group::new(self.members.iter().zip(out).filter(|(_, out)| !out).map(|(member, _)| *member)))
    }

    /// As [`Group::include`], for ranges of ranks.
    pub fn include_ranges(&self, ranges: &[Range]) -> Result<Group> {
        self.include(&expand(ranges)?)
    }

    /// As [`Group::exclude`], for ranges of ranks.
    pub fn exclude_ranges(&self, ranges: &[Range]) -> Result<Group> {
        self.exclude(&expand(ranges)?)
    }

    /// The ranks that members of this group have in the other. None: they are not in it.
    pub fn translate(&self, ranks: &[i32], other: &Group) -> Result<Vec<Option<usize>>> {
        let theirs = other.index();
        ranks.iter().map(|rank| Ok(theirs.get(&self.members[self.check(*rank)?]).copied())).collect()
    }

    /// Rank by process.
    fn index(&self) -> HashMap<u32, usize> {
        self.members.iter().enumerate().map(|(rank, member)| (*member, rank)).collect()
    }

    fn check(&self, rank: i32) -> Result<usize> {
        let found = usize::try_from(rank).ok().filter(|rank| *rank < self.size());
        found.ok_or_else(|| Error::new(Class::Rank, format!("rank {rank} of a group of {}", self.size())))
    }

    fn distinct(&self, ranks: &[i32]) -> Result<Vec<usize>> {
        let mut seen = vec![false; self.size()];
        let take = |rank: &i32| {
            let index = self.check(*rank)?;
            if std::mem::replace(&mut seen[index], true) {
                return Err(Error::new(Class::Rank, format!("rank {rank} is named twice")));
            }
            Ok(index)
        };
        ranks.iter().map(take).collect()
    }
}

fn expand(ranges: &[Range]) -> Result<Vec<i32>> {
    let mut ranks = Vec::new();
    for range in ranges {
        let (first, last, stride) = (i64::from(range.first), i64::from(range.last), i64::from(range.stride));
        if stride == 0 {
            return Err(Error::new(Class::Arg, "a range with a stride of 0"));
        }
        if (last - first) * stride < 0 {
            let cause = format!("a range from {first} to {last} in steps of {stride}");
            return Err(Error::new(Class::Arg, cause));
        }
        let steps = (last - first) / stride;
        ranks.extend((0..=steps).map(|step| (first + step * stride) as i32));
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[u32]) -> Group {
        Group::new(members.iter().copied())
    }

    #[test]
    fn sets_keep_the_order_of_the_first() {
        let (one, two) = (group(&[5, 3, 9]), group(&[9, 1, 5]));
        assert_eq!(one.union(&two), group(&[5, 3, 9, 1]));
        assert_eq!(one.intersection(&two), group(&[5, 9]));
        assert_eq!(one.difference(&two), group(&[3]));
        assert_eq!(one.difference(&one), Group::empty());
    }

    #[test]
    fn groups_are_compared_by_members_and_order() {
        let one = group(&[1, 2, 3]);
        assert_eq!(one.compare(&group(&[1, 2, 3])), Comparison::Ident);
        assert_eq!(one.compare(&group(&[3, 1, 2])), Comparison::Similar);
        assert_eq!(one.compare(&group(&[1, 2, 4])), Comparison::Unequal);
    }

    #[test]
    fn ranks_are_picked_and_left_out() {
        let all = group(&[10, 11, 12, 13, 14]);
        assert_eq!(all.include(&[4, 0]).unwrap(), group(&[14, 10]));
        assert_eq!(all.exclude(&[1, 3]).unwrap(), group(&[10, 12, 14]));
        let falling = Range { first: 4, last: 1, stride: -2 };
        assert_eq!(all.include_ranges(&[falling]).unwrap(), group(&[14, 12]));
        let rising = Range { first: 0, last: 3, stride: 3 };
        assert_eq!(all.exclude_ranges(&[rising]).unwrap(), group(&[11, 12, 14]));
        assert_eq!(all.include(&[5]).unwrap_err().class(), Class::Rank);
        assert_eq!(all.include(&[1, 1]).unwrap_err().class(), Class::Rank);
        let empty = Range { first: 3, last: 1, stride: 1 };
        assert_eq!(all.include_ranges(&[empty]).unwrap_err().class(), Class::Arg);
    }

    #[test]
    fn ranks_are_translated() {
        let (one, two) = (group(&[7, 8, 9]), group(&[9, 7]));
        assert_eq!(one.translate(&[0, 1, 2], &two).unwrap(), [Some(1), None, Some(0)]);
        assert_eq!((one.rank(8), one.rank(1), group(&[0, 1, 2]).rank(2)), (Some(1), None, Some(2)));
    }
}
