//! Tables: lines for values that are not measured between two processes, and the same lines as rows and columns.

use std::collections::BTreeMap;

use crate::host;
pub use crate::schema::Better;
use crate::schema::{Cell, Host, Line, VERSION, commit};
use crate::stats::Summary;

/// What all lines of one table have in common.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    host: Host,
    config: BTreeMap<String, String>,
}

impl Table {
    /// A table of values that are measured on this machine, under `config`: the settings that could change them.
    pub fn new(name: impl Into<String>, config: BTreeMap<String, String>) -> Table {
        Table { name: name.into(), host: host::facts(), config }
    }

    /// The place of one value.
    pub fn cell(
        &self,
        row: impl Into<String>,
        column: impl Into<String>,
        unit: impl Into<String>,
        better: Better,
    ) -> Place {
        Place(Cell {
            schema: VERSION,
            table: self.name.clone(),
            row: row.into(),
            column: column.into(),
            value: None,
            unit: unit.into(),
            ci95: None,
            n: 0,
            better,
            valid: true,
            noisy: false,
            missing: None,
            source: None,
            host: self.host.clone(),
            commit: commit(),
            config: self.config.clone(),
        })
    }
}

/// A cell without its value yet.
#[derive(Clone, Debug)]
pub struct Place(Cell);

impl Place {
    /// Median and interval of `values`, one for each repetition; the cell says that it has none if there are none.
    pub fn of(self, values: &[f64]) -> Line {
        match Summary::of(values) {
            Some(summary) => self.summary(&summary),
            None => self.missing("no repetition succeeded"),
        }
    }

    /// Median and interval that are known already.
    pub fn summary(mut self, summary: &Summary) -> Line {
        self.0.ci95 = (summary.n > 1).then_some(summary.ci95);
        self.0.n = summary.n;
        self.with(summary.p50)
    }

    /// A single value, without an interval.
    pub fn one(mut self, value: f64) -> Line {
        self.0.n = 1;
        self.with(value)
    }

    /// There is no value, for this reason.
    pub fn missing(mut self, why: impl Into<String>) -> Line {
        self.0.missing = Some(why.into());
        self.line()
    }

    /// The result was wrong, so that no value is given.
    pub fn wrong(mut self, why: impl Into<String>) -> Line {
        self.0.valid = false;
        self.missing(why)
    }

    /// The value that a paper gives at `place`.
    pub fn from_paper(mut self, place: impl Into<String>, value: f64) -> Line {
        self.0.source = Some(place.into());
        self.with(value)
    }

    fn with(mut self, value: f64) -> Line {
        // JSON has no other numbers.
        if !value.is_finite() {
            return self.missing("the value is not a number");
        }
        self.0.value = Some(value);
        self.line()
    }

    fn line(self) -> Line {
        Line::Cell(Box::new(self.0))
    }
}

/// The cells of one table as people read it.
#[derive(Clone, Debug, Default)]
pub struct Pivot<'a> {
    /// Names of the rows, in the order in which they first occur.
    pub rows: Vec<&'a str>,
    /// Columns by name and unit, in the order in which they first occur.
    pub columns: Vec<(&'a str, &'a str)>,
    cells: Vec<&'a Cell>,
}

impl<'a> Pivot<'a> {
    /// Arranges `cells`, which are of one table.
    pub fn of(cells: &[&'a Cell]) -> Pivot<'a> {
        let mut pivot = Pivot::default();
        for cell in cells {
            if !pivot.rows.contains(&cell.row.as_str()) {
                pivot.rows.push(&cell.row);
            }
            let column = (cell.column.as_str(), cell.unit.as_str());
            if !pivot.columns.contains(&column) {
                pivot.columns.push(column);
            }
        }
        pivot.cells = cells.to_vec();
        pivot
    }

    /// The cell in a row and a column. If it was measured twice, the later one.
    pub fn at(&self, row: &str, column: (&str, &str)) -> Option<&'a Cell> {
        let like = |cell: &&&Cell| cell.row == row && (cell.column.as_str(), cell.unit.as_str()) == column;
        self.cells.iter().rev().find(like).copied()
    }

    /// What stands above a column: `time (ms)`.
    pub fn head(column: (&str, &str)) -> String {
        match column {
            (name, "") => name.to_owned(),
            (name, unit) => format!("{name} ({unit})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(line: Line) -> Cell {
        match line {
            Line::Cell(cell) => *cell,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn repetitions_give_a_median_with_its_interval() {
        let table = Table::new("t", BTreeMap::from([("ranks".into(), "4".into())]));
        let place = || table.cell("a", "time", "ms", Better::Less);
        let many = cell(place().of(&[3.0, 1.0, 2.0]));
        assert_eq!((many.value, many.ci95, many.n), (Some(2.0), Some([1.0, 3.0]), 3));
        assert_eq!(many.config["ranks"], "4");
        let one = cell(place().one(5.0));
        assert_eq!((one.value, one.ci95, one.n), (Some(5.0), None, 1));
    }

    #[test]
    fn a_cell_without_a_value_says_why() {
        let table = Table::new("t", BTreeMap::new());
        let place = || table.cell("a", "time", "ms", Better::Less);
        for line in [place().of(&[]), place().one(f64::NAN), place().missing("x"), place().wrong("y")] {
            let cell = cell(line);
            assert!(cell.value.is_none() && cell.missing.is_some(), "{cell:?}");
        }
        assert!(!cell(place().wrong("y")).valid);
    }

    #[test]
    fn rows_and_columns_keep_their_order_and_the_later_value_counts() {
        let table = Table::new("t", BTreeMap::new());
        let put =
            |row: &str, column: &str, value| cell(table.cell(row, column, "s", Better::Less).one(value));
        let cells = [put("b", "y", 1.0), put("a", "x", 2.0), put("b", "y", 3.0)];
        let pivot = Pivot::of(&cells.iter().collect::<Vec<_>>());
        assert_eq!((&pivot.rows[..], &pivot.columns[..]), (&["b", "a"][..], &[("y", "s"), ("x", "s")][..]));
        assert_eq!(pivot.at("b", ("y", "s")).and_then(|cell| cell.value), Some(3.0));
        assert!(pivot.at("a", ("y", "s")).is_none());
        assert_eq!((Pivot::head(("y", "s")), Pivot::head(("n", ""))), ("y (s)".into(), "n".into()));
    }
}
