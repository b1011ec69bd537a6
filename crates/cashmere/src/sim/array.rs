//! Locks by remote write, of which every order is tried: of the nodes' steps, of the words that land in each replica, and of the
//! looks at them. At most one node has the lock, and from every state there is a way to the end.

use std::collections::HashMap;

use crate::protocol::lock::{Act, ArrayLock};

/// Nodes of the largest model.
const MOST: usize = 3;

/// A rule that is broken, to see the model find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    None,
    /// A node looks before its word has landed everywhere.
    Unawaited,
    /// A node that finds the lock taken leaves its entry where it is.
    Kept,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Doing {
    #[default]
    Steps,
    /// Its word is on its way; true: it gives the lock back.
    Writes(bool),
    /// It has looked at the entries of the nodes before this one.
    Looks(usize),
    Holds,
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    lock: ArrayLock,
    doing: Doing,
    taken: bool,
    /// How often it still wants the lock.
    rounds: u8,
    /// What it wrote last, and the replicas where that has not landed.
    word: bool,
    on_its_way: [bool; MOST],
    /// Its replica: the entry of each node.
    replica: [bool; MOST],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; MOST],
    count: usize,
}

impl State {
    fn begin_write(&mut self, node: usize, word: bool, gives_back: bool) {
        let count = self.count;
        let this = &mut self.nodes[node];
        (this.word, this.doing) = (word, Doing::Writes(gives_back));
        this.on_its_way = std::array::from_fn(|other| other != node && other < count);
    }

    /// What a node can do next, but for landing words.
    fn step(mut self, at: usize, broken: Broken) -> Option<State> {
        let node = self.nodes[at];
        let lands = node.on_its_way.contains(&true);
        let this = &mut self.nodes[at];
        match node.doing {
            Doing::Over => return None,
            Doing::Holds if lands => return None,
            Doing::Holds => self.begin_write(at, false, true),
            Doing::Writes(_) if lands && broken != Broken::Unawaited => return None,
            Doing::Writes(gives_back) => {
                this.replica[at] = node.word;
                this.doing = Doing::Steps;
                if gives_back {
                    (this.lock, this.taken, this.rounds) = (ArrayLock::default(), false, node.rounds - 1);
                }
                if this.rounds == 0 {
                    this.doing = Doing::Over;
                }
            }
            Doing::Looks(other) if other == self.count => this.doing = Doing::Steps,
            Doing::Looks(other) => {
                this.taken |= other != at && node.replica[other];
                this.doing = Doing::Looks(other + 1);
            }
            Doing::Steps => match this.lock.next(node.taken) {
                Act::Write(_) if lands => return None,
                Act::Write(false) if broken == Broken::Kept => {}
                Act::Write(word) => self.begin_write(at, word, false),
                Act::Look => (this.doing, this.taken) = (Doing::Looks(0), false),
                Act::Held => this.doing = Doing::Holds,
                Act::BackOff => {}
            },
        }
        Some(self)
    }

    fn next(self, broken: Broken) -> Vec<State> {
        let mut all: Vec<State> = (0..self.count).filter_map(|at| self.step(at, broken)).collect();
        for (from, to) in (0..self.count).flat_map(|from| (0..self.count).map(move |to| (from, to))) {
            if self.nodes[from].on_its_way[to] {
                let mut landed = self;
                landed.nodes[from].on_its_way[to] = false;
                landed.nodes[to].replica[from] = self.nodes[from].word;
                all.push(landed);
            }
        }
        all
    }
}

/// Goes to every state. Gives how many there are, or what is wrong.
fn explore(count: usize, rounds: u8, broken: Broken) -> Result<usize, String> {
    let start = State { nodes: [Node { rounds, ..Node::default() }; MOST], count };
    let (mut numbers, mut states) = (HashMap::from([(start, 0)]), vec![start]);
    // The states from which one can go to each.
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut at = 0;
    while at < states.len() {
        let here = states[at];
        let holders = here.nodes.iter().filter(|node| node.doing == Doing::Holds).count();
        if holders > 1 {
            return Err(format!("{holders} nodes have the lock: {here:?}"));
        }
        for next in here.next(broken) {
            let number = *numbers.entry(next).or_insert_with(|| {
                states.push(next);
                before.push(Vec::new());
                states.len() - 1
            });
            before[number].push(at);
        }
        at += 1;
    }
    let over = |state: &State| state.nodes[..count].iter().all(|node| node.doing == Doing::Over);
    let mut ways: Vec<usize> = (0..states.len()).filter(|at| over(&states[*at])).collect();
    let mut ends = vec![false; states.len()];
    ways.iter().for_each(|at| ends[*at] = true);
    while let Some(at) = ways.pop() {
        for &earlier in &before[at] {
            if !std::mem::replace(&mut ends[earlier], true) {
                ways.push(earlier);
            }
        }
    }
    match ends.iter().position(|ends| !ends) {
        Some(stuck) => Err(format!("no way to the end from {:?}", states[stuck])),
        None => Ok(states.len()),
    }
}

#[test]
fn one_node_at_a_time_has_a_lock_by_remote_write_in_every_order() {
    for (count, rounds) in [(2, 3), (3, 1)] {
        let states =
            explore(count, rounds, Broken::None).unwrap_or_else(|why| panic!("{count} nodes: {why}"));
        eprintln!("{count} nodes, {rounds} rounds: {states} states");
        assert!(states > 100, "{states} states");
    }
}

#[test]
fn a_broken_rule_of_locks_by_remote_write_shows() {
    let why = |broken| explore(2, 1, broken).expect_err("a broken rule was not found");
    assert!(why(Broken::Unawaited).contains("have the lock"));
    assert!(why(Broken::Kept).contains("no way to the end"));
}
