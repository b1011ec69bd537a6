//! The servers of the simulated nodes: what they do with a message, and with requests that had to wait.

use super::cluster::{Body, Parked, Process};
use super::handle::Handle;
use super::mutation::Mutation;
use crate::ids::PageId;
use crate::serve::{self, Answer};
use crate::world::{Reply, Request, World};

/// A message reaches a process of a node.
pub(super) fn deliver(servers: &mut [Handle], from: Process, to: Process, body: Body) {
    let server = &mut servers[usize::from(to.0.0)];
    match body {
        Body::Reply { ticket, reply, frame } => {
            let broken = server.at_node(|node| node.breaks.remove(&ticket));
            match broken {
                Some(page) => {
                    server.staging = frame;
                    if serve::taken_back(server, page, reply) {
                        server.send(from.0, Request::Settled(page));
                    }
                }
                None => {
                    server.cluster.borrow_mut().replies.insert(ticket, (reply, frame));
                }
            }
        }
        Body::Request { ticket, request, diff, notices } => {
            let twice = server.cluster.borrow().mutation == Mutation::AnswerTwice;
            if server.at_node(|node| node.taken.insert(ticket)) || twice {
                serve_one(server, from, ticket, request, diff, notices);
            }
        }
    }
}

fn serve_one(
    server: &mut Handle,
    from: Process,
    ticket: u64,
    request: Request,
    diff: Vec<(usize, u8)>,
    notices: Vec<PageId>,
) {
    match request {
        Request::Claim(page) => {
            let home = server.at_node(|node| *node.claims.entry(page).or_insert(from.0));
            reply(server, from, ticket, Reply::Home(home));
        }
        Request::Notices => {
            server.at_node(|node| node.bins.extend(notices));
            reply(server, from, ticket, serve::DONE);
        }
        Request::Lock(name) => {
            let previous = server.at_node(|node| node.managers.entry(name).or_default().request(from.0));
            reply(server, from, ticket, serve::DONE);
            match previous {
                Some(node) => drop(server.send(node, Request::Forward(name, from.0))),
                None => drop(server.send(from.0, Request::Grant(name))),
            }
        }
        Request::Forward(name, next) => {
            if let Some(next) = server.with_lock(name, |lock| lock.forward(next)) {
                server.send(next, Request::Grant(name));
            }
        }
        Request::Grant(name) => {
            server.with_lock(name, |lock| lock.granted());
            reply(server, from, ticket, serve::DONE);
        }
        Request::Arrive(name) => {
            let nodes = server.nodes();
            let all = server.at_node(|node| {
                node.arrivals.push((from, ticket, name));
                node.masters.entry(name).or_default().arrive(from.0, nodes)
            });
            if all {
                let waiting = server.at_node(|node| std::mem::take(&mut node.arrivals));
                let (go, stay): (Vec<_>, Vec<_>) =
                    waiting.into_iter().partition(|(_, _, other)| *other == name);
                server.at_node(|node| node.arrivals = stay);
                for (from, ticket, _) in go {
                    reply(server, from, ticket, serve::DONE);
                }
            }
        }
        Request::Flag(name) => {
            server.at_node(|node| {
                node.words.insert(crate::world::Place::Flag(name), 1);
                node.synchronised += 1;
            });
            reply(server, from, ticket, serve::DONE);
        }
        Request::Settled(page) => {
            serve::settled(server, page);
            reply(server, from, ticket, serve::DONE);
        }
        Request::Fetch(..) | Request::Break(_) | Request::Diff(_) | Request::Leave(_) => {
            try_page(server, Parked { from, ticket, request, diff, version: 0 });
        }
    }
}

fn try_page(server: &mut Handle, mut parked: Parked) {
    server.incoming = parked.diff.clone();
    server.staging = None;
    let answer = serve::page(server, parked.from.0, parked.request).expect("a request for a page");
    let (Request::Fetch(page, _) | Request::Break(page) | Request::Diff(page) | Request::Leave(page)) =
        parked.request
    else {
        unreachable!("a request for a page")
    };
    match answer {
        Answer::Reply(answer) => {
            if answer == Reply::Frame && server.cluster.borrow().mutation == Mutation::Unsettled {
                let staging = server.staging;
                serve::settled(server, page);
                server.staging = staging;
            }
            return reply(server, parked.from, parked.ticket, answer);
        }
        Answer::Park => {}
        Answer::Break { holder } => {
            let ticket = server.send(holder, Request::Break(page));
            server.at_node(|node| node.breaks.insert(ticket, page));
        }
    }
    parked.version = server.at_node(|node| node.versions[page.0 as usize]);
    server.at_node(|node| node.parked.push(parked));
}

/// Tries parked requests again whose pages have changed, in their order.
pub(super) fn retry(server: &mut Handle) {
    let parked = server.at_node(|node| std::mem::take(&mut node.parked));
    for parked in parked {
        let (Request::Fetch(page, _) | Request::Break(page) | Request::Diff(page) | Request::Leave(page)) =
            parked.request
        else {
            unreachable!("a request for a page")
        };
        if server.at_node(|node| node.versions[page.0 as usize]) == parked.version {
            server.at_node(|node| node.parked.push(parked));
        } else {
            try_page(server, parked);
        }
    }
}

fn reply(server: &mut Handle, to: Process, ticket: u64, reply: Reply) {
    let frame = match reply {
        Reply::Page(_) | Reply::Frame => server.staging.take(),
        _ => None,
    };
    let process = server.process;
    server.cluster.borrow_mut().post(process, to, Body::Reply { ticket, reply, frame });
}
