//! Single values beside each other, each on its own row: where there is no axis to draw a curve along.

use std::fmt::Write;

use super::chart::Dots;
use super::scale::Scale;
use super::svg::{WIDTH, marker, open, value};
use super::text::{digits, escape};

const LEFT: f64 = 230.0;
const RIGHT: f64 = 80.0;
const ROW: f64 = 26.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 50.0;

/// Draws the rows with their intervals as whiskers.
pub(crate) fn draw(dots: &Dots) -> String {
    let bottom = TOP + ROW * dots.rows.len() as f64;
    let values: Vec<f64> = dots
        .rows
        .iter()
        .flat_map(|(_, spot)| [Some(spot.y), spot.interval.map(|i| i[0]), spot.interval.map(|i| i[1])])
        .flatten()
        .collect();
    let x = Scale::values(&values, LEFT, WIDTH - RIGHT);
    let mut svg = open(bottom + BOTTOM, &format!("{}, {}", dots.title, dots.axis.label));
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = write!(svg, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            dots.axis.show(tick)
        );
    }
    for (index, (label, spot)) in dots.rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<text class=\"row\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            y + 4.0,
            escape(label)
        );
        if let Some([low, high]) = spot.interval {
            let (low, high) = (x.at(low), x.at(high));
            let _ = writeln!(svg, "<path class=\"whisker c0\" d=\"M{low:.1} {y:.1}H{high:.1}\"/>");
        }
        let words = format!("{label}: {}", value(spot, &dots.axis.label));
        marker(&mut svg, 0, spot.noisy, (x.at(spot.y), y), &words);
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 10.0,
            y + 4.0,
            digits(spot.y)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        bottom + 40.0,
        escape(&dots.axis.label)
    );
    svg
}
