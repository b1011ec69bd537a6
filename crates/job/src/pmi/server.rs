//! The launcher's side of PMI-1, without sockets: lines in, actions out.
//!
//! ```text
//!   ranks of a node ── lines ──▶ Node ── Arrive(new pairs) ──▶ Root        when all ranks of the node are in the barrier
//!                   ◀─ lines ──      ◀── release(all pairs) ──             when all nodes are
//! ```
//!
//! A node answers `get` from what it knows. The standard promises that a pair is visible after the next barrier, so
//! nothing is sent for `put`, and a barrier of a job on many hosts is one message from each node and one back.

use std::collections::BTreeMap;

use super::wire::{self, Message};
use super::{KEY_MAX, NAME_MAX, VALUE_MAX};

/// A key and its value.
pub type Pair = (String, String);

/// What a node has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to the rank, counted within the node.
    Reply(usize, String),
    /// All ranks of this node are in the barrier; these pairs are new.
    Arrive(Vec<Pair>),
    /// A rank wants the job to end, with this code, for this reason.
    Abort(usize, i32, String),
}

/// What the ranks of one node talk to.
#[derive(Debug)]
pub struct Node {
    job: String,
    size: usize,
    apps: Vec<usize>,
    ranks: Vec<Rank>,
    pairs: BTreeMap<String, String>,
    fresh: Vec<Pair>,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    spoke: bool,
    done: bool,
    waits: bool,
    /// Inside of a message of several lines.
    many: bool,
}

impl Node {
    /// A node of job `job` with `size` ranks in all. `apps` has, for each rank of this node, which program it is;
    /// `mapping` says which ranks are together.
    pub fn new(job: &str, size: usize, apps: Vec<usize>, mapping: &str) -> Node {
        let ranks = vec![Rank::default(); apps.len()];
        let pairs = BTreeMap::from([("PMI_process_mapping".to_owned(), mapping.to_owned())]);
        Node { job: job.to_owned(), size, apps, ranks, pairs, fresh: Vec::new() }
    }

    /// A line of a rank of this node.
    pub fn line(&mut self, rank: usize, line: &str, out: &mut Vec<Action>) {
        if self.ranks[rank].many {
            if line.trim() == "endcmd" {
                self.ranks[rank].many = false;
                let words = [("rc", "-1"), ("status", "spawn_is_not_supported")];
                out.push(Action::Reply(rank, wire::line("spawn_result", &words)));
            }
            return;
        }
        let Some(message) = Message::parse(line) else {
            out.push(Action::Abort(rank, 1, "a line that is no PMI message".to_owned()));
            return;
        };
        let mut reply = |command: &str, words: &[(&str, &str)]| {
            out.push(Action::Reply(rank, wire::line(command, words)));
        };
        match message.command() {
            "init" => {
                self.ranks[rank].spoke = true;
                let good = message.number("pmi_version") == Some(1);
                let rc = if good { "0" } else { "-1" };
                reply("response_to_init", &[("pmi_version", "1"), ("pmi_subversion", "1"), ("rc", rc)]);
            }
            "get_maxes" => {
                let [name, key, value] = [NAME_MAX, KEY_MAX, VALUE_MAX].map(|n| n.to_string());
                reply("maxes", &[("kvsname_max", &name), ("keylen_max", &key), ("vallen_max", &value)]);
            }
            "get_appnum" => reply("appnum", &[("appnum", &self.apps[rank].to_string())]),
            "get_universe_size" => reply("universe_size", &[("size", &self.size.to_string())]),
            "get_my_kvsname" => reply("my_kvsname", &[("kvsname", &self.job)]),
            "put" => {
                let rc = self.put(&message);
                let msg = if rc == "0" { "success" } else { "a_key_or_value_is_missing_or_too_long" };
                reply("put_result", &[("rc", rc), ("msg", msg)]);
            }
            "get" => match message.word("key").and_then(|key| self.pairs.get(key)) {
                Some(value) => reply("get_result", &[("rc", "0"), ("msg", "success"), ("value", value)]),
                None => {
                    reply("get_result", &[("rc", "-1"), ("msg", "key_not_found"), ("value", "unknown")]);
                }
            },
            "barrier_in" => {
                self.ranks[rank].waits = true;
                self.arrive(out);
            }
            "abort" => {
                let code = message.number("exitcode").and_then(|n| i32::try_from(n).ok()).unwrap_or(1);
                let why = message.rest("message").or_else(|| message.rest("error_msg"));
                let why = why.map_or_else(|| format!("called MPI_Abort({code})"), str::to_owned);
                out.push(Action::Abort(rank, code, why));
            }
            "finalize" => {
                self.ranks[rank].done = true;
                reply("finalize_ack", &[]);
            }
            "spawn" => self.ranks[rank].many = true,
            "publish_name" | "unpublish_name" | "lookup_name" => {
                let answer = message.command().replace("_name", "_result");
                reply(&answer, &[("rc", "-1"), ("info", "not_supported"), ("port", "")]);
            }
            other => {
                // hydra answers nothing to what it does not know, and the rank would wait without end.
                reply(&format!("{other}_result"), &[("rc", "-1"), ("msg", "unknown_command")]);
            }
        }
    }

    /// All nodes are in the barrier, and this is what is new in all of them.
    pub fn release(&mut self, news: &[Pair], out: &mut Vec<Action>) {
        self.pairs.extend(news.iter().cloned());
        for (rank, state) in self.ranks.iter_mut().enumerate().filter(|(_, state)| state.waits) {
            state.waits = false;
            out.push(Action::Reply(rank, wire::line("barrier_out", &[("rc", "0")])));
        }
    }

    /// Whether a rank of this node has begun with PMI.
    pub fn has_begun(&self) -> bool {
        self.ranks.iter().any(|rank| rank.spoke)
    }

    /// Whether a rank began with PMI and did not end it: the others would wait for it.
    pub fn left_early(&self, rank: usize) -> bool {
        self.ranks[rank].spoke && !self.ranks[rank].done
    }

    fn put(&mut self, message: &Message<'_>) -> &'static str {
        let (Some(key), Some(value)) = (message.word("key"), message.word("value")) else { return "-1" };
        if !wire::is_word(key, KEY_MAX) || !wire::is_word(value, VALUE_MAX) {
            return "-1";
        }
        self.pairs.insert(key.to_owned(), value.to_owned());
        self.fresh.push((key.to_owned(), value.to_owned()));
        "0"
    }

    fn arrive(&mut self, out: &mut Vec<Action>) {
        if self.ranks.iter().all(|rank| rank.waits) {
            out.push(Action::Arrive(std::mem::take(&mut self.fresh)));
        }
    }
}

/// Joins nodes of a job at its barriers: all of them in the launcher, those behind it in an agent that passes things on.
#[derive(Debug)]
pub struct Root {
    arrived: BTreeMap<u32, bool>,
    news: Vec<Pair>,
}

impl Root {
    /// For these nodes.
    pub fn new(nodes: impl IntoIterator<Item = u32>) -> Root {
        Root { arrived: nodes.into_iter().map(|node| (node, false)).collect(), news: Vec::new() }
    }

    /// The nodes that are joined here.
    pub fn nodes(&self) -> Vec<u32> {
        self.arrived.keys().copied().collect()
    }

    /// These nodes are joined elsewhere from now on. They have not arrived yet.
    pub fn leave(&mut self, nodes: &[u32]) {
        self.arrived.retain(|node, _| !nodes.contains(node));
    }

    /// These nodes are in the barrier. If they were the last ones, what every node is to be released with.
    pub fn arrive(&mut self, nodes: &[u32], pairs: Vec<Pair>) -> Option<Vec<Pair>> {
        for node in nodes {
            *self.arrived.get_mut(node)? = true;
        }
        self.news.extend(pairs);
        if !self.arrived.values().all(|&there| there) {
            return None;
        }
        self.arrived.values_mut().for_each(|there| *there = false);
        Some(std::mem::take(&mut self.news))
    }
}

/// Which ranks are together, as MPICH reads it, from the number of ranks on each node in their order.
pub fn mapping(ranks_on_node: &[usize]) -> String {
    let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
    for (node, &ranks) in ranks_on_node.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, count, same)) if *same == ranks => *count += 1,
            _ => blocks.push((node, 1, ranks)),
        }
    }
    let list: Vec<String> =
        blocks.iter().map(|(first, count, ranks)| format!("({first},{count},{ranks})")).collect();
    format!("(vector,{})", list.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(node: &mut Node, rank: usize, line: &str) -> Vec<Action> {
        let mut out = Vec::new();
        node.line(rank, line, &mut out);
        out
    }

    fn reply(rank: usize, text: &str) -> Vec<Action> {
        vec![Action::Reply(rank, text.to_owned())]
    }

    /// What MPICH 4.0 says when it starts, and what it must hear.
    #[test]
    fn the_transcript_of_mpich() {
        let mut node = Node::new("kvs_1", 2, vec![0, 0], &mapping(&[2]));
        let transcript = [
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            ),
            ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
            ("cmd=get_appnum", "cmd=appnum appnum=0\n"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1\n"),
            (
                "cmd=get kvsname=kvs_1 key=PMI_process_mapping",
                "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n",
            ),
            (
                "cmd=get kvsname=kvs_1 key=PMI_hwloc_xmlfile",
                "cmd=get_result rc=-1 msg=key_not_found value=unknown\n",
            ),
            ("cmd=put kvsname=kvs_1 key=bc-0 value=mpi#02A8;x=1$", "cmd=put_result rc=0 msg=success\n"),
        ];
        for (line, answer) in transcript {
            assert_eq!(say(&mut node, 0, line), reply(0, answer), "{line}");
        }
        assert_eq!(say(&mut node, 0, "cmd=barrier_in"), []);
        let news = vec![("bc-0".to_owned(), "mpi#02A8;x=1$".to_owned())];
        assert_eq!(say(&mut node, 1, "cmd=barrier_in"), [Action::Arrive(news.clone())]);
        let mut out = Vec::new();
        node.release(&news, &mut out);
        assert_eq!(out, [reply(0, "cmd=barrier_out rc=0\n"), reply(1, "cmd=barrier_out rc=0\n")].concat());
        assert!(node.left_early(0) && !node.left_early(1), "the second never said init");
        assert_eq!(say(&mut node, 0, "cmd=finalize"), reply(0, "cmd=finalize_ack\n"));
        assert!(!node.left_early(0));
    }

    #[test]
    fn a_rank_that_gives_up_is_heard() {
        let mut node = Node::new("k", 1, vec![0], "");
        assert_eq!(
            say(&mut node, 0, "cmd=abort exitcode=7 message=out of luck"),
            [Action::Abort(0, 7, "out of luck".to_owned())]
        );
        assert!(matches!(say(&mut node, 0, "nonsense")[..], [Action::Abort(0, 1, _)]));
    }

    #[test]
    fn unsupported_commands_are_answered() {
        let mut node = Node::new("k", 1, vec![0], "");
        for line in ["mcmd=spawn", "nprocs=2", "execname=x"] {
            assert_eq!(say(&mut node, 0, line), [], "{line}");
        }
        let answer = reply(0, "cmd=spawn_result rc=-1 status=spawn_is_not_supported\n");
        assert_eq!(say(&mut node, 0, "endcmd"), answer);
        assert_eq!(
            say(&mut node, 0, "cmd=fly to=moon"),
            reply(0, "cmd=fly_result rc=-1 msg=unknown_command\n")
        );
        assert!(
            matches!(&say(&mut node, 0, "cmd=put key=k value=")[..], [Action::Reply(0, text)] if text.contains("rc=-1"))
        );
    }

    #[test]
    fn nodes_are_joined_and_each_barrier_is_a_new_one() {
        let pair = |n: usize| (format!("k{n}"), format!("v{n}"));
        let mut root = Root::new(0..5);
        root.leave(&[4]);
        for round in 0..3 {
            assert_eq!(root.arrive(&[0], vec![pair(round)]), None);
            assert_eq!(root.arrive(&[2, 3], vec![]), None, "two at once, joined elsewhere");
            assert_eq!(root.arrive(&[1], vec![pair(9)]), Some(vec![pair(round), pair(9)]));
        }
        assert_eq!(root.arrive(&[7], vec![]), None, "there is no such node");
        assert_eq!(root.nodes(), [0, 1, 2, 3]);
    }

    #[test]
    fn mappings() {
        assert_eq!(mapping(&[4]), "(vector,(0,1,4))");
        assert_eq!(mapping(&[2, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(mapping(&[2, 2, 1]), "(vector,(0,2,2),(2,1,1))");
    }
}
