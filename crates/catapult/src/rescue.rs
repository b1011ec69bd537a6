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

    /// Whether the launcher gave up: a host that is not reached by now never will be.
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

    /// The agent of a node was brought up by another one, which says so. It is believed once, and only of a host that had
    /// no agent: a host that was taken over must not lead later jobs elsewhere.
    pub fn remember(&mut self, node: usize, address: String, key: [u8; 32]) {
        let Some(place) = self.tree.place_of(node as u32) else { return };
        let host = self.tree.host(place).to_owned();
        if self.tree.is_known(place) || known::find(&self.reach.folder, &host).is_some() {
            return;
        }
        let known = Known { host, address, key: PublicKey(key) };
        // If it cannot be written down, ssh finds it the next time.
        let _ = known::remember(&self.reach.folder, &known);
        self.tree.learn(place, Some(known));
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

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    use viaduct_agent::bootstrap::Ways;
    use viaduct_job::Token;
    use viaduct_kit::tempdir::TempDir;

    use super::*;
    use crate::tree::Place;

    #[test]
    fn another_host_is_believed_once_and_only_of_a_host_without_an_agent() {
        let folder = TempDir::new("brought");
        let known = |node: u32| Known {
            host: format!("h{node}"),
            address: "10.0.0.1:1".into(),
            key: PublicKey([1; 32]),
        };
        known::remember(folder.path(), &known(0)).unwrap();
        let places = [Place::for_test(0, Some(known(0))), Place::for_test(1, None)];
        let ways = Ways { ssh: vec!["false".into()], limit: Duration::from_secs(1), allow_root: false };
        let reach = Reach {
            folder: folder.path().to_owned(),
            ways,
            retries: 0,
            at_once: 1,
            payload: OnceLock::new(),
        };
        let tree = Tree::new(places.into_iter().collect(), 1);
        let identity = Identity::from_token(&Token::random());
        let mut rescue = Rescue::new(tree, reach, identity, Vec::new(), BTreeMap::new()).unwrap();
        rescue.remember(0, "6.6.6.6:6".into(), [6; 32]);
        assert_eq!(known::find(folder.path(), "h0"), Some(known(0)), "what was known stays");
        rescue.remember(1, "10.0.0.1:1".into(), [1; 32]);
        rescue.remember(1, "6.6.6.6:6".into(), [6; 32]);
        assert_eq!(known::find(folder.path(), "h1"), Some(known(1)), "the first word counts");
    }
}
