//! Benchmarks of MPI (thesis, chapter 4): our library beside those that are installed and raw VIA, all in turn.
//!
//! ```text
//!   rounds ── cases ── ways ──> mpiexec ── program.c, compiled by the way's own mpicc ──> "point SERIES SIZE X VALUE"
//!                 └─ raw VIA: the case of chapter 3 that the case of chapter 4 extends
//!   values of all rounds ──> lines.rs: a measurement for each point ──> bars.rs: ratios with what is wanted
//! ```
//!
//! Each round begins with another way, so that none always comes after the same neighbour. Ranks pin themselves to the two
//! cores. Every point proves its data before it is timed.

mod bars;
mod cases;
mod crowd;
mod lines;
mod ways;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Layer;
use crate::cases::Case as RawCase;
use crate::error::{Error, Result};
use crate::plan::Settings;
use crate::rivals::Launcher;
use crate::run::{Event, run as run_raw};
use crate::schema::{Line, Measurement};
use crate::session::PeerCommand;

pub use cases::{CASES, Case};
use lines::{Gathered, Key};
pub(crate) use ways::open_mpi;
pub use ways::{ALL, MpiWay, find};
use ways::{Ready, Tools};

const SOURCE: &str = include_str!("program.c");

/// A start of the program may take this long; libraries that spin need long where cores are few.
const LIMIT: Duration = Duration::from_secs(60);

/// What the benchmarks need.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Starts programs.
    pub launcher: &'a Launcher,
    /// This program again, for raw VIA.
    pub peer: &'a PeerCommand,
    /// Cores, sizes, seconds for a point.
    pub settings: &'a Settings,
    /// The private folder of our library.
    pub library: PathBuf,
    /// A folder for what is compiled.
    pub folder: PathBuf,
    /// Libraries to measure.
    pub ways: Vec<&'static MpiWay>,
    /// How often all take their turn.
    pub rounds: usize,
}

/// What the caller hears.
#[derive(Debug)]
pub enum Heard {
    /// Work goes on; the share that is done.
    At(String, f64),
    /// A library is not installed.
    Missing(&'static MpiWay),
    /// A library is there but did not do it: which, in which case, why.
    Failed(&'static str, &'static str, String),
    /// A result.
    Line(Line),
}

/// A library in this run.
struct Runner {
    way: &'static MpiWay,
    ready: Ready,
    program: PathBuf,
    /// Cases that it failed in: it is not asked again.
    failed: Vec<&'static str>,
}

impl Bench<'_> {
    /// Measures `cases` with all libraries.
    ///
    /// # Errors
    /// If our own library cannot be used, or raw VIA cannot be measured.
    pub fn run(&self, cases: &[&'static Case], listener: &mut (dyn FnMut(Heard) + Send)) -> Result<()> {
        let source = self.folder.join("program.c");
        std::fs::write(&source, SOURCE).map_err(Error::os(format!("writing {}", source.display())))?;
        let tools = Tools { launcher: self.launcher, ours: &self.library, folder: &self.folder };
        let (mut runners, mut absent) = (Vec::new(), Vec::new());
        for way in &self.ways {
            let compiled = way.ready(&tools).map(|ready| {
                let program = ready.compile(&tools, &source)?;
                Ok::<_, Error>(Runner { way, ready, program, failed: Vec::new() })
            });
            match compiled {
                None => {
                    absent.push(way.layer);
                    listener(Heard::Missing(way));
                }
                Some(Ok(runner)) => runners.push(runner),
                Some(Err(error)) => listener(Heard::Failed(way.layer, "compiling", error.to_string())),
            }
        }
        let mut gathered = Gathered::default();
        let steps = (self.rounds * cases.len() * (runners.len() + 1)).max(1) as f64;
        let mut step = 0.0;
        for round in 0..self.rounds {
            for case in cases {
                for turn in 0..runners.len() {
                    let count = runners.len();
                    let runner = &mut runners[(round + turn) % count];
                    listener(Heard::At(format!("{} {}", case.name, runner.way.layer), step / steps));
                    step += 1.0;
                    self.measure(&tools, case, runner, round, &mut gathered, listener);
                }
                listener(Heard::At(format!("{} raw VIA", case.name), step / steps));
                step += 1.0;
                self.raw(case, round, &mut gathered)?;
            }
        }
        let lines = gathered.lines(self.settings, cases);
        lines.into_iter().for_each(|line| listener(Heard::Line(line)));
        let bars = bars::cells(&gathered, self.rounds, cases, &absent);
        bars.into_iter().for_each(|line| listener(Heard::Line(line)));
        Ok(())
    }

    /// One turn of a library in one case.
    fn measure(
        &self,
        tools: &Tools<'_>,
        case: &'static Case,
        runner: &mut Runner,
        round: usize,
        gathered: &mut Gathered,
        listener: &mut (dyn FnMut(Heard) + Send),
    ) {
        let way = runner.way;
        let wanted = way.only.is_empty() || way.only.contains(&case.name);
        // Starting many ranks takes most of a run; a third of the rounds is enough to see a slope.
        let seldom = case.axis == "connections" && !round.is_multiple_of(3);
        if !wanted || seldom || runner.failed.contains(&case.name) {
            return;
        }
        if matches!(case.word, "imb" | "crowd") {
            return self.crowd(tools, case, runner, round, gathered, listener);
        }
        let [one, other] = self.settings.cpus;
        let cpus = if case.one_core { [one, one] } else { [one, other] };
        let seconds = self.settings.time / 20.0;
        for start in case.starts(&self.settings.sizes, self.settings.quick) {
            let head = [case.word.to_owned(), seconds.to_string(), cpus[0].to_string(), cpus[1].to_string()];
            let args = [&head[..], &start.words].concat();
            let begun = Instant::now();
            let said = match case.word {
                // Ranks that measure pin themselves.
                "empty" => crowd::held(tools, self.settings.cpus).and_then(|(tool, before)| {
                    let under = (tool.as_path(), &before[..]);
                    runner.ready.run_under(under, tools, &runner.program, start.ranks, &args, &[], LIMIT)
                }),
                _ => runner.ready.run(tools, &runner.program, start.ranks, &args, LIMIT),
            };
            let time = begun.elapsed().as_secs_f64() * 1e3;
            let taken = said.and_then(|said| match case.word {
                "empty" => {
                    let key = Key::new(case.name, way.layer, "", 0, None);
                    gathered.add(key, way.provider, Some(time));
                    Ok(())
                }
                _ => gathered.take(&said, case, way),
            });
            if let Err(error) = taken {
                runner.failed.push(case.name);
                gathered.fail(Key::new(case.name, way.layer, "", 0, None), &error.to_string());
                return listener(Heard::Failed(way.layer, case.name, error.to_string()));
            }
        }
    }

    /// One turn of a library in a case with more ranks than cores: once if it was cut off, else three times.
    fn crowd(
        &self,
        tools: &Tools<'_>,
        case: &'static Case,
        runner: &mut Runner,
        round: usize,
        gathered: &mut Gathered,
        listener: &mut (dyn FnMut(Heard) + Send),
    ) {
        let way = runner.way;
        let imb = case.word == "imb";
        if round >= 3 || imb && !runner.ready.has_interface_of_mpich() {
            return;
        }
        let key = Key::new(case.name, way.layer, "", 0, None);
        let (cpus, quick) = (self.settings.cpus, self.settings.quick);
        let took = match imb {
            true => crowd::imb(tools, &runner.ready, cpus, quick),
            false => crowd::ours(tools, &runner.ready, cpus, quick, &runner.program),
        };
        match took {
            Ok(took) => {
                gathered.add(key, way.provider, Some(took.milliseconds));
                if took.cut {
                    runner.failed.push(case.name);
                    let why = format!("cut off after {} s, which counts as its time", crowd::LIMIT.as_secs());
                    listener(Heard::Failed(way.layer, case.name, why));
                }
            }
            Err(error) => {
                runner.failed.push(case.name);
                gathered.fail(key, &error.to_string());
                listener(Heard::Failed(way.layer, case.name, error.to_string()));
            }
        }
    }

    /// Raw VIA, and TCP beside it: for latency and bandwidth in each round, for the others once.
    fn raw(&self, case: &'static Case, round: usize, gathered: &mut Gathered) -> Result<()> {
        let Some(name) = case.raw else { return Ok(()) };
        let sized = case.axis.is_empty() && matches!(name, "latency" | "bandwidth");
        if !sized && round > 0 {
            return Ok(());
        }
        let mut layers = vec![Layer::Via("shm")];
        if sized {
            layers.push(Layer::Tcp);
            if self.ways.iter().any(|way| way.layer == "mpi:ofi") {
                layers.push("via:ofi:tcp".parse()?);
            }
        }
        let settings = Settings {
            layers,
            sizes: case.sizes(&self.settings.sizes, self.settings.quick),
            // Two ranks have one connection; the case of completion queues would go through many.
            connections: if name == "cq" { vec![1] } else { Vec::new() },
            time: self.settings.time / 20.0,
            launches: 1,
            quick: true,
            ..self.settings.clone()
        };
        let mut found: Vec<Measurement> = Vec::new();
        run_raw(RawCase::find(name)?, &settings, self.peer, &mut |event| {
            if let Event::Line(Line::Measurement(line)) = event {
                found.push(*line);
            }
        })?;
        gathered.take_raw(case, found);
        Ok(())
    }
}
