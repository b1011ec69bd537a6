//! Stacked bars (thesis, figure 3.5): each value as the shares of its parts, so that times a hundredfold apart can stand
//! below each other; the sum is written at the end.

use std::fmt::Write;

use super::chart::Bars;
use super::svg::{LOOKS, WIDTH, open};
use super::text::{digits, escape};

const LEFT: f64 = 170.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 32.0;
const TOP: f64 = 10.0;

/// Draws the bars.
pub(crate) fn draw(bars: &Bars) -> String {
    let bottom = TOP + ROW * bars.rows.len() as f64;
    let width = WIDTH - LEFT - RIGHT;
    let mut svg = open(bottom + 30.0, "shares of each value");
    for (index, bar) in bars.rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let past = if bar.past { " past-row" } else { "" };
        let _ = writeln!(
            svg,
            "<text class=\"row{past}\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            y + 19.0,
            escape(&bar.label)
        );
        let sum: f64 = bar.values.iter().map(|v| v.max(0.0)).sum();
        let mut at = LEFT;
        for (part, value) in bar.values.iter().enumerate() {
            let long = if sum > 0.0 { value.max(0.0) / sum * width } else { 0.0 };
            // Two pixels of ground between neighbours.
            let _ = write!(
                svg,
                "<rect class=\"part c{}{past}\" x=\"{at:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" rx=\"2\">",
                part % LOOKS,
                y + 4.0,
                (long - 2.0).max(0.0),
                ROW - 9.0
            );
            let _ = writeln!(
                svg,
                "<title>{} {}: {} {}</title></rect>",
                escape(&bar.label),
                escape(&bars.parts[part]),
                digits(*value),
                escape(&bars.unit)
            );
            if long > 44.0 {
                let _ = writeln!(
                    svg,
                    "<text class=\"inside\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    at + long / 2.0 - 1.0,
                    y + 19.5,
                    digits(*value)
                );
            }
            at += long;
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\">{} {}</text>",
            WIDTH - RIGHT + 8.0,
            y + 19.0,
            digits(bar.values.iter().sum()),
            escape(&bars.unit)
        );
    }
    for share in [0, 25, 50, 75, 100] {
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{share} %</text>",
            LEFT + width * f64::from(share) / 100.0,
            bottom + 18.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
