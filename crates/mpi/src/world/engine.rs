//! The engine of a process: completions of its NIC go into the protocol, and its packets out.

use viaduct_via::driver::{Layer, News, Rest};
use viaduct_via::{Completion, Descriptor, Nic, Op, Queue, Vi};

use super::links::Links;
use crate::error::Error;
use crate::protocol::packet::{HEADER, Packet};
use crate::protocol::{Core, Limits, Soon, Source};

/// Completions that one look takes in, so that the caller's own matters get their turn.
const AT_ONCE: usize = 64;
/// Bytes that one look has the kernel copy: the program reads what has come while it is in its cache.
const MOST_COPIED: usize = 16 << 10;
/// How often a process looks after connections that are still to come, in nanoseconds.
const TICK_NS: u64 = 1_000_000_000;
/// Sends after which a look is taken.
const OFTEN: u32 = 8;

pub(super) struct Engine {
    pub(super) core: Core,
    pub(super) links: Links,
    me: usize,
    size: usize,
    calls: u32,
    news: News,
    /// Changes of the protocol that other threads were told of.
    told: u64,
    /// Threads that wait.
    pub(super) waiting: u32,
    patience: Patience,
    /// Messages that receives found by looking, since a thread last waited.
    quick: u32,
    /// The receive of the last message that a blocking receive found.
    spent: Option<Spent>,
}

/// A receive of VIA that has brought a message from a rank, and is to be posted again.
#[derive(Debug)]
struct Spent {
    vi: Vi,
    descriptor: Descriptor,
    from: usize,
}

/// How often a blocking receive looks before it gives up its turn: long while that finds messages, a few times where peers
/// answer late or have no core, and long again now and then.
#[derive(Debug)]
struct Patience {
    /// Receives in a row whose message was not found.
    misses: u32,
    /// Receives that look a few times only, until the next that looks long, and how many it will be after that.
    skip: u32,
    backoff: u32,
}

/// A look takes some nanoseconds: these are a microsecond or two, in which other threads wait for their turn.
const MOST_LOOKS: u32 = 256;
const LEAST_LOOKS: u32 = 4;
/// Misses after which patience ends, and after how many more it is tried again: at first, and at last.
const LENIENT: u32 = 4;
const FIRST_BACKOFF: u32 = 16;
const LAST_BACKOFF: u32 = 1024;

impl Patience {
    const NEW: Patience = Patience { misses: 0, skip: 0, backoff: FIRST_BACKOFF };

    #[inline]
    fn looks(&self) -> u32 {
        if self.skip == 0 { MOST_LOOKS } else { LEAST_LOOKS }
    }

    /// Found after so many looks. One that would have been found in any case says nothing.
    #[inline]
    fn hit(&mut self, looks: u32) {
        if looks >= LEAST_LOOKS {
            *self = Patience::NEW;
        }
    }

    #[inline]
    fn miss(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.misses += 1;
        if self.misses >= LENIENT {
            self.skip = self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
    }
}

impl Layer for Engine {
    const THREAD: &'static str = "mpi-service";

    fn nic(&mut self) -> &mut Nic {
        &mut self.links.nic
    }

    fn news(&mut self) -> &mut News {
        &mut self.news
    }

    /// Ranks that connect on first use do not wait until this one makes a call.
    fn tick(&mut self, now: u64) -> Rest {
        self.look();
        self.tell_others(0);
        // No event says that a request has had its time.
        Rest::parked().until(self.links.wire.is_open().then_some(now + TICK_NS))
    }
}

impl Engine {
    pub(super) fn new(me: usize, size: usize, limits: Limits, links: Links) -> Engine {
        Engine {
            core: Core::new(me, size, limits),
            links,
            me,
            size,
            calls: 0,
            news: News::default(),
            told: 0,
            waiting: 0,
            patience: Patience::NEW,
            quick: 0,
            spent: None,
        }
    }

    /// Takes in what has come, and moves everything on. True: there may be more.
    pub(super) fn look(&mut self) -> bool {
        self.repost_spent();
        let (before, mut taken) = (self.links.copied, 0);
        let more = loop {
            match self.links.nic.poll_cq(self.links.cq) {
                Ok(Some(completion)) => self.take(completion, None),
                _ => break false,
            }
            taken += 1;
            if taken == AT_ONCE || self.links.copied.wrapping_sub(before) >= MOST_COPIED {
                break true;
            }
        };
        if self.links.has_business() {
            self.attend();
        }
        more
    }

    /// Receives a message without a request: one that is there, or that comes within a few looks.
    #[inline]
    pub(super) fn receive_soon(&mut self, soon: &mut Soon<'_>) {
        if !self.core.may_wait_soon(&mut self.links, soon) {
            return;
        }
        for looks in 0..self.patience.looks() {
            let Ok(Some(completion)) = self.links.nic.poll_cq(self.links.cq) else {
                // There is time for it.
                self.repost_spent();
                continue;
            };
            self.take(completion, Some(soon));
            if soon.is_done() {
                self.quick = self.quick.saturating_add(u32::from(looks > 0));
                return self.patience.hit(looks);
            }
            // A first piece, or an envelope.
            if soon.request().is_some() {
                return;
            }
        }
        self.patience.miss();
    }

    /// How many messages receives have found by looking since this was last asked.
    pub(super) fn take_quick(&mut self) -> u32 {
        std::mem::take(&mut self.quick)
    }

    /// A look in one call of many, for programs that send and never wait.
    #[inline]
    pub(super) fn look_sometimes(&mut self) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(OFTEN) {
            self.look();
        }
    }

    /// Connections that come about, peers that are gone.
    #[inline(never)]
    fn attend(&mut self) {
        for peer in self.links.connect() {
            self.core.opened(&mut self.links, peer);
        }
        for (peer, cause) in std::mem::take(&mut self.links.broken) {
            self.core.lost(peer, cause);
        }
    }

    #[inline]
    fn take(&mut self, completion: Completion, soon: Option<&mut Soon<'_>>) {
        if completion.queue == Queue::Receive && completion.status.is_success() {
            return self.take_packet(completion, soon);
        }
        self.take_other(completion);
    }

    #[inline]
    fn take_packet(&mut self, completion: Completion, mut soon: Option<&mut Soon<'_>>) {
        let Completion { vi, length, descriptor, .. } = completion;
        let from = descriptor.work().context as usize;
        let bytes = descriptor.buffers()[0].atomics();
        let mut header = [0; HEADER];
        let end = (length as usize).min(bytes.len());
        let packet = if end < HEADER {
            None
        } else {
            descriptor.buffers()[0].read(0, &mut header);
            Packet::parse(&header)
        };
        let violation = match packet {
            None => Some("a packet without a header"),
            Some(packet) => {
                let taken = self.core.arrived(
                    &mut self.links,
                    from,
                    &packet,
                    &bytes[HEADER..end],
                    soon.as_deref_mut(),
                );
                taken.err().map(|violation| violation.0)
            }
        };
        if let Some(violation) = violation {
            // A rank that breaks the protocol is as good as gone.
            return self.links.lose(from, format!("it broke the protocol: {violation}"));
        }
        // A program that has waited for this message goes on with it first, as long as the sender misses nothing.
        if soon.is_some_and(|soon| soon.is_done()) && self.core.owes_nothing(from) {
            self.repost_spent();
            self.spent = Some(Spent { vi, descriptor, from });
            return;
        }
        self.repost(vi, descriptor, from);
    }

    #[inline]
    fn repost_spent(&mut self) {
        // As a rule there is none, and most looks end here.
        if self.spent.is_some() {
            self.repost_kept();
        }
    }

    #[inline(never)]
    fn repost_kept(&mut self) {
        if let Some(Spent { vi, descriptor, from }) = self.spent.take() {
            self.repost(vi, descriptor, from);
        }
    }

    #[inline]
    fn repost(&mut self, vi: Vi, descriptor: Descriptor, from: usize) {
        if let Err(refused) = self.links.nic.post_recv(vi, descriptor) {
            return self.links.lose(from, format!("posting a receive failed: {}", refused.error));
        }
        self.core.reposted(&mut self.links, from);
    }

    #[inline(never)]
    fn take_other(&mut self, completion: Completion) {
        let well = completion.status.is_success();
        match (completion.queue, completion.op) {
            (Queue::Send, Op::RdmaRead) => {
                let request = completion.descriptor.work().context as u32;
                if well {
                    self.core.pulled(&mut self.links, request, true);
                }
            }
            (Queue::Send, _) => self.links.give_back(completion.descriptor),
            _ => {}
        }
        if !well && let Some(peer) = self.links.rank_of(completion.vi) {
            self.links.lose(peer, "its process has ended, or the connection with it; see its output");
        }
    }

    /// Why a peer is gone, if one is.
    pub(super) fn first_loss(&self) -> Option<Error> {
        (0..self.size).find_map(|peer| self.core.why_none(&Source::Process(peer)))
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.core.is_idle() && self.links.all_sent()
    }

    pub(super) fn say_bye(&mut self) {
        self.core.say_bye(&mut self.links);
    }

    /// Other threads that wait look again if something is new since they were last told. The caller is itself one of those that
    /// wait, or none of them.
    #[inline]
    pub(super) fn tell_others(&mut self, itself: u32) {
        let changes = self.core.changes();
        if changes != self.told {
            self.told = changes;
            if self.waiting > itself {
                self.news.wake();
            }
        }
    }

    /// One line for each peer that something was sent to.
    pub(super) fn print_counts(&self) {
        for peer in 0..self.size {
            let counts = self.core.counts(peer);
            if *counts == Default::default() {
                continue;
            }
            eprintln!(
                "viaduct mpi: rank {} to {peer}: {} eager, {} rendezvous ({} for want of room), {} read here by RDMA, \
                 {} by the kernel, {} gathered packets, {} early here, {} bytes, {} waits for credits, {} credit packets",
                self.me,
                counts.eager,
                counts.rendezvous,
                counts.no_room,
                counts.pulled,
                counts.copied,
                self.links.gathered[peer],
                counts.early,
                counts.bytes,
                counts.waited,
                counts.credits,
            );
        }
    }
}
