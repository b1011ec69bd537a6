//! Descriptors of the model between two posts, each kept for the descriptor of the program's that it was made of the last
//! time. Programs post the same ones again and again, with the same buffers: what was checked then need not be checked again.
//!
//! A table by address. Two that fall on one place take turns on it, and the table grows until they do not, within limits.

use viaduct_via::{Descriptor, Op};

use crate::abi::CDescriptor;

const FIRST_PLACES: usize = 8;
const MOST_PLACES: usize = 1024;
/// A multiplier that spreads addresses which differ in a few bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// What is kept for one queue of a VI.
#[derive(Default)]
pub(crate) struct Spares {
    /// A power of two, or none yet.
    places: Box<[Place]>,
    /// Those whose place belongs to another now.
    others: Vec<Descriptor>,
}

#[derive(Default)]
struct Place {
    /// Of the program's descriptor; 0 for none.
    at: u64,
    /// Under which it was found in registered memory, with at least one segment.
    checked: Checked,
    /// There unless it is posted.
    descriptor: Option<Descriptor>,
}

/// Under what a descriptor's own memory was checked.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// The handle of its memory.
    pub(crate) memory: u32,
    /// The state of the NIC's regions; 0 if it was not checked.
    pub(crate) stamp: u64,
}

impl Spares {
    /// The model's descriptor for the program's at `at`, if that one was checked so before.
    #[inline(always)]
    pub(crate) fn take_checked(&mut self, at: *mut CDescriptor, checked: Checked) -> Option<Descriptor> {
        let index = self.index(at as u64);
        let place = self.places.get_mut(index)?;
        if place.at != at as u64 || place.checked != checked {
            return None;
        }
        place.descriptor.take()
    }

    /// The model's descriptor for the program's at `at`, which was checked just now.
    #[inline(never)]
    pub(crate) fn take(&mut self, at: *mut CDescriptor, checked: Checked) -> Descriptor {
        let at = at as u64;
        let mut index = self.index(at);
        // The place of another descriptor, and that one is posted.
        let crowded = |place: &Place| place.at != 0 && place.at != at && place.descriptor.is_none();
        while self.places.get(index).is_none_or(crowded) && self.places.len() < MOST_PLACES {
            self.grow();
            index = self.index(at);
        }
        let place = &mut self.places[index];
        (place.at, place.checked) = (at, checked);
        let found = place.descriptor.take().or_else(|| self.others.pop());
        found.unwrap_or_else(|| Descriptor::new(Op::Send))
    }

    /// Keeps a descriptor that came back.
    #[inline(always)]
    pub(crate) fn keep(&mut self, descriptor: Descriptor) {
        let at = descriptor.work().context;
        let index = self.index(at);
        match self.places.get_mut(index) {
            Some(place) if place.at == at && place.descriptor.is_none() => {
                place.descriptor = Some(descriptor);
            }
            _ => self.others.push(descriptor),
        }
    }

    /// What was checked is no longer so: the VI has other attributes.
    pub(crate) fn forget_checks(&mut self) {
        self.places.iter_mut().for_each(|place| place.checked = Checked::default());
    }

    #[inline(always)]
    fn index(&self, at: u64) -> usize {
        (at.wrapping_mul(SPREAD) >> 40) as usize & self.places.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let count = (self.places.len() * 2).max(FIRST_PLACES);
        let old = std::mem::replace(&mut self.places, (0..count).map(|_| Place::default()).collect());
        for place in old.into_iter().filter(|place| place.at != 0) {
            // What was in different places before still is.
            let index = self.index(place.at);
            self.places[index] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: usize) -> *mut CDescriptor {
        (number * 64) as *mut CDescriptor
    }

    fn posted(spares: &mut Spares, number: usize) -> Descriptor {
        let checked = Checked { memory: 7, stamp: 3 };
        let found = spares.take_checked(at(number), checked);
        found.unwrap_or_else(|| spares.take(at(number), checked)).context(at(number) as u64)
    }

    #[test]
    fn each_gets_its_own_back_whatever_the_order() {
        let mut spares = Spares::default();
        let made: Vec<Descriptor> = (1..=100).map(|number| posted(&mut spares, number)).collect();
        assert!(spares.places.len() <= MOST_PLACES);
        made.into_iter().for_each(|descriptor| spares.keep(descriptor));
        let checked = Checked { memory: 7, stamp: 3 };
        let own = (1..=100).rev().filter(|number| {
            spares.take_checked(at(*number), checked).is_some_and(|d| d.work().context == at(*number) as u64)
        });
        assert_eq!(own.count(), 100);
    }

    #[test]
    fn a_descriptor_checked_otherwise_is_checked_again() {
        let mut spares = Spares::default();
        let first = posted(&mut spares, 1);
        spares.keep(first);
        for other in [Checked { memory: 8, stamp: 3 }, Checked { memory: 7, stamp: 4 }] {
            assert!(spares.take_checked(at(1), other).is_none());
        }
        assert!(spares.take_checked(at(2), Checked { memory: 7, stamp: 3 }).is_none());
        spares.forget_checks();
        assert!(spares.take_checked(at(1), Checked { memory: 7, stamp: 3 }).is_none());
    }

    /// A program that posts one descriptor twice gets two of the model's, and both come back.
    #[test]
    fn one_address_twice_is_two_descriptors() {
        let mut spares = Spares::default();
        let (a, b) = (posted(&mut spares, 1), posted(&mut spares, 1));
        spares.keep(a);
        spares.keep(b);
        assert_eq!(spares.others.len(), 1);
    }

    #[test]
    fn a_crowd_stays_within_its_bounds() {
        let mut spares = Spares::default();
        let made: Vec<Descriptor> = (1..=5000).map(|number| posted(&mut spares, number)).collect();
        assert_eq!(spares.places.len(), MOST_PLACES);
        made.into_iter().for_each(|descriptor| spares.keep(descriptor));
        let kept = spares.places.iter().filter(|place| place.descriptor.is_some()).count();
        assert_eq!(kept + spares.others.len(), 5000);
    }
}
