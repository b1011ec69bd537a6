//! Litmus programs of the typed part of shared memory: guarded values, pointers that lie in it, pages with given homes.

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm, Epoch, Guarded, Placement, Ptr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A link of a list that goes through the memory of all workers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Link {
    value: u64,
    next: Ptr<Link>,
}

/// Links that each worker puts in.
const LINKS: usize = 6;
/// Numbers of an array with given homes: some pages, of any size.
const NUMBERS: usize = 3 * 4096;

pub(crate) struct Typed {
    head: Guarded<Ptr<Link>>,
    totals: Guarded<u64>,
    links: Array<Link>,
    placed: [Array<u64>; 3],
}

impl Typed {
    /// Every worker makes it, at the same place.
    pub(crate) fn new(dsm: &mut Dsm) -> Result<Typed, Error> {
        let (workers, last) = (dsm.size(), dsm.nodes() - 1);
        let placements = [Placement::Node(last), Placement::Bands, Placement::Turns];
        let mut placed = Vec::new();
        for placement in placements {
            placed.push(dsm.placed(NUMBERS, placement)?);
        }
        Ok(Typed {
            head: dsm.guarded(1)?,
            totals: dsm.guarded(2)?,
            links: dsm.array(LINKS * workers)?,
            placed: [placed[0], placed[1], placed[2]],
        })
    }

    /// Each worker adds to guarded totals and puts links into a list; then each follows the list from its head.
    pub(crate) fn check<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let (me, all) = (epoch.rank(), epoch.size());
        for link in me * LINKS..(me + 1) * LINKS {
            let value = link as u64 + 1;
            epoch.with(self.totals, |totals, _| {
                totals[0] += value;
                totals[1] += 1;
            })?;
            let ptr = self.links.ptr(link);
            epoch.with(self.head, |head, epoch| {
                epoch.store(ptr, Link { value, next: head[0] });
                head[0] = ptr;
            })?;
        }
        epoch = epoch.barrier(0)?;
        let (sum, count) = epoch.with(self.totals, |totals, _| (totals[0], totals[1]))?;
        let (mut next, mut found, mut length) = (epoch.with(self.head, |head, _| head[0])?, 0, 0);
        while !next.is_null() {
            let link = epoch.load(next);
            found += link.value;
            length += 1;
            next = link.next;
        }
        let wanted: u64 = (1..=(LINKS * all) as u64).sum();
        assert_eq!((sum, count), (wanted, (LINKS * all) as u64), "guarded totals");
        assert_eq!((found, length), (wanted, (LINKS * all) as u64), "a list over all workers");
        epoch = epoch.barrier(1)?;
        self.numbers(epoch)
    }

    /// Workers store to their parts of arrays whose homes are given, and find what the others stored.
    fn numbers<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let (me, all) = (epoch.rank(), epoch.size());
        let part = |worker: usize| NUMBERS * worker / all..NUMBERS * (worker + 1) / all;
        for round in 1..3 {
            for array in self.placed {
                epoch.write(array, part((me + round) % all)).fill((round * 100 + me) as u64);
            }
            epoch = epoch.barrier(0)?;
            for (kind, array) in self.placed.into_iter().enumerate() {
                for worker in 0..all {
                    let wanted = (round * 100 + worker) as u64;
                    let values = epoch.read(array, part((worker + round) % all));
                    assert!(
                        values.iter().all(|value| *value == wanted),
                        "homes by rule {kind}, round {round}"
                    );
                }
            }
            epoch = epoch.barrier(1)?;
        }
        Ok(epoch)
    }
}
