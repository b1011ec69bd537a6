//! Info objects.

use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex};

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};
use viaduct_mpi::info::{Info, MAX_KEY};

use crate::abi::{INFO_ENV, INFO_NULL, Place, Text};
use crate::errors::pure;
use crate::objects::lock;

static INFOS: LazyLock<Mutex<Table<Info>>> = LazyLock::new(|| Mutex::new(Table::new(Object::Info)));

fn unknown(handle: u32) -> Error {
    Error::new(Class::Info, format!("handle {handle:#010x} names none"))
}

/// Works with an info object.
fn with<R>(handle: u32, body: impl FnOnce(&mut Info) -> Result<R>) -> Result<R> {
    if handle == INFO_ENV {
        return body(&mut environment());
    }
    let mut infos = lock(&INFOS);
    body(infos.get_mut(handle).ok_or_else(|| unknown(handle))?)
}

/// What `MPI_INFO_ENV` says: the parts that are known without a launcher.
fn environment() -> Info {
    let mut info = Info::new();
    let mut arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let pairs = [
        ("command", arguments.next()),
        ("argv", Some(arguments.collect::<Vec<_>>().join(" "))),
        ("wdir", std::env::current_dir().ok().map(|folder| folder.display().to_string())),
        ("thread_level", Some("MPI_THREAD_MULTIPLE".to_owned())),
    ];
    for (key, value) in pairs {
        if let Some(value) = value {
            // A value that is empty or too long is left out.
            let _ = info.set(key, &value);
        }
    }
    info
}

/// A copy of an info object; none for `MPI_INFO_NULL`.
pub(crate) fn copy(handle: u32) -> Result<Info> {
    if handle == INFO_NULL { Ok(Info::new()) } else { with(handle, |info| Ok(info.clone())) }
}

pub(crate) fn add(info: Info) -> Result<u32> {
    lock(&INFOS).insert(info).ok_or_else(|| Error::new(Class::Other, "there are a million info objects"))
}

pub(crate) fn mpi_info_create(info: Place<u32>) -> c_int {
    pure("MPI_Info_create", || info.put(add(Info::new())?))
}

pub(crate) fn mpi_info_delete(info: u32, key: Text) -> c_int {
    pure("MPI_Info_delete", || {
        let key = checked(key)?;
        with(info, |info| info.delete(&key))
    })
}

pub(crate) fn mpi_info_dup(info: u32, newinfo: Place<u32>) -> c_int {
    pure("MPI_Info_dup", || {
        let copy = with(info, |info| Ok(info.clone()))?;
        newinfo.put(add(copy)?)
    })
}

pub(crate) fn mpi_info_free(info: Place<u32>) -> c_int {
    pure("MPI_Info_free", || {
        let handle = info.get()?;
        lock(&INFOS).remove(handle).ok_or_else(|| unknown(handle))?;
        info.put(INFO_NULL)
    })
}

pub(crate) fn mpi_info_get(
    info: u32,
    key: Text,
    valuelen: c_int,
    value: Place<c_char>,
    flag: Place<c_int>,
) -> c_int {
    pure("MPI_Info_get", || {
        let key = checked(key)?;
        let room = usize::try_from(valuelen)
            .map_err(|_| Error::new(Class::Arg, format!("a length of {valuelen}")))?;
        let found = with(info, |info| Ok(info.get(&key).map(str::to_owned)))?;
        if let Some(found) = &found {
            value.write(found, room + 1)?;
        }
        flag.put(c_int::from(found.is_some()))
    })
}

pub(crate) fn mpi_info_get_nkeys(info: u32, nkeys: Place<c_int>) -> c_int {
    pure("MPI_Info_get_nkeys", || nkeys.put(with(info, |info| Ok(info.len() as c_int))?))
}

pub(crate) fn mpi_info_get_nthkey(info: u32, n: c_int, key: Place<c_char>) -> c_int {
    pure("MPI_Info_get_nthkey", || {
        let number = usize::try_from(n).map_err(|_| Error::new(Class::Arg, format!("key {n}")))?;
        let found = with(info, |info| info.key(number).map(str::to_owned))?;
        key.write(&found, MAX_KEY + 1).map(|_| ())
    })
}

pub(crate) fn mpi_info_get_valuelen(
    info: u32,
    key: Text,
    valuelen: Place<c_int>,
    flag: Place<c_int>,
) -> c_int {
    pure("MPI_Info_get_valuelen", || {
        let key = checked(key)?;
        let len = with(info, |info| Ok(info.get(&key).map(str::len)))?;
        if let Some(len) = len {
            valuelen.put(len as c_int)?;
        }
        flag.put(c_int::from(len.is_some()))
    })
}

pub(crate) fn mpi_info_set(info: u32, key: Text, value: Text) -> c_int {
    pure("MPI_Info_set", || {
        let (key, value) = (checked(key)?, value.read()?);
        if info == INFO_ENV {
            return Err(Error::new(Class::Info, "MPI_INFO_ENV is read only"));
        }
        with(info, |info| info.set(&key, &value))
    })
}

/// A key that is not empty and not too long.
fn checked(key: Text) -> Result<String> {
    let key = key.read()?;
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Error::new(Class::InfoKey, format!("a key of {} characters", key.len())));
    }
    Ok(key)
}
