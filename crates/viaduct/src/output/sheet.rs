//! Tables of a benchmark: every line goes to `-o` and to JSON at once; people get rows and columns at the end.

use std::io::{self, Write};

use anyhow::Result;
use viaduct_results::report;
use viaduct_results::schema::{Cell, Line};
use viaduct_results::table::Pivot;

use crate::cli::{BenchArgs, BenchFormat};
use crate::output::sink::Sink;
use crate::output::table;

pub(crate) struct Sheet {
    sink: Sink,
    format: BenchFormat,
    cells: Vec<Cell>,
}

impl Sheet {
    /// As the arguments say; an existing file is begun anew.
    pub(crate) fn open(args: &BenchArgs) -> Result<Sheet> {
        Ok(Sheet { sink: Sink::open(args)?, format: args.format, cells: Vec::new() })
    }

    pub(crate) fn put(&mut self, line: Line) -> io::Result<()> {
        self.sink.put(&line)?;
        if let Line::Cell(cell) = line {
            self.cells.push(*cell);
        }
        Ok(())
    }

    /// Prints what was not printed while it was measured, table by table.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            BenchFormat::Json => Ok(()),
            BenchFormat::Csv => {
                writeln!(out, "{}", table::csv_row(HEADS))?;
                self.cells.iter().try_for_each(|cell| writeln!(out, "{}", table::csv_row(flat(cell))))
            }
            BenchFormat::Table | BenchFormat::Osu => {
                let mut names: Vec<&str> = Vec::new();
                for cell in &self.cells {
                    if !names.contains(&cell.table.as_str()) {
                        names.push(&cell.table);
                    }
                }
                for (index, name) in names.iter().enumerate() {
                    let cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.table == *name).collect();
                    writeln!(out, "{}{}", if index == 0 { "" } else { "\n" }, draw(name, &cells))?;
                }
                Ok(())
            }
        }
    }
}

const HEADS: [&str; 8] = ["table", "row", "column", "value", "unit", "low", "high", "missing"];

fn flat(cell: &Cell) -> [String; 8] {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let low = number(cell.ci95.map(|[low, _]| low));
    let high = number(cell.ci95.map(|[_, high]| high));
    let missing = cell.missing.clone().unwrap_or_default();
    let words = [&cell.table, &cell.row, &cell.column].map(Clone::clone);
    let [table, row, column] = words;
    [table, row, column, number(cell.value), cell.unit.clone(), low, high, missing]
}

/// More columns than this do not fit beside each other; such a table is turned around.
const WIDE: usize = 6;

pub(crate) fn draw(name: &str, cells: &[&Cell]) -> String {
    let pivot = Pivot::of(cells);
    if pivot.columns.len() > WIDE {
        return draw_turned(name, &pivot);
    }
    let columns = || pivot.columns.iter().copied();
    let heads: Vec<String> = std::iter::once(name.to_owned()).chain(columns().map(Pivot::head)).collect();
    let row = |row: &&str| -> Vec<String> {
        let cells = columns().map(|column| pivot.at(row, column).map_or_else(String::new, report::show));
        std::iter::once((*row).to_owned()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = pivot.rows.iter().map(row).collect();
    table::draw(&heads, &rows, &(1..heads.len()).collect::<Vec<_>>())
}

fn draw_turned(name: &str, pivot: &Pivot<'_>) -> String {
    let heads: Vec<String> =
        std::iter::once(name).chain(pivot.rows.iter().copied()).map(str::to_owned).collect();
    let line = |&column: &(&str, &str)| -> Vec<String> {
        let cells = pivot.rows.iter().map(|row| pivot.at(row, column).map_or_else(String::new, report::show));
        std::iter::once(Pivot::head(column)).chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = pivot.columns.iter().map(line).collect();
    table::draw(&heads, &lines, &(1..heads.len()).collect::<Vec<_>>())
}
