//! Result files as `bench -o` and `--format json` write them: one JSON object a line, schema version 1.
//!
//! A wrong file is refused as a whole, with the number of the line: half a report would look like a whole one.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::schema::{Cell, Line, Measurement, Pair, VERSION};

/// What one result file holds.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The file, as the report names it.
    pub name: String,
    /// Measured values in the order of the file.
    pub measurements: Vec<Measurement>,
    /// Ratios in the order of the file.
    pub pairs: Vec<Pair>,
    /// Values of tables in the order of the file.
    pub cells: Vec<Cell>,
}

impl Results {
    /// Both together, under both names.
    pub fn join(mut self, other: Results) -> Results {
        self.name = if self.name.is_empty() { other.name } else { format!("{}, {}", self.name, other.name) };
        self.measurements.extend(other.measurements);
        self.pairs.extend(other.pairs);
        self.cells.extend(other.cells);
        self
    }

    /// Valid measurements of `case`.
    pub(crate) fn case(&self, case: &str) -> Vec<&Measurement> {
        self.measurements
            .iter()
            .filter(|line| line.case == case && line.valid && line.p50.is_some())
            .collect()
    }

    /// Measurements of `case` that could not be made, because a layer lacks something.
    pub(crate) fn missing(&self, case: &str) -> Vec<&Measurement> {
        self.measurements.iter().filter(|line| line.case == case && line.missing.is_some()).collect()
    }

    /// Cells of `table`.
    pub(crate) fn table(&self, table: &str) -> Vec<&Cell> {
        self.cells.iter().filter(|cell| cell.table == table).collect()
    }

    /// Names of all tables, in the order of the file.
    pub(crate) fn tables(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.table.as_str()) {
                names.push(&cell.table);
            }
        }
        names
    }

    /// Names of all cases with a valid measurement, in the order of the file.
    pub(crate) fn cases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in &self.measurements {
            if line.valid && !names.contains(&line.case.as_str()) {
                names.push(&line.case);
            }
        }
        names
    }
}

/// Parses the `text` of the file called `name`.
pub fn read(name: &str, text: &str) -> Result<Results> {
    let mut results = Results { name: name.into(), ..Results::default() };
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match parse(line)
            .map_err(|(what, hint)| Error::new(format!("{name}, line {}: {what}", index + 1), hint))?
        {
            Line::Measurement(measurement) => results.measurements.push(*measurement),
            Line::Pair(pair) => results.pairs.push(pair),
            Line::Cell(cell) => results.cells.push(*cell),
        }
    }
    if results.measurements.is_empty() && results.cells.is_empty() {
        let what = if text.trim().is_empty() { "is empty" } else { "has ratios but no measured value" };
        return Err(Error::new(format!("{name} {what}"), MAKE));
    }
    Ok(results)
}

const MAKE: &str = "result files are made by: viaduct bench all --quick -o results.jsonl";

fn parse(line: &str) -> std::result::Result<Line, (String, String)> {
    let value: Value =
        serde_json::from_str(line).map_err(|error| (format!("not JSON ({error})"), MAKE.to_owned()))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            let what = format!("schema version {version}, this program reads {VERSION}");
            return Err((what, "measure again, or use the version of viaduct that wrote the file".into()));
        }
        None => return Err(("a JSON value without a schema number".into(), MAKE.to_owned())),
    }
    // Read by kind, so that a missing field is named.
    let done = if value.get("ratio").is_some() {
        serde_json::from_value(value).map(Line::Pair)
    } else if value.get("table").is_some() {
        serde_json::from_value(value).map(|cell| Line::Cell(Box::new(cell)))
    } else {
        serde_json::from_value(value).map(|line| Line::Measurement(Box::new(line)))
    };
    done.map_err(|error| (format!("not a result line ({error})"), MAKE.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample;

    fn refused(text: &str) -> (String, String) {
        let error = read("file", text).unwrap_err();
        (error.to_string(), error.hint().to_owned())
    }

    #[test]
    fn a_good_file_is_read_and_blank_lines_are_skipped() {
        let line = Line::Measurement(Box::new(sample())).to_json();
        let results = read("file", &format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!((results.measurements.len(), results.pairs.len()), (2, 0));
        assert_eq!(results.cases(), ["latency"]);
    }

    #[test]
    fn wrong_files_are_refused_with_cause_and_hint() {
        let (cause, hint) = refused("");
        assert!(cause.contains("is empty") && hint.contains("viaduct bench all"), "{cause} {hint}");
        let good = Line::Measurement(Box::new(sample())).to_json();
        let (cause, hint) = refused(&format!("{good}\n# Size  Latency\n"));
        assert!(cause.contains("line 2: not JSON") && hint.contains("viaduct bench"), "{cause} {hint}");
        let (cause, hint) = refused(&good.replace("\"schema\":1", "\"schema\":7"));
        assert!(cause.contains("schema version 7") && hint.contains("measure again"), "{cause} {hint}");
        assert!(refused("{\"a\":1}").0.contains("without a schema"));
        assert!(refused("[1,2]").0.contains("without a schema"));
        assert!(refused("{\"schema\":1,\"case\":\"x\"}").0.contains("missing field"));
        assert!(refused("{\"schema\":1,\"table\":\"x\"}").0.contains("missing field `row`"));
        assert!(refused(&good[..good.len() - 9]).0.contains("line 1: not JSON"));
    }
}
