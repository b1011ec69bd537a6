//! Results in the columns of the OSU micro-benchmarks, for scripts that read those: comments start with `#`, then size
//! and value.
//!
//! OSU measures one library a run. We may have measured several layers, so each has a block with its own heading; where
//! a case has an axis of its own, that stands in the place of the size.

use std::io::{self, Write};

use viaduct_bench::Case;
use viaduct_results::schema::{Line, Measurement};
use viaduct_results::size;

use crate::output::results;

/// Prints all measurements of a case.
pub(crate) fn print(case: &Case, lines: &[Line]) -> io::Result<()> {
    let (measurements, _) = results::split(lines);
    write!(io::stdout().lock(), "{}", draw(case.name, &measurements))
}

/// What tells one block from the next.
type Block<'a> = (&'a str, &'a str, &'a str, Option<usize>);

fn draw(case: &str, lines: &[&Measurement]) -> String {
    let mut text = String::new();
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in lines {
        if !blocks.contains(&block(line)) {
            blocks.push(block(line));
        }
    }
    for key in blocks {
        let mut rows: Vec<_> =
            lines.iter().filter(|line| block(line) == key && line.valid && line.missing.is_none()).collect();
        rows.sort_by(|a, b| place(a).total_cmp(&place(b)));
        let Some(first) = rows.first() else { continue };
        let (layer, series, placement, bytes) = key;
        let curve = if series.is_empty() { String::new() } else { format!(", {series}") };
        let bytes = bytes.map_or_else(String::new, |bytes| format!(", {} bytes", size::show(bytes)));
        text += &format!("# Viaduct {case}: {layer}{curve}{bytes} (cores {placement})\n");
        let heading = heading(first);
        text += &format!("# {:<8}{:>20}\n", axis(first), heading);
        for row in &rows {
            let value = row.p50.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
            text += &format!("{:<10}{value:>20}\n", place(row));
        }
        text.push('\n');
    }
    text
}

fn block(line: &Measurement) -> Block<'_> {
    (&line.layer, &line.series, &line.placement, line.x.map(|_| line.size))
}

fn place(line: &Measurement) -> f64 {
    line.x.unwrap_or(line.size as f64)
}

fn axis(line: &Measurement) -> String {
    match (line.x, line.axis.as_str()) {
        (Some(_), axis) if !axis.is_empty() => axis.replace(' ', "_"),
        _ => "Size".into(),
    }
}

/// OSU's own words for the units that it has.
fn heading(line: &Measurement) -> String {
    match line.unit.as_str() {
        "us" => "Latency (us)".into(),
        "MB/s" => "Bandwidth (MB/s)".into(),
        unit => format!("Value ({unit})"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A line with these fields, and ordinary others.
    pub(crate) fn line(json: &str) -> Measurement {
        let whole = format!(
            r#"{{"schema":1,"case":"latency","layer":"shm","provider":null,"unit":"us","ci95":null,"n":6,"launches":1,
            "valid":true,"noisy":false,"min":null,"p90":null,"p99":null,"p999":null,"max":null,"samples":9,"batch":1,
            "ns_per_message":null,"placement":"near","probe_ns":null,"cpus":[0,1],"wait":"poll","window":1,
            "connections":1,"dropped":0,"timer_ns":20,"steal":0,"gap":0,"host":{{"kernel":"","cpu":"","cores":2,
            "virtualised":false,"memory":0,"governor":null,"load":0}},"commit":null,"config":{{}},{json}}}"#
        );
        serde_json::from_str(&whole).expect("a whole line")
    }

    #[test]
    fn sizes_and_values_stand_in_two_columns() {
        let lines = [line(r#""size":64,"p50":0.5"#), line(r#""size":8,"p50":0.128"#)];
        let text = draw("latency", &lines.iter().collect::<Vec<_>>());
        assert!(text.contains("# Size            Latency (us)\n"), "{text}");
        let data: Vec<Vec<&str>> =
            text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(data[..2], [["8", "0.13"], ["64", "0.50"]]);
    }

    #[test]
    fn an_axis_stands_in_the_place_of_the_size() {
        let lines = [
            line(r#""size":16,"p50":1.0,"axis":"connections","x":1024.0"#),
            line(r#""size":16,"p50":1.0,"axis":"connections","x":1.0"#),
        ];
        let text = draw("connections", &lines.iter().collect::<Vec<_>>());
        assert!(text.contains("shm, 16 bytes (cores near)\n# connections"), "{text}");
        assert!(text.contains("\n1024 ") && !text.contains("\n16 "), "{text}");
    }

    #[test]
    fn a_layer_that_was_invalid_has_no_block() {
        let bad = Measurement { valid: false, ..line(r#""size":8,"p50":null"#) };
        assert_eq!(draw("latency", &[&bad]), "");
    }
}
