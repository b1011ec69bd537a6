//! What a node answers to other nodes' requests, by whichever of its processes polls (section 2.3.1).
//!
//! A handler never waits: what cannot be answered yet is parked and tried again when the page has changed.

use crate::ids::{NodeId, PageId};
use crate::protocol::home::{Given, Served, Taken};
use crate::protocol::page::{Access, View};
use crate::variant::Way;
use crate::worker::scene;
use crate::world::{Reply, Request, World};

/// What became of a request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send this; a page or frame travels beside it.
    Reply(Reply),
    /// Try again when the page has changed.
    Park,
    /// Ask `holder` to break, give its answer to [`taken_back`], and try again.
    Break {
        /// The node that has the page exclusively.
        holder: NodeId,
    },
}

/// Memory that goes with answers: the server copies under the page's lock.
pub trait Copies: World {
    /// Copies the frame to what travels beside the answer.
    fn copy_out(&mut self, page: PageId);
    /// Copies what was copied out to the twin too.
    fn twin_of_copy(&mut self, page: PageId);
    /// Applies the diff that came beside the request to the frame.
    fn apply(&mut self, page: PageId);
}

/// A node fetches a page of this home.
pub fn fetch<W: Copies>(world: &mut W, from: NodeId, page: PageId, access: Access) -> Answer {
    let mut entry = world.lock(page);
    let scene = scene(world, page, &entry);
    let answer = match entry.serve_fetch(&scene, from, access) {
        Served::Park => Answer::Park,
        Served::Moved(home) => Answer::Reply(Reply::Moved(home)),
        Served::Break { holder } => Answer::Break { holder },
        Served::Page { fetched, list } => {
            // Before the copy: a writer whose release does not find the page on its list has stored all before that.
            world.list(page, list);
            world.copy_out(page);
            Answer::Reply(Reply::Page(fetched))
        }
    };
    world.unlock(page, entry);
    answer
}

/// The home wants a page that this node has exclusively.
pub fn give_up<W: Copies>(world: &mut W, from: NodeId, page: PageId) -> Answer {
    let mut entry = world.lock(page);
    let scene = scene(world, page, &entry);
    let answer = match entry.serve_break(&scene, from) {
        Given::Park => Answer::Park,
        Given::NotHeld => Answer::Reply(Reply::NotHeld),
        Given::Frame { twin, list } => {
            // As in `fetch`.
            world.list(page, list);
            world.copy_out(page);
            if twin {
                world.twin_of_copy(page);
            }
            Answer::Reply(Reply::Frame)
        }
    };
    world.unlock(page, entry);
    answer
}

/// The answer to a break came to the home. True: the node that had the page waits for [`Request::Settled`].
pub fn taken_back<W: World>(world: &mut W, page: PageId, reply: Reply) -> bool {
    let mut entry = world.lock(page);
    if reply == Reply::Frame {
        world.merge(page, crate::protocol::fault::Merge::Copy);
    }
    entry.broken();
    world.unlock(page, entry);
    reply == Reply::Frame && world.variant().data() == Way::Direct
}

/// The home has stored what this node gave up.
pub fn settled<W: World>(world: &mut W, page: PageId) -> Answer {
    let mut entry = world.lock(page);
    let scene = scene(world, page, &entry);
    entry.settled(&scene);
    world.unlock(page, entry);
    Answer::Reply(DONE)
}

/// A diff came.
pub fn diff<W: Copies>(world: &mut W, page: PageId) -> Answer {
    let mut entry = world.lock(page);
    let scene = scene(world, page, &entry);
    let taken = entry.serve_diff(&scene);
    if let Taken::Done(_) = taken {
        world.apply(page);
    }
    world.unlock(page, entry);
    answer(taken)
}

/// A node left the sharing set.
pub fn leave<W: World>(world: &mut W, from: NodeId, page: PageId) -> Answer {
    let mut entry = world.lock(page);
    let scene = scene(world, page, &entry);
    let taken = entry.serve_leave(&scene, from);
    world.unlock(page, entry);
    answer(taken)
}

fn answer(taken: Taken) -> Answer {
    match taken {
        Taken::Park => Answer::Park,
        Taken::Moved(home) => Answer::Reply(Reply::Moved(home)),
        Taken::Done(view) => Answer::Reply(Reply::Done(view)),
    }
}

/// Answers a request for a page; None if the request is not one.
pub fn page<W: Copies>(world: &mut W, from: NodeId, request: Request) -> Option<Answer> {
    Some(match request {
        Request::Fetch(page, access) => fetch(world, from, page, access),
        Request::Break(page) => give_up(world, from, page),
        Request::Diff(page) => diff(world, page),
        Request::Leave(page) => leave(world, from, page),
        Request::Settled(page) => settled(world, page),
        _ => return None,
    })
}

/// Done, where no directory entry is concerned.
pub const DONE: Reply = Reply::Done(View { sharers: crate::ids::NodeSet::EMPTY, home_writes: false });
