//! Errors: what a failed call does, error handlers, and classes, codes and texts that programs add.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::handle::{Object, Table};

use crate::abi::{
    COMM_NULL, COMM_WORLD, ERR_LASTCODE, ERRHANDLER_NULL, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN,
    Function, MAX_ERROR_STRING, Place, Text,
};
use crate::objects::{comm, comm_if_any, lock};
use crate::state::{Process, abort, process};

/// Runs an entry point, and turns an error into what the communicator's error handler says.
#[inline]
pub(crate) fn call(
    name: &'static str,
    comm: u32,
    body: impl FnOnce(&'static Process) -> Result<()>,
) -> c_int {
    match process().and_then(body) {
        Ok(()) => Class::Success as c_int,
        Err(error) => raise(name, comm, &error),
    }
}

/// Runs an entry point that needs no process: objects may be made at any time.
#[inline]
pub(crate) fn pure(name: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => Class::Success as c_int,
        Err(error) => raise(name, COMM_WORLD, &error),
    }
}

/// An entry point that is not implemented.
#[cold]
pub(crate) fn refuse(name: &'static str, comm: Option<u32>) -> c_int {
    let cause = "Viaduct does not have it yet (viaduct mpi coverage lists what there is)";
    raise(name, comm.unwrap_or(COMM_WORLD), &Error::new(Class::UnsupportedOperation, cause))
}

thread_local! {
    /// The last error of this thread, for `MPI_Error_string`.
    static LAST: RefCell<Option<(c_int, String)>> = const { RefCell::new(None) };
}

/// Hands an error to the handler of a communicator; of `MPI_COMM_WORLD` if that one does not exist.
#[cold]
pub(crate) fn raise(name: &'static str, comm: u32, error: &Error) -> c_int {
    let code = error.class() as c_int;
    let text = format!("{name}: {error}");
    LAST.with_borrow_mut(|last| *last = Some((code, text.clone())));
    handle(comm, code, &text)
}

/// Runs the error handler of a communicator.
fn handle(comm: u32, code: c_int, text: &str) -> c_int {
    let (number, handler) = match comm_if_any(comm) {
        Some(object) => (comm, object.errhandler()),
        None => (COMM_WORLD, comm_if_any(COMM_WORLD).map_or(ERRORS_ARE_FATAL, |world| world.errhandler())),
    };
    match handler {
        ERRORS_RETURN => code,
        ERRORS_ARE_FATAL | ERRORS_ABORT => fatal(code, text),
        _ => {
            let function = lock(&HANDLERS).get(handler).map(|handler| handler.function);
            let Some(function) = function else { fatal(code, text) };
            run(function, number, code);
            code
        }
    }
}

/// Calls a handler of the program.
fn run(function: Function, comm: u32, code: c_int) {
    if function.is_null() {
        return;
    }
    let (mut comm, mut code) = (comm, code);
    // SAFETY: the program gave the address of a function of this type to MPI_Comm_create_errhandler. The variable
    // arguments of the standard's type are never given.
    let function = unsafe {
        std::mem::transmute::<*const c_void, extern "C" fn(*mut u32, *mut c_int)>(function.address())
    };
    function(&mut comm, &mut code);
}

/// Ends the job.
#[cold]
fn fatal(code: c_int, text: &str) -> ! {
    match process() {
        Ok(process) => {
            let rank = process.world.comm_world().rank();
            say(&format!("libmpi: rank {rank}: {text}\n"));
            abort(process, code, text)
        }
        Err(_) => {
            say(&format!("libmpi: {text}\n"));
            std::process::exit(1)
        }
    }
}

/// Writes a line to standard error in one piece: other ranks write there too, and one of them may end the job meanwhile.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// An error handler of the program.
struct Handler {
    function: Function,
    /// The program's own reference and those of communicators.
    uses: usize,
}

static HANDLERS: LazyLock<Mutex<Table<Handler>>> =
    LazyLock::new(|| Mutex::new(Table::new(Object::Errhandler)));

fn is_predefined(handle: u32) -> bool {
    matches!(handle, ERRORS_ARE_FATAL | ERRORS_RETURN | ERRORS_ABORT)
}

/// One more use of an error handler.
pub(crate) fn retain(handle: u32) {
    if !is_predefined(handle)
        && let Some(handler) = lock(&HANDLERS).get_mut(handle)
    {
        handler.uses += 1;
    }
}

/// One use less; the last one frees it.
pub(crate) fn release(handle: u32) {
    if is_predefined(handle) {
        return;
    }
    let mut handlers = lock(&HANDLERS);
    let unused = handlers.get_mut(handle).is_some_and(|handler| {
        handler.uses -= 1;
        handler.uses == 0
    });
    if unused {
        handlers.remove(handle);
    }
}

fn create(name: &'static str, function: Function, errhandler: Place<u32>) -> c_int {
    pure(name, || {
        let made = lock(&HANDLERS).insert(Handler { function, uses: 1 });
        errhandler.put(made.ok_or_else(|| Error::new(Class::Other, "there are a million error handlers"))?)
    })
}

pub(crate) fn mpi_comm_create_errhandler(function: Function, errhandler: Place<u32>) -> c_int {
    create("MPI_Comm_create_errhandler", function, errhandler)
}

pub(crate) fn mpi_errhandler_create(function: Function, errhandler: Place<u32>) -> c_int {
    create("MPI_Errhandler_create", function, errhandler)
}

fn set(name: &'static str, handle: u32, errhandler: u32) -> c_int {
    call(name, handle, |process| {
        let object = comm(process, handle)?;
        if !is_predefined(errhandler) && lock(&HANDLERS).get(errhandler).is_none() {
            return Err(Error::new(Class::Arg, format!("{errhandler:#010x} is no error handler")));
        }
        object.set_errhandler(errhandler);
        Ok(())
    })
}

pub(crate) fn mpi_comm_set_errhandler(comm: u32, errhandler: u32) -> c_int {
    set("MPI_Comm_set_errhandler", comm, errhandler)
}

pub(crate) fn mpi_errhandler_set(comm: u32, errhandler: u32) -> c_int {
    set("MPI_Errhandler_set", comm, errhandler)
}

fn get(name: &'static str, handle: u32, errhandler: Place<u32>) -> c_int {
    call(name, handle, |process| {
        let handler = comm(process, handle)?.errhandler();
        retain(handler);
        errhandler.put(handler)
    })
}

pub(crate) fn mpi_comm_get_errhandler(comm: u32, errhandler: Place<u32>) -> c_int {
    get("MPI_Comm_get_errhandler", comm, errhandler)
}

pub(crate) fn mpi_errhandler_get(comm: u32, errhandler: Place<u32>) -> c_int {
    get("MPI_Errhandler_get", comm, errhandler)
}

pub(crate) fn mpi_errhandler_free(errhandler: Place<u32>) -> c_int {
    pure("MPI_Errhandler_free", || {
        let handle = errhandler.get()?;
        if !is_predefined(handle) && lock(&HANDLERS).get(handle).is_none() {
            return Err(Error::new(Class::Arg, format!("{handle:#010x} is no error handler")));
        }
        release(handle);
        errhandler.put(ERRHANDLER_NULL)
    })
}

pub(crate) fn mpi_comm_call_errhandler(handle: u32, errorcode: c_int) -> c_int {
    call("MPI_Comm_call_errhandler", handle, |process| {
        if handle == COMM_NULL {
            comm(process, handle)?;
        }
        let text = format!("MPI_Comm_call_errhandler: {}", string(errorcode));
        crate::errors::handle(handle, errorcode, &text);
        Ok(())
    })
}

/// Classes and codes that the program has added: both have numbers above `MPI_ERR_LASTCODE`.
#[derive(Default)]
struct Added {
    /// The class of each, in the order of their numbers; a class is its own class.
    classes: Vec<c_int>,
    texts: HashMap<c_int, String>,
}

impl Added {
    fn add(&mut self, class: Option<c_int>) -> c_int {
        let code = ERR_LASTCODE + 1 + self.classes.len() as c_int;
        self.classes.push(class.unwrap_or(code));
        code
    }

    fn class_of(&self, code: c_int) -> Option<c_int> {
        self.classes.get(usize::try_from(code.checked_sub(ERR_LASTCODE + 1)?).ok()?).copied()
    }
}

static ADDED: LazyLock<Mutex<Added>> = LazyLock::new(Mutex::default);

/// The highest code in use: the attribute `MPI_LASTUSEDCODE`.
pub(crate) fn last_used_code() -> c_int {
    ERR_LASTCODE + lock(&ADDED).classes.len() as c_int
}

pub(crate) fn mpi_add_error_class(errorclass: Place<c_int>) -> c_int {
    pure("MPI_Add_error_class", || errorclass.put(lock(&ADDED).add(None)))
}

pub(crate) fn mpi_add_error_code(errorclass: c_int, errorcode: Place<c_int>) -> c_int {
    pure("MPI_Add_error_code", || {
        class_of(errorclass)?;
        errorcode.put(lock(&ADDED).add(Some(errorclass)))
    })
}

pub(crate) fn mpi_add_error_string(errorcode: c_int, text: Text) -> c_int {
    pure("MPI_Add_error_string", || {
        let mut added = lock(&ADDED);
        if added.class_of(errorcode).is_none() {
            return Err(Error::new(Class::Arg, format!("{errorcode} is no code of the program")));
        }
        added.texts.insert(errorcode, text.read()?);
        Ok(())
    })
}

/// The class of a code. Predefined codes are their own classes, also those of the tools interface.
fn class_of(code: c_int) -> Result<c_int> {
    let known = lock(&ADDED).class_of(code).or_else(|| (0..=ERR_LASTCODE).contains(&code).then_some(code));
    known.ok_or_else(|| Error::new(Class::Arg, format!("{code} is no error code")))
}

pub(crate) fn mpi_error_class(errorcode: c_int, errorclass: Place<c_int>) -> c_int {
    pure("MPI_Error_class", || errorclass.put(class_of(errorcode)?))
}

/// The text of a code: of the last error of this thread if it has that code, else of its class.
fn string(code: c_int) -> String {
    let last = LAST.with_borrow(|last| last.clone().filter(|(known, _)| *known == code));
    match (Class::of(code), last) {
        (Some(_), Some((_, text))) => text,
        (Some(class), None) => class.text().to_owned(),
        (None, _) if code <= ERR_LASTCODE => format!("error class {code}"),
        (None, _) => lock(&ADDED).texts.get(&code).cloned().unwrap_or_default(),
    }
}

pub(crate) fn mpi_error_string(
    errorcode: c_int,
    text: Place<std::ffi::c_char>,
    resultlen: Place<c_int>,
) -> c_int {
    pure("MPI_Error_string", || {
        class_of(errorcode)?;
        resultlen.put(text.write(&string(errorcode), MAX_ERROR_STRING)?)
    })
}
