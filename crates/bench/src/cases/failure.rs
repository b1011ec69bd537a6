//! Failure: a peer is killed, and how long it takes until this is known, everything is given back, and work goes on.
//!
//! The peers that die are processes started for the purpose (`standby.rs`). A thread kills one while the survivor
//! sleeps in a blocking receive; three moments count from the kill: *detect*, the call returns with an error; *flush*,
//! every posted descriptor has come back; *reconnect*, a connection to the next process, which was standing by, is
//! there. *flush-sends* is the same for sends: the peer is stopped before they are posted and killed before it could
//! take one, on a connection whose sends are done only when they were received. Every time all descriptors must have come
//! back, and the new peer must give back what it is sent.

use std::thread;
use std::time::Duration;

use viaduct_os::clock::Tsc;
use viaduct_via::{Descriptor, MemAttributes, Reliability, Vi, ViAttributes};

use crate::cases::calls::Idle;
use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::{Error, Result};
use crate::layers::half::{Side, failure};
use crate::layers::via::Place;
use crate::loops::End;
use crate::pattern;
use crate::plan::{Motion, Point, Run, Settings, Tally, Variant, Wait};
use crate::standby::{ECHO, Standby};
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "failure",
    about: "how long until a killed peer is noticed, all descriptors are back, and a new peer is connected",
    unit: "us",
    lower_is_better: true,
    sizes: &[ECHO],
    value: |ns, _| ns / 1e3,
    points,
    timed: "from the kill: detect, until the blocking receive returns an error; flush, until all 64 posted receives are \
            back; flush-sends, until 64 sends to a peer that was stopped before are back; reconnect, until a connection \
            to another process, which was standing by, is there",
    window: 64,
    axis: "",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const SERIES: [&str; 4] = ["detect", "flush", "reconnect", "flush-sends"];

/// Receives that are posted when the peer dies, and sends if it is about those.
const POSTED: usize = 64;

/// Whatever takes longer is a failure of the provider.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

/// How long the survivor sleeps before the kill.
const ASLEEP: Duration = Duration::from_millis(3);

fn points(settings: &Settings, _: &[usize]) -> Result<Vec<Point>> {
    let of = |series: &&str| {
        let shape = shape(Motion::Calls, ECHO, CASE.window).on(series, None).with("count", 2);
        // The moment of a kill is known by the clock of its own host alone.
        let shape = shape.with("one-clock", 1);
        let all = variants(settings, &settings.layers, &shape).into_iter();
        all.map(|v| Variant { wait: Wait::Block, ..v }).collect::<Vec<_>>()
    };
    Ok(vec![Point { size: ECHO, variants: SERIES.iter().flat_map(of).collect() }])
}

fn end(mut place: Place) -> Result<Box<dyn End>> {
    if place.side == Side::Follow {
        return Ok(Box::new(Idle));
    }
    let which = SERIES.iter().position(|series| **series == place.variant.series).unwrap_or(0);
    let sends = place.variant.series == "flush-sends";
    let memory = place.nic.alloc(2 * POSTED * ECHO, MemAttributes::local(place.tag));
    let mut buffers = memory.map_err(|e| place.failed(&e))?.chunks(ECHO).into_iter();
    let idle = buffers.by_ref().take(POSTED).map(Descriptor::recv).collect();
    let unsent = buffers.map(Descriptor::send).collect();
    Ok(Box::new(Survivor { place, idle, unsent, sends, which, peer: None, number: 0 }))
}

struct Survivor {
    place: Place,
    /// Receives that are not posted.
    idle: Vec<Descriptor>,
    /// Sends that are not posted.
    unsent: Vec<Descriptor>,
    /// Sends are posted before the peer dies.
    sends: bool,
    /// Which of the moments the samples are.
    which: usize,
    peer: Option<(Standby, Vi)>,
    /// Peers so far.
    number: u64,
}

impl End for Survivor {
    fn lead(&mut self, run: &Run, _: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let mut bad = 0;
        for _ in 0..run.count {
            let (moments, faults) = self.lose_one()?;
            samples.push(moments[self.which]);
            bad += faults;
        }
        // A peer that is found wrong in a timed slice must not go unnoticed.
        if bad > 0 && !run.check {
            return Err(Error::layer(self.place.variant.layer.name(), "descriptors or data were lost", ""));
        }
        Ok(Tally { bad, ..Tally::default() })
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

impl Survivor {
    /// Loses a peer and connects to the next; gives the moments, in ticks from the kill, and what went wrong.
    fn lose_one(&mut self) -> Result<([u64; SERIES.len()], u64)> {
        let (victim, vi) = match self.peer.take() {
            Some(peer) => peer,
            None => {
                let first = self.start()?;
                let vi = self.connect(&first)?;
                (first, vi)
            }
        };
        let next = self.start()?;
        let posted = if self.sends { self.post_sends(&victim, vi)? } else { 0 };
        let killer = thread::spawn(move || kill(victim));
        let mut faults = 0;
        for _ in 0..posted {
            faults += u64::from(self.take_back_send(vi)?);
        }
        let unsent = Tsc::cycles();
        faults += u64::from(self.take_back(vi)?);
        let detected = Tsc::cycles();
        for _ in 1..POSTED {
            faults += u64::from(self.take_back(vi)?);
        }
        let flushed = Tsc::cycles();
        let fresh = self.connect(&next)?;
        let connected = Tsc::cycles();
        let (killed, victim) = killer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        drop(victim);
        self.destroy(vi)?;
        faults += self.echo(fresh)?;
        self.peer = Some((next, fresh));
        Ok(([detected, flushed, connected, unsent].map(|moment| moment.saturating_sub(killed)), faults))
    }

    fn start(&self) -> Result<Standby> {
        let provider = self.place.variant.layer.provider().unwrap_or_default();
        Standby::start(&self.place.control, provider)
    }

    /// A VI with all receives posted, connected.
    fn connect(&mut self, peer: &Standby) -> Result<Vi> {
        let Place { nic, tag, .. } = &mut self.place;
        let (idle, sends) = (&mut self.idle, self.sends);
        let mut connect = || -> Result<Vi, viaduct_via::Error> {
            let attributes = ViAttributes::new(*tag).depth(POSTED + 1);
            // What was only delivered would be done while the peer sleeps.
            let vi = nic.create_vi(if sends {
                attributes.reliability(Reliability::ReliableReception)
            } else {
                attributes
            })?;
            for descriptor in idle.drain(..) {
                nic.post_recv(vi, descriptor).map_err(|refused| refused.error)?;
            }
            nic.connect_request(vi, &peer.address, LIMIT)?;
            Ok(vi)
        };
        let connected = connect();
        connected.map_err(|e| self.place.failed(&e))
    }

    /// Waits for the next receive to come back; tells whether it came back as if nothing had happened.
    fn take_back(&mut self, vi: Vi) -> Result<bool> {
        let done = self.place.nic.wait_recv_outcome(vi, LIMIT).map_err(|e| self.place.failed(&e))?.0;
        self.idle.push(done.descriptor);
        Ok(done.status.is_success())
    }

    /// Stops the peer and posts sends, which it will never take; tells how many.
    fn post_sends(&mut self, victim: &Standby, vi: Vi) -> Result<usize> {
        victim.stop()?;
        let count = self.unsent.len();
        for descriptor in self.unsent.drain(..) {
            let posted = self.place.nic.post_send(vi, descriptor);
            posted.map_err(|e| failure(self.place.variant.layer.name(), &e.error))?;
        }
        Ok(count)
    }

    /// Waits for the next send to come back; tells whether it came back as if it had been received.
    fn take_back_send(&mut self, vi: Vi) -> Result<bool> {
        let done = self.place.nic.wait_send_outcome(vi, LIMIT).map_err(|e| self.place.failed(&e))?.0;
        self.unsent.push(done.descriptor);
        Ok(done.status.is_success())
    }

    /// Gives up a VI; nothing may be left in it.
    fn destroy(&mut self, vi: Vi) -> Result<()> {
        let nic = &mut self.place.nic;
        let done = nic.disconnect(vi).and_then(|()| nic.destroy_vi(vi));
        done.map_err(|e| self.place.failed(&e))
    }

    /// Sends a message to a new peer and counts what is wrong with the answer.
    fn echo(&mut self, vi: Vi) -> Result<u64> {
        self.number += 1;
        let mut message = [0; ECHO];
        pattern::fill(&mut message, self.number);
        self.place.nic.send_inline(vi, &message, None).map_err(|e| self.place.failed(&e))?;
        let done = self.place.nic.wait_recv_outcome(vi, LIMIT).map_err(|e| self.place.failed(&e))?.0;
        let faults = u64::from(!done.status.is_success()) + pattern::mismatches(&done.data(), self.number);
        let short = u64::from(done.length as usize != ECHO);
        let posted = self.place.nic.post_recv(vi, done.descriptor);
        posted.map_err(|e| self.place.failed(&e.error))?;
        Ok(faults + short)
    }
}

/// Kills a peer once the survivor sleeps; tells when.
fn kill(mut victim: Standby) -> Result<(u64, Standby)> {
    thread::sleep(ASLEEP);
    let now = Tsc::cycles();
    victim.kill()?;
    Ok((now, victim))
}
