//! The page: facts about the machine on top, then the comparison if there is one, then the figures.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::chart::{Bars, Chart, Figure, Picture};
use super::compare::{Comparison, Verdict};
use super::read::Results;
use super::text::{escape, list};
use super::{Catalogue, bars, compare, dots, figures, grid, svg};
use crate::schema::Host;

/// The whole page for `results`, with `comparison` if two files were compared; `known` has words about cases and tables.
pub fn page(results: &Results, comparison: Option<&Comparison>, known: &Catalogue) -> String {
    let figures = figures::all(results, known);
    let mut html = String::new();
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Viaduct: benchmark report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Viaduct: benchmark report</h1>\n"
    );
    html += &facts(results);
    html += READING;
    html += &contents(&figures, comparison);
    if let Some(comparison) = comparison {
        html += &compared(comparison);
    }
    for figure in &figures {
        html += &figure_html(figure);
    }
    html + "</main>\n</body>\n</html>\n"
}

const STYLE: &str = include_str!("style.css");

/// How to read the rest.
const READING: &str = "\
<p>Every value is a median over fresh starts of the second process (over slices if there were few), with its 95 % \
confidence interval: a band or whisker in the charts, brackets in the tables. A hollow spot, or <abbr \
title=\"noisy\">~</abbr> in a table, is <em>noisy</em>: the machine was disturbed, or this placement of the two cores was \
seen too rarely. Dashed curves were measured in another core placement than most. Grey values are the papers' own, from \
their text: of the year 2000, between two machines over a network, while the values of this report are between processes \
of one machine. They show the scale, not a race.</p>\n";

/// Machine, program and settings, each once.
fn facts(results: &Results) -> String {
    let mut facts: Vec<(&str, BTreeSet<String>)> = Vec::new();
    let mut add = |name, value: String| match facts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, values)) => drop(values.insert(value)),
        None => facts.push((name, BTreeSet::from([value]))),
    };
    let all = results.measurements.iter().map(|line| (&line.host, &line.commit));
    for (host, commit) in all.chain(results.cells.iter().map(|cell| (&cell.host, &cell.commit))) {
        let kind = if host.virtualised { "virtual" } else { "real" };
        let gigabytes = host.memory as f64 / 1e9;
        add("machine", format!("{}, {} cores ({kind}), {gigabytes:.0} GB", host.cpu, host.cores));
        add("kernel", format!("Linux {}", host.kernel));
        add("governor", host.governor.clone().unwrap_or_else(|| "not visible".into()));
        add("commit", commit.clone().unwrap_or_else(|| "not recorded by the build".into()));
    }
    for line in &results.measurements {
        add("cores used", format!("{} and {}", line.cpus[0], line.cpus[1]));
        add("core placement", line.placement.clone());
        for (name, value) in &line.config {
            let known = ["launches", "seed", "send", "repost"].iter().find(|known| *known == name);
            if let Some(name) = known {
                add(name, value.clone());
            }
        }
    }
    let load = |host: &Host| host.load;
    let loads = results.measurements.iter().map(|line| load(&line.host));
    let most = loads.chain(results.cells.iter().map(|cell| load(&cell.host))).fold(0.0, f64::max);
    let measured =
        results.measurements.len() + results.cells.iter().filter(|cell| cell.source.is_none()).count();
    let noisy = results.measurements.iter().map(|line| line.noisy);
    let noisy = noisy.chain(results.cells.iter().map(|cell| cell.noisy)).filter(|noisy| *noisy).count();
    let valid = results.measurements.iter().map(|line| line.valid);
    let invalid = valid.chain(results.cells.iter().map(|cell| cell.valid)).filter(|valid| !valid).count();
    let mut html = String::from("<dl>\n");
    let _ = writeln!(html, "<dt>results</dt><dd>{}</dd>", escape(&results.name));
    for (name, values) in &facts {
        let values: Vec<String> = values.iter().cloned().collect();
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&list(&values)));
    }
    let _ = writeln!(
        html,
        "<dt>points</dt><dd>{measured} measured, {noisy} noisy, {invalid} without a number because the data were wrong; load of \
         the machine up to {most:.1}</dd>\n</dl>"
    );
    html
}

fn contents(figures: &[Figure], comparison: Option<&Comparison>) -> String {
    let mut html = String::from("<nav><ol>\n");
    if comparison.is_some() {
        html += "<li><a href=\"#comparison\">Comparison</a></li>\n";
    }
    for figure in figures {
        let missing = if figure.has_data() { "" } else { " class=\"missing\"" };
        let _ = writeln!(html, "<li{missing}><a href=\"#{}\">{}</a></li>", figure.id, escape(&name(figure)));
    }
    html + "</ol></nav>\n"
}

fn name(figure: &Figure) -> String {
    if figure.number.is_empty() {
        figure.title.clone()
    } else {
        format!("{}: {}", figure.number, figure.title)
    }
}

fn compared(comparison: &Comparison) -> String {
    let mut html = String::from("<section id=\"comparison\">\n<h2>Comparison</h2>\n");
    let _ = writeln!(
        html,
        "<p>{} (old) against {} (new): {} points in both, {} better and {} worse for sure (their 95 % intervals do not \
         overlap), {} not sure because one of the two is noisy or has no interval, {} points in one file only. Without any \
         change about one point in two hundred would be marked.</p>",
        escape(&comparison.old),
        escape(&comparison.new),
        comparison.changes.len(),
        comparison.count(Verdict::Better),
        comparison.count(Verdict::Worse),
        comparison.count(Verdict::Unknown),
        comparison.unmatched
    );
    if comparison.other_host {
        html += "<p><strong>The files come from different processors: the differences are theirs first of all.</strong></p>\n";
    }
    let table = grid::html(&compare::grid(comparison));
    // The verdict is a word; colour only helps to find it.
    let table = table.replace("<td>better</td>", "<td class=\"better\">better</td>");
    html += &table.replace("<td>worse</td>", "<td class=\"worse\">worse</td>");
    html + "</section>\n"
}

fn figure_html(figure: &Figure) -> String {
    let mut html = format!("<section id=\"{}\">\n<h2>{}</h2>\n", figure.id, escape(&name(figure)));
    for paragraph in figure.words.iter().filter(|text| !text.is_empty()) {
        let _ = writeln!(html, "<p>{}</p>", escape(paragraph));
    }
    if !figure.has_data() {
        let _ = writeln!(
            html,
            "<p class=\"missing\">No data. Measure with: <code>{}</code></p>",
            escape(&figure.command)
        );
    }
    // Each table under its chart; what has no chart comes last, and so does one table for several charts.
    let (mut grids, each) = (figure.grids.iter(), figure.grids.len() >= figure.pictures.len());
    for picture in &figure.pictures {
        html += "<figure>\n";
        html += &match picture {
            Picture::Chart(chart) => heading(&chart.title) + &svg::draw(chart) + &chart_legend(chart),
            Picture::Dots(values) => dots::draw(values),
            Picture::Bars(parts) => bars::draw(parts) + &bars_legend(parts),
        };
        html += "</figure>\n";
        if each {
            html.extend(grids.next().map(grid::html));
        }
    }
    html.extend(grids.map(grid::html));
    html + "</section>\n"
}

fn heading(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<h3>{}</h3>\n", escape(title)) }
}

fn chart_legend(chart: &Chart) -> String {
    let mut html = String::from("<figcaption>");
    for curve in &chart.curves {
        let _ =
            write!(html, "<span>{}{}</span> ", svg::legend(curve.look, curve.aside), escape(&curve.label));
    }
    html + "</figcaption>\n"
}

fn bars_legend(bars: &Bars) -> String {
    let mut html = String::from("<figcaption>");
    for (index, part) in bars.parts.iter().enumerate() {
        let _ = write!(
            html,
            "<span><svg class=\"key\" viewBox=\"0 0 12 12\" width=\"12\" height=\"12\" aria-hidden=\"true\"><rect \
             class=\"part c{}\" width=\"12\" height=\"12\" rx=\"2\"/></svg>{}</span> ",
            index % svg::LOOKS,
            escape(part)
        );
    }
    html + "</figcaption>\n"
}
