//! Rows of text as a table for people, as JSON lines or as CSV for programs.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use serde_json::{Map, Value};

use crate::cli::Format;

/// Prints rows of text in the wanted format; `heads` name the columns.
pub(crate) fn print<const N: usize>(
    format: Format,
    heads: [&str; N],
    rows: Vec<[String; N]>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Table => writeln!(out, "{}", draw(&heads, &rows, &[])),
        Format::Json => rows.iter().try_for_each(|row| {
            let object: Map<String, Value> = heads
                .iter()
                .zip(row)
                .map(|(head, cell)| (head.replace(' ', "_"), cell.clone().into()))
                .collect();
            writeln!(out, "{}", Value::Object(object))
        }),
        Format::Csv => {
            writeln!(out, "{}", csv_row(heads))?;
            rows.iter().try_for_each(|row| writeln!(out, "{}", csv_row(row)))
        }
    }
}

/// A table without a frame, columns in `right` aligned to the right.
pub(crate) fn draw<H, R>(heads: &[H], rows: &[R], right: &[usize]) -> String
where
    H: ToString,
    R: AsRef<[String]>,
{
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // Some terminals say that they have no columns at all.
    if table.width().is_some_and(|columns| columns < NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(heads.iter().map(ToString::to_string));
    table.add_rows(rows.iter().map(AsRef::as_ref));
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A terminal with fewer columns does not know its width.
const NARROWEST: u16 = 20;

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// One line of CSV; a cell is quoted if it must be.
pub(crate) fn csv_row<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let quoted = cells.into_iter().map(|cell| {
        let cell = cell.as_ref();
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.into()
        }
    });
    quoted.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_quoted_when_needed() {
        assert_eq!(csv_row(["a", "b,c", "d\"e"]), "a,\"b,c\",\"d\"\"e\"");
    }

    #[test]
    fn tables_have_their_heads_and_no_trailing_space() {
        let text = draw(&["size", "p50"], &[["8".into(), "1.5".into()]], &[1]);
        assert!(text.contains("size") && text.contains("1.5"));
        assert!(text.lines().all(|line| line == line.trim_end()));
    }
}
