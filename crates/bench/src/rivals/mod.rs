//! Rivals: other people's tools on the same two cores, in the same run, beside our own values.
//!
//! ```text
//!   run -> ours (the cases latency and bandwidth)
//!       -> rounds over the tools that are installed -> child.rs: start pinned, wait, take down -> parser -> Reading
//! ```
//!
//! Each tool is an entry of [`ALL`] with a parser for what it prints, and no two print the same thing: what a value
//! leaves out compared with ours stands in `about`. Tools that are missing are named with the Debian package that has
//! them.

mod child;
mod mpi;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use crate::cases::Case;
use crate::error::Result;
use crate::layers::Layer;
use crate::plan::Settings;
use crate::run::{Event, run as run_case};
use crate::schema::{Line, Measurement};
use crate::session::PeerCommand;
use crate::stats::Summary;

pub use child::{Launcher, exec_tool};

/// What is asked of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One way, for messages of so many bytes.
    Latency(usize),
    /// Bytes a second with messages of so many bytes.
    Bandwidth(usize),
}

/// What every tool is asked for.
pub const WANTS: [Want; 3] = [Want::Latency(8), Want::Bandwidth(64 << 10), Want::Bandwidth(1 << 20)];

/// What a tool said, in microseconds or MB/s of 10^6 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    /// The size that it took; some have limits.
    pub(crate) size: usize,
    pub(crate) value: f64,
}

/// A tool of other people.
#[derive(Debug)]
pub struct Rival {
    /// Its name; in results `rival:` stands before it.
    pub name: &'static str,
    /// The programs that it needs.
    pub programs: &'static [&'static str],
    /// How to get them.
    pub install: &'static str,
    /// What it measures, and what not.
    pub about: &'static str,
    measure: fn(&Ground<'_>, Want) -> Result<Option<Reading>>,
}

/// Every tool we know.
pub const ALL: &[&Rival] = &[
    &tools::FI_SHM,
    &tools::FI_TCP,
    &tools::UCX,
    &tools::SOCKPERF,
    &mpi::OPEN_MPI,
    &mpi::MPICH,
    &tools::ICEORYX2,
];

/// What tools are run on.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Starts them.
    pub launcher: &'a Launcher,
    /// The two cores.
    pub cpus: [usize; 2],
    /// Where programs are looked for.
    pub path: &'a [PathBuf],
    /// A folder for what is compiled on the way.
    pub folder: PathBuf,
    /// Time for one value.
    pub time: Duration,
}

impl Ground<'_> {
    /// Where `program` is.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    /// The programs of `rival` that are missing.
    pub fn missing(&self, rival: &Rival) -> Vec<&'static str> {
        rival.programs.iter().copied().filter(|program| self.find(program).is_none()).collect()
    }
}

/// What the caller hears.
#[derive(Debug)]
pub enum Heard {
    /// Work goes on.
    At(&'static str),
    /// A value; ours have their layer's own name.
    Line(Box<Measurement>),
    /// A tool is there but did not do it.
    Failed(&'static str, String),
}

/// Measures ourselves, then every installed tool `rounds` times in turn.
pub fn run(
    ground: &Ground<'_>,
    settings: &Settings,
    command: &PeerCommand,
    rounds: usize,
    listener: &mut (dyn FnMut(Heard) + Send),
) -> Result<()> {
    let mut template = None;
    for want in WANTS {
        listener(Heard::At("viaduct"));
        for line in ours(settings, command, want)? {
            template = Some(line.clone());
            listener(Heard::Line(Box::new(line)));
        }
    }
    let Some(template) = template else { return Ok(()) };
    let present: Vec<&Rival> = ALL.iter().copied().filter(|rival| ground.missing(rival).is_empty()).collect();
    let mut readings: Vec<Vec<Vec<Reading>>> = vec![vec![Vec::new(); WANTS.len()]; present.len()];
    let mut failed = vec![false; present.len()];
    // In turn, so that a busy minute of the machine does not hit one of them alone.
    for _ in 0..rounds {
        for (index, rival) in
            present.iter().enumerate().filter(|(index, _)| !failed[*index]).collect::<Vec<_>>()
        {
            listener(Heard::At(rival.name));
            for (at, want) in WANTS.into_iter().enumerate() {
                match (rival.measure)(ground, want) {
                    Ok(reading) => readings[index][at].extend(reading),
                    Err(error) => {
                        failed[index] = true;
                        listener(Heard::Failed(rival.name, error.to_string()));
                        break;
                    }
                }
            }
        }
    }
    for (rival, values) in present.iter().zip(&readings) {
        for (want, values) in WANTS.iter().zip(values) {
            if let Some(line) = line(&template, rival, *want, values) {
                listener(Heard::Line(Box::new(line)));
            }
        }
    }
    Ok(())
}

/// Our own values, under the name of the comparison.
fn ours(settings: &Settings, command: &PeerCommand, want: Want) -> Result<Vec<Measurement>> {
    let (case, size, unit) = named(want);
    let mut layers = settings.layers.clone();
    if !layers.contains(&Layer::Tcp) {
        layers.push(Layer::Tcp);
    }
    let settings = Settings { sizes: vec![size], layers, ..settings.clone() };
    let mut lines: Vec<Measurement> = Vec::new();
    run_case(Case::find(unit.0)?, &settings, command, &mut |event| {
        if let Event::Line(Line::Measurement(line)) = event {
            lines.push(*line);
        }
    })?;
    // Tools do not tell where the cores were: of ours the placement seen most often stands for all.
    let mut best: Vec<Measurement> = Vec::new();
    for line in lines {
        match best.iter_mut().find(|other| other.layer == line.layer) {
            Some(other) if other.n >= line.n => {}
            Some(other) => *other = line,
            None => best.push(line),
        }
    }
    for line in &mut best {
        line.config.insert("placement".into(), std::mem::replace(&mut line.placement, ANY.into()));
        line.case = case.into();
    }
    Ok(best)
}

/// Placement of a value of which nobody knows it.
const ANY: &str = "any";

/// Name of the comparison, size, and the case of ours with its unit.
fn named(want: Want) -> (&'static str, usize, (&'static str, &'static str)) {
    match want {
        Want::Latency(size) => ("rivals-latency", size, ("latency", "us")),
        Want::Bandwidth(size) => ("rivals-bandwidth", size, ("bandwidth", "MB/s")),
    }
}

fn line(template: &Measurement, rival: &Rival, want: Want, readings: &[Reading]) -> Option<Measurement> {
    let values: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
    let summary = Summary::of(&values)?;
    let (case, _, (_, unit)) = named(want);
    Some(Measurement {
        case: case.into(),
        layer: format!("rival:{}", rival.name),
        provider: None,
        size: readings.first()?.size,
        unit: unit.into(),
        p50: Some(summary.p50),
        // Order statistics need six values for 95 %.
        ci95: (values.len() >= crate::measure::WANTED).then_some(summary.ci95),
        n: values.len(),
        launches: values.len(),
        valid: true,
        // Nobody watched the machine meanwhile, and few runs are few.
        noisy: values.len() < crate::measure::WANTED,
        min: Some(summary.min),
        p90: None,
        p99: None,
        p999: None,
        max: None,
        samples: values.len(),
        batch: 1,
        ns_per_message: None,
        placement: ANY.into(),
        probe_ns: None,
        dropped: 0,
        config: [("tool".to_owned(), rival.about.to_owned())].into(),
        ..template.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::sample;

    #[test]
    fn a_rivals_line_has_its_name_and_the_size_it_took() {
        let readings = [35.0, 33.0, 34.0].map(|value| Reading { size: 16, value });
        let line = line(&sample(), &tools::SOCKPERF, Want::Latency(8), &readings).unwrap();
        assert_eq!((line.layer.as_str(), line.size, line.p50), ("rival:sockperf", 16, Some(34.0)));
        assert_eq!(line.ci95, None, "three values have no interval");
        assert!(line.noisy && line.case == "rivals-latency" && line.unit == "us" && line.provider.is_none());
        assert!(super::line(&sample(), &tools::SOCKPERF, Want::Latency(8), &[]).is_none());
    }

    #[test]
    fn missing_programs_are_named() {
        let launcher = Launcher { program: "viaduct".into(), args: Vec::new() };
        let ground = Ground {
            launcher: &launcher,
            cpus: [0, 1],
            path: &["/no/such/folder".into()],
            folder: "/no/such/folder".into(),
            time: Duration::from_secs(1),
        };
        for rival in ALL {
            assert_eq!(ground.missing(rival), rival.programs, "{}", rival.name);
            assert!(!rival.install.is_empty() && !rival.about.is_empty());
        }
    }
}
