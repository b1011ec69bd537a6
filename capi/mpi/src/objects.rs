//! The objects behind handles. Predefined ones are found without a lock, those that a program made in tables.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use viaduct_mpi::attribute::Attributes;
use viaduct_mpi::datatype::Datatype;
use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::group::Group;
use viaduct_mpi::handle::{Object, Table};
use viaduct_mpi::info::Info;
use viaduct_mpi::topology::Topology;
use viaduct_mpi::world::Comm;

use crate::abi::{COMM_NULL, COMM_SELF, COMM_WORLD, DATATYPE_NULL, ERRORS_ARE_FATAL, GROUP_EMPTY};
use crate::attributes::Functions;
use crate::state::{Process, process};

/// Takes a lock; a thread that panicked while it held it left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A communicator with what the program knows of it.
pub(crate) struct CommObject {
    pub(crate) comm: Comm,
    pub(crate) topology: Option<Topology>,
    pub(crate) attributes: Mutex<Attributes<Functions>>,
    pub(crate) info: Mutex<Info>,
    name: Mutex<String>,
    errhandler: AtomicU32,
}

impl CommObject {
    pub(crate) fn new(comm: Comm, name: Option<&str>) -> CommObject {
        CommObject {
            comm,
            topology: None,
            attributes: Mutex::default(),
            info: Mutex::default(),
            name: Mutex::new(name.unwrap_or("").to_owned()),
            errhandler: AtomicU32::new(ERRORS_ARE_FATAL),
        }
    }

    /// A communicator made from this one: it takes over the error handler.
    pub(crate) fn child(&self, comm: Comm, topology: Option<Topology>) -> CommObject {
        let mut child = CommObject::new(comm, None);
        child.topology = topology;
        child.set_errhandler(self.errhandler());
        child
    }

    pub(crate) fn errhandler(&self) -> u32 {
        self.errhandler.load(Ordering::Relaxed)
    }

    pub(crate) fn set_errhandler(&self, handle: u32) {
        crate::errors::retain(handle);
        crate::errors::release(self.errhandler.swap(handle, Ordering::Relaxed));
    }

    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    pub(crate) fn set_name(&self, name: String) {
        *lock(&self.name) = name;
    }
}

impl Drop for CommObject {
    fn drop(&mut self) {
        crate::errors::release(self.errhandler());
    }
}

/// A datatype with what the program knows of it.
pub(crate) struct TypeObject {
    pub(crate) kind: Datatype,
    pub(crate) attributes: Mutex<Attributes<Functions>>,
    committed: AtomicBool,
    name: Mutex<Option<String>>,
}

impl TypeObject {
    pub(crate) fn new(kind: Datatype, committed: bool) -> TypeObject {
        TypeObject {
            kind,
            attributes: Mutex::default(),
            committed: AtomicBool::new(committed),
            name: Mutex::default(),
        }
    }

    pub(crate) fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    pub(crate) fn name(&self) -> String {
        let given = lock(&self.name).clone();
        given.unwrap_or_else(|| self.kind.name().unwrap_or("").to_owned())
    }

    pub(crate) fn set_name(&self, name: String) {
        *lock(&self.name) = Some(name);
    }
}

/// An object that lives as long as the process, or one that is held while it is used.
pub(crate) enum Held<T: 'static> {
    Always(&'static T),
    Shared(Arc<T>),
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Held::Always(object) => object,
            Held::Shared(object) => object,
        }
    }
}

/// Objects of one kind that the program has made.
pub(crate) struct Shelf<T> {
    table: RwLock<Table<Arc<T>>>,
    class: Class,
}

impl<T> Shelf<T> {
    pub(crate) fn new(kind: Object, class: Class) -> Shelf<T> {
        Shelf { table: RwLock::new(Table::new(kind)), class }
    }

    pub(crate) fn insert(&self, object: T) -> Result<u32> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(Arc::new(object)).ok_or_else(|| Error::new(Class::Other, "there are a million of them"))
    }

    pub(crate) fn get(&self, handle: u32) -> Result<Arc<T>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(handle).cloned().ok_or_else(|| self.unknown(handle))
    }

    pub(crate) fn remove(&self, handle: u32) -> Result<Arc<T>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(handle).ok_or_else(|| self.unknown(handle))
    }

    #[cold]
    fn unknown(&self, handle: u32) -> Error {
        Error::new(self.class, format!("handle {handle:#010x} names none"))
    }
}

static COMMS: LazyLock<Shelf<CommObject>> = LazyLock::new(|| Shelf::new(Object::Comm, Class::Comm));
static GROUPS: LazyLock<Shelf<Group>> = LazyLock::new(|| Shelf::new(Object::Group, Class::Group));
static TYPES: LazyLock<Shelf<TypeObject>> = LazyLock::new(|| Shelf::new(Object::Datatype, Class::Type));

/// The predefined types by the lowest byte of their handle; of pairs that have no size in it, behind the others.
static PREDEFINED: LazyLock<Vec<Option<TypeObject>>> = LazyLock::new(|| {
    let mut slots: Vec<Option<TypeObject>> = (0..512).map(|_| None).collect();
    for kind in Datatype::predefined() {
        if let Some(handle) = kind.handle() {
            slots[predefined_slot(handle)] = Some(TypeObject::new(kind.clone(), true));
        }
    }
    slots
});

fn predefined_slot(handle: u32) -> usize {
    (handle & 0xff) as usize + if handle >> 30 == 2 { 256 } else { 0 }
}

/// The communicator with a handle.
#[inline]
pub(crate) fn comm(process: &'static Process, handle: u32) -> Result<Held<CommObject>> {
    match handle {
        COMM_WORLD => Ok(Held::Always(&process.comm_world)),
        COMM_SELF => Ok(Held::Always(&process.comm_self)),
        COMM_NULL => Err(Error::new(Class::Comm, "it is MPI_COMM_NULL")),
        _ => COMMS.get(handle).map(Held::Shared),
    }
}

/// As [`comm`], for error handling: the communicator if there is one.
pub(crate) fn comm_if_any(handle: u32) -> Option<Held<CommObject>> {
    process().ok().and_then(|process| comm(process, handle).ok())
}

pub(crate) fn add_comm(object: CommObject) -> Result<u32> {
    COMMS.insert(object)
}

pub(crate) fn remove_comm(handle: u32) -> Result<Arc<CommObject>> {
    match handle {
        COMM_WORLD | COMM_SELF => Err(Error::new(Class::Comm, "a predefined communicator is not freed")),
        _ => COMMS.remove(handle),
    }
}

/// The group with a handle.
pub(crate) fn group(handle: u32) -> Result<Group> {
    if handle == GROUP_EMPTY { Ok(Group::empty()) } else { GROUPS.get(handle).map(|group| (*group).clone()) }
}

/// A handle for a group; the empty one has its own.
pub(crate) fn add_group(group: Group) -> Result<u32> {
    if group.size() == 0 { Ok(GROUP_EMPTY) } else { GROUPS.insert(group) }
}

pub(crate) fn remove_group(handle: u32) -> Result<()> {
    if handle == GROUP_EMPTY { Ok(()) } else { GROUPS.remove(handle).map(|_| ()) }
}

/// The datatype with a handle.
#[inline]
pub(crate) fn datatype(handle: u32) -> Result<Held<TypeObject>> {
    if let Some(object) =
        PREDEFINED[predefined_slot(handle)].as_ref().filter(|object| object.kind.handle() == Some(handle))
    {
        return Ok(Held::Always(object));
    }
    made_datatype(handle)
}

#[inline(never)]
fn made_datatype(handle: u32) -> Result<Held<TypeObject>> {
    if handle == DATATYPE_NULL {
        return Err(Error::new(Class::Type, "it is MPI_DATATYPE_NULL"));
    }
    TYPES.get(handle).map(Held::Shared)
}

/// As [`datatype`], for data that are moved: it has to be committed.
#[inline]
pub(crate) fn committed(handle: u32) -> Result<Held<TypeObject>> {
    let object = datatype(handle)?;
    if object.is_committed() {
        return Ok(object);
    }
    Err(Error::new(Class::Type, "it is not committed; call MPI_Type_commit first"))
}

pub(crate) fn add_datatype(kind: Datatype, committed: bool) -> Result<u32> {
    TYPES.insert(TypeObject::new(kind, committed))
}

/// The handle of a type that another one was made of: predefined types keep theirs.
pub(crate) fn handle_of(kind: &Datatype) -> Result<u32> {
    kind.handle().map_or_else(|| add_datatype(kind.clone(), true), Ok)
}

pub(crate) fn remove_datatype(handle: u32) -> Result<Arc<TypeObject>> {
    if datatype(handle)?.kind.handle().is_some() {
        return Err(Error::new(Class::Type, "a predefined datatype is not freed"));
    }
    TYPES.remove(handle)
}
