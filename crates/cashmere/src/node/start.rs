//! From a job and an opened NIC to a node: shared segments, connections, then a server or a worker.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use viaduct_job::{HostId, Job};
use viaduct_os::error::OsError;
use viaduct_os::fault::{self, EngineKind};
use viaduct_os::segment::Segment;
use viaduct_via::Nic;

use super::board::Board;
use super::greet::greet;
use super::layout::Meta;
use super::mesh;
use super::net::Net;
use super::place;
use super::process::{Memory, Process, Shape};
use super::region::{Map, Region};
use super::server::Server;
use super::wire::Bounds;
use crate::dsm::Dsm;
use crate::ids::{NodeId, NodeSet, WorkerId};
use crate::statistics::Statistics;
use crate::variant::{Variant, Way};
use crate::world::NodeDown;

/// How a run is laid out. The same in every process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes.
    pub nodes: usize,
    /// Workers of each node.
    pub workers: usize,
    /// The protocol variant.
    pub variant: Variant,
    /// The access engine; None lets the library choose.
    pub engine: Option<EngineKind>,
    /// Bytes of shared memory that the program can use.
    pub memory: usize,
    /// Bytes of a page, for the whole run: a power of two, at least the machine's and 32,768 at most.
    pub page: usize,
    /// A file of homes to begin with, which rank 0 reads.
    pub homes_in: Option<PathBuf>,
    /// The file to which the first worker writes the homes of the first touch.
    pub homes_out: Option<PathBuf>,
}

/// Processes of a run: each has a connection with most others.
const MOST: usize = 512;

/// Where the shared window lies in every worker.
pub(crate) const WINDOW: usize = 0x2A00_0000_0000;

/// Why a node could not be started, or could not go on.
#[derive(Debug)]
pub enum Error {
    /// The settings do not fit together.
    Settings(String),
    /// A step of the start failed.
    Start(&'static str, String),
    /// A node is gone.
    Down(NodeDown),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(why) => f.write_str(why),
            Error::Start(step, why) => write!(f, "{step}: {why}"),
            Error::Down(down) => write!(f, "{down}; the program cannot go on"),
        }
    }
}

impl std::error::Error for Error {}

impl From<NodeDown> for Error {
    fn from(down: NodeDown) -> Error {
        Error::Down(down)
    }
}

pub(crate) fn failed<E: fmt::Display>(step: &'static str) -> impl Fn(E) -> Error {
    move |why| Error::Start(step, why.to_string())
}

impl Settings {
    /// Ranks of the job: a server and the workers of each node.
    pub fn ranks(&self) -> usize {
        self.nodes * (self.workers + 1)
    }

    /// Whether a run can be laid out so.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), Error> {
        self.shape().map(drop)
    }

    fn shape(&self) -> Result<Shape, Error> {
        let refuse = |why: String| Err(Error::Settings(why));
        let (nodes, workers) = (self.nodes, self.workers);
        if !(1..=usize::from(NodeSet::CAPACITY)).contains(&nodes) || !(1..=64).contains(&workers) {
            return refuse(format!("{nodes} nodes of {workers} workers: there can be 1 to 64 of each"));
        }
        let machine = viaduct_os::segment::page_size();
        if !self.page.is_power_of_two() || self.page < machine || self.page > 1 << 15 {
            return refuse(format!(
                "pages of {} bytes: a power of two from {machine} to 32768 is wanted",
                self.page
            ));
        }
        if self.ranks() > MOST {
            let ranks = self.ranks();
            return refuse(format!(
                "{nodes} nodes of {workers} workers and a server are {ranks} processes: there can be {MOST}"
            ));
        }
        let pages = self.memory.div_ceil(self.page).max(1);
        let pages = u32::try_from(pages)
            .map_err(|_| Error::Settings(format!("{} bytes are too much", self.memory)))?;
        Ok(Shape {
            nodes: nodes as u8,
            workers: workers as u32,
            pages,
            page: self.page,
            variant: self.variant,
        })
    }
}

/// What a process of the job is.
pub enum Role {
    /// It has served its node to the end of the program.
    Server,
    /// It runs the program.
    Worker(Box<Dsm>),
}

/// Makes this process part of a node. A server returns when the program has ended.
///
/// Rank `n * (workers + 1)` is the server of node `n`, the ranks behind it are its workers. `folder` is the user's run-time
/// folder.
///
/// # Errors
/// Settings that do not fit, a rank that does not come, memory that is short, a node that is gone.
pub fn start(mut job: Job, nic: Nic, folder: &Path, settings: &Settings) -> Result<Role, Error> {
    let shape = settings.shape()?;
    if job.size() != settings.ranks() {
        let (nodes, workers, size) = (settings.nodes, settings.workers, job.size());
        let wanted =
            format!("{nodes} nodes of {workers} workers and a server are {} ranks", settings.ranks());
        return Err(Error::Settings(format!("{wanted}, not {size}")));
    }
    let group = settings.workers + 1;
    let (node, place) = (job.rank() / group, job.rank() % group);
    let me = NodeId(node as u8);
    let hosts = job.hosts().map_err(failed("meeting the other ranks"))?.to_vec();
    let mut memory = share(&mut job, folder, shape, (node * group..(node + 1) * group).collect())?;
    memory.meta.enter(place);
    let bounds = Bounds { nodes: shape.nodes, workers: shape.workers, pages: shape.pages };
    let board = match shape.variant.synchronisation() {
        Way::Direct => Some(board(&mut job, folder, group, &hosts)?),
        Way::Message => None,
    };
    let mut net =
        Net::new(nic, bounds, shape.payload()).map_err(failed("preparing the network interface"))?;
    let targets = mesh::connect(&mut job, &mut net, shape, &memory)?;
    memory.meta.watch(me, place).map_err(failed("watching the processes of the node"))?;
    net.prepare().map_err(failed("making send buffers"))?;
    if shape.variant.metadata() == Way::Direct {
        net.prepare_writes(Region::claim_of(me)).map_err(failed("making descriptors of remote writes"))?;
    }
    greet(&mut net, job.rank(), shape, &targets)?;
    let worker = place.checked_sub(1).map(|worker| WorkerId(worker as u8));
    let mut process = Process::new(shape, me, worker, memory, net, targets, board);
    for mapping in process.memory.mappings().map(addresses) {
        process.watch(mapping).map_err(failed("watching shared memory"))?;
    }
    if let Some(path) = &settings.homes_in {
        place::replay(&mut job, path, shape, me, &process.memory, process.worker.is_none())?;
    }
    job.barrier().map_err(failed("meeting the other ranks"))?;
    let homes = settings.homes_out.clone();
    match worker {
        Some(_) => Ok(Role::Worker(Box::new(Dsm::new(job, process, settings.engine, homes)?))),
        None => {
            let process = Server::new(process).run()?;
            end(job, &process, homes.as_deref())?;
            Ok(Role::Server)
        }
    }
}

/// The ranks exchange what they counted, and where homes are if a file wants them, and part. Gives the sum of all nodes.
pub(crate) fn end(mut job: Job, process: &Process, homes: Option<&Path>) -> Result<Statistics, Error> {
    // Every process of a node sees the node's counts: the servers tell them.
    let ours = if process.worker.is_none() { process.memory.meta.counts() } else { Vec::new() };
    let all = job.exchange(&Statistics::new(ours).to_bytes()).map_err(failed("exchanging statistics"))?;
    let mut sum = Statistics::default();
    all.iter().for_each(|counts| sum.add_bytes(counts));
    if let Some(path) = homes {
        let homes = place::capture(&mut job, process)?;
        if (process.me, process.worker) == (NodeId(0), Some(WorkerId(0))) {
            let named = |why: std::io::Error| format!("{}: {why}", path.display());
            std::fs::write(path, homes.to_string()).map_err(named).map_err(failed("writing homes"))?;
        }
    }
    job.finish().map_err(failed("leaving the job"))?;
    Ok(sum)
}

fn share(job: &mut Job, folder: &Path, shape: Shape, group: Vec<usize>) -> Result<Memory, Error> {
    let (pages, workers, nodes) = (shape.pages as usize, shape.workers as usize, usize::from(shape.nodes));
    let bytes = pages * shape.page;
    let map = Map::new(nodes, pages);
    let mut segment =
        |len| job.share_sparse(&group, len, folder).map_err(failed("sharing memory with the node"));
    let meta = Meta::new(segment(Meta::bytes(pages, workers, nodes))?, pages, workers, nodes);
    let region = Region { segment: Arc::new(segment(map.bytes())?), map };
    Ok(Memory { meta, region, frames: Arc::new(segment(bytes)?), twins: segment(bytes)? })
}

/// The board of this host, which its nodes share.
fn board(job: &mut Job, folder: &Path, group: usize, hosts: &[HostId]) -> Result<Board, Error> {
    let ours = hosts[job.rank()];
    let ranks: Vec<usize> = (0..hosts.len()).filter(|rank| hosts[*rank] == ours).collect();
    let nodes = hosts.len() / group;
    let segment = job
        .share_sparse(&ranks, Board::bytes(nodes), folder)
        .map_err(failed("sharing memory with the nodes of the host"))?;
    let here = (0..nodes).filter(|node| hosts[node * group] == ours);
    Ok(Board::new(segment, here.fold(NodeSet::EMPTY, |set, node| set.with(NodeId(node as u8)))))
}

fn addresses(segment: &Segment) -> Range<usize> {
    let start = segment.as_ptr() as usize;
    start..start + segment.len()
}

impl Process {
    /// A touch of these addresses for which the machine has no memory ends the process with a word.
    pub(crate) fn watch(&mut self, addresses: Range<usize>) -> Result<(), OsError> {
        self.promises.push(fault::promised(addresses, lacking)?);
        Ok(())
    }
}

fn lacking(_: usize) -> bool {
    give_up(format_args!(
        "no memory is left for a page of shared memory, which takes memory when it is touched; hint: let the program touch \
         less on this host, put nodes on other hosts, or give the machine or the container more"
    ))
}

/// Ends the process: memory that it is about to touch cannot be had.
///
/// It is called in faults, and the program may be in the middle of its own `eprintln!` then: no lock is taken.
pub(crate) fn give_up(why: fmt::Arguments<'_>) -> ! {
    let mut line = Line { bytes: [0; 512], len: 0 };
    // What does not fit is left out.
    let _ = fmt::Write::write_fmt(&mut line, format_args!("viaduct dsm: {why}\n"));
    let _ = viaduct_os::bare::calls::write(2, &line.bytes[..line.len]);
    std::process::abort()
}

/// A line of a fixed length.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let now = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + now].copy_from_slice(&text.as_bytes()[..now]);
        self.len += now;
        Ok(())
    }
}
