//! Handles: the 32-bit numbers by which programs name communicators, types, requests and the rest.
//!
//! The two highest bits say where an object comes from (0 none, 1 predefined, 2 and 3 made by the program), the next four
//! what it is; these are MPICH's, and predefined handles are compiled into programs. The other bits of our own handles are
//! a generation and an index, so that a handle that was freed is refused instead of naming another object.

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Object {
    /// A communicator.
    Comm = 1,
    /// A group.
    Group = 2,
    /// A datatype.
    Datatype = 3,
    /// An error handler.
    Errhandler = 5,
    /// A reduction operation.
    Op = 6,
    /// An info object.
    Info = 7,
    /// A window.
    Win = 8,
    /// A key of attributes.
    Keyval = 9,
    /// A request.
    Request = 11,
    /// A message that a probe has taken.
    Message = 12,
}

impl Object {
    /// The handle that stands for no object.
    pub const fn null(self) -> u32 {
        (self as u32) << KIND
    }

    /// The handle of the predefined object with this number.
    pub const fn predefined(self, number: u32) -> u32 {
        PREDEFINED << ORIGIN | (self as u32) << KIND | number
    }

    /// Whether a handle names such an object, or stands for none of them.
    pub fn names(self, handle: u32) -> bool {
        handle >> KIND & 0xf == self as u32
    }
}

const ORIGIN: u32 = 30;
const KIND: u32 = 26;
const PREDEFINED: u32 = 1;
const MADE: u32 = 3;
/// Bits of an index; the bits between it and the kind are the generation.
const INDEX: u32 = 20;
pub(crate) const GENERATIONS: u32 = 1 << (KIND - INDEX);

/// Requests of the engine have handles without a table, by their places: those with this bit, which the table of requests leaves
/// to them.
const PLACED: u32 = 1 << (INDEX - 1);

/// The handle of a request at a place. None: the place has too large a number.
#[inline]
pub(crate) fn of_place(index: u32, generation: u32) -> Option<u32> {
    (index < PLACED).then_some(PLACES | (generation % GENERATIONS) << INDEX | index)
}

/// The place and the generation of a request's handle, if it has them.
#[inline]
pub(crate) fn place_of(handle: u32) -> Option<(u32, u32)> {
    let placed = handle & (u32::MAX << KIND | PLACED) == PLACES;
    placed.then_some((handle & (PLACED - 1), generation(handle)))
}

/// What all handles of places have in common.
const PLACES: u32 = MADE << ORIGIN | (Object::Request as u32) << KIND | PLACED;

/// Objects of one kind that a program has made, by handle.
#[derive(Debug)]
pub struct Table<T> {
    kind: Object,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    object: Option<T>,
}

impl<T> Table<T> {
    /// Without objects.
    pub fn new(kind: Object) -> Table<T> {
        Table { kind, slots: Vec::new(), free: Vec::new() }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an object and returns its handle. None: there are a million of them.
    pub fn insert(&mut self, object: T) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.most() => {
                self.slots.push(Slot { generation: 0, object: None });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.object = Some(object);
        Some(MADE << ORIGIN | (self.kind as u32) << KIND | slot.generation << INDEX | index)
    }

    fn most(&self) -> usize {
        if self.kind.names(PLACES) { PLACED as usize } else { 1 << INDEX }
    }

    /// The object with a handle.
    pub fn get(&self, handle: u32) -> Option<&T> {
        let slot = self.slots.get(self.index(handle)?)?;
        slot.object.as_ref().filter(|_| slot.generation == generation(handle))
    }

    /// The object with a handle, to be changed.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let index = self.index(handle)?;
        let slot = self.slots.get_mut(index)?;
        slot.object.as_mut().filter(|_| slot.generation == generation(handle))
    }

    /// Takes the object with a handle out. From now on the handle is refused.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let index = self.index(handle)?;
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation(handle))?;
        let object = slot.object.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(index as u32);
        Some(object)
    }

    /// The place that a handle of this table has. None: it is not one.
    fn index(&self, handle: u32) -> Option<usize> {
        let ours = handle >> ORIGIN == MADE && self.kind.names(handle);
        ours.then_some((handle & ((1 << INDEX) - 1)) as usize)
    }
}

fn generation(handle: u32) -> u32 {
    handle >> INDEX & (GENERATIONS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_handles_are_those_of_mpich() {
        assert_eq!(Object::Comm.predefined(0), 0x44000000);
        assert_eq!(Object::Comm.null(), 0x04000000);
        assert_eq!(Object::Datatype.null(), 0x0c000000);
        assert_eq!(Object::Group.predefined(0), 0x48000000);
        assert_eq!(Object::Errhandler.predefined(1), 0x54000001);
        assert_eq!(Object::Op.predefined(3), 0x58000003);
        assert_eq!(Object::Request.null(), 0x2c000000);
        assert_eq!(Object::Message.null(), 0x30000000);
    }

    #[test]
    fn a_freed_handle_is_refused_though_its_place_is_used_again() {
        let mut table = Table::new(Object::Request);
        let first = table.insert("first").unwrap();
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second").unwrap();
        assert_ne!(first, second);
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!((table.get(second), table.len()), (Some(&"second"), 1));
    }

    #[test]
    fn handles_of_places_are_those_of_no_table() {
        let mut table = Table::new(Object::Request);
        let handle = table.insert(()).unwrap();
        assert_eq!(place_of(handle), None);
        for (index, generation) in [(0, 0), (7, 63), (PLACED - 1, 1)] {
            let placed = of_place(index, generation).unwrap();
            assert_eq!(place_of(placed), Some((index, generation)));
            assert!(Object::Request.names(placed) && table.get(placed).is_none());
        }
        assert_eq!((of_place(PLACED, 0), table.most()), (None, PLACED as usize));
        for other in
            [Object::Request.null(), Object::Request.predefined(1), of_place(3, 0).unwrap() ^ 1 << KIND]
        {
            assert_eq!(place_of(other), None, "{other:#x}");
        }
    }

    #[test]
    fn handles_of_other_kinds_are_refused() {
        let mut comms = Table::new(Object::Comm);
        let groups = Table::<u8>::new(Object::Group);
        let comm = comms.insert(1u8).unwrap();
        assert!(groups.get(comm).is_none() && comms.get(Object::Comm.predefined(0)).is_none());
        assert!(comms.get(Object::Comm.null()).is_none() && comms.get(u32::MAX).is_none());
        *comms.get_mut(comm).unwrap() = 2;
        assert_eq!(comms.get(comm), Some(&2));
    }
}
