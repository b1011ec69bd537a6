//! Tables under the charts: the same numbers, to the digit.

use super::chart::{Chart, Dots, Grid, Spot};
use super::text::{digits, escape};

/// One row for each place, one column for each curve.
pub(crate) fn of_chart(chart: &Chart) -> Grid {
    let mut places: Vec<f64> = chart.curves.iter().flat_map(|c| c.spots.iter().map(|s| s.x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let first = if chart.x.bytes { "size".into() } else { chart.x.label.clone() };
    let heads = std::iter::once(first).chain(chart.curves.iter().map(|c| c.label.clone())).collect();
    let row = |place: &f64| {
        let cells = chart.curves.iter().map(|curve| curve.at(*place).map_or_else(|| "–".into(), cell));
        std::iter::once(chart.x.show(*place)).chain(cells).collect()
    };
    Grid { heads, rows: places.iter().map(row).collect() }
}

/// One row for each value.
pub(crate) fn of_dots(dots: &Dots) -> Grid {
    let heads = vec![dots.title.clone(), dots.axis.label.clone()];
    Grid { heads, rows: dots.rows.iter().map(|(label, spot)| vec![label.clone(), cell(spot)]).collect() }
}

fn cell(spot: &Spot) -> String {
    let interval =
        spot.interval.map_or_else(String::new, |[low, high]| format!(" [{}, {}]", digits(low), digits(high)));
    format!("{}{interval}{}", digits(spot.y), if spot.noisy { " ~" } else { "" })
}

/// As HTML, in a box that scrolls if the table is wider than the page.
pub(crate) fn html(grid: &Grid) -> String {
    let mut text = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
    for head in &grid.heads {
        text += &format!("<th>{}</th>", escape(head));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in &grid.rows {
        text += "<tr>";
        for (index, cell) in row.iter().enumerate() {
            text += &if index == 0 { format!("<th>{}</th>", escape(cell)) } else { number(cell) };
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

/// The interval smaller than the value, the mark of noise in its own style.
fn number(cell: &str) -> String {
    let (cell, noisy) = cell.strip_suffix(" ~").map_or((cell, false), |rest| (rest, true));
    let mark = if noisy { " <abbr title=\"noisy\">~</abbr>" } else { "" };
    match cell.split_once(" [") {
        Some((value, interval)) => {
            format!("<td>{} <small>[{}</small>{mark}</td>", escape(value), escape(interval))
        }
        None => format!("<td>{}{mark}</td>", escape(cell)),
    }
}
