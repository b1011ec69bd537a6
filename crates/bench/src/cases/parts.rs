//! `--logp` on a case: Os, Or, g and L of every ping-pong, so that one sees which side pays (thesis, future work).
//!
//! Every variant gets four more (five where its ends are plain ones: Or of messages that interrupt), at the same place
//! with the same arguments, that run the loops of the case `logp`. L is what is left of the way after both ends have had
//! their share.

use crate::cases::Apart;
use crate::cases::logp::{INTERRUPTED, derived, pause_ns};
use crate::error::{Error, Result};
use crate::layers::Layer;
use crate::layers::interrupt::interrupted;
use crate::plan::{Motion, Point, Settings, Variant};
use crate::schema::{Line, Measurement};

/// Messages under way where the motion has some: a burst of posts, and enough for a stream.
const WINDOW: usize = 16;

const PARTS: &[(&str, Motion)] =
    &[("Os", Motion::Posts), ("Or", Motion::Takes), ("g", Motion::Stream), ("one-way", Motion::OneWay)];

/// Adds the parts of every ping-pong on a provider.
pub(super) fn extend(settings: &Settings, apart: Apart, points: &mut [Point]) -> Result<()> {
    if settings.one_core() {
        return Err(Error::usage(
            "Os, Or, g and L need a core for each end",
            "leave out --logp, or use two cores",
        ));
    }
    for point in points {
        let whole = |v: &&Variant| v.motion == Motion::PingPong && has_parts(v.layer);
        let parts: Vec<Variant> = point.variants.iter().filter(whole).flat_map(|v| parts(v, apart)).collect();
        point.variants.extend(parts);
    }
    Ok(())
}

/// What is a provider, or libfabric itself, and has its ends in two processes.
pub(super) fn has_parts(layer: Layer) -> bool {
    matches!(layer, Layer::Fabric(_)) || layer.provider().is_some() && !layer.is_one_process()
}

fn parts(whole: &Variant, apart: Apart) -> Vec<Variant> {
    let part = |(number, (name, motion)): (usize, &(&str, Motion))| {
        let part = Variant {
            series: named(&whole.series, name),
            motion: *motion,
            window: if motion.is_stream() { WINDOW } else { whole.window },
            ..whole.clone().with("part", number as u64 + 1)
        };
        if *motion == Motion::Posts { part.with("pause", pause_ns(whole.size)) } else { part }
    };
    let mut all: Vec<Variant> = PARTS.iter().enumerate().map(part).collect();
    if apart == Apart::Interrupted {
        let woken = part((PARTS.len(), &(INTERRUPTED, Motion::Calls)));
        all.push(interrupted(woken));
    }
    all
}

fn named(series: &str, part: &str) -> String {
    if series.is_empty() { part.into() } else { format!("{series}:{part}") }
}

/// L of every curve and place that has the parts it follows from.
pub(crate) fn derive(lines: &[Measurement]) -> Vec<Line> {
    let of = |line: &Measurement| {
        let whole = line.series.strip_suffix("one-way")?;
        let part = |name: &str| {
            let like = |l: &&Measurement| {
                (&l.layer, &l.placement, l.size, l.x) == (&line.layer, &line.placement, line.size, line.x)
            };
            lines.iter().filter(like).find(|l| l.series == format!("{whole}{name}"))?.p50
        };
        Some(derived(line, &format!("{whole}L"), line.p50? - part("Os")? - part("Or")?))
    };
    lines.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Case, shape};
    use crate::schema::sample;

    #[test]
    fn every_ping_pong_has_its_parts() {
        let mut settings = Settings::new(vec![Layer::Via("shm"), Layer::Raw], [0, 1]);
        let whole = |layer, motion, series| Variant { layer, ..shape(motion, 8, 1).on(series, Some(3.0)) };
        let variants = vec![
            whole(Layer::Via("shm"), Motion::PingPong, "cq").with("cq", 1),
            whole(Layer::Via("shm"), Motion::Stream, "rate"),
            whole(Layer::Raw, Motion::PingPong, ""),
        ];
        let mut points = [Point { size: 8, variants }];
        extend(&settings, Apart::Polled, &mut points).unwrap();
        let added: Vec<_> = points[0].variants[3..].iter().map(Variant::label).collect();
        assert_eq!(added, ["shm/cq:Os@3", "shm/cq:Or@3", "shm/cq:g@3", "shm/cq:one-way@3"]);
        assert!(points[0].variants[3..].iter().all(|v| v.arg("cq") == 1));
        let woken = parts(&points[0].variants[0], Apart::Interrupted).pop().unwrap();
        assert_eq!((woken.label().as_str(), woken.motion), ("shm/cq:Or-interrupt@3", Motion::Calls));
        settings.cpus = [0, 0];
        assert!(extend(&settings, Apart::Polled, &mut points).is_err());
    }

    #[test]
    fn the_rest_of_the_one_way_time_is_latency() {
        let line = |series: &str, x, p50| Measurement {
            series: series.into(),
            x: Some(x),
            p50: Some(p50),
            ..sample()
        };
        let lines = [
            line("cq:one-way", 1.0, 0.5),
            line("cq:Os", 1.0, 0.1),
            line("cq:Or", 1.0, 0.25),
            line("cq:Or", 4.0, 0.3),
            line("cq:one-way", 4.0, 0.5),
            line("cq", 1.0, 0.45),
        ];
        let [Line::Measurement(l)] = &derive(&lines)[..] else { panic!("one L") };
        assert_eq!((l.series.as_str(), l.x, l.samples), ("cq:L", Some(1.0), 0));
        assert!((l.p50.unwrap() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn a_case_that_can_is_one_of_ping_pongs() {
        let mut settings = Settings::new(vec![Layer::Via("shm")], [0, 1]);
        settings.quick = true;
        for case in crate::cases::ALL.iter().filter(|case| case.logp != Apart::Not) {
            let points = (case.points)(&settings, case.sizes).unwrap();
            let ping_pong = |point: &Point| point.variants.iter().any(|v| v.motion == Motion::PingPong);
            assert!(points.iter().all(ping_pong), "{}", case.name);
        }
        let of = |name: &str| Case::find(name).unwrap().logp;
        assert_eq!((of("latency"), of("cq"), of("rate")), (Apart::Interrupted, Apart::Polled, Apart::Not));
    }
}
