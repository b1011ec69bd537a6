//! Attributes of communicators and datatypes, and their keys.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use viaduct_mpi::attribute::Attributes;
use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};

use crate::abi::{Buffer, Function, KEYVAL_INVALID, Place};
use crate::errors::{call, last_used_code, pure};
use crate::objects::{comm, datatype, lock};
use crate::state::Process;

/// What a key was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Comm,
    Type,
}

/// How the program's functions are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    /// Subroutines of Fortran with numbers of 32 bits, from MPI 1.
    OldFortran,
    /// Subroutines of Fortran with numbers of the size of addresses.
    Fortran,
}

/// The functions of a key.
#[derive(Debug)]
pub(crate) struct Functions {
    of: For,
    language: Language,
    copy: Function,
    delete: Function,
    extra: usize,
}

static KEYS: LazyLock<Mutex<Table<Arc<Functions>>>> =
    LazyLock::new(|| Mutex::new(Table::new(Object::Keyval)));

/// Makes a key.
pub(crate) fn create(
    name: &'static str,
    of: For,
    language: Language,
    (copy, delete, extra): (Function, Function, usize),
    keyval: Place<c_int>,
) -> c_int {
    pure(name, || {
        let made = lock(&KEYS).insert(Arc::new(Functions { of, language, copy, delete, extra }));
        keyval.put(made.ok_or_else(|| Error::new(Class::Other, "there are a million keys"))? as c_int)
    })
}

fn functions(of: For, keyval: c_int) -> Result<Arc<Functions>> {
    let known = lock(&KEYS).get(keyval as u32).cloned().filter(|functions| functions.of == of);
    known.ok_or_else(|| Error::new(Class::Keyval, format!("{keyval:#010x} is no key of this kind")))
}

impl Functions {
    /// The value for a copy of an object; none if it is not copied.
    fn copied(&self, object: u32, keyval: c_int, value: usize) -> Result<Option<usize>> {
        if self.copy.is_null() {
            return Ok(None);
        }
        let mut flag: c_int = 0;
        let (code, copied) = match self.language {
            Language::C => {
                type Copy = extern "C" fn(u32, c_int, usize, usize, *mut usize, *mut c_int) -> c_int;
                // SAFETY: the program made the key with a function of this type.
                let copy = unsafe { std::mem::transmute::<*const c_void, Copy>(self.copy.address()) };
                let mut out = 0;
                let code = copy(object, keyval, self.extra, value, &mut out, &mut flag);
                (code, out)
            }
            Language::Fortran => {
                type Copy = extern "C" fn(
                    *const u32,
                    *const c_int,
                    *const usize,
                    *const usize,
                    *mut usize,
                    *mut c_int,
                    *mut c_int,
                );
                // SAFETY: the program made the key with a subroutine of this type.
                let copy = unsafe { std::mem::transmute::<*const c_void, Copy>(self.copy.address()) };
                let (mut out, mut code) = (0, 0);
                copy(&object, &keyval, &self.extra, &value, &mut out, &mut flag, &mut code);
                (code, out)
            }
            Language::OldFortran => {
                type Copy = extern "C" fn(
                    *const u32,
                    *const c_int,
                    *const c_int,
                    *const c_int,
                    *mut c_int,
                    *mut c_int,
                    *mut c_int,
                );
                // SAFETY: the program made the key with a subroutine of this type.
                let copy = unsafe { std::mem::transmute::<*const c_void, Copy>(self.copy.address()) };
                let (extra, value) = (self.extra as c_int, value as c_int);
                let (mut out, mut code) = (0, 0);
                copy(&object, &keyval, &extra, &value, &mut out, &mut flag, &mut code);
                (code, out as isize as usize)
            }
        };
        check(code, "copy")?;
        Ok((flag != 0).then_some(copied))
    }

    /// Has the program delete a value.
    fn deleted(&self, object: u32, keyval: c_int, value: usize) -> Result<()> {
        if self.delete.is_null() {
            return Ok(());
        }
        let code = match self.language {
            Language::C => {
                type Delete = extern "C" fn(u32, c_int, usize, usize) -> c_int;
                // SAFETY: the program made the key with a function of this type.
                let delete = unsafe { std::mem::transmute::<*const c_void, Delete>(self.delete.address()) };
                delete(object, keyval, value, self.extra)
            }
            Language::Fortran => {
                type Delete = extern "C" fn(*const u32, *const c_int, *const usize, *const usize, *mut c_int);
                // SAFETY: the program made the key with a subroutine of this type.
                let delete = unsafe { std::mem::transmute::<*const c_void, Delete>(self.delete.address()) };
                let mut code = 0;
                delete(&object, &keyval, &value, &self.extra, &mut code);
                code
            }
            Language::OldFortran => {
                type Delete = extern "C" fn(*const u32, *const c_int, *const c_int, *const c_int, *mut c_int);
                // SAFETY: the program made the key with a subroutine of this type.
                let delete = unsafe { std::mem::transmute::<*const c_void, Delete>(self.delete.address()) };
                let (value, extra) = (value as c_int, self.extra as c_int);
                let mut code = 0;
                delete(&object, &keyval, &value, &extra, &mut code);
                code
            }
        };
        check(code, "delete")
    }
}

fn check(code: c_int, what: &str) -> Result<()> {
    if code == Class::Success as c_int {
        return Ok(());
    }
    let class = Class::of(code).unwrap_or(Class::Other);
    Err(Error::new(class, format!("the program's function to {what} an attribute returned {code}")))
}

/// Copies the attributes of an object to a copy of it.
pub(crate) fn copy_all(
    object: u32,
    from: &Mutex<Attributes<Functions>>,
    into: &Mutex<Attributes<Functions>>,
) -> Result<()> {
    let all = lock(from).in_order();
    for attribute in all {
        if let Some(value) = attribute.functions().copied(object, attribute.key(), attribute.value())? {
            lock(into).insert(attribute.with_value(value));
        }
    }
    Ok(())
}

/// Deletes the attributes of an object that ends, the last one first.
pub(crate) fn delete_all(object: u32, attributes: &Mutex<Attributes<Functions>>) -> Result<()> {
    let all = lock(attributes).last_first();
    for attribute in all {
        attribute.functions().deleted(object, attribute.key(), attribute.value())?;
        lock(attributes).remove(attribute.key());
    }
    Ok(())
}

/// Sets an attribute; the program deletes the value that was there.
fn set(
    of: For,
    object: u32,
    attributes: &Mutex<Attributes<Functions>>,
    keyval: c_int,
    value: usize,
) -> Result<()> {
    let functions = functions(of, keyval)?;
    let old = lock(attributes).get(keyval).cloned();
    if let Some(old) = old {
        old.functions().deleted(object, keyval, old.value())?;
    }
    lock(attributes).set(keyval, functions, value);
    Ok(())
}

fn delete(of: For, object: u32, attributes: &Mutex<Attributes<Functions>>, keyval: c_int) -> Result<()> {
    functions(of, keyval)?;
    let old = lock(attributes).get(keyval).cloned();
    let old = old.ok_or_else(|| Error::new(Class::Keyval, "the object has no such attribute"))?;
    old.functions().deleted(object, keyval, old.value())?;
    lock(attributes).remove(keyval);
    Ok(())
}

pub(crate) fn free(name: &'static str, of: For, keyval: Place<c_int>) -> c_int {
    pure(name, || {
        let handle = keyval.get()?;
        functions(of, handle)?;
        lock(&KEYS).remove(handle as u32);
        keyval.put(KEYVAL_INVALID)
    })
}

/// A value as it was attached, or a predefined one, which C reads through a pointer.
pub(crate) enum Found {
    Attached(usize),
    Predefined(&'static c_int),
    /// One that changes: the highest error code.
    Changing(&'static AtomicI32),
}

impl Found {
    /// As C has it.
    fn pointer(&self) -> usize {
        match self {
            Found::Attached(value) => *value,
            Found::Predefined(value) => std::ptr::from_ref(*value) as usize,
            Found::Changing(value) => value.as_ptr() as usize,
        }
    }

    /// As Fortran has it.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Found::Attached(value) => *value as i64,
            Found::Predefined(value) => i64::from(**value),
            Found::Changing(value) => i64::from(value.load(Ordering::Relaxed)),
        }
    }
}

/// Predefined attributes: their handles have the number of C's form, or one more for Fortran's.
fn predefined(process: &'static Process, keyval: c_int) -> Option<Option<Found>> {
    /// Values keep their addresses for as long as the process lives.
    static TAG_UB: std::sync::OnceLock<c_int> = std::sync::OnceLock::new();
    static NONE: c_int = -1;
    static ANY: c_int = -2;
    static NO: c_int = 0;
    static LAST_CODE: AtomicI32 = AtomicI32::new(0);
    let found = match keyval - (keyval + 1) % 2 {
        0x6440_0001 => Found::Predefined(TAG_UB.get_or_init(|| process.world.tag_ub())),
        0x6440_0003 => Found::Predefined(&NONE),
        0x6440_0005 => Found::Predefined(&ANY),
        0x6440_0007 => Found::Predefined(&NO),
        0x6440_0009 | 0x6440_000d => return Some(None),
        0x6440_000b => {
            LAST_CODE.store(last_used_code(), Ordering::Relaxed);
            Found::Changing(&LAST_CODE)
        }
        _ => return None,
    };
    Some(Some(found))
}

/// The attribute of a communicator.
pub(crate) fn of_comm(process: &'static Process, handle: u32, keyval: c_int) -> Result<Option<Found>> {
    let object = comm(process, handle)?;
    if let Some(found) = predefined(process, keyval) {
        return Ok(found);
    }
    functions(For::Comm, keyval)?;
    let found = lock(&object.attributes).get(keyval).map(|attribute| Found::Attached(attribute.value()));
    Ok(found)
}

/// The attribute of a datatype.
pub(crate) fn of_type(handle: u32, keyval: c_int) -> Result<Option<Found>> {
    let object = datatype(handle)?;
    functions(For::Type, keyval)?;
    let found = lock(&object.attributes).get(keyval).map(|attribute| Found::Attached(attribute.value()));
    Ok(found)
}

/// Sets the attribute of a communicator.
pub(crate) fn set_of_comm(process: &'static Process, handle: u32, keyval: c_int, value: usize) -> Result<()> {
    set(For::Comm, handle, &comm(process, handle)?.attributes, keyval, value)
}

/// Sets the attribute of a datatype.
pub(crate) fn set_of_type(handle: u32, keyval: c_int, value: usize) -> Result<()> {
    set(For::Type, handle, &datatype(handle)?.attributes, keyval, value)
}

fn get(name: &'static str, handle: u32, keyval: c_int, value: Buffer, flag: Place<c_int>) -> c_int {
    call(name, handle, |process| {
        let found = of_comm(process, handle, keyval)?;
        if let Some(found) = &found {
            value.place::<usize>().put(found.pointer())?;
        }
        flag.put(c_int::from(found.is_some()))
    })
}

pub(crate) fn mpi_comm_get_attr(handle: u32, keyval: c_int, value: Buffer, flag: Place<c_int>) -> c_int {
    get("MPI_Comm_get_attr", handle, keyval, value, flag)
}

pub(crate) fn mpi_attr_get(handle: u32, keyval: c_int, value: Buffer, flag: Place<c_int>) -> c_int {
    get("MPI_Attr_get", handle, keyval, value, flag)
}

pub(crate) fn mpi_comm_set_attr(handle: u32, keyval: c_int, value: Buffer) -> c_int {
    call("MPI_Comm_set_attr", handle, |process| {
        set_of_comm(process, handle, keyval, value.address() as usize)
    })
}

pub(crate) fn mpi_attr_put(handle: u32, keyval: c_int, value: Buffer) -> c_int {
    call("MPI_Attr_put", handle, |process| set_of_comm(process, handle, keyval, value.address() as usize))
}

pub(crate) fn mpi_comm_delete_attr(handle: u32, keyval: c_int) -> c_int {
    call("MPI_Comm_delete_attr", handle, |process| {
        delete(For::Comm, handle, &comm(process, handle)?.attributes, keyval)
    })
}

pub(crate) fn mpi_attr_delete(handle: u32, keyval: c_int) -> c_int {
    call("MPI_Attr_delete", handle, |process| {
        delete(For::Comm, handle, &comm(process, handle)?.attributes, keyval)
    })
}

pub(crate) fn mpi_comm_create_keyval(
    copy: Function,
    delete: Function,
    keyval: Place<c_int>,
    extra: Buffer,
) -> c_int {
    let functions = (copy, delete, extra.address() as usize);
    create("MPI_Comm_create_keyval", For::Comm, Language::C, functions, keyval)
}

pub(crate) fn mpi_keyval_create(
    copy: Function,
    delete: Function,
    keyval: Place<c_int>,
    extra: Buffer,
) -> c_int {
    let functions = (copy, delete, extra.address() as usize);
    create("MPI_Keyval_create", For::Comm, Language::C, functions, keyval)
}

pub(crate) fn mpi_type_create_keyval(
    copy: Function,
    delete: Function,
    keyval: Place<c_int>,
    extra: Buffer,
) -> c_int {
    let functions = (copy, delete, extra.address() as usize);
    create("MPI_Type_create_keyval", For::Type, Language::C, functions, keyval)
}

pub(crate) fn mpi_comm_free_keyval(keyval: Place<c_int>) -> c_int {
    free("MPI_Comm_free_keyval", For::Comm, keyval)
}

pub(crate) fn mpi_keyval_free(keyval: Place<c_int>) -> c_int {
    free("MPI_Keyval_free", For::Comm, keyval)
}

pub(crate) fn mpi_type_free_keyval(keyval: Place<c_int>) -> c_int {
    free("MPI_Type_free_keyval", For::Type, keyval)
}

pub(crate) fn mpi_type_get_attr(handle: u32, keyval: c_int, value: Buffer, flag: Place<c_int>) -> c_int {
    pure("MPI_Type_get_attr", || {
        let found = of_type(handle, keyval)?;
        if let Some(found) = &found {
            value.place::<usize>().put(found.pointer())?;
        }
        flag.put(c_int::from(found.is_some()))
    })
}

pub(crate) fn mpi_type_set_attr(handle: u32, keyval: c_int, value: Buffer) -> c_int {
    pure("MPI_Type_set_attr", || set_of_type(handle, keyval, value.address() as usize))
}

pub(crate) fn mpi_type_delete_attr(handle: u32, keyval: c_int) -> c_int {
    pure("MPI_Type_delete_attr", || delete(For::Type, handle, &datatype(handle)?.attributes, keyval))
}
