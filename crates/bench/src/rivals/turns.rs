//! Rounds in which everybody takes a turn, ourselves included: a busy minute of the machine hits all of them.
//!
//! Each round begins with another one, so that none always comes after the same neighbour. Every one has one value a
//! round for each question, and the median over the rounds in the end.

use super::{Ground, Heard, Reading, Rival, Want};
use crate::cases::Case;
use crate::error::Result;
use crate::layers::Layer;
use crate::measure::WANTED;
use crate::plan::Settings;
use crate::run::{Event, run as run_case};
use crate::schema::{Line, Measurement};
use crate::session::PeerCommand;
use crate::stats::Summary;

/// Measures ourselves and every installed tool `rounds` times in turn.
pub fn run(
    ground: &Ground<'_>,
    command: &PeerCommand,
    rounds: usize,
    listener: &mut (dyn FnMut(Heard) + Send),
) -> Result<()> {
    let (settings, wants) = (share(ground.settings, rounds), ground.wants());
    let mut own: Vec<Vec<Measurement>> = vec![Vec::new(); wants.len()];
    let mut tools: Vec<Tool> = ground
        .rivals()
        .filter(|rival| ground.missing(rival).is_empty())
        .map(|rival| Tool { rival, readings: vec![Vec::new(); wants.len()], failed: false })
        .collect();
    for round in 0..rounds {
        for turn in order(round, tools.len() + 1) {
            let Some(tool) = turn.checked_sub(1).map(|at| &mut tools[at]) else {
                for (at, want) in wants.iter().enumerate() {
                    listener(Heard::At("viaduct"));
                    own[at].extend(ours(&settings, command, *want)?);
                }
                continue;
            };
            if !tool.failed {
                listener(Heard::At(tool.rival.name));
                tool.ask(ground, listener);
            }
        }
    }
    let lines: Vec<Measurement> = own.iter().flat_map(|lines| of_rounds(lines)).collect();
    let template = lines.first().cloned();
    lines.into_iter().for_each(|line| listener(Heard::Line(Box::new(line))));
    let Some(template) = template else { return Ok(()) };
    for tool in &tools {
        for (want, values) in wants.iter().zip(&tool.readings) {
            if let Some(line) = line(&template, tool.rival, *want, values) {
                listener(Heard::Line(Box::new(line)));
            }
        }
    }
    Ok(())
}

/// What a round of ours may take, so that all rounds together take what the user gave.
fn share(settings: &Settings, rounds: usize) -> Settings {
    let rounds = rounds.max(1);
    Settings {
        time: (settings.time / rounds as f64).max(0.05_f64.min(settings.time)),
        launches: settings.launches.div_ceil(rounds),
        ..settings.clone()
    }
}

/// Whose turn it is in a round: all of `count`, beginning with another one each time.
fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (round + turn) % count)
}

/// An installed tool and what it said so far.
struct Tool {
    rival: &'static Rival,
    readings: Vec<Vec<Reading>>,
    /// Once is enough.
    failed: bool,
}

impl Tool {
    fn ask(&mut self, ground: &Ground<'_>, listener: &mut (dyn FnMut(Heard) + Send)) {
        for (at, want) in ground.wants().iter().enumerate() {
            match (self.rival.measure)(ground, *want) {
                Ok(reading) => self.readings[at].extend(reading),
                Err(error) => {
                    self.failed = true;
                    return listener(Heard::Failed(self.rival.name, error.to_string()));
                }
            }
        }
    }
}

/// Our own values of one round, under the name of the comparison.
fn ours(settings: &Settings, command: &PeerCommand, want: Want) -> Result<Vec<Measurement>> {
    let (size, measured) = (want.size(), measured(want));
    let mut layers = settings.layers.clone();
    if !layers.contains(&Layer::Tcp) {
        layers.push(Layer::Tcp);
    }
    let settings = Settings { sizes: vec![size], layers, ..settings.clone() };
    let mut lines: Vec<Measurement> = Vec::new();
    run_case(Case::find(measured)?, &settings, command, &mut |event| {
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
        line.case = want.case().into();
        if matches!(want, Want::PingPong(_)) {
            // Measured as a latency.
            line.unit = want.unit().into();
            line.p50 = line.p50.map(|us| size as f64 / us);
        }
    }
    Ok(best)
}

/// One line for each layer: the median over the rounds. Where the data were wrong once, there is no number.
fn of_rounds(lines: &[Measurement]) -> Vec<Measurement> {
    let mut layers: Vec<&str> = Vec::new();
    for line in lines {
        if !layers.contains(&line.layer.as_str()) {
            layers.push(&line.layer);
        }
    }
    let one = |layer: &&str| {
        let rounds: Vec<&Measurement> = lines.iter().filter(|line| line.layer == **layer).collect();
        let valid = rounds.iter().all(|line| line.valid);
        let values: Vec<f64> = rounds.iter().filter_map(|line| line.p50).collect();
        let template = Measurement {
            valid,
            launches: rounds.iter().map(|line| line.launches).sum(),
            dropped: rounds.iter().map(|line| line.dropped).sum(),
            ..(*rounds.last()?).clone()
        };
        let noisy = 2 * rounds.iter().filter(|line| line.noisy).count() > rounds.len();
        let summed = summed(&template, if valid { &values } else { &[] });
        Some(Measurement { noisy: noisy || values.len() < WANTED, ..summed })
    };
    layers.iter().filter_map(one).collect()
}

/// `template` with the median of `values`, one a round; without a number if there are none.
fn summed(template: &Measurement, values: &[f64]) -> Measurement {
    let summary = Summary::of(values);
    Measurement {
        p50: summary.as_ref().map(|s| s.p50),
        // Order statistics need six values for 95 %.
        ci95: summary.as_ref().filter(|_| values.len() >= WANTED).map(|s| s.ci95),
        n: values.len(),
        min: summary.as_ref().map(|s| s.min),
        p90: None,
        p99: None,
        p99_single: None,
        p999: None,
        max: None,
        samples: values.len(),
        batch: 1,
        ns_per_message: None,
        probe_ns: None,
        ..template.clone()
    }
}

/// Placement of a value for which it is unknown.
const ANY: &str = "any";

/// The case of ours that answers it.
fn measured(want: Want) -> &'static str {
    if matches!(want, Want::Bandwidth(_)) { "bandwidth" } else { "latency" }
}

fn line(template: &Measurement, rival: &Rival, want: Want, readings: &[Reading]) -> Option<Measurement> {
    let values: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
    Some(Measurement {
        case: want.case().into(),
        layer: format!("rival:{}", rival.name),
        provider: None,
        size: readings.first()?.size,
        unit: want.unit().into(),
        launches: values.len(),
        valid: true,
        // The machine was not watched meanwhile, and few runs are few.
        noisy: values.len() < WANTED,
        placement: ANY.into(),
        dropped: 0,
        config: [("tool".to_owned(), rival.about.to_owned())].into(),
        ..summed(template, &values)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tools::SOCKPERF;
    use crate::schema::sample;

    #[test]
    fn a_rivals_line_has_its_name_and_the_size_it_took() {
        let readings = [35.0, 33.0, 34.0].map(|value| Reading { size: 16, value });
        let found = line(&sample(), &SOCKPERF, Want::Latency(8), &readings).unwrap();
        assert_eq!((found.layer.as_str(), found.size, found.p50), ("rival:sockperf", 16, Some(34.0)));
        assert_eq!(found.ci95, None, "three values have no interval");
        assert!(
            found.noisy && found.case == "rivals-latency" && found.unit == "us" && found.provider.is_none()
        );
        assert!(line(&sample(), &SOCKPERF, Want::Latency(8), &[]).is_none());
    }

    #[test]
    fn everybody_has_a_turn_in_every_round() {
        for round in 0..4 {
            let mut turns: Vec<usize> = order(round, 3).collect();
            assert_eq!(turns[0], round % 3, "each round begins with another");
            turns.sort_unstable();
            assert_eq!(turns, [0, 1, 2]);
        }
    }

    #[test]
    fn ours_are_medians_over_rounds_too() {
        let of = |layer: &str, p50| Measurement { layer: layer.into(), p50, noisy: false, ..sample() };
        let rounds: Vec<_> = [5.0, 1.0, 2.0, 3.0, 4.0, 9.0, 2.5].map(|v| of("shm", Some(v))).into();
        let lines = of_rounds(&[rounds, vec![of("tcp", Some(30.0))]].concat());
        assert_eq!((lines.len(), lines[0].p50, lines[0].n, lines[0].noisy), (2, Some(3.0), 7, false));
        assert!(lines[0].ci95.is_some() && lines[1].ci95.is_none() && lines[1].noisy);
        let wrong = Measurement { valid: false, p50: None, ..sample() };
        let lines = of_rounds(&[sample(), wrong]);
        assert_eq!((lines[0].valid, lines[0].p50), (false, None), "wrong once is wrong");
    }

    #[test]
    fn rounds_share_the_time() {
        let settings = Settings { launches: 10, time: 1.2, ..Settings::new(vec![Layer::Via("shm")], [0, 1]) };
        let each = share(&settings, 6);
        assert!((each.time - 0.2).abs() < 1e-9 && each.launches == 2);
        assert_eq!(share(&settings, 1).launches, 10);
    }
}
