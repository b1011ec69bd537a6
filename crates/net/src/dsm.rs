//! Shared memory between nodes for programs of your own: `viaduct dsm ./program --nodes 2 --procs 2` starts them.
//!
//! Every worker of every node runs the program. [`run`] hands it a [`Dsm`]: its place among the workers, and shared memory.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use viaduct_net::dsm::{self, Array, Dsm, Error, Guarded};
//!
//! fn main() -> ExitCode {
//!     dsm::run(program)
//! }
//!
//! fn program(dsm: &mut Dsm) -> Result<(), Error> {
//!     let squares: Array<u64> = dsm.array(1000)?;
//!     let total: Guarded<u64> = dsm.guarded(1)?;
//!     let mut epoch = dsm.epoch();
//!     let (rank, size) = (epoch.rank(), epoch.size());
//!     let part = 1000 * rank / size..1000 * (rank + 1) / size;
//!     for (number, place) in part.clone().zip(epoch.write(squares, part.clone()).iter_mut()) {
//!         *place = (number * number) as u64;
//!     }
//!     let sum: u64 = epoch.read(squares, part).iter().sum();
//!     epoch.with(total, |total, _| total[0] += sum)?;
//!     let mut epoch = epoch.barrier(0)?;
//!     if rank == 0 {
//!         println!("{}", epoch.with(total, |total, _| total[0])?);
//!     }
//!     Ok(())
//! }
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub use viaduct_cashmere::given::Wishes;
pub use viaduct_cashmere::node::start::Error;
pub use viaduct_cashmere::statistics::{Counter, Statistics};
pub use viaduct_cashmere::world::NodeDown;
pub use viaduct_cashmere::{Array, Dsm, Epoch, Guarded, Hand, Mut, Placement, Plain, Ptr, Ref};

use viaduct_cashmere::given::{Bind, Given, VARIABLE};
use viaduct_cashmere::node::start::{self, Role};
use viaduct_job::Job;
use viaduct_os::{cpu, runtime_dir};

use crate::variable;

/// How long a process that a lost node stops leaves it to the launcher to end it, which says more.
const AFTER: Duration = Duration::from_secs(3);

/// Runs `program` in every worker, and leaves the shared memory after it. What stands before this call in `main` runs in the
/// servers of the nodes too.
///
/// The exit code is 1, and the reason on standard error, if the program gave an error or a node is gone.
pub fn run<E>(program: impl FnOnce(&mut Dsm) -> Result<(), E>) -> ExitCode
where
    E: Into<Box<dyn std::error::Error>>,
{
    run_with(Wishes::default(), program)
}

/// [`run`], with the amount of memory and the size of pages that the program would like.
pub fn run_with<E>(wishes: Wishes, program: impl FnOnce(&mut Dsm) -> Result<(), E>) -> ExitCode
where
    E: Into<Box<dyn std::error::Error>>,
{
    let mut dsm = match start_with(wishes) {
        Ok(dsm) => dsm,
        Err(error) => return fail(&error),
    };
    if let Err(error) = program(&mut dsm) {
        return fail(&*error.into());
    }
    match dsm.finish() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Makes this process part of a node. Returns in workers; in the server of a node it serves until the program has ended, and
/// ends the process.
///
/// Every worker calls [`Dsm::finish`] at its end: the others wait for it there.
///
/// # Errors
/// If the process was not started by `viaduct dsm`, settings do not fit, a rank does not come or memory is short.
pub fn start() -> Result<Dsm, Error> {
    start_with(Wishes::default())
}

/// [`start()`], with the amount of memory and the size of pages that the program would like. The command line beats both.
///
/// # Errors
/// As of [`start()`].
pub fn start_with(wishes: Wishes) -> Result<Dsm, Error> {
    let Some(given) = variable(VARIABLE) else {
        let why = "this program shares memory between nodes, and no launcher has started it as one of their processes; \
                   hint: viaduct dsm ./PROGRAM --nodes 2 --procs 2";
        return Err(Error::Settings(why.to_owned()));
    };
    let given: Given = given.parse().map_err(|why| Error::Settings(format!("{VARIABLE}: {why}")))?;
    let failed = |step: &'static str| move |why: String| Error::Start(step, why);
    let mut job = crate::join().map_err(|why| failed("joining the job")(why.to_string()))?;
    let nic =
        crate::open_for(&mut job).map_err(|why| failed("opening a network interface")(why.to_string()))?;
    let folder = variable("VIADUCT_RUNTIME_DIR").map(PathBuf::from);
    let folder = runtime_dir::runtime_dir(folder.as_deref());
    let folder = folder.map_err(|why| failed("the run-time folder")(why.to_string()))?;
    bind(&mut job, &given)?;
    match start::start(job, nic, &folder, &given.settings(wishes)) {
        Ok(Role::Worker(dsm)) => Ok(dsm.tells(&given)),
        Ok(Role::Server) => std::process::exit(0),
        Err(error) if matches!(error, Error::Down(_)) => {
            fail(&error);
            std::process::exit(1)
        }
        Err(error) => Err(error),
    }
}

/// Puts a worker on a core of its own, as the paper does (section 3.1). Servers go where there is room.
fn bind(job: &mut Job, given: &Given) -> Result<(), Error> {
    let hosts = job.hosts().map_err(|why| Error::Start("meeting the other ranks", why.to_string()))?.to_vec();
    let (me, group) = (job.rank(), given.workers + 1);
    let works = |rank: usize| !rank.is_multiple_of(group);
    let here =
        |ranks: std::ops::Range<usize>| ranks.filter(|&rank| works(rank) && hosts[rank] == hosts[me]).count();
    let (cpus, workers) = (cpu::allowed(), here(0..hosts.len()));
    let bound = match given.bind {
        Bind::Core => true,
        Bind::Auto => workers <= cpus.len(),
        Bind::None => false,
    };
    if bound && works(me) && !cpus.is_empty() {
        let core = cpus[here(0..me) % cpus.len()];
        cpu::pin(core).map_err(|why| Error::Start("binding a worker to a core", format!("{core}: {why}")))?;
    }
    Ok(())
}

/// Says why this process cannot go on.
fn fail(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    let down = error.is::<NodeDown>() || matches!(error.downcast_ref(), Some(Error::Down(_)));
    if down {
        // The process that is gone says more; the launcher ends this one.
        std::thread::sleep(AFTER);
    }
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    eprintln!("{name}: {error}");
    ExitCode::FAILURE
}
