//! A figure for any case, known or not: the axis of the case or the size along x, a curve for each layer and series;
//! single values as dots.

use super::chart::{Axis, Chart, Dots, Figure, Grid, Picture};
use super::select::{Along, MOST, curves};
use super::text::{digits, short};
use super::{Catalogue, grid, words};
use crate::schema::Measurement;

/// The figure of one case.
pub(crate) fn figure(case: &str, lines: &[&Measurement], catalogue: &Catalogue) -> Figure {
    let known = catalogue.case(case);
    let mut figure = Figure {
        id: format!("case-{}", id(case)),
        title: known.map_or_else(|| format!("The case `{case}`"), |known| format!("{case}: {}", known.about)),
        command: format!("viaduct bench {case} -o results.jsonl"),
        ..Figure::default()
    };
    if let Some(known) = known {
        figure.words.push(format!("Timed: {}.", known.timed));
    }
    if case == "load" {
        // Of an open loop the tail is the point.
        let tails = percentiles(lines);
        fill(&mut figure, &tails.iter().collect::<Vec<_>>(), catalogue);
    } else {
        fill(&mut figure, lines, catalogue);
    }
    extras(&mut figure, lines);
    figure
}

/// Every line three times: its median and two percentiles, as series.
fn percentiles(lines: &[&Measurement]) -> Vec<Measurement> {
    let of = |line: &&Measurement| {
        let name =
            |what: &str| if line.series.is_empty() { what.into() } else { format!("{} {what}", line.series) };
        [("p50", line.p50), ("p99", line.p99), ("p99.9", line.p999)].map(|(what, value)| Measurement {
            series: name(what),
            p50: value,
            ci95: line.ci95.filter(|_| what == "p50"),
            ..(**line).clone()
        })
    };
    lines.iter().flat_map(of).collect()
}

/// A table of the further numbers that a case gives: CPU time, rates of misses and the like.
pub(crate) fn extras(figure: &mut Figure, lines: &[&Measurement]) {
    let mut names: Vec<&str> = lines.iter().flat_map(|line| line.extra.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let Some(first) = lines.first().filter(|_| !names.is_empty()) else { return };
    let axis = lines.iter().find(|line| line.x.is_some()).map_or("", |line| line.axis.as_str());
    let mut heads = vec!["layer".to_owned(), "series".into(), "size".into()];
    heads.extend((!axis.is_empty()).then(|| axis.to_owned()));
    heads.push(first.unit.clone());
    heads.extend(names.iter().map(|name| (*name).to_owned()));
    let mut sorted: Vec<&&Measurement> = lines.iter().filter(|line| !line.extra.is_empty()).collect();
    let key = |line: &Measurement| (line.layer.clone(), line.series.clone(), line.size);
    sorted.sort_by(|a, b| key(a).cmp(&key(b)).then(a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0))));
    let row = |line: &&Measurement| {
        let number = |value: Option<f64>| value.map_or_else(|| "–".into(), digits);
        let mut row = vec![line.layer.clone(), line.series.clone(), crate::size::show(line.size)];
        row.extend((!axis.is_empty()).then(|| line.x.map_or_else(|| "–".into(), short)));
        row.push(number(line.p50));
        row.extend(names.iter().map(|name| number(line.extra.get(*name).copied())));
        row
    };
    let rows = sorted.into_iter().map(row).collect();
    figure.grids.push(Grid { heads, rows });
}

/// A table of what could not be measured, and why; each cause once for a curve and a size.
pub(crate) fn missing(figure: &mut Figure, lines: &[&Measurement]) {
    if lines.is_empty() {
        return;
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let why = line.missing.clone().unwrap_or_default();
        let place = line.x.map_or_else(|| "–".into(), |x| format!("{} {}", short(x), line.axis));
        let row = vec![line.layer.clone(), line.series.clone(), crate::size::show(line.size), place, why];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let heads = ["layer", "series", "size", "at", "missing"].map(Into::into).into();
    figure.grids.push(Grid { heads, rows });
}

/// Adds pictures, tables and words for `lines`.
pub(crate) fn fill(figure: &mut Figure, lines: &[&Measurement], known: &Catalogue) {
    let (on_axis, plain): (Vec<&Measurement>, Vec<&Measurement>) =
        lines.iter().partition(|line| line.x.is_some() && several(lines, line));
    // What is counted along x differs from axis to axis.
    let mut axes: Vec<&str> = on_axis.iter().map(|line| line.axis.as_str()).collect();
    axes.sort_unstable();
    axes.dedup();
    let of = |axis| on_axis.iter().copied().filter(|line| line.axis == axis).collect();
    let groups = axes.into_iter().map(|axis| (of(axis), Along::Axis)).chain([(plain, Along::Size)]);
    for (group, along) in groups {
        for (title, part) in split(group, along) {
            picture(figure, &title, &part, along, known);
        }
    }
}

/// The series of this line has several places on the axis, so that a curve can be drawn.
fn several(lines: &[&Measurement], line: &Measurement) -> bool {
    let like = |l: &&&Measurement| l.series == line.series && l.layer == line.layer && l.size == line.size;
    lines.iter().filter(like).any(|other| other.x != line.x)
}

/// One chart, or one for each size or series if there are too many curves for one.
fn split(lines: Vec<&Measurement>, along: Along) -> Vec<(String, Vec<&Measurement>)> {
    if lines.is_empty() {
        return Vec::new();
    }
    // Single values stand below each other, however many they are.
    let all = curves(&lines, along, |line| line.p50);
    let single = all.iter().all(|curve| curve.spots.len() == 1);
    if single || all.iter().filter(|curve| !curve.aside).count() <= MOST {
        return vec![(String::new(), lines)];
    }
    let by: fn(&Measurement) -> String = if along == Along::Axis && distinct(&lines, size_of) > 1 {
        size_of
    } else if distinct(&lines, |l| l.series.clone()) > 1 {
        |l| l.series.clone()
    } else {
        |l| l.layer.clone()
    };
    let mut parts: Vec<(String, Vec<&Measurement>)> = Vec::new();
    for line in lines {
        let name = by(line);
        match parts.iter_mut().find(|(title, _)| *title == name) {
            Some((_, part)) => part.push(line),
            None => parts.push((name, vec![line])),
        }
    }
    parts
}

fn size_of(line: &Measurement) -> String {
    format!("{} bytes", crate::size::show(line.size))
}

fn distinct(lines: &[&Measurement], of: fn(&Measurement) -> String) -> usize {
    let mut names: Vec<String> = lines.iter().map(|line| of(line)).collect();
    names.sort();
    names.dedup();
    names.len()
}

/// A chart if there is something along x, else dots.
fn picture(figure: &mut Figure, title: &str, lines: &[&Measurement], along: Along, known: &Catalogue) {
    let Some(first) = lines.first() else { return };
    let unit = first.unit.clone();
    let all = curves(lines, along, |line| line.p50);
    let places = all.iter().map(|curve| curve.spots.len()).max().unwrap_or(0);
    let lower_is_better = known.lower_is_better(first);
    if places > 1 {
        let x = if along == Along::Size { Axis::size() } else { Axis::new(first.axis.replace('_', " ")) };
        let chart = Chart { title: title.into(), x, y: Axis::new(&unit), curves: all, past: Vec::new() };
        let said = words::tell(&chart, &unit, lower_is_better);
        figure.words.push(if title.is_empty() { said } else { format!("{title}: {said}") });
        figure.grids.push(grid::of_chart(&chart));
        figure.pictures.push(Picture::Chart(chart));
        return;
    }
    let sizes = lines.iter().any(|line| line.size != first.size);
    let rows: Vec<_> = all
        .into_iter()
        .filter_map(|curve| {
            let spot = curve.spots.into_iter().next()?;
            let bytes = format!(", {} B", crate::size::show(spot.x as usize));
            let label = if sizes && along == Along::Size { curve.label + &bytes } else { curve.label };
            Some((label, spot))
        })
        .collect();
    let title = if title.is_empty() { "what".into() } else { title.to_owned() };
    let dots = Dots { title, axis: Axis::new(&unit), rows };
    figure.words.push(words::tell_dots(&dots, &unit));
    figure.grids.push(grid::of_dots(&dots));
    figure.pictures.push(Picture::Dots(dots));
}

/// A name that may stand in an `id`.
pub(crate) fn id(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}
