//! One node of a sort on several (Millennium Sort, section 4): read and distribute, sort, write.
//!
//! ```text
//!   input ──▶ PartitionSink ─┬─▶ to node k ═══ VIA or TCP ═══▶ from node r ─┬─▶ sort ──▶ output
//!                            └─▶ here ──────────────────────────────────────┘
//! ```
//!
//! Every node reads a part of the input and sends each record to the node that sorts its range of keys. Ranges come from a
//! sample that each node takes of its part and gives to all others, over the edges that then carry the records. What a node
//! gets it sorts in one pass or in two, like a sort on one node, and writes where it belongs: into a file of its own, or
//! into its part of one file.
//!
//! A node knows its job and an opened NIC (or TCP); what starts the nodes is the caller's business. A node that fails tells
//! the others over the edges; the caller has to abort the job.

mod arrivals;
pub mod names;
mod node;
mod target;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_job::Job;

pub use viaduct_river::net::Links;

use crate::Error;
use crate::order::AnyOrder;
use crate::report::Report;
use crate::sort::{Progress, Settings};

/// What makes a process a node.
#[derive(Debug)]
pub struct Node<'a> {
    /// Its place among the others.
    pub job: &'a mut Job,
    /// What carries records.
    pub links: Links,
    /// How `links` is called in the report.
    pub transport: String,
    /// Bytes of each region that receiving memory is registered in; all in one without.
    pub window: Option<usize>,
    /// How long it took from the command to this process.
    pub since: Duration,
    /// How long this process then waited for the other nodes.
    pub joined: Duration,
    /// How long it took to open the NIC.
    pub opened: Duration,
}

/// Sorts `inputs` into `output` as one node of several; all nodes call it alike. Node 0 gets the report of all.
///
/// In names, `%r` stands for the node's number: each then has files of its own, and the output of node 0 comes before that of
/// node 1. A name without it is a file that all nodes see.
///
/// # Errors
/// If this node or another one fails. No output has its name then, but for nodes that fail while files get their names.
pub fn sort(
    node: Node<'_>,
    inputs: &[PathBuf],
    output: &Path,
    settings: &Settings,
    progress: &Progress,
) -> Result<Option<Report>, Error> {
    match settings.order()? {
        AnyOrder::Fields(order) => node::run(node, &order, inputs, output, settings, progress),
        AnyOrder::Text(order) => node::run(node, &order, inputs, output, settings, progress),
    }
}
