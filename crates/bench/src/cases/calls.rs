//! Calls: what it costs to set up rather than to move data (the non-data group of VIBe).
//!
//! Each call is timed in short batches, and what undoes it is timed apart: as a number beside the other
//! (`close_us`, `destroy_us`, `disconnect_us`, `free_us`), for registering as a curve of its own. Connecting needs the
//! other process, which waits for the request and accepts; everything else happens in the first one alone.

mod connecting;

use viaduct_via::{Buffer, Cq, MemAttributes, Nic, Vi, ViAttributes};

use crate::cases::{Apart, Case, References, nothing, shape, variants};
use crate::error::Result;
use crate::layers::half::{Side, failure};
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Motion, Point, Run, Settings, Tally};
use crate::stats::median;
use crate::timer::Timer;

pub(super) const CASE: Case = Case {
    name: "calls",
    about: "what calls cost that move no data: open, create, connect, register",
    unit: "us",
    lower_is_better: true,
    // Nothing is sent; the sizes of regions are places on the axis.
    sizes: &[0],
    value: |ns, _| ns / 1e3,
    points,
    timed: "one call, in batches where it is short; connect: from the request to the acceptance, while another \
            connection of the two processes is open (connect-first: none is). Registered memory was touched before. \
            What undoes a call is a column of its own in JSON",
    window: 1,
    axis: "bytes",
    references: References::None,
    via: end,
    ofi: None,
    derive: nothing,
    logp: Apart::Not,
};

const REGIONS: &[u64] = &[4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
const QUICK: &[u64] = &[4 << 10, 1 << 20];

fn points(settings: &Settings, _: &[usize]) -> Result<Vec<Point>> {
    let of = |series: &str, bytes: Option<u64>, count: u64, batch: u64| {
        let shape = shape(Motion::Calls, 0, CASE.window).on(series, bytes.map(|bytes| bytes as f64));
        variants(settings, &settings.layers, &shape.with("count", count).with("batch", batch))
    };
    let mut all = [
        of("open", None, 8, 1),
        of("create-vi", None, 256, 16),
        of("create-cq", None, 256, 16),
        of("connect", None, 16, 1),
        of("connect-first", None, 16, 1),
    ]
    .concat();
    // Sizes on the command line are those of the regions.
    let named: Vec<u64> = settings.sizes.iter().map(|size| (*size).max(1) as u64).collect();
    let regions = if named.is_empty() { settings.places(REGIONS, QUICK) } else { &named };
    for bytes in regions {
        // Each call of a batch has memory of its own, and fresh memory takes its time.
        let (count, batch, fresh) = if *bytes > 1 << 20 { (16, 1, 2) } else { (64, 8, 64) };
        all.extend(of("register", Some(*bytes), count, batch));
        all.extend(of("deregister", Some(*bytes), count, batch));
        all.extend(of("alloc", Some(*bytes), fresh, batch));
    }
    Ok(vec![Point { size: 0, variants: all }])
}

fn end(place: Place) -> Result<Box<dyn End>> {
    let bytes = place.variant.x.unwrap_or(0.0) as usize;
    let series = place.variant.series.clone();
    if series.starts_with("connect") {
        return connecting::end(place);
    }
    if place.side == Side::Follow {
        return Ok(Box::new(Idle));
    }
    Ok(match series.as_str() {
        "open" => local(place, Opened(Vec::new()), "close_us"),
        "create-vi" => local(place, Vis(Vec::new()), "destroy_us"),
        "create-cq" => local(place, Cqs(Vec::new()), "destroy_us"),
        "alloc" => local(place, Allocated { bytes, buffers: Vec::new() }, "free_us"),
        "register" => local(place, Registered::new(bytes), "deregister_us"),
        _ => Box::new(Local { undo: true, ..Local::new(place, Registered::new(bytes), "register_us") }),
    })
}

fn local<C: Call + 'static>(place: Place, call: C, other: &'static str) -> Box<dyn End> {
    Box::new(Local::new(place, call, other))
}

/// A call and its opposite.
trait Call {
    /// What has to be there before `count` calls.
    fn prepare(&mut self, _count: u64) {}
    /// One call.
    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error>;
    /// How many of the calls so far did not do what they should.
    fn faults(&mut self, place: &mut Place) -> u64;
    /// Undoes one call.
    fn undo(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error>;
}

struct Local<C> {
    place: Place,
    call: C,
    /// The opposite is what the samples are about.
    undo: bool,
    /// Under which name the other one of the two is told.
    other: &'static str,
}

impl<C> Local<C> {
    fn new(place: Place, call: C, other: &'static str) -> Local<C> {
        Local { place, call, undo: false, other }
    }
}

impl<C: Call> End for Local<C> {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let layer = self.place.variant.layer.name();
        let failed = |e: viaduct_via::Error| failure(layer, &e);
        let (mut bad, mut others) = (0, Vec::new());
        for _ in 0..run.count / run.batch {
            self.call.prepare(run.batch);
            let start = timer.ticks();
            for _ in 0..run.batch {
                self.call.call(&mut self.place).map_err(failed)?;
            }
            let forth = span(timer, start);
            if run.check {
                bad += self.call.faults(&mut self.place);
            }
            let start = timer.ticks();
            for _ in 0..run.batch {
                self.call.undo(&mut self.place).map_err(failed)?;
            }
            let back = span(timer, start);
            let (sample, other) = if self.undo { (back, forth) } else { (forth, back) };
            samples.push(sample);
            others.push(timer.to_ns(other) / 1e3 / run.batch as f64);
        }
        let extra = median(&others).map(|us| (self.other.to_owned(), us)).into_iter().collect();
        Ok(Tally { bad, extra, ..Tally::default() })
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

/// Ticks since `start`, without the one reading of the clock in between.
fn span(timer: &Timer, start: u64) -> u64 {
    (timer.ticks() - start).saturating_sub(timer.to_ticks(timer.cost_ns()))
}

/// The other process has no part in it.
pub(crate) struct Idle;

impl End for Idle {
    fn lead(&mut self, _: &Run, _: &Timer, _: &mut Vec<u64>) -> Result<Tally> {
        Ok(Tally::default())
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

struct Opened(Vec<Nic>);

impl Call for Opened {
    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        let name = place.variant.layer.provider().unwrap_or_default();
        self.0.push(Nic::open(viaduct_providers::open(name, place.control.providers())?)?);
        Ok(())
    }

    fn faults(&mut self, place: &mut Place) -> u64 {
        let same = |nic: &&Nic| nic.attributes().name == place.nic.attributes().name;
        self.0.iter().filter(|nic| !same(nic)).count() as u64
    }

    fn undo(&mut self, _: &mut Place) -> Result<(), viaduct_via::Error> {
        self.0.pop();
        Ok(())
    }
}

struct Vis(Vec<Vi>);

impl Call for Vis {
    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.0.push(place.nic.create_vi(ViAttributes::new(place.tag))?);
        Ok(())
    }

    fn faults(&mut self, place: &mut Place) -> u64 {
        self.0.iter().filter(|vi| place.nic.query_vi(**vi).is_err()).count() as u64
    }

    fn undo(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.0.pop().map_or(Ok(()), |vi| place.nic.destroy_vi(vi))
    }
}

struct Cqs(Vec<Cq>);

impl Call for Cqs {
    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.0.push(place.nic.create_cq(256)?);
        Ok(())
    }

    fn faults(&mut self, place: &mut Place) -> u64 {
        self.0.iter().filter(|cq| !matches!(place.nic.poll_cq(**cq), Ok(None))).count() as u64
    }

    fn undo(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.0.pop().map_or(Ok(()), |cq| place.nic.destroy_cq(cq))
    }
}

struct Allocated {
    bytes: usize,
    buffers: Vec<Buffer>,
}

impl Call for Allocated {
    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.buffers.push(place.nic.alloc(self.bytes, MemAttributes::remote(place.tag))?);
        Ok(())
    }

    fn faults(&mut self, place: &mut Place) -> u64 {
        faults(&mut self.buffers, self.bytes, place)
    }

    fn undo(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        self.buffers.pop().map_or(Ok(()), |buffer| place.nic.deregister(buffer).map(|_| ()))
    }
}

struct Registered {
    bytes: usize,
    /// Not registered.
    memory: Vec<Vec<u8>>,
    buffers: Vec<Buffer>,
}

impl Registered {
    fn new(bytes: usize) -> Registered {
        Registered { bytes, memory: Vec::new(), buffers: Vec::new() }
    }
}

impl Call for Registered {
    fn prepare(&mut self, count: u64) {
        while self.memory.len() < count as usize {
            // Not zero: the pages are to be there.
            self.memory.push(vec![1; self.bytes]);
        }
    }

    fn call(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        let memory = self.memory.pop().expect("as many as calls");
        self.buffers.push(place.nic.register(memory, MemAttributes::remote(place.tag))?);
        Ok(())
    }

    fn faults(&mut self, place: &mut Place) -> u64 {
        faults(&mut self.buffers, self.bytes, place)
    }

    fn undo(&mut self, place: &mut Place) -> Result<(), viaduct_via::Error> {
        if let Some(buffer) = self.buffers.pop() {
            self.memory.extend(place.nic.deregister(buffer)?);
        }
        Ok(())
    }
}

/// Regions whose rights or whose last byte are not as they should be.
fn faults(buffers: &mut [Buffer], bytes: usize, place: &Place) -> u64 {
    let wanted = MemAttributes::remote(place.tag);
    let wrong = |buffer: &mut Buffer| {
        let mut last = [0];
        buffer.write(bytes - 1, &[7]);
        buffer.read(bytes - 1, &mut last);
        buffer.len() != bytes || last != [7] || place.nic.query_mem(buffer.handle()).ok() != Some(wanted)
    };
    buffers.iter_mut().map(|buffer| u64::from(wrong(buffer))).sum()
}
