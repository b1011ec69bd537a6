//! The first contact of every two processes, before the program runs. A provider makes some things when they are first needed, such
//! as a mapping of the memory that a message goes to; here it makes them, and not in a page fault.
//!
//! Every process sends the longest message there is to each one that it can send to, and looks once into all memory of other
//! nodes that it writes to.

use std::time::{Duration, Instant};

use super::mesh::{PATIENCE, Plan};
use super::net::{Fault, Net, Woken};
use super::process::Shape;
use super::remote::Targets;
use super::start::Error;
use super::wire::{Head, Peer, Says};
use crate::ids::{NodeId, WorkerSet};
use crate::variant::Way;
use crate::world::NodeDown;

/// How long a process that waits here sleeps at most: nothing wakes it when its last message has left.
const NAP: Duration = Duration::from_millis(2);

const STEP: &str = "the first messages between the nodes";

fn broken(fault: Fault) -> Error {
    match fault {
        Fault::Down(node, seen) => {
            tracing::warn!(%seen, "{node} is lost at the start");
            Error::Down(NodeDown(node))
        }
        Fault::Via(error) => Error::Start(STEP, error.to_string()),
    }
}

/// Greets all processes, and waits until all of them have greeted this one. Their connections stand.
///
/// The process that asked for a connection greets first. The other one has it sooner, at a time when what the first has posted cannot
/// be seen yet; its message would be fetched from here then, and nothing be mapped for later ones.
pub(super) fn greet(net: &mut Net, me: usize, shape: Shape, targets: &Targets) -> Result<(), Error> {
    let plan = Plan::of(shape);
    let ours = plan.peer(me);
    let ranks = usize::from(shape.nodes) * plan.group;
    let greeted = |rank: &usize| plan.receives(me, *rank) > 0;
    let peers = (0..ranks).filter(|rank| *rank != me).filter(greeted).count();
    let head = Head {
        ticket: 0,
        from: ours.node,
        worker: ours.worker,
        says: Says::Hello,
        slot: 0,
        polls: WorkerSet::EMPTY,
        len: 0,
    };
    let longest = vec![0; shape.payload()];
    for rank in (0..me).filter(greeted) {
        net.send(plan.peer(rank), head, &longest).map_err(broken)?;
    }
    let mut missing = peers;
    let end = Instant::now() + PATIENCE;
    while missing > 0 || !net.has_sent() {
        if let Woken::Message(came) = net.wait(NAP, || false).map_err(broken)?
            && came.head.says == Says::Hello
        {
            missing = missing.saturating_sub(1);
            let peer = Peer { node: came.head.from, worker: came.head.worker };
            if net.rank(peer) > me {
                net.send(peer, head, &longest).map_err(broken)?;
            }
        }
        in_time(end, || format!("{missing} of {peers} processes have not greeted"))?;
    }
    let written = [(shape.variant.metadata(), &targets.regions), (shape.variant.data(), &targets.frames)];
    for (_, places) in written.into_iter().filter(|(way, _)| *way == Way::Direct) {
        for (node, place) in places.iter().enumerate().filter(|(node, _)| *node != usize::from(ours.node.0)) {
            net.look(NodeId(node as u8), *place).map_err(broken)?;
            while net.brought().is_none() {
                net.wait(NAP, || false).map_err(broken)?;
                in_time(end, || format!("the memory of node {node} does not answer"))?;
            }
        }
    }
    Ok(())
}

fn in_time(end: Instant, why: impl Fn() -> String) -> Result<(), Error> {
    if Instant::now() < end {
        return Ok(());
    }
    Err(Error::Start(STEP, format!("{} after {} s", why(), PATIENCE.as_secs())))
}
