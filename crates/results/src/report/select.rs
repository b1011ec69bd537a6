//! From result lines to curves: what belongs together, what it is called, and which core placement counts.

use super::chart::{Curve, Spot};
use crate::schema::Measurement;

/// What lies along the axis of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    /// The message size.
    Size,
    /// The axis of the case.
    Axis,
}

impl Along {
    pub(crate) fn place(self, line: &Measurement) -> f64 {
        match self {
            Along::Size => line.size as f64,
            Along::Axis => line.x.unwrap_or(line.size as f64),
        }
    }
}

/// More curves than this cannot be told apart in one chart.
pub(crate) const MOST: usize = 8;

/// What tells one curve from another.
#[derive(Clone, Debug, PartialEq)]
struct Key<'a> {
    layer: &'a str,
    series: &'a str,
    /// The other coordinate: the size if x is the axis of the case, and the other way round.
    other: Option<f64>,
    wait: &'a str,
    send: Option<&'a str>,
    placement: &'a str,
}

fn key(line: &Measurement, along: Along) -> Key<'_> {
    Key {
        layer: &line.layer,
        series: &line.series,
        other: match along {
            Along::Size => line.x,
            Along::Axis => Some(line.size as f64),
        },
        wait: &line.wait,
        send: line.config.get("send").map(String::as_str),
        placement: &line.placement,
    }
}

/// The placement that most lines were measured in; the first of equals.
pub(crate) fn usual_placement(lines: &[&Measurement]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for line in lines {
        match counts.iter_mut().find(|(name, _)| *name == line.placement) {
            Some((_, count)) => *count += 1,
            None => counts.push((&line.placement, 1)),
        }
    }
    counts.iter().rev().max_by_key(|(_, count)| *count).map_or_else(String::new, |(name, _)| (*name).into())
}

/// Curves of `lines`; those in another placement than most come last, if there is room for them.
pub(crate) fn curves(
    lines: &[&Measurement],
    along: Along,
    value: fn(&Measurement) -> Option<f64>,
) -> Vec<Curve> {
    let usual = usual_placement(lines);
    // What is being measured comes before what it is held against.
    let mut lines = lines.to_vec();
    lines.sort_by_key(|line| line.provider.is_none());
    let lines = &lines[..];
    let mut keys: Vec<Key<'_>> = Vec::new();
    for line in lines {
        let key = key(line, along);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let layers_alone = keys.iter().all(|k| k.series == keys[0].series && k.other == keys[0].other);
    let mut curves = Vec::new();
    for key_here in &keys {
        let label = label(key_here, &keys, &usual, lines[0], along);
        let mut spots: Vec<Spot> = Vec::new();
        for line in lines.iter().filter(|line| key(line, along) == *key_here) {
            let Some(spot) = spot(line, along, value) else { continue };
            // Measured twice: the later one counts.
            spots.retain(|old| old.x != spot.x);
            spots.push(spot);
        }
        spots.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !spots.is_empty() {
            let aside = key_here.placement != usual;
            curves.push(Curve {
                label,
                spots,
                aside,
                look: look(key_here.layer, layers_alone, &keys, key_here),
            });
        }
    }
    if curves.len() > 2 * MOST {
        let usual_ones: Vec<Curve> = curves.iter().filter(|curve| !curve.aside).cloned().collect();
        if !usual_ones.is_empty() {
            curves = usual_ones;
        }
    }
    curves.sort_by_key(|curve| curve.aside);
    curves
}

fn spot(line: &Measurement, along: Along, value: fn(&Measurement) -> Option<f64>) -> Option<Spot> {
    let y = value(line).filter(|y| y.is_finite())?;
    // The interval is that of the median, and of nothing else.
    let interval = line.ci95.filter(|_| line.p50 == Some(y));
    Some(Spot { x: along.place(line), y, interval, noisy: line.noisy })
}

/// Parts that vary, and no others.
fn label(key: &Key<'_>, keys: &[Key<'_>], usual: &str, line: &Measurement, along: Along) -> String {
    let mut words: Vec<String> = Vec::new();
    if keys.iter().any(|k| k.layer != key.layer) || keys.iter().all(|k| k.series.is_empty()) {
        words.push(key.layer.into());
    }
    if !key.series.is_empty() && (keys.iter().any(|k| k.series != key.series) || words.is_empty()) {
        words.push(key.series.into());
    }
    if let Some(other) = key.other.filter(|_| keys.iter().any(|k| k.other != key.other)) {
        words.push(match along {
            Along::Axis => format!("{} B", crate::size::show(other as usize)),
            // `spin 5 us`, not `spin 5 spin_us`.
            Along::Size => {
                let axis = line.axis.strip_prefix(key.series).filter(|_| !key.series.is_empty());
                let axis = axis.unwrap_or(&line.axis).replace('_', " ");
                format!("{} {}", super::text::short(other), axis.trim())
            }
        });
    }
    let like = |k: &&Key<'_>| (k.layer, k.series, k.other) == (key.layer, key.series, key.other);
    if keys.iter().filter(like).any(|k| k.wait != key.wait) {
        words.push(key.wait.into());
    }
    if let Some(send) = key.send.filter(|_| keys.iter().filter(like).any(|k| k.send != key.send)) {
        words.push(format!("send {send}"));
    }
    if key.placement != usual {
        words.push(format!("({} cores)", key.placement));
    }
    words.join(" ")
}

/// A layer has one look in all charts that show layers; else curves are numbered.
fn look(layer: &str, layers_alone: bool, keys: &[Key<'_>], key: &Key<'_>) -> usize {
    const KNOWN: [&str; 8] = ["shm", "raw", "tcp", "unix", "copy", "tcp-spin", "pipe", "tcp-nodelay"];
    let mut distinct: Vec<(&str, &str, Option<f64>)> = Vec::new();
    for k in keys {
        if !distinct.contains(&(k.layer, k.series, k.other)) {
            distinct.push((k.layer, k.series, k.other));
        }
    }
    // On one host both are the same memory; in one chart they must be told apart.
    let both = keys.iter().any(|k| k.layer == "shm") && keys.iter().any(|k| k.layer == "auto");
    let known = |layer| if layer == "auto" && !both { "shm" } else { layer };
    let fixed = KNOWN
        .iter()
        .position(|name| *name == known(layer))
        .filter(|_| layers_alone && keys.iter().all(|k| KNOWN.contains(&known(k.layer))));
    fixed.unwrap_or_else(|| {
        distinct.iter().position(|d| *d == (key.layer, key.series, key.other)).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample;

    fn line(layer: &str, series: &str, size: usize, placement: &str) -> Measurement {
        let (layer, series, placement) = (layer.into(), series.into(), placement.into());
        Measurement { layer, series, size, placement, ..sample() }
    }

    fn labels(lines: &[Measurement]) -> Vec<String> {
        let lines: Vec<&Measurement> = lines.iter().collect();
        curves(&lines, Along::Size, |l| l.p50).into_iter().map(|curve| curve.label).collect()
    }

    #[test]
    fn labels_say_what_varies() {
        let layers = [line("shm", "", 8, "near"), line("tcp", "", 8, "near"), line("shm", "", 64, "near")];
        assert_eq!(labels(&layers), ["shm", "tcp"]);
        let series = [line("shm", "hit", 8, "near"), line("shm", "miss", 8, "near")];
        assert_eq!(labels(&series), ["hit", "miss"]);
        let both = [line("shm", "Os", 8, "near"), line("tcp", "Os", 8, "near"), line("tcp", "Or", 8, "near")];
        assert_eq!(labels(&both), ["shm Os", "tcp Os", "tcp Or"]);
        let mut waits = [line("shm", "", 8, "near"), line("shm", "", 8, "near")];
        waits[1].wait = "block".into();
        assert_eq!(labels(&waits), ["shm poll", "shm block"]);
    }

    #[test]
    fn auto_looks_as_shm_does_unless_both_are_there() {
        let look_of = |layers: &[&str]| {
            let lines: Vec<_> = layers.iter().map(|layer| line(layer, "", 8, "near")).collect();
            let refs: Vec<&Measurement> = lines.iter().collect();
            curves(&refs, Along::Size, |l| l.p50).iter().map(|curve| curve.look).collect::<Vec<_>>()
        };
        assert_eq!(look_of(&["auto", "tcp"]), look_of(&["shm", "tcp"]));
        let three = look_of(&["auto", "shm", "tcp"]);
        assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    }

    #[test]
    fn the_rarer_placement_is_a_curve_aside() {
        let lines = [line("shm", "", 8, "far"), line("shm", "", 8, "near"), line("shm", "", 64, "near")];
        let refs: Vec<&Measurement> = lines.iter().collect();
        let curves = curves(&refs, Along::Size, |l| l.p50);
        assert_eq!((curves[0].label.as_str(), curves[0].aside, curves[0].spots.len()), ("shm", false, 2));
        assert_eq!((curves[1].label.as_str(), curves[1].aside), ("shm (far cores)", true));
        assert_eq!(curves[0].look, curves[1].look);
    }

    #[test]
    fn a_later_measurement_replaces_the_earlier() {
        let mut lines = [line("shm", "", 8, "near"), line("shm", "", 8, "near")];
        lines[1].p50 = Some(7.0);
        let refs: Vec<&Measurement> = lines.iter().collect();
        let curves = curves(&refs, Along::Size, |l| l.p50);
        assert_eq!((curves.len(), curves[0].spots.len(), curves[0].spots[0].y), (1, 1, 7.0));
    }
}
