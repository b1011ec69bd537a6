//! Tables of a benchmark: every line goes to `-o` and to JSON at once; people get rows and columns at the end.

use std::io::{self, Write};

use anyhow::Result;
use viaduct_results::report;
use viaduct_results::schema::{Cell, Line};
use viaduct_results::table::Pivot;

use crate::cli::{BenchArgs, BenchFormat};
use crate::output::results::wrap;
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
                explain(&mut out, &self.cells.iter().collect::<Vec<_>>())
            }
        }
    }
}

/// Writes below tables what their numbers and words mean.
pub(crate) fn explain(out: &mut impl Write, cells: &[&Cell]) -> io::Result<()> {
    let legend = legend(cells);
    if !legend.is_empty() {
        writeln!(out)?;
    }
    legend.iter().flat_map(|line| wrap(line, 96)).try_for_each(|line| writeln!(out, "# {line}"))
}

/// What the numbers and words of tables mean, as far as they are in them.
fn legend(cells: &[&Cell]) -> Vec<&'static str> {
    let any = |test: fn(&Cell) -> bool| cells.iter().copied().any(test);
    let shown = |cell: &Cell| cell.valid && cell.value.is_some();
    let words = [
        (
            any(|cell| cell.ci95.is_some()),
            "value [low, high]: the median of the rounds, and the interval in which it lies in 95 of 100 such runs; a value \
             without an interval is of one round, or a sum",
        ),
        (
            any(|cell| cell.column == "ratio"),
            "ratio: ours divided by theirs, or as the row says, round by round, so that both had the same machine",
        ),
        (
            any(|cell| cell.column.contains("times ") || cell.unit == "times"),
            "times: how many times as good as what is named there; above 1 is better",
        ),
        (!cells.iter().copied().all(shown), "words instead of a number: why there is none"),
        (
            any(|cell| cell.source.is_some()),
            "(in parentheses): the paper that says so; it was not measured here",
        ),
        (any(|cell| cell.noisy), "~: the machine was disturbed; do not build on the value"),
    ];
    words.into_iter().filter_map(|(is_there, words)| is_there.then_some(words)).collect()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use viaduct_results::table::{Better, Table};

    use super::*;

    #[test]
    fn words_stand_under_the_tables_that_have_need_of_them() {
        let table = Table::new("t", BTreeMap::new());
        let of = |lines: Vec<Line>| {
            let cell = |line| if let Line::Cell(cell) = line { Some(*cell) } else { None };
            let cells: Vec<Cell> = lines.into_iter().filter_map(cell).collect();
            legend(&cells.iter().collect::<Vec<_>>())
        };
        let place = |column: &str| table.cell("row", column, "us", Better::Less);
        assert_eq!(of(vec![place("time").one(1.0)]), [""; 0]);
        let begins = |lines: Vec<Line>, begin: &str| {
            let all = of(lines);
            assert!(all.len() == 1 && all[0].starts_with(begin), "{begin}: {all:?}");
        };
        begins(vec![place("time").of(&[1.0, 2.0, 3.0])], "value [low, high]: ");
        begins(vec![place("ratio").one(1.0)], "ratio: ");
        begins(vec![place("get, times tcp").one(1.0)], "times: ");
        begins(vec![place("time").missing("redis is not installed")], "words instead of a number: ");
        begins(vec![place("time").wrong("not sorted")], "words instead of a number: ");
        begins(vec![place("time").from_paper("SOVIA", 1.0)], "(in parentheses): ");
    }
}
