//! What a program has of shared memory: its place among the workers, allocation, faults, the end.

use std::error::Error as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use viaduct_job::Job;
use viaduct_os::error::OsError;
use viaduct_os::fault::{self, EngineKind, Serving, Stack, Window};

use crate::array::{Array, Guarded, Placement, Plain};
use crate::clock::Spent;
use crate::epoch::Epoch;
#[cfg(doc)]
use crate::given::Wishes;
use crate::given::{Given, Report};
use crate::ids::PageId;
use crate::node::layout::NAMES;
use crate::node::process::Process;
use crate::node::start::{self, Error, WINDOW};
use crate::node::wire::Says;
use crate::progress::Progress;
use crate::protocol::page::Access;
use crate::quiet::{self, quiet};
use crate::raw::{self, Unserved, finish};
use crate::statistics::{Counter, Statistics};
use crate::worker::Worker;
use crate::world::{Name, NodeDown};

/// What page faults go to.
pub(crate) struct Inner {
    pub(crate) process: Process,
    pub(crate) worker: Worker,
}

impl Inner {
    fn fault(&mut self, address: usize, access: fault::Access) -> bool {
        let _quiet = quiet();
        let page = PageId(((address - WINDOW) / self.process.shape.page) as u32);
        let access = match access {
            fault::Access::Write => Access::Write,
            fault::Access::Read => Access::Read,
            // A page that can be loaded from faults at a store only.
            fault::Access::Unknown => {
                let mapped = self.process.memory.meta.entry(page);
                let entry = mapped.lock(&|| true);
                mapped.unlock(entry);
                if entry.mapped().contains(self.worker.id()) { Access::Write } else { Access::Read }
            }
        };
        let counter = if access == Access::Write { Counter::WriteFaults } else { Counter::ReadFaults };
        self.process.count(counter, 1);
        self.process.clock.switch(Spent::Protocol);
        match finish(self.worker.fault(&mut self.process, page, access)) {
            Ok(()) => {
                self.process.clock.switch(Spent::User);
                true
            }
            Err(down) => self.process.end_without_page(down),
        }
    }

    /// A lock, a barrier or a flag.
    pub(crate) fn synchronise(
        &mut self,
        act: impl FnOnce(&Worker, &mut Process) -> Result<(), NodeDown>,
    ) -> Result<(), NodeDown> {
        self.process.clock.switch(Spent::Protocol);
        let done = act(&self.worker, &mut self.process);
        self.process.forget_hints();
        self.process.clock.switch(Spent::User);
        done
    }
}

fn catch(address: usize, access: fault::Access) -> bool {
    match raw::with_current(|inner: &mut Inner| inner.fault(address, access)) {
        Ok(caught) => caught,
        Err(Unserved::None) => false,
        // Its values may be in use by the worker's thread.
        Err(Unserved::Elsewhere) => start::give_up(format_args!(
            "shared memory was touched by a thread other than the worker's, where no page is mapped; hint: load or store \
             there on the worker's thread first, or give the node more workers (`--procs`) instead of threads"
        )),
    }
}

/// Why there is no window, and what may help.
fn unmapped(why: OsError, engine: Option<EngineKind>) -> Error {
    let cause = why.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let hint = match engine {
        Some(EngineKind::Uffd) => "; hint: `--engine mprotect` needs no userfaultfd",
        _ => "",
    };
    Error::Start("mapping shared memory", format!("{why}{cause}{hint}"))
}

/// A worker of a node: the program's own process.
pub struct Dsm {
    pub(crate) inner: raw::Current<Inner>,
    pub(crate) progress: Progress,
    job: Job,
    rank: usize,
    size: usize,
    engine: EngineKind,
    bytes: usize,
    next: usize,
    guarded: Name,
    /// Locks that this worker holds.
    pub(crate) held: Vec<Name>,
    begun: Instant,
    report: Report,
    /// Where the homes of the first touch go.
    homes: Option<PathBuf>,
    _serving: Serving,
    _stack: Stack,
}

impl Dsm {
    pub(crate) fn new(
        job: Job,
        mut process: Process,
        engine: Option<EngineKind>,
        homes: Option<PathBuf>,
    ) -> Result<Dsm, Error> {
        let failed = |step| move |why: viaduct_os::error::OsError| Error::Start(step, why.to_string());
        let window =
            Window::new(&process.memory.frames, WINDOW, engine).map_err(|why| unmapped(why, engine))?;
        let (bytes, engine) = (window.len(), window.engine());
        if engine == EngineKind::Mprotect {
            // By userfaultfd SIGBUS means a closed page; here only that there is no memory for an open one.
            process.watch(WINDOW..WINDOW + bytes).map_err(failed("watching shared memory"))?;
        }
        process.window = Some(window);
        quiet::prepare();
        let stack = Stack::install().map_err(failed("a stack for faults"))?;
        let serving = fault::serve(WINDOW..WINDOW + bytes, catch).map_err(failed("catching faults"))?;
        let shape = process.shape;
        let worker = process.worker.expect("a worker");
        let rank = usize::from(process.me.0) * shape.workers as usize + usize::from(worker.0);
        let size = usize::from(shape.nodes) * shape.workers as usize;
        let inner = raw::Current::set(Inner { process, worker: Worker::new(worker) });
        Ok(Dsm {
            inner,
            progress: Progress::none(),
            job,
            rank,
            size,
            engine,
            bytes,
            next: 0,
            guarded: LOCKS,
            held: Vec::new(),
            begun: Instant::now(),
            report: Report::None,
            homes,
            _serving: serving,
            _stack: stack,
        })
    }

    /// Takes over what the launcher wants to hear: of progress, and at the end.
    pub fn tells(mut self, given: &Given) -> Dsm {
        if self.rank == 0 {
            self.report = given.report;
            self.progress = given.progress.as_deref().map_or_else(Progress::none, Progress::to);
        }
        self
    }

    /// This worker among all workers of all nodes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many workers there are on all nodes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The access engine at work.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.inner.with(|inner| usize::from(inner.process.shape.nodes))
    }

    /// The node of this worker.
    pub fn node(&self) -> usize {
        self.inner.with(|inner| usize::from(inner.process.me.0))
    }

    /// Bytes of a page, the unit in which memory is kept consistent: one size for all that a run allocates, which the program
    /// [wishes for](Wishes::page) or the launcher sets.
    pub fn page(&self) -> usize {
        self.inner.with(|inner| inner.process.shape.page)
    }

    /// Shared values, zero at first, beginning at a page of their own. Every worker makes the same arrays in the same order.
    /// The first node to touch a page is its home.
    ///
    /// # Errors
    /// If the shared memory has no room for them.
    pub fn array<T: Plain>(&mut self, len: usize) -> Result<Array<T>, Error> {
        let page = self.page();
        let at = self.next.next_multiple_of(page);
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
        match end.filter(|end| *end <= self.bytes) {
            Some(end) => {
                self.next = end;
                Ok(Array::new(WINDOW + at, len))
            }
            None => Err(Error::Settings(format!(
                "{len} values of {} bytes do not fit into the {} bytes of shared memory that are left; \
                 hint: give the run more, `viaduct dsm --memory BYTES`",
                size_of::<T>(),
                self.bytes.saturating_sub(at)
            ))),
        }
    }

    /// Shared values whose pages have their homes where `placement` says, page by page; how large these are is settled when the
    /// run starts ([`page`](Self::page)). All workers meet here.
    ///
    /// # Errors
    /// If the shared memory has no room for them, there is no such node, or a node is gone.
    pub fn placed<T: Plain>(&mut self, len: usize, placement: Placement) -> Result<Array<T>, Error> {
        let nodes = self.nodes();
        if let Placement::Node(node) = placement
            && node >= nodes
        {
            return Err(Error::Settings(format!("there is no node {node}: the run has {nodes}")));
        }
        let array = self.array(len)?;
        let page = self.page();
        let place = array.place(&(0..len));
        let pages = (place.start - WINDOW) / page..(place.end - WINDOW).div_ceil(page);
        self.inner.with(|inner| {
            for (number, page) in pages.clone().enumerate() {
                if let Some(home) = placement.home(number, pages.len(), nodes) {
                    inner.process.place(PageId(page as u32), home);
                }
            }
        });
        // No worker may touch a page before every node knows its home.
        self.epoch().pass(MEETING)?;
        Ok(array)
    }

    /// Shared values behind a lock of their own, on pages of their own. Every worker makes the same ones in the same order.
    ///
    /// # Errors
    /// If the shared memory has no room for them, or there are no locks left.
    pub fn guarded<T: Plain>(&mut self, len: usize) -> Result<Guarded<T>, Error> {
        if self.guarded as usize >= NAMES {
            let most = NAMES - LOCKS as usize;
            return Err(Error::Settings(format!(
                "there are locks for {most} guarded allocations; hint: one allocation may hold many values"
            )));
        }
        let values = self.array(len)?;
        self.guarded += 1;
        Ok(Guarded { values, lock: self.guarded - 1 })
    }

    /// Addresses of what this worker has allocated.
    pub(crate) fn allocated(&self) -> Range<usize> {
        WINDOW..WINDOW + self.next
    }

    /// The first epoch. One at a time.
    pub fn epoch(&mut self) -> Epoch<'_> {
        Epoch::of(self)
    }

    /// Leaves: after a barrier nothing of the shared memory can be used any more. Gives what all nodes counted.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn finish(mut self) -> Result<Statistics, Error> {
        self.epoch().pass(END)?;
        self.inner.with(|inner| {
            inner.process.count_times();
            let nodes = inner.process.shape.nodes;
            let byes = (0..nodes).map(|node| inner.process.post(crate::ids::NodeId(node), Says::Bye, &[]));
            let byes: Vec<_> = byes.collect::<Result<_, _>>()?;
            byes.into_iter().try_for_each(|bye| inner.process.wait_answer(bye).map(drop))
        })?;
        let (report, took, engine) = (self.report, self.begun.elapsed(), self.engine);
        self.progress.end();
        let Dsm { inner, job, homes, .. } = self;
        let inner = inner.take();
        let statistics = start::end(job, &inner.process, homes.as_deref())?;
        let shape = inner.process.shape;
        let page = shape.page;
        let layout = format!(
            "{} nodes of {} workers, {}, {engine}, pages of {page} bytes",
            shape.nodes, shape.workers, shape.variant
        );
        match report {
            Report::None => {}
            Report::Table => eprint!("{layout}: {:.3} s\n{}", took.as_secs_f64(), statistics.table()),
            Report::Json => {
                let (seconds, times) = (took.as_secs_f64(), statistics.times_json());
                let counts = statistics.json();
                eprintln!("{{\"page\":{page},\"seconds\":{seconds},\"times\":{times},\"counts\":{counts}}}");
            }
        }
        Ok(statistics)
    }
}

/// Locks, barriers and flags of a program have numbers below these; the rest is the library's own.
pub(crate) const LOCKS: Name = NAMES as Name / 2;
pub(crate) const BARRIERS: Name = MEETING;
pub(crate) const FLAGS: Name = NAMES as Name;

/// The barriers of [`Dsm::placed`] and of [`Dsm::finish`].
const MEETING: Name = NAMES as Name - 2;
const END: Name = NAMES as Name - 1;
