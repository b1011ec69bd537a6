//! Requests: waiting, testing, cancelling, freeing.

use std::ffi::c_int;
use std::sync::LazyLock;

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};
use viaduct_mpi::world::{self, Done, Request};
use viaduct_os::turn::Turn;

use crate::abi::{COMM_WORLD, Place, REQUEST_NULL, REQUEST_SENT, Status, UNDEFINED, natural};
use crate::errors::{call, pure, raise};
use crate::fortran;
use crate::persistent::Prepared;
use crate::state::{Process, process};

/// The communicator that was noted of a request.
fn labelled(label: u32) -> u32 {
    if label == 0 { COMM_WORLD } else { label }
}

/// What a request handle of the table names. Most requests have handles without a table.
pub(crate) enum Pending {
    /// An operation under way, when there are very many.
    Once { request: Request, comm: u32 },
    /// An operation that is started again and again.
    Again { prepared: Prepared, active: Option<Request> },
}

/// Taken by every nonblocking call: for one thread it costs no locked instruction, which would wait until the last message has
/// left the CPU.
pub(crate) static REQUESTS: LazyLock<Turn<Table<Pending>>> =
    LazyLock::new(|| Turn::new(Table::new(Object::Request)));

/// A handle for an operation under way.
#[inline]
pub(crate) fn add(request: Request, comm: u32) -> Result<u32> {
    if request == Request::SENT {
        return Ok(REQUEST_SENT);
    }
    let Some(handle) = request.to_handle() else { return insert(Pending::Once { request, comm }) };
    if comm != COMM_WORLD {
        process()?.world.set_label(request, comm);
    }
    Ok(handle)
}

pub(crate) fn insert(pending: Pending) -> Result<u32> {
    REQUESTS.enter().insert(pending).ok_or_else(|| Error::new(Class::Other, "there are a million requests"))
}

pub(crate) fn unknown(handle: u32) -> Error {
    Error::new(Class::Request, format!("handle {handle:#010x} names none"))
}

/// The operation under way behind a handle, none for a null handle and for a persistent one that is not started; and the
/// communicator whose error handler hears of what happens to it.
fn look(requests: &Table<Pending>, handle: u32) -> Result<(Option<Request>, u32)> {
    match handle {
        REQUEST_NULL => return Ok((None, COMM_WORLD)),
        REQUEST_SENT => return Ok((Some(Request::SENT), COMM_WORLD)),
        _ => {}
    }
    if let Some(request) = Request::from_handle(handle) {
        let label = process()?.world.label(request).ok_or_else(|| unknown(handle))?;
        return Ok((Some(request), labelled(label)));
    }
    match requests.get(handle) {
        Some(Pending::Once { request, comm }) => Ok((Some(*request), *comm)),
        Some(Pending::Again { prepared, active }) => Ok((*active, prepared.comm_handle())),
        None => Err(unknown(handle)),
    }
}

fn active(handle: u32) -> Result<Option<Request>> {
    look(&REQUESTS.enter(), handle).map(|(request, _)| request)
}

fn active_all(handles: &[u32]) -> Result<Vec<Option<Request>>> {
    let requests = REQUESTS.enter();
    let named = |handle: &u32| match Request::from_handle(*handle) {
        Some(request) => Ok(Some(request)),
        None => look(&requests, *handle).map(|(request, _)| request),
    };
    let all: Vec<_> = handles.iter().map(named).collect::<Result<_>>()?;
    drop(requests);
    match process()?.world.first_unknown(&all) {
        Some(at) => Err(unknown(handles[at])),
        None => Ok(all),
    }
}

/// The communicator whose error handler hears of what happens to a request.
fn comm_of(handle: u32) -> u32 {
    look(&REQUESTS.enter(), handle).map_or(COMM_WORLD, |(_, comm)| comm)
}

/// After the end of its operation a handle becomes null, and a persistent one can be started again.
#[inline]
fn settle(handle: &mut u32) {
    if *handle == REQUEST_SENT || Request::from_handle(*handle).is_some() {
        *handle = REQUEST_NULL;
    } else {
        settle_in(&mut REQUESTS.enter(), handle);
    }
}

fn settle_in(requests: &mut Table<Pending>, handle: &mut u32) {
    match requests.get_mut(*handle) {
        Some(Pending::Again { active, .. }) => *active = None,
        _ => {
            requests.remove(*handle);
            *handle = REQUEST_NULL;
        }
    }
}

/// The empty status: what waiting for nothing gives.
fn empty(status: &mut Status) {
    status.set(&world::Status::EMPTY);
    status.error = Class::Success as c_int;
}

/// Writes the end of one operation; the result is its error.
fn finish(done: &Done, status: Place<Status>) -> Result<()> {
    status.fill(|status| status.set(&done.status));
    done.error.clone().map_or(Ok(()), Err)
}

/// Ends an operation that is done: status, handle, error. `whole` has the error in the status too.
fn take(
    process: &Process,
    request: Request,
    handle: &mut u32,
    status: Place<Status>,
    whole: bool,
) -> Result<()> {
    let Some(done) = process.world.take(request) else {
        return Err(Error::new(Class::Intern, "a request that was done is not there"));
    };
    settle(handle);
    let ended = finish(&done, status);
    if whole {
        note(&ended, status);
    }
    ended
}

/// Writes the code of an end into its status, which calls for several requests do.
fn note(ended: &Result<()>, status: Place<Status>) {
    let code = ended.as_ref().err().map_or(Class::Success, Error::class) as c_int;
    status.fill(|status| status.error = code);
}

/// Runs an entry point for one request, with the operation under way behind it; the error handler is that of its
/// communicator.
#[inline]
fn for_request(
    name: &'static str,
    handle: Place<u32>,
    body: impl FnOnce(&'static Process, &mut u32, Option<Request>) -> Result<()>,
) -> c_int {
    let found = handle.get().and_then(|number| look(&REQUESTS.enter(), number));
    let comm = found.as_ref().map_or(COMM_WORLD, |(_, comm)| *comm);
    call(name, comm, |process| {
        let (under_way, _) = found?;
        let mut number = handle.get()?;
        let ended = body(process, &mut number, under_way);
        handle.put(number)?;
        ended
    })
}

pub(crate) fn mpi_wait(request: Place<u32>, status: Place<Status>) -> c_int {
    if request.get() == Ok(REQUEST_SENT) && process().is_ok() {
        status.fill(|status| status.set(&world::Status::EMPTY));
        return request.put(REQUEST_NULL).map_or(Class::Request as c_int, |()| Class::Success as c_int);
    }
    if let Ok(handle) = request.get()
        && let Some(under_way) = Request::from_handle(handle)
        && let Ok(process) = process()
    {
        let Some((done, label)) = process.world.end(under_way) else {
            return raise("MPI_Wait", COMM_WORLD, &unknown(handle));
        };
        let ended = request.put(REQUEST_NULL).and_then(|()| finish(&done, status));
        return match ended {
            Ok(()) => Class::Success as c_int,
            Err(error) => raise("MPI_Wait", labelled(label), &error),
        };
    }
    for_request("MPI_Wait", request, |process, handle, under_way| match under_way {
        None => {
            status.fill(empty);
            Ok(())
        }
        Some(under_way) => {
            let done = process.world.wait(under_way);
            settle(handle);
            finish(&done, status)
        }
    })
}

pub(crate) fn mpi_test(request: Place<u32>, flag: Place<c_int>, status: Place<Status>) -> c_int {
    for_request("MPI_Test", request, |process, handle, under_way| {
        let Some(under_way) = under_way else {
            status.fill(empty);
            return flag.put(1);
        };
        if !process.world.done(under_way) {
            process.world.progress();
        }
        match process.world.take(under_way) {
            None => flag.put(0),
            Some(done) => {
                settle(handle);
                flag.put(1)?;
                finish(&done, status)
            }
        }
    })
}

pub(crate) fn mpi_request_get_status(request: u32, flag: Place<c_int>, status: Place<Status>) -> c_int {
    call("MPI_Request_get_status", comm_of(request), |process| {
        let Some(under_way) = active(request)? else {
            status.fill(empty);
            return flag.put(1);
        };
        process.world.progress();
        match process.world.look(under_way) {
            None => flag.put(0),
            Some(done) => {
                status.fill(|status| status.set(&done));
                flag.put(1)
            }
        }
    })
}

/// Ends all operations of a list, which are done. The error is that of all: it is in the statuses; with it the communicator of one
/// that failed.
fn take_all(
    process: &Process,
    handles: &mut [u32],
    requests: &[Option<Request>],
    statuses: Place<Status>,
) -> std::result::Result<(), (Error, u32)> {
    let mut failed = None;
    let status_of = |at| if statuses.is_ignored() { Place::NULL } else { statuses.further(at) };
    process.world.take_all(requests, |at, done| {
        let status = status_of(at);
        let Some((done, label)) = done else { return status.fill(empty) };
        let ended = finish(&done, status);
        note(&ended, status);
        if let Err(error) = ended {
            failed = Some((error, at, label));
        }
    });
    // A request of the table has its communicator there.
    let failed = failed.map(|(error, at, label)| {
        let placed = Request::from_handle(handles[at]).is_some();
        (error, if placed { labelled(label) } else { comm_of(handles[at]) })
    });
    let ended = handles.iter_mut().zip(requests).filter(|(_, request)| request.is_some());
    ended.for_each(|(handle, _)| settle(handle));
    match failed {
        None => Ok(()),
        Some(failed) if statuses.is_ignored() => Err(failed),
        Some((error, comm)) => Err((Error::new(Class::InStatus, error.to_string()), comm)),
    }
}

/// The communicator of the first request of a list that is not done for certain.
fn comm_of_any(count: c_int, requests: Place<u32>) -> u32 {
    let handles = requests.list(count).unwrap_or(&[]);
    let under_way = |handle: &&u32| !matches!(**handle, REQUEST_NULL | REQUEST_SENT);
    handles.iter().find(under_way).map_or(COMM_WORLD, |handle| comm_of(*handle))
}

pub(crate) fn mpi_waitall(count: c_int, requests: Place<u32>, statuses: Place<Status>) -> c_int {
    match waitall(count, requests, statuses) {
        Ok(()) => Class::Success as c_int,
        Err((error, comm)) => raise("MPI_Waitall", comm, &error),
    }
}

fn waitall(
    count: c_int,
    requests: Place<u32>,
    statuses: Place<Status>,
) -> std::result::Result<(), (Error, u32)> {
    let early = |error| (error, comm_of_any(count, requests));
    let process = process().map_err(early)?;
    let handles = requests.list_mut(count).map_err(early)?;
    if handles.iter().all(|handle| matches!(*handle, REQUEST_NULL | REQUEST_SENT)) {
        for (at, handle) in handles.iter_mut().enumerate() {
            *handle = REQUEST_NULL;
            if !statuses.is_ignored() {
                statuses.further(at).fill(empty);
            }
        }
        return Ok(());
    }
    let under_way = active_all(handles).map_err(early)?;
    process.world.wait_all(&under_way);
    take_all(process, handles, &under_way, statuses)
}

pub(crate) fn mpi_testall(
    count: c_int,
    requests: Place<u32>,
    flag: Place<c_int>,
    statuses: Place<Status>,
) -> c_int {
    call("MPI_Testall", comm_of_any(count, requests), |process| {
        let handles = requests.list_mut(count)?;
        let under_way = active_all(handles)?;
        process.world.progress();
        if !under_way.iter().flatten().all(|request| process.world.done(*request)) {
            return flag.put(0);
        }
        flag.put(1)?;
        take_all(process, handles, &under_way, statuses).map_err(|(error, _)| error)
    })
}

/// Ends the operation at a place of the list.
fn take_at(
    process: &Process,
    handles: &mut [u32],
    under_way: &[Option<Request>],
    at: usize,
    status: Place<Status>,
    whole: bool,
) -> Result<()> {
    let request =
        under_way[at].ok_or_else(|| Error::new(Class::Intern, "an empty place was said to be done"))?;
    take(process, request, &mut handles[at], status, whole)
}

pub(crate) fn mpi_waitany(
    count: c_int,
    requests: Place<u32>,
    index: Place<c_int>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Waitany", comm_of_any(count, requests), |process| {
        let handles = requests.list_mut(count)?;
        let under_way = active_all(handles)?;
        match process.world.wait_any(&under_way) {
            None => {
                status.fill(empty);
                index.put(UNDEFINED)
            }
            Some(at) => {
                index.put(at as c_int)?;
                take_at(process, handles, &under_way, at, status, false)
            }
        }
    })
}

pub(crate) fn mpi_testany(
    count: c_int,
    requests: Place<u32>,
    index: Place<c_int>,
    flag: Place<c_int>,
    status: Place<Status>,
) -> c_int {
    call("MPI_Testany", comm_of_any(count, requests), |process| {
        let handles = requests.list_mut(count)?;
        let under_way = active_all(handles)?;
        process.world.progress();
        let done = under_way.iter().position(|one| one.is_some_and(|one| process.world.done(one)));
        let none = under_way.iter().all(Option::is_none);
        flag.put(c_int::from(done.is_some() || none))?;
        index.put(done.map_or(UNDEFINED, |at| at as c_int))?;
        match done {
            Some(at) => take_at(process, handles, &under_way, at, status, false),
            None => {
                if none {
                    status.fill(empty);
                }
                Ok(())
            }
        }
    })
}

/// Ends all operations of a list that are done.
fn take_some(
    process: &Process,
    handles: &mut [u32],
    under_way: &[Option<Request>],
    (outcount, indices, statuses): (Place<c_int>, Place<c_int>, Place<Status>),
) -> Result<()> {
    if under_way.iter().all(Option::is_none) {
        return outcount.put(UNDEFINED);
    }
    let mut some: c_int = 0;
    let mut failed = None;
    for at in 0..under_way.len() {
        if !under_way[at].is_some_and(|one| process.world.done(one)) {
            continue;
        }
        let status = if statuses.is_ignored() { Place::NULL } else { statuses.further(some as usize) };
        indices.further(some as usize).put(at as c_int)?;
        some += 1;
        if let Err(error) = take_at(process, handles, under_way, at, status, true) {
            failed = Some(error);
        }
    }
    outcount.put(some)?;
    match failed {
        None => Ok(()),
        Some(error) if statuses.is_ignored() => Err(error),
        Some(error) => Err(Error::new(Class::InStatus, error.to_string())),
    }
}

pub(crate) fn mpi_waitsome(
    incount: c_int,
    requests: Place<u32>,
    outcount: Place<c_int>,
    indices: Place<c_int>,
    statuses: Place<Status>,
) -> c_int {
    call("MPI_Waitsome", comm_of_any(incount, requests), |process| {
        let handles = requests.list_mut(incount)?;
        let under_way = active_all(handles)?;
        process.world.wait_any(&under_way);
        take_some(process, handles, &under_way, (outcount, indices, statuses))
    })
}

pub(crate) fn mpi_testsome(
    incount: c_int,
    requests: Place<u32>,
    outcount: Place<c_int>,
    indices: Place<c_int>,
    statuses: Place<Status>,
) -> c_int {
    call("MPI_Testsome", comm_of_any(incount, requests), |process| {
        let handles = requests.list_mut(incount)?;
        let under_way = active_all(handles)?;
        process.world.progress();
        take_some(process, handles, &under_way, (outcount, indices, statuses))
    })
}

pub(crate) fn mpi_cancel(request: Place<u32>) -> c_int {
    for_request("MPI_Cancel", request, |process, handle, under_way| {
        if *handle == REQUEST_NULL {
            return Err(Error::new(Class::Request, "it is MPI_REQUEST_NULL"));
        }
        if let Some(under_way) = under_way {
            process.world.cancel(under_way);
        }
        Ok(())
    })
}

pub(crate) fn mpi_request_free(request: Place<u32>) -> c_int {
    for_request("MPI_Request_free", request, |process, handle, under_way| {
        if *handle == REQUEST_NULL {
            return Err(Error::new(Class::Request, "it is MPI_REQUEST_NULL"));
        }
        if Request::from_handle(*handle).is_none() {
            REQUESTS.enter().remove(*handle);
        }
        *handle = REQUEST_NULL;
        if let Some(under_way) = under_way {
            process.world.free(under_way);
        }
        Ok(())
    })
}

pub(crate) fn mpi_test_cancelled(status: Place<Status>, flag: Place<c_int>) -> c_int {
    pure("MPI_Test_cancelled", || flag.put(c_int::from(status.read()?.cancelled())))
}

pub(crate) fn mpi_status_set_cancelled(status: Place<Status>, flag: c_int) -> c_int {
    pure("MPI_Status_set_cancelled", || {
        status.read()?;
        status.fill(|status| status.set_cancelled(flag != 0));
        Ok(())
    })
}

pub(crate) fn mpi_status_c2f(from: Place<Status>, into: Place<c_int>) -> c_int {
    pure("MPI_Status_c2f", || Place::new(into.address().cast::<Status>()).put(from.read()?))
}

pub(crate) fn mpi_status_f2c(from: Place<c_int>, into: Place<Status>) -> c_int {
    pure("MPI_Status_f2c", || into.put(Place::new(from.address().cast::<Status>()).get()?))
}

/// A status of Fortran 2008, which has the fields of one of C.
fn of_f08(from: Place<Status>) -> Result<Status> {
    if fortran::is_f08_mark(from) {
        return Err(Error::new(Class::Arg, "the status is one to be ignored"));
    }
    from.get()
}

pub(crate) fn mpi_status_c2f08(from: Place<Status>, into: Place<Status>) -> c_int {
    pure("MPI_Status_c2f08", || into.put(from.read()?))
}

pub(crate) fn mpi_status_f082c(from: Place<Status>, into: Place<Status>) -> c_int {
    pure("MPI_Status_f082c", || into.put(of_f08(from)?))
}

pub(crate) fn mpi_status_f082f(from: Place<Status>, into: Place<c_int>) -> c_int {
    pure("MPI_Status_f082f", || Place::new(into.address().cast::<Status>()).put(of_f08(from)?))
}

pub(crate) fn mpi_status_f2f08(from: Place<c_int>, into: Place<Status>) -> c_int {
    pure("MPI_Status_f2f08", || into.put(Place::new(from.address().cast::<Status>()).get()?))
}

/// A list of handles of the program's.
pub(crate) fn handles(count: c_int, requests: Place<u32>) -> Result<Vec<u32>> {
    natural(count)?;
    Ok(requests.list(count)?.to_vec())
}
