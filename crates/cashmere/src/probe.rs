//! The basic operations of section 3.1, each by itself: for measurements, not for programs.
//!
//! They are the calls that faults, releases and synchronisation make, on pages and words that nothing else uses.

use std::sync::atomic::Ordering;

use crate::array::Array;
use crate::dsm::{Dsm, Inner, LOCKS};
use crate::ids::{NodeId, NodeSet, PageId};
use crate::node::start::WINDOW;
use crate::protocol::page::Permission;
use crate::raw::finish;
use crate::variant::{Variant, Way};
use crate::world::{NodeDown, Place, Request, World};

/// The operations, at a worker.
pub struct Probe<'a> {
    dsm: &'a mut Dsm,
}

impl Dsm {
    /// The basic operations, each by itself. What they do to pages of a program is not what a program wants.
    #[doc(hidden)]
    pub fn probe(&mut self) -> Probe<'_> {
        Probe { dsm: self }
    }
}

impl Probe<'_> {
    fn with<R>(&mut self, act: impl FnOnce(&mut Inner) -> R) -> R {
        self.dsm.inner.with(act)
    }

    fn page<T>(&mut self, array: Array<T>, byte: usize) -> PageId {
        let place = array.place(&(0..array.len()));
        assert!(place.start + byte < place.end, "byte {byte} of an array");
        PageId(((place.start + byte - WINDOW) / self.dsm.page()) as u32)
    }

    /// The protocol variant.
    pub fn variant(&mut self) -> Variant {
        self.with(|inner| inner.process.variant())
    }

    /// A message to a node and its answer, without anything to do there. About the page at this byte of an array that it is the
    /// home of.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn message<T>(&mut self, to: usize, array: Array<T>, byte: usize) -> Result<(), NodeDown> {
        let page = self.page(array, byte);
        self.with(|inner| {
            let ticket = inner.process.send(NodeId(to as u8), Request::Settled(page));
            finish(inner.process.answer(ticket)).map(drop)
        })
    }

    /// A twin of the page at this byte of an array.
    pub fn twin<T>(&mut self, array: Array<T>, byte: usize) {
        let page = self.page(array, byte);
        self.with(|inner| inner.process.make_twin(page));
    }

    /// The difference of a page and its twin, to the home; whether there was one.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn diff<T>(&mut self, array: Array<T>, byte: usize, home: usize) -> Result<bool, NodeDown> {
        let (page, home) = (self.page(array, byte), NodeId(home as u8));
        self.with(|inner| {
            let world = &mut inner.process;
            if !world.diff(page, true) {
                world.settle_diff(page);
                return Ok(false);
            }
            match world.variant().data() {
                Way::Direct => finish(world.write_diff(page, home))?,
                Way::Message => {
                    let ticket = world.send(home, Request::Diff(page));
                    finish(world.answer(ticket)).map(drop)?;
                }
            }
            world.settle_diff(page);
            Ok(true)
        })
    }

    /// A change of the directory: for a page that this node never touches.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn directory<T>(&mut self, array: Array<T>, byte: usize, home: usize) -> Result<(), NodeDown> {
        let page = self.page(array, byte);
        self.with(|inner| {
            let world = &mut inner.process;
            match world.variant().metadata() {
                Way::Direct => finish(world.publish(page, Permission::Absent)),
                Way::Message => {
                    let ticket = world.send(NodeId(home as u8), Request::Leave(page));
                    finish(world.answer(ticket)).map(drop)
                }
            }
        })
    }

    /// Notices for the first `count` pages of an array, which no node has touched, to all other nodes up to `last`.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn notices<T>(&mut self, array: Array<T>, count: usize, last: usize) -> Result<(), NodeDown> {
        let size = self.dsm.page();
        let pages: Vec<PageId> = (0..count).map(|page| self.page(array, page * size)).collect();
        self.with(|inner| {
            let world = &mut inner.process;
            let me = world.me();
            let to = (0..=last as u8).map(NodeId).filter(|node| *node != me);
            match world.variant().metadata() {
                Way::Direct => {
                    let to = to.fold(NodeSet::EMPTY, NodeSet::with);
                    finish(world.write_notices(to, &pages))
                }
                Way::Message => {
                    let tickets: Vec<_> = to.map(|node| world.send_notices(node, &pages)).collect();
                    tickets.into_iter().try_for_each(|ticket| finish(world.answer(ticket)).map(drop))
                }
            }
        })
    }

    /// Writes this node's word `number` to all replicas, this node's own last, and wakes no process.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn broadcast(&mut self, number: u32, value: u64) -> Result<(), NodeDown> {
        self.with(|inner| {
            let place = Place::Lock(LOCKS - 1 - number, inner.process.me());
            finish(inner.process.write_word(place, value))
        })
    }

    /// Word `number` of a node, in this node's replica.
    pub fn word(&mut self, number: u32, node: usize) -> u64 {
        self.with(|inner| {
            let region = &inner.process.memory.region;
            let place = Place::Lock(LOCKS - 1 - number, NodeId(node as u8));
            region.word(region.map.place(place)).load(Ordering::Acquire)
        })
    }

    /// Writes bytes into the frame of the page at a byte of an array, at a node: with `dms` only. They have landed when
    /// [`landed`](Probe::landed) returns.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn write<T>(
        &mut self,
        array: Array<T>,
        byte: usize,
        node: usize,
        bytes: &[u8],
    ) -> Result<(), NodeDown> {
        let page = self.page(array, byte);
        self.with(|inner| inner.process.write_frame(page, NodeId(node as u8), bytes))
    }

    /// Waits until what was written has landed.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn landed(&mut self) -> Result<(), NodeDown> {
        self.with(|inner| inner.process.landed())
    }
}
