//! What a figure says, in sentences made from its numbers.

use super::chart::{Axis, Chart, Curve, Dots, Past};
use super::text::{digits, list, times};

/// Two values whose factor is below this are called the same where no interval says more.
const SAME: f64 = 1.1;

/// Sentences about the curves of a chart.
pub(crate) fn tell(chart: &Chart, unit: &str, lower_is_better: bool) -> String {
    let Some(first) = chart.curves.first() else { return String::new() };
    let mut sentences = vec![ends(first, &chart.x, unit)];
    if let Some(shape) = shape(first, &chart.x) {
        sentences.push(shape);
    }
    sentences.extend(against(chart, first, lower_is_better));
    sentences.extend(past(&chart.past, first, unit, lower_is_better));
    sentences.extend(noise(chart.curves.iter().flat_map(|curve| curve.spots.iter().map(|s| s.noisy))));
    sentences.join(" ")
}

/// Sentences about single values.
pub(crate) fn tell_dots(dots: &Dots, unit: &str) -> String {
    let by_value =
        |a: &&(String, super::chart::Spot), b: &&(String, super::chart::Spot)| a.1.y.total_cmp(&b.1.y);
    let (Some(low), Some(high)) = (dots.rows.iter().min_by(by_value), dots.rows.iter().max_by(by_value))
    else {
        return String::new();
    };
    let mut sentences = vec![if dots.rows.len() == 1 {
        format!("{}: {} {unit}.", low.0, digits(low.1.y))
    } else {
        let range = format!("{} {unit} ({})", digits(low.1.y), low.0);
        format!("The values go from {range} to {} {unit} ({}).", digits(high.1.y), high.0)
    }];
    sentences.extend(noise(dots.rows.iter().map(|(_, spot)| spot.noisy)));
    sentences.join(" ")
}

/// The first and the last value of a curve.
fn ends(curve: &Curve, axis: &Axis, unit: &str) -> String {
    let value = |at: usize| {
        let spot = &curve.spots[at];
        format!("{} {unit} at {}", digits(spot.y), place(axis, spot.x))
    };
    match curve.spots.len() {
        1 => format!("{}: {}.", curve.label, value(0)),
        n => format!("{}: {}, {}.", curve.label, value(0), value(n - 1)),
    }
}

/// A place in words: `4K bytes`, `1 connection`.
fn place(axis: &Axis, x: f64) -> String {
    let number = axis.show(x);
    let name = if axis.bytes { "bytes" } else { axis.label.as_str() };
    let name = if x == 1.0 { name.strip_suffix('s').unwrap_or(name) } else { name };
    format!("{number} {name}")
}

/// Whether a curve rises, falls or stays where it is.
fn shape(curve: &Curve, axis: &Axis) -> Option<String> {
    if axis.bytes || curve.spots.len() < 2 {
        return None;
    }
    let (first, last) = (curve.spots.first()?, curve.spots.last()?);
    let apart = first.interval.zip(last.interval).map(|(a, b)| a[1] < b[0] || b[1] < a[0]);
    let factor = last.y / first.y;
    if !factor.is_finite() || factor <= 0.0 {
        return None;
    }
    let same = apart == Some(false) || (factor < SAME && factor > 1.0 / SAME);
    Some(if same {
        "Between these ends there is no sure difference.".into()
    } else if factor > 1.0 {
        format!("That is {} as much at the far end.", times(factor))
    } else {
        format!("That is {} less at the far end.", times(1.0 / factor))
    })
}

/// The other curves against the first: at its first place if sizes vary, for there the layers differ most, else at its
/// last, for there the axis has done its work.
fn against(chart: &Chart, first: &Curve, lower_is_better: bool) -> Option<String> {
    let here = if chart.x.bytes { first.spots.first()? } else { first.spots.last()? };
    let (mut better, mut worse, mut same) = (Vec::new(), Vec::new(), Vec::new());
    // That a percentile lies above the median is no news.
    let tail = |curve: &Curve| curve.label.ends_with("p99") || curve.label.ends_with("p99.9");
    for curve in chart.curves.iter().skip(1).filter(|curve| !curve.aside && !tail(curve)) {
        let Some(there) = curve.at(here.x).filter(|there| here.y > 0.0 && there.y > 0.0) else { continue };
        let factor = if lower_is_better { there.y / here.y } else { here.y / there.y };
        let overlap = here.interval.zip(there.interval).is_some_and(|(a, b)| a[0] <= b[1] && b[0] <= a[1]);
        if overlap {
            same.push(curve.label.clone());
        } else if factor >= 1.0 {
            worse.push(format!("{} by {}", curve.label, times(factor)));
        } else {
            better.push(format!("{} by {}", curve.label, times(1.0 / factor)));
        }
    }
    let mut parts = Vec::new();
    for (words, verb) in
        [(worse, "it is better than"), (better, "it is behind"), (same, "there is no sure difference from")]
    {
        if !words.is_empty() {
            parts.push(format!("{verb} {}", list(&words)));
        }
    }
    (!parts.is_empty()).then(|| format!("At {} {}.", place(&chart.x, here.x), parts.join("; ")))
}

/// The values of a paper against the first curve, where both have the place (or the paper gives one for all).
fn past(past: &[Past], first: &Curve, unit: &str, lower_is_better: bool) -> Option<String> {
    let mut words = Vec::new();
    for value in past.iter().filter(|value| value.y > 0.0) {
        // The nearest place within a factor of two: 4 bytes then, 8 bytes now.
        let near =
            |spot: &&super::chart::Spot| value.x.is_none_or(|x| spot.x / x <= 2.0 && x / spot.x <= 2.0);
        let best = first.spots.iter().filter(near).map(|spot| spot.y);
        let here =
            if lower_is_better { best.fold(f64::INFINITY, f64::min) } else { best.fold(0.0, f64::max) };
        let factor = if lower_is_better { value.y / here } else { here / value.y };
        if factor.is_finite() && factor > 1.0 {
            let name = value.label.split(", ").next().unwrap_or(&value.label);
            let much = if lower_is_better { "as much" } else { "less" };
            words.push(format!("{name} had {} {unit} ({} {much})", digits(value.y), times(factor)));
        }
    }
    (!words.is_empty()).then(|| format!("In the paper, between two machines, {}.", list(&words)))
}

fn noise(marks: impl Iterator<Item = bool>) -> Option<String> {
    let marks: Vec<bool> = marks.collect();
    let noisy = marks.iter().filter(|noisy| **noisy).count();
    let verb = if noisy == 1 { "is" } else { "are" };
    (noisy > 0).then(|| format!("{noisy} of {} points {verb} noisy.", marks.len()))
}
