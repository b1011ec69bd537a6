//! `loopback`: both ends in the first process, taking turns on one thread.
//!
//! It shows what the VIA model itself costs, without any distance between the ends. The second process has nothing to
//! do in it.

use std::rc::Rc;
use std::time::Duration;

use viaduct_via::{NetAddress, Nic};

use crate::cases::{Case, References};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::layers::half::{Half, Side, failure};
use crate::layers::{Door, OpenDoor, via};
use crate::loops::End;
use crate::plan::{Motion, Run, Tally, Variant};
use crate::timer::Timer;

pub(super) fn listen(_variant: &Variant, _control: &Rc<Control>) -> Result<Box<dyn Door>> {
    Ok(Box::new(OpenDoor(Box::new(Absent))))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn End>> {
    let layer = variant.layer.name();
    // Cases that only providers have build their own ends, one in each process.
    let plain = Case::find(&variant.case)?.references == References::All;
    if !plain || !matches!(variant.motion, Motion::PingPong | Motion::Stream) {
        return Err(Error::usage(
            format!("layer `{layer}` has both ends in one process, which case `{}` cannot use", variant.case),
            "use --provider shm",
        ));
    }
    let (mut nic, tag) = via::open(variant, control)?;
    let address = NetAddress::local("bench").map_err(|e| failure(layer, &e))?;
    let listener = nic.listen(&address, 1).map_err(|e| failure(layer, &e))?;
    let mut pairs = Vec::with_capacity(variant.connections);
    for _ in 0..variant.connections {
        let near = Half::create(&mut nic, tag, variant, Side::Lead, control.patience())?;
        let far = Half::create(&mut nic, tag, variant, Side::Follow, control.patience())?;
        let timeout = Some(Duration::from_secs(5));
        nic.connect_start(near.vi(), None, &address, &[], timeout).map_err(|e| failure(layer, &e))?;
        let request = nic.wait_listener(listener, timeout).map_err(|e| failure(layer, &e))?;
        nic.accept(request, far.vi()).map_err(|e| failure(layer, &e.error))?;
        nic.connect_finish(near.vi()).map_err(|e| failure(layer, &e))?;
        pairs.push((near, far));
    }
    let (near, far) = pairs.pop().expect("at least one connection");
    Ok(Box::new(Loop {
        near,
        far,
        _idle: pairs,
        nic,
        motion: variant.motion,
        window: variant.window as u64,
        next: 1,
    }))
}

/// The second process' end.
struct Absent;

impl End for Absent {
    fn lead(&mut self, _: &Run, _: &Timer, _: &mut Vec<u64>) -> Result<Tally> {
        Ok(Tally::default())
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

struct Loop {
    near: Half,
    far: Half,
    _idle: Vec<(Half, Half)>,
    nic: Nic,
    motion: Motion,
    window: u64,
    next: u64,
}

impl End for Loop {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let total = match (self.motion, run.check) {
            (Motion::PingPong, false) => self.bounce::<false>(run, timer, samples)?,
            (Motion::PingPong, true) => self.bounce::<true>(run, timer, samples)?,
            (_, false) => self.stream::<false>(run, timer, samples)?,
            (_, true) => self.stream::<true>(run, timer, samples)?,
        };
        self.next += run.count;
        Ok(if run.check {
            Tally { bad: total, ..Tally::default() }
        } else {
            Tally { sum: std::hint::black_box(total), ..Tally::default() }
        })
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

impl Loop {
    fn bounce<const CHECK: bool>(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<u64> {
        let (near, far, nic) = (&mut self.near, &mut self.far, &mut self.nic);
        let (mut total, mut seq) = (0u64, self.next);
        let mut before = timer.ticks();
        for batch in 0..run.count / run.batch {
            for _ in 0..run.batch {
                near.send::<false, CHECK>(nic, seq)?;
                total = total.wrapping_add(far.recv::<false, CHECK>(nic, seq)?);
                far.send::<false, CHECK>(nic, seq)?;
                total = total.wrapping_add(near.recv::<false, CHECK>(nic, seq)?);
                seq += 1;
            }
            let after = timer.ticks();
            if batch > 0 {
                samples.push(after - before);
            }
            before = after;
        }
        Ok(total)
    }

    /// Half a window out, half a window in: no other thread takes messages meanwhile.
    fn stream<const CHECK: bool>(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<u64> {
        let (near, far, nic) = (&mut self.near, &mut self.far, &mut self.nic);
        let (mut total, end) = (0u64, self.next + run.count);
        let mut seq = self.next;
        let before = timer.ticks();
        while seq < end {
            let burst = (self.window / 2).clamp(1, end - seq);
            for number in seq..seq + burst {
                near.send::<true, CHECK>(nic, number)?;
            }
            for number in seq..seq + burst {
                total = total.wrapping_add(far.recv::<true, CHECK>(nic, number)?);
            }
            seq += burst;
        }
        far.acknowledge(nic)?;
        near.wait_acknowledged(nic)?;
        samples.push(timer.ticks() - before);
        Ok(total)
    }
}
