//! Which partition a record belongs to: boundaries chosen from a sample.
//!
//! A value that fills more than its share of the sample gets a partition of its own. All of its records are equal, so that
//! it need not be sorted whatever its size.

use std::cmp::Ordering;

use crate::order::Order;

/// Records of a sample for each partition.
pub(crate) const SAMPLES: usize = 512;

/// Boundaries between partitions.
#[derive(Debug)]
pub(crate) struct Splitters {
    prefixes: Vec<u128>,
    records: Vec<Vec<u8>>,
    /// For each boundary: the partition below it, and whether its own value has one.
    below: Vec<(usize, bool)>,
    partitions: usize,
    equal: Vec<bool>,
}

impl Splitters {
    /// About `wanted` partitions of about equal size.
    pub(crate) fn new<O: Order>(mut sample: Vec<Vec<u8>>, wanted: usize, order: &O) -> Splitters {
        sample.sort_by(|a, b| order.compare(a, b));
        let wanted = wanted.max(1);
        let mut records: Vec<(Vec<u8>, bool)> = Vec::new();
        for n in 1..wanted {
            let Some(record) = sample.get(n * sample.len() / wanted) else { break };
            match records.last_mut() {
                Some((last, heavy)) if order.compare(last, record) == Ordering::Equal => *heavy = true,
                _ => records.push((record.clone(), false)),
            }
        }
        let mut splitters = Splitters {
            prefixes: records.iter().map(|(record, _)| order.prefix(record, 0)).collect(),
            records: Vec::new(),
            below: Vec::new(),
            partitions: 0,
            equal: vec![false],
        };
        for (record, heavy) in records {
            splitters.below.push((splitters.equal.len() - 1, heavy));
            splitters.records.push(record);
            if heavy {
                splitters.equal.push(true);
            }
            splitters.equal.push(false);
        }
        splitters.partitions = splitters.equal.len();
        splitters
    }

    /// Partitions.
    pub(crate) fn count(&self) -> usize {
        self.partitions
    }

    /// Whether all records of a partition are equal.
    pub(crate) fn is_equal(&self, partition: usize) -> bool {
        self.equal[partition]
    }

    /// The partition of a record: those at a boundary belong above it, or have a partition of their own.
    #[inline]
    pub(crate) fn of<O: Order>(&self, record: &[u8], order: &O) -> usize {
        let prefix = order.prefix(record, 0);
        let mut at = self.prefixes.partition_point(|&boundary| boundary < prefix);
        // Boundaries with the same prefix need a longer look.
        while at < self.prefixes.len() && self.prefixes[at] == prefix {
            match order.compare(&self.records[at], record) {
                Ordering::Greater => break,
                Ordering::Equal if self.below[at].1 => return self.below[at].0 + 1,
                _ => at += 1,
            }
        }
        match at.checked_sub(1) {
            None => 0,
            Some(last) => self.below[last].0 + 1 + usize::from(self.below[last].1),
        }
    }
}

/// Which node sorts a record: partitions in their order, given out so that nodes get about equal parts of the sample.
#[derive(Debug)]
pub(crate) struct Ranges {
    splitters: Splitters,
    owners: Vec<usize>,
    shares: Vec<f64>,
}

impl Ranges {
    /// Ranges for `nodes`. All nodes make the same of the same sample.
    pub(crate) fn new<O: Order>(sample: &[Vec<u8>], nodes: usize, order: &O) -> Ranges {
        let splitters = Splitters::new(sample.to_vec(), nodes, order);
        let mut counts = vec![0usize; splitters.count()];
        sample.iter().for_each(|record| counts[splitters.of(record, order)] += 1);
        let all = sample.len().max(1);
        let (mut before, mut owners, mut shares) = (0, Vec::new(), vec![0.0; nodes]);
        for count in counts {
            // The node in whose part of the sample the middle of the partition lies.
            let owner = ((2 * before + count) * nodes / (2 * all)).min(nodes - 1);
            shares[owner] += count as f64 / all as f64;
            owners.push(owner);
            before += count;
        }
        Ranges { splitters, owners, shares }
    }

    /// The node of a record.
    #[inline]
    pub(crate) fn of<O: Order>(&self, record: &[u8], order: &O) -> usize {
        self.owners[self.splitters.of(record, order)]
    }

    /// The part of all records that a node is expected to get.
    pub(crate) fn share(&self, node: usize) -> f64 {
        self.shares[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::FieldsOrder;
    use viaduct_river::KeyRange;

    #[test]
    fn partitions_follow_the_order_and_heavy_values_stand_alone() {
        let order = FieldsOrder::new(vec![KeyRange { offset: 0, len: 12, descending: false }], false);
        let record = |n: u8| [&[b'k'; 10][..], &[n, 0]].concat();
        let sample = (0..100).map(|n| record(if (30..70).contains(&n) { 50 } else { n })).collect();
        let splitters = Splitters::new(sample, 10, &order);
        let parts: Vec<usize> = (0..100).map(|n| splitters.of(&record(n), &order)).collect();
        assert!(parts.is_sorted() && parts[0] == 0 && *parts.last().unwrap() == splitters.count() - 1);
        let heavy = splitters.of(&record(50), &order);
        assert!(splitters.is_equal(heavy));
        assert_eq!(parts.iter().filter(|&&part| part == heavy).count(), 1);
    }

    #[test]
    fn nodes_get_ranges_in_order_and_about_equal_parts() {
        let order = FieldsOrder::new(vec![KeyRange { offset: 0, len: 2, descending: false }], true);
        let record = |n: u16| n.to_be_bytes().to_vec();
        let ranges = Ranges::new(&(0..1000).map(record).collect::<Vec<_>>(), 4, &order);
        let nodes: Vec<usize> = (0..1000).map(|n| ranges.of(&record(n), &order)).collect();
        assert!(nodes.is_sorted());
        for node in 0..4 {
            let count = nodes.iter().filter(|&&n| n == node).count();
            assert!((200..300).contains(&count), "{count}");
            assert!((ranges.share(node) - 0.25).abs() < 0.05);
        }
        // One value that all records have, and no record at all.
        for sample in [vec![record(7); 100], vec![]] {
            let ranges = Ranges::new(&sample, 3, &order);
            assert!([0, 7, 9].iter().all(|&n| ranges.of(&record(n), &order) < 3));
            assert!((0..3).map(|node| ranges.share(node)).sum::<f64>() <= 1.0);
        }
    }
}
