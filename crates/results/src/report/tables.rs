//! Tables of the report: a grid for each, and a picture for each column that has several values.

use super::chart::{Axis, Bar, Bars, Dots, Figure, Grid, Picture, Spot};
use super::read::Results;
use super::text::digits;
use super::{Catalogue, generic, words};
use crate::schema::{Better, Cell};
use crate::table::Pivot;

/// More pictures than this below one table would hide the next.
const MOST: usize = 6;

/// All tables: those that this program makes, then those that only the file knows.
pub(crate) fn all(results: &Results, known: &Catalogue) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for info in &known.tables {
        let mut figure = new(info.name, info.title);
        figure.words.push(info.words.into());
        figure.command = info.command.into();
        if let Some((_, parts)) = known.stacks.iter().find(|(table, _)| *table == info.name) {
            stack(&mut figure, &results.table(info.name), parts);
        }
        fill(&mut figure, &results.table(info.name));
        figures.push(figure);
    }
    let names = results.tables().into_iter();
    for name in names.filter(|name| known.tables.iter().all(|info| info.name != *name)) {
        let mut figure = new(name, &format!("The table `{name}`"));
        fill(&mut figure, &results.table(name));
        figures.push(figure);
    }
    figures
}

fn new(name: &str, title: &str) -> Figure {
    Figure { id: format!("table-{}", generic::id(name)), title: title.into(), ..Figure::default() }
}

fn fill(figure: &mut Figure, cells: &[&Cell]) {
    if cells.is_empty() {
        return;
    }
    let pivot = Pivot::of(cells);
    for column in &pivot.columns {
        let rows: Vec<(String, Spot)> =
            pivot.rows.iter().filter_map(|row| spot(pivot.at(row, *column)?)).collect();
        if rows.len() < 2 || figure.pictures.len() == MOST {
            continue;
        }
        let better = pivot.rows.iter().find_map(|row| Some(pivot.at(row, *column)?.better));
        let direction = match better {
            Some(Better::Less) => " Less is better.",
            Some(Better::More) => " More is better.",
            _ => "",
        };
        let axis = Axis::new(Pivot::head(*column));
        let dots = Dots { title: column.0.into(), axis, rows };
        let said = words::tell_dots(&dots, column.1);
        figure.words.push(format!("{}: {said}{direction}", column.0));
        figure.pictures.push(Picture::Dots(dots));
    }
    figure.grids.push(grid(&pivot));
}

/// Draws the rows that have all of the parts as bars of these.
fn stack(figure: &mut Figure, cells: &[&Cell], parts: &[&str]) {
    let value = |row: &str, part: &str| {
        let cell = cells.iter().find(|cell| cell.row == row && cell.column == part)?;
        cell.value.filter(|_| cell.valid)
    };
    let pivot = Pivot::of(cells);
    let bar = |row: &&str| {
        let values = parts.iter().map(|part| value(row, part)).collect::<Option<Vec<f64>>>()?;
        Some(Bar { label: (*row).to_owned(), values, past: false })
    };
    let rows: Vec<Bar> = pivot.rows.iter().filter_map(bar).collect();
    let unit = cells.iter().find(|cell| parts.contains(&&*cell.column)).map(|cell| cell.unit.clone());
    if let Some(unit) = unit.filter(|_| rows.len() > 1) {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        figure.words.push(format!("The bars are, from left to right: {}.", parts.join(", ")));
        figure.pictures.push(Picture::Bars(Bars { unit, parts, rows }));
    }
}

/// A measured value or a paper's, with its name.
fn spot(cell: &Cell) -> Option<(String, Spot)> {
    let label = match &cell.source {
        Some(source) => format!("{} ({source})", cell.row),
        None => cell.row.clone(),
    };
    Some((label, Spot { x: 0.0, y: cell.value?, interval: cell.ci95, noisy: cell.noisy }))
}

fn grid(pivot: &Pivot<'_>) -> Grid {
    let heads = std::iter::once(String::new()).chain(pivot.columns.iter().map(|column| Pivot::head(*column)));
    let row = |row: &&str| {
        let cells = pivot.columns.iter().map(|column| pivot.at(row, *column).map_or("–".into(), show));
        std::iter::once((*row).to_owned()).chain(cells).collect()
    };
    Grid { heads: heads.collect(), rows: pivot.rows.iter().map(row).collect() }
}

/// A cell in words: `4.10 [4.00, 4.20] ~`, or why it is empty.
pub fn show(cell: &Cell) -> String {
    let Some(value) = cell.value.filter(|_| cell.valid) else {
        return cell.missing.clone().unwrap_or_else(|| "–".into());
    };
    let interval =
        cell.ci95.map_or_else(String::new, |[low, high]| format!(" [{}, {}]", digits(low), digits(high)));
    let source = cell.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
    format!("{}{interval}{source}{}", digits(value), if cell.noisy { " ~" } else { "" })
}
