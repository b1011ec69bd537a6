//! Reaching hosts from the launcher, over ssh if need be: those directly below it, and those that the agents above them in
//! the tree could not reach. Threads wait for them; the launcher's loop goes on, and can give up.
//!
//! An agent that was known may have left, a host may reach some others and not all, an agent has no credentials for
//! ssh: none of that is the job's end. A host that is not there at all does not take those below it along.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use viaduct_agent::known::{self, Known};
use viaduct_agent::{Identity, Link, PublicKey};
use viaduct_os::error::OsError;

use crate::errand::Errands;
use crate::far::Far;
use crate::reach::Reach;
use crate::remote::{Files, Remote};
use crate::stage::Outgoing;
use crate::tree::Tree;

/// What came of an attempt.
pub enum Rescued {
    /// It is there, with all those behind it.
    Here(Box<dyn Far>),
    /// It is not; those behind it are tried by themselves.
    Lost(usize, String),
}

/// Reaches hosts of a job, from the launcher.
#[derive(Debug)]
pub struct Rescue {
    tree: Tree,
    reach: Arc<Reach>,
    identity: Identity,
    put: Vec<Outgoing>,
    get: BTreeMap<u32, Vec<PathBuf>>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    gave_up: bool,
    errands: Errands<Link>,
}

impl Rescue {
    /// For the hosts of `tree`; `put` may be needed there, `get` says where comes what each node gives back.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn new(
        tree: Tree,
        reach: Reach,
        identity: Identity,
        put: Vec<Outgoing>,
        get: BTreeMap<u32, Vec<PathBuf>>,
    ) -> Result<Rescue, OsError> {
        Ok(Rescue {
            tree,
            reach: Arc::new(reach),
            identity,
            put,
            get,
            waiting: VecDeque::new(),
            running: Vec::new(),
            gave_up: false,
            errands: Errands::new()?,
        })
    }

    /// Begins with those directly below the launcher.
    pub fn begin(&mut self) {
        self.waiting.extend(self.tree.below(None));
        self.send_out();
    }

    /// Gives up; the nodes that will not be reached any more.
    pub fn give_up(&mut self) -> Vec<usize> {
        self.gave_up = true;
        let mut places: Vec<usize> = self.running.drain(..).chain(self.waiting.drain(..)).collect();
        let mut next = 0;
        while let Some(&place) = places.get(next) {
            places.extend(self.tree.below(Some(place)));
            next += 1;
        }
        places.into_iter().map(|place| self.tree.node(place) as usize).collect()
    }

    /// Tries to reach a node, and those behind it through it.
    pub fn call(&mut self, node: usize) {
        if let Some(place) = self.tree.place_of(node as u32) {
            self.waiting.push_back(place);
            self.send_out();
        }
    }

    /// Whether somebody gave up: whoever is not reached by now never will be.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// What came of attempts since the last time.
    pub fn take(&mut self) -> Vec<Rescued> {
        let mut found = Vec::new();
        for (place, link) in self.errands.take() {
            if self.gave_up {
                continue;
            }
            self.running.retain(|&other| other != place);
            found.push(self.settle(place, link));
        }
        self.send_out();
        found
    }

    /// The agent of a node was brought up by another one.
    pub fn remember(&self, node: usize, address: String, key: [u8; 32]) {
        if let Some(place) = self.tree.place_of(node as u32) {
            let known = Known { host: self.tree.host(place).to_owned(), address, key: PublicKey(key) };
            // If it cannot be written down, ssh finds it the next time.
            let _ = known::remember(&self.reach.folder, &known);
        }
    }

    fn settle(&mut self, place: usize, link: Result<Link, String>) -> Rescued {
        match link {
            Ok(link) => {
                let known = known::find(&self.reach.folder, self.tree.host(place));
                self.tree.learn(place, known);
                let start = self.tree.start(place, &self.identity);
                let bytes = postcard::to_stdvec(&start).unwrap_or_default();
                let files = Files { put: self.put.clone(), get: Some(self.get.clone()) };
                Rescued::Here(Box::new(Remote::start(link, &start, &bytes, files)))
            }
            Err(why) => {
                self.waiting.extend(self.tree.below(Some(place)));
                self.send_out();
                Rescued::Lost(self.tree.node(place) as usize, why)
            }
        }
    }

    fn send_out(&mut self) {
        while self.running.len() < self.reach.at_once.max(1) && !self.gave_up {
            let Some(place) = self.waiting.pop_front() else { return };
            self.running.push(place);
            let (reach, host) = (self.reach.clone(), self.tree.host(place).to_owned());
            self.errands.send_out(place, move || reach.host(&host));
        }
    }
}

impl AsFd for Rescue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.errands.as_fd()
    }
}
