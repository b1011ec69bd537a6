//! A process of an MPI program in its job: the calls that the C library makes.
//!
//! ```text
//!   World          init, finalize, abort; memory                         mod.rs, start.rs
//!     ├ calls      send, receive, probe, wait            point.rs, requests.rs
//!     │            collectives: a schedule, run in rounds        collective.rs, run.rs
//!     │            short ones of one host, on a shared board     short.rs, board.rs, mark.rs
//!     │            communicators and their contexts              comm.rs, create.rs
//!     └ Shared     threads take turns, wait without holding it           shared.rs
//!         └ Engine completions of the NIC in, packets out                engine.rs
//!             ├ Core    the protocol, pure                               ../protocol
//!             └ Links   a VI for each pair, buffers, connecting          links.rs, wire.rs
//! ```
//!
//! Every method may be called by any thread at any time: `MPI_THREAD_MULTIPLE` is always there.

mod board;
mod collective;
mod comm;
mod create;
mod engine;
mod links;
mod mark;
mod point;
mod requests;
mod run;
pub mod settings;
mod shared;
mod short;
mod start;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use viaduct_job::{HostId, Job};
use viaduct_via::{MemAttributes, Nic};

pub use crate::protocol::{Done, Request, Status};
pub use collective::{Operation, Parts};
pub use comm::Comm;
pub use point::{Message, Mode};
pub use settings::Settings;

use crate::error::{Class, Error, Result};
use board::Board;
use comm::Contexts;
use shared::Shared;

/// The rank that stands for no process.
pub const PROC_NULL: i32 = -1;
/// A receive takes messages of any process.
pub const ANY_SOURCE: i32 = -2;
/// A receive takes messages with any tag.
pub const ANY_TAG: i32 = -1;

/// This process in its job.
pub struct World {
    shared: Shared,
    job: Mutex<Option<Job>>,
    world: Comm,
    own: Comm,
    contexts: Arc<Contexts>,
    /// Where all ranks of one host do short collective operations.
    board: Option<Arc<Board>>,
    settings: Settings,
    hosts: Vec<HostId>,
    /// Buffered sends that are on their way, with their lengths.
    buffered: Mutex<Vec<(Request, usize)>>,
    /// Memory of `MPI_Alloc_mem` that is not the NIC's, by address.
    heap: Mutex<HashMap<usize, Box<[u64]>>>,
}

impl World {
    /// Joins the job that this process was started in, and connects with the other ranks of this host.
    ///
    /// `variable` looks up a variable of the environment; `open` opens the NIC of this process, and may ask the job where the
    /// others are and which token they share.
    ///
    /// # Errors
    /// If the launcher, the NIC or another rank fails.
    pub fn init(
        variable: &dyn Fn(&str) -> Option<String>,
        open: impl FnOnce(&mut Job) -> std::result::Result<Nic, Box<dyn std::error::Error>>,
    ) -> Result<World> {
        start::start(variable, open)
    }

    /// All processes of the job.
    pub fn comm_world(&self) -> &Comm {
        &self.world
    }

    /// This process alone.
    pub fn comm_self(&self) -> &Comm {
        &self.own
    }

    /// Ends communication: all ranks wait for each other, and leave the job in good order.
    ///
    /// # Errors
    /// If a rank is gone, or this process has finalized already.
    pub fn finalize(&self) -> Result<()> {
        self.flush_buffered()?;
        self.barrier(&self.world)?;
        self.shared.wait(|engine| engine.is_idle().then_some(()))?;
        self.shared.with(|engine| engine.say_bye())?;
        self.shared.wait(|engine| engine.is_idle().then_some(()))?;
        let job = self.job().take();
        if let Some(mut job) = job {
            // No rank goes before all have left the barrier above.
            let left = job.barrier();
            self.shared.close(self.settings.stats);
            left.and_then(|()| job.finish()).map_err(|why| Error::new(Class::Other, why.to_string()))?;
        }
        Ok(())
    }

    /// Ends the whole job: the launcher ends the other ranks, and this process ends with the low byte of `code`. A code whose low byte
    /// is 0 would pass for success, here and with launchers; it becomes 1.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        let code = if code as u8 == 0 { 1 } else { code };
        if let Ok(mut job) = self.job.try_lock()
            && let Some(job) = job.as_mut()
        {
            job.abort(code, why);
        }
        viaduct_os::children::quit(code as u8)
    }

    /// Memory that other ranks read long messages from without this process' help.
    ///
    /// # Errors
    /// If there is not so much.
    pub fn alloc_mem(&self, len: usize) -> Result<*mut u8> {
        let shareable = self.shared.with(|engine| engine.links.alloc(len.max(1)))?;
        if let Some(address) = shareable {
            return Ok(address);
        }
        let words = len.div_ceil(8).max(1);
        let mut memory = Vec::new();
        let none = |_| Error::new(Class::NoMem, format!("{len} bytes"));
        memory.try_reserve_exact(words).map_err(none)?;
        memory.resize(words, 0u64);
        let mut memory = memory.into_boxed_slice();
        let address = memory.as_mut_ptr().cast::<u8>();
        lock(&self.heap).insert(address as usize, memory);
        Ok(address)
    }

    /// Whether this host has more ranks of the job than CPUs that they may run on: then they spin for a moment only when they wait.
    pub fn is_crowded(&self) -> bool {
        self.shared.crowded
    }

    /// Gives memory of [`alloc_mem`](Self::alloc_mem) back.
    ///
    /// # Errors
    /// If the address is not one of those.
    pub fn free_mem(&self, address: *mut u8) -> Result<()> {
        if lock(&self.heap).remove(&(address as usize)).is_some() {
            return Ok(());
        }
        if self.shared.with(|engine| engine.links.free(address))? {
            return Ok(());
        }
        Err(Error::new(Class::Base, "the address is not one that MPI_Alloc_mem has returned"))
    }

    /// The largest tag.
    pub fn tag_ub(&self) -> i32 {
        i32::MAX
    }

    /// The name of this host.
    pub fn processor_name(&self) -> String {
        host_name()
    }

    fn job(&self) -> MutexGuard<'_, Option<Job>> {
        lock(&self.job)
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or("localhost".into(), |name| name.trim().into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What calls after `MPI_Finalize` return.
fn finalized() -> Error {
    Error::new(Class::Other, "MPI_Finalize was called before")
}

/// What the NIC or the launcher had to say.
fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> Error + '_ {
    move |why| Error::new(Class::Other, format!("{what}: {why}"))
}

/// Rights of memory that peers read messages from.
fn readable(tag: viaduct_via::ProtectionTag) -> MemAttributes {
    MemAttributes { rdma_read: true, ..MemAttributes::local(tag) }
}
