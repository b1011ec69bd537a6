//! What a worker does between two steps of a process that serves its node: stores, and the look at its list, take no entry's lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::cluster::Cluster;
use super::handle::Handle;
use crate::ids::{NodeId, NodeSet, PageId, WorkerId};
use crate::protocol::fault::{Fault, Fetched};
use crate::protocol::page::{Access, Page};
use crate::serve::{self, Answer};
use crate::variant::Variant;
use crate::worker::scene;
use crate::world::{Reply, World};

const PAGE: PageId = PageId(0);
const WORKER: WorkerId = WorkerId(0);
/// The home of the page, which is given.
const HOME: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);

/// What a node answers while its worker, which writes the page unseen, stores right after the copy and begins a release. Also
/// whether that release finds the page on its list.
fn serve_while_released(node: NodeId, serve: impl FnOnce(&mut Handle) -> Answer) -> (Answer, Handle, bool) {
    let cluster = Rc::new(RefCell::new(Cluster::new(Variant::None, 2, 1, 1, 1)));
    let mut server = Handle::new(&cluster, (node, None));
    let mut entry = server.lock(PAGE);
    assert!(entry.is_home(HOME));
    let mut asked = false;
    let mut step = |server: &mut Handle, entry: &mut Page| {
        let scene = scene(server, PAGE, entry);
        (entry.fault(&scene, WORKER, Access::Write, &mut asked), scene)
    };
    let (mut next, scene) = step(&mut server, &mut entry);
    if let Fault::Fetch { .. } = next {
        let sharers = NodeSet::of(node);
        entry.fetched(&scene, Fetched { exclusive: true, migrated: false, sharers, home_writes: false });
        (next, _) = step(&mut server, &mut entry);
    }
    assert_eq!(next, Fault::Map { twin: false, list: false }, "it writes unseen");
    server.unlock(PAGE, entry);
    let found = Rc::new(Cell::new(false));
    let taken = Rc::clone(&found);
    cluster.borrow_mut().after_copy = Some(Box::new(move |node| {
        node.frames[0][3] = 7;
        taken.set(std::mem::take(&mut node.lists[0]).contains(&PAGE));
    }));
    let answer = serve(&mut server);
    let copy = server.staging.expect("a copy");
    assert_eq!(copy[3], 0, "the copy was made before the store");
    (answer, server, found.get())
}

#[test]
fn a_store_that_a_fetched_copy_lacks_is_of_a_page_that_its_release_notifies_of() {
    let (answer, mut server, found) =
        serve_while_released(HOME, |server| serve::fetch(server, OTHER, PAGE, Access::Read));
    assert!(matches!(answer, Answer::Reply(Reply::Page(_))), "{answer:?}");
    assert!(found, "the release would not have notified the node that has the copy");
    let entry = server.lock(PAGE);
    let scene = scene(&mut server, PAGE, &entry);
    assert!(entry.view(&scene).sharers.contains(OTHER));
}

#[test]
fn a_store_that_a_frame_given_up_lacks_is_in_the_diff_of_its_release() {
    let (answer, mut server, found) =
        serve_while_released(OTHER, |server| serve::give_up(server, HOME, PAGE));
    assert_eq!(answer, Answer::Reply(Reply::Frame));
    assert!(found, "the release would have sent no diff");
    assert!(server.diff(PAGE, false), "the twin is the copy that was sent");
    assert_eq!(server.diffs[&PAGE], [(3, 7)]);
}
