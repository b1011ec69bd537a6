//! The process as MPI sees it: before, between and after `MPI_Init` and `MPI_Finalize`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use viaduct_job::Job;
use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::world::World;
use viaduct_os::log;
use viaduct_providers::Config;
use viaduct_via::Nic;

use crate::objects::CommObject;

/// What `MPI_Init` has made.
pub(crate) struct Process {
    pub(crate) world: World,
    pub(crate) comm_world: CommObject,
    pub(crate) comm_self: CommObject,
    main_thread: ThreadId,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
/// Held while `MPI_Init` runs, so that two threads do not both start it.
static STARTING: Mutex<()> = Mutex::new(());

const BEFORE: u8 = 0;
const RUNNING: u8 = 1;
const AFTER: u8 = 2;
/// In a child of `fork`: locks of the parent's threads may be held there for good, so nothing below is entered.
const FORKED: u8 = 3;

/// The process, if calls are allowed now.
#[inline]
pub(crate) fn process() -> Result<&'static Process> {
    if PHASE.load(Ordering::Acquire) == RUNNING
        && let Some(process) = PROCESS.get()
    {
        return Ok(process);
    }
    Err(refusal())
}

#[cold]
fn refusal() -> Error {
    let when = match PHASE.load(Ordering::Acquire) {
        AFTER => "after MPI_Finalize",
        FORKED => {
            "in a child of fork, which is no rank of the job; a program that it starts (exec) may be one"
        }
        _ => "before MPI_Init",
    };
    Error::new(Class::Other, format!("it was called {when}"))
}

/// Whether `MPI_Init` has ended.
pub(crate) fn initialized() -> bool {
    PHASE.load(Ordering::Acquire) != BEFORE
}

/// Whether `MPI_Finalize` has ended.
pub(crate) fn finalized() -> bool {
    PHASE.load(Ordering::Acquire) == AFTER
}

/// Joins the job.
pub(crate) fn start() -> Result<()> {
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if initialized() {
        return Err(Error::new(Class::Other, "MPI was initialised before"));
    }
    log::install_for_library("libmpi", variable(log::VARIABLE));
    let world = World::init(&variable, open()?)?;
    let comm_world = CommObject::new(world.comm_world().clone(), Some("MPI_COMM_WORLD"));
    let comm_self = CommObject::new(world.comm_self().clone(), Some("MPI_COMM_SELF"));
    let process = Process { world, comm_world, comm_self, main_thread: thread::current().id() };
    if PROCESS.set(process).is_err() {
        return Err(Error::new(Class::Intern, "the process was made twice"));
    }
    PHASE.store(RUNNING, Ordering::Release);
    // SAFETY: the function stores one atomic, which is allowed in a child of a process with threads.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Ok(())
}

extern "C" fn forked() {
    PHASE.store(FORKED, Ordering::Release);
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How the NIC is opened: by the job's usual provider, unless `VIADUCT_PROVIDER` names another one.
fn open() -> Result<impl FnOnce(&mut Job) -> std::result::Result<Nic, Box<dyn std::error::Error>>> {
    let mut config =
        Config::from_variables(variable).map_err(|bad| Error::new(Class::Other, bad.to_string()))?;
    let chosen = variable("VIADUCT_PROVIDER");
    Ok(move |job: &mut Job| {
        config.join(job)?;
        let name = chosen.as_deref().unwrap_or_else(|| config.usual_provider());
        Ok(Nic::open_with(viaduct_providers::open(name, &config)?, config.wait)?)
    })
}

/// Ends the whole job, with what the program has printed so far.
pub(crate) fn abort(process: &Process, code: i32, why: &str) -> ! {
    // SAFETY: a call of the C library that takes no memory of ours; null stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    drain();
    process.world.abort(code, why)
}

/// Waits, five seconds at most, until the launcher has read what this process printed: some launchers kill the ranks of a job
/// that is aborted, and read no more from them.
fn drain() {
    let end = Instant::now() + Duration::from_secs(5);
    while (unread(libc::STDOUT_FILENO) || unread(libc::STDERR_FILENO)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a descriptor is a pipe with bytes that its reader has not taken.
fn unread(descriptor: c_int) -> bool {
    // SAFETY: zeroes are a valid `stat`, and both calls write one value to a place of this function.
    unsafe {
        let (mut about, mut bytes) = (std::mem::zeroed::<libc::stat>(), 0_i32);
        libc::fstat(descriptor, &raw mut about) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFIFO
            && libc::ioctl(descriptor, libc::FIONREAD, &raw mut bytes) == 0
            && bytes > 0
    }
}

/// Leaves the job.
pub(crate) fn end() -> Result<()> {
    let ended = process()?.world.finalize();
    PHASE.store(AFTER, Ordering::Release);
    ended
}

impl Process {
    /// Whether this is the thread that initialised MPI.
    pub(crate) fn is_main_thread(&self) -> bool {
        thread::current().id() == self.main_thread
    }
}
