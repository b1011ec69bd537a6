//! Connecting and disconnecting, again and again, with a process that accepts.

use std::time::Duration;

use viaduct_via::{Descriptor, Vi, ViAttributes};

use crate::error::Result;
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Run, Tally};
use crate::stats::median;
use crate::timer::Timer;

/// The other process is ours and alive, so whatever takes longer has failed.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

pub(super) fn end(mut place: Place) -> Result<Box<dyn End>> {
    if place.variant.series == "connect" {
        let vi = vi(&mut place)?;
        place.join(vi, &[])?;
    }
    Ok(Box::new(Connecting { place, done: 0 }))
}

struct Connecting {
    place: Place,
    /// Connections so far, by which both sides know each other.
    done: u64,
}

impl End for Connecting {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let (mut bad, mut others) = (0, Vec::new());
        for _ in 0..run.count {
            let vi = vi(&mut self.place)?;
            self.done += 1;
            let start = timer.ticks();
            let theirs = self.place.join(vi, &self.done.to_le_bytes())?;
            samples.push(timer.ticks() - start);
            bad += u64::from(theirs != self.done.to_le_bytes());
            let start = timer.ticks();
            let ended = self.place.nic.disconnect(vi);
            others.push(timer.to_ns(timer.ticks() - start) / 1e3);
            ended.map_err(|e| self.place.failed(&e))?;
            self.drain(vi)?;
        }
        let extra = median(&others).map(|us| ("disconnect_us".to_owned(), us)).into_iter().collect();
        Ok(Tally { bad, extra, ..Tally::default() })
    }

    fn follow(&mut self, run: &Run) -> Result<Tally> {
        let mut bad = 0;
        for _ in 0..run.count {
            let vi = vi(&mut self.place)?;
            self.done += 1;
            let theirs = self.place.join(vi, &self.done.to_le_bytes())?;
            bad += u64::from(theirs != self.done.to_le_bytes());
            // The receive comes back when the first process has ended the connection.
            let flushed = self.place.nic.wait_recv_outcome(vi, LIMIT).map_err(|e| self.place.failed(&e))?.0;
            bad += u64::from(flushed.status.is_success());
            self.place.nic.disconnect(vi).map_err(|e| self.place.failed(&e))?;
            self.drain(vi)?;
        }
        Ok(Tally { bad, ..Tally::default() })
    }
}

impl Connecting {
    /// Takes what was flushed and destroys the VI.
    fn drain(&mut self, vi: Vi) -> Result<()> {
        let nic = &mut self.place.nic;
        let mut emptied = || -> Result<(), viaduct_via::Error> {
            while nic.poll_recv(vi)?.is_some() {}
            nic.destroy_vi(vi)
        };
        let done = emptied();
        done.map_err(|e| self.place.failed(&e))
    }
}

/// A VI with one receive posted, which tells of the end of the connection.
fn vi(place: &mut Place) -> Result<Vi> {
    let vi = place.nic.create_vi(ViAttributes::new(place.tag)).map_err(|e| place.failed(&e))?;
    place.nic.post_recv(vi, Descriptor::recv_empty()).map_err(|e| place.failed(&e.error))?;
    Ok(vi)
}
