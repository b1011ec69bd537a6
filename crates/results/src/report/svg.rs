//! Curves as inline SVG: intervals as bands, noisy spots hollow, values of a paper as grey diamonds and dashed lines.
//!
//! Colours are classes (`c0` to `c7`) that the style sheet of the page fills in for light, dark and paper. Each curve
//! has its own shape of spots too, for print in grey.

use std::fmt::Write;

use super::chart::{Chart, Curve, Past, Spot};
use super::scale::Scale;
use super::text::{digits, escape};

pub(crate) const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 52.0;

/// Looks that a curve can have.
pub(crate) const LOOKS: usize = 8;

/// Draws a chart.
pub(crate) fn draw(chart: &Chart) -> String {
    let spots = || chart.curves.iter().flat_map(|curve| &curve.spots);
    let mut places: Vec<f64> =
        spots().map(|spot| spot.x).chain(chart.past.iter().filter_map(|p| p.x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let values: Vec<f64> = spots()
        .flat_map(|spot| [Some(spot.y), spot.interval.map(|i| i[0]), spot.interval.map(|i| i[1])])
        .flatten()
        .chain(chart.past.iter().map(|past| past.y))
        .collect();
    let x = Scale::places(&places, LEFT + 14.0, WIDTH - RIGHT - 14.0);
    let y = Scale::values(&values, HEIGHT - BOTTOM, TOP);
    let mut svg = open(HEIGHT, &format!("{}, {}", chart.title, chart.y.label));
    grid(&mut svg, chart, &x, &y, &places);
    let labels = past_lines(&mut svg, &chart.past, &x, &y);
    for curve in &chart.curves {
        line(&mut svg, curve, &x, &y);
    }
    for curve in &chart.curves {
        for spot in &curve.spots {
            let words = format!("{}, {}: {}", curve.label, chart.x.show(spot.x), value(spot, &chart.y.label));
            marker(&mut svg, curve.look, spot.noisy, (x.at(spot.x), y.at(spot.y)), &words);
        }
    }
    // On top of all lines, or they could not be read.
    svg + &labels + "</svg>\n"
}

/// A small picture for the legend.
pub(crate) fn legend(look: usize, aside: bool) -> String {
    let mut svg = String::from(
        "<svg class=\"key\" viewBox=\"0 0 28 12\" width=\"28\" height=\"12\" aria-hidden=\"true\">",
    );
    let dash = if aside { " aside" } else { "" };
    let _ = write!(svg, "<path class=\"curve c{}{dash}\" d=\"M1 6H27\"/>", look % LOOKS);
    marker(&mut svg, look, false, (14.0, 6.0), "");
    svg.push_str("</svg>");
    svg
}

/// The opening tag; `words` stand for it in a screen reader.
pub(crate) fn open(height: f64, words: &str) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(words.trim_start_matches([',', ' ']))
    )
}

fn grid(svg: &mut String, chart: &Chart, x: &Scale, y: &Scale, places: &[f64]) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in y.ticks() {
        let at = y.at(tick);
        let zero = if tick == 0.0 { " zero" } else { "" };
        let _ = write!(svg, "<path class=\"grid{zero}\" d=\"M{LEFT} {at:.1}H{right}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            chart.y.show(tick)
        );
    }
    let own = x.own_ticks(places, 34.0);
    let ticks = if places.len() <= 16 { own } else { x.ticks() };
    for tick in ticks {
        let at = x.at(tick);
        let _ = write!(svg, "<path class=\"grid\" d=\"M{at:.1} {bottom}v5\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 19.0,
            chart.x.show(tick)
        );
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0,
        escape(&chart.x.label)
    );
    let _ = writeln!(
        svg,
        "<text class=\"name\" transform=\"translate(15 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (TOP + bottom) / 2.0,
        escape(&chart.y.label)
    );
}

/// Band, then line.
fn line(svg: &mut String, curve: &Curve, x: &Scale, y: &Scale) {
    let class = format!("c{}", curve.look % LOOKS);
    let aside = if curve.aside { " aside" } else { "" };
    let edges: Option<Vec<(f64, [f64; 2])>> =
        curve.spots.iter().map(|spot| Some((spot.x, spot.interval?))).collect();
    if let Some(edges) = edges.filter(|edges| edges.len() > 1) {
        let upper = edges.iter().map(|(at, [_, high])| (x.at(*at), y.at(*high)));
        let lower = edges.iter().rev().map(|(at, [low, _])| (x.at(*at), y.at(*low)));
        let _ = writeln!(svg, "<path class=\"band {class}\" d=\"{}Z\"/>", path(upper.chain(lower)));
    }
    if curve.spots.len() > 1 {
        let places = curve.spots.iter().map(|spot| (x.at(spot.x), y.at(spot.y)));
        let _ = writeln!(svg, "<path class=\"curve {class}{aside}\" d=\"{}\"/>", path(places));
    }
    // A band is nothing at a single spot, and thin where the interval is: whiskers show both.
    for (at, [low, high]) in curve.spots.iter().filter_map(|s| Some((s.x, s.interval?))) {
        let (at, low, high) = (x.at(at), y.at(low), y.at(high));
        if (low - high).abs() > 1.0 {
            let _ = writeln!(svg, "<path class=\"whisker {class}\" d=\"M{at:.1} {low:.1}V{high:.1}\"/>");
        }
    }
}

fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (index, (x, y)) in places.enumerate() {
        let _ = write!(text, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    text
}

/// Values of a paper: a diamond at their place, or a dashed line where they hold for all. Returns their labels.
fn past_lines(svg: &mut String, past: &[Past], x: &Scale, y: &Scale) -> String {
    let mut labels: Vec<(f64, f64, &str)> = Vec::new();
    for value in past {
        let at = y.at(value.y);
        match value.x {
            Some(place) => {
                let place = x.at(place);
                let _ = writeln!(
                    svg,
                    "<path class=\"past-spot\" d=\"M{place:.1} {:.1}l5 5l-5 5l-5 -5Z\"/>",
                    at - 5.0
                );
                labels.push((at, place + 9.0, &value.label));
            }
            None => {
                let _ = writeln!(svg, "<path class=\"past-line\" d=\"M{LEFT} {at:.1}H{}\"/>", WIDTH - RIGHT);
                labels.push((at - 9.0, LEFT + 8.0, &value.label));
            }
        }
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut last = f64::NEG_INFINITY;
    let mut text = String::new();
    for (at, place, label) in labels {
        // Labels that would cover each other move down.
        let at = at.max(last + 13.0);
        last = at;
        let _ = writeln!(
            text,
            "<text class=\"past\" x=\"{place:.1}\" y=\"{:.1}\">{}</text>",
            at + 4.0,
            escape(label)
        );
    }
    text
}

/// A spot in the shape of its curve; hollow if noisy. `words` show when the pointer rests on it.
pub(crate) fn marker(svg: &mut String, look: usize, noisy: bool, (x, y): (f64, f64), words: &str) {
    let class = format!("spot c{}{}", look % LOOKS, if noisy { " noisy" } else { "" });
    let shape = match look % LOOKS {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7Z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l4.5 8h-9Z", y - 5.0),
        3 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5Z", y - 5.0),
        4 => format!("M{x:.1} {:.1}l-4.5 -8h9Z", y + 5.0),
        5 => format!("M{:.1} {:.1}h9v5h-9Z", x - 4.5, y - 2.5),
        6 => format!("M{:.1} {:.1}h5v9h-5Z", x - 2.5, y - 4.5),
        _ => format!("M{:.1} {:.1}l4 -3l4 3l-2 5h-4Z", x - 4.0, y - 0.5),
    };
    let _ = write!(svg, "<path class=\"{class}\" d=\"{shape}\">");
    if !words.is_empty() {
        let _ = write!(svg, "<title>{}</title>", escape(words));
    }
    svg.push_str("</path>\n");
}

/// A value with its interval, as a tip.
pub(crate) fn value(spot: &Spot, unit: &str) -> String {
    let interval =
        spot.interval.map_or_else(String::new, |[low, high]| format!(" [{}, {}]", digits(low), digits(high)));
    format!("{}{interval} {unit}{}", digits(spot.y), if spot.noisy { ", noisy" } else { "" })
}
