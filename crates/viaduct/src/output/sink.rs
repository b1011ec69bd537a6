//! Where JSON lines go while a benchmark runs: standard output, a file, both or neither.
//!
//! Every line is handed to the system in one piece as soon as it is known, so that a user that interrupts a long run keeps
//! what was measured until then. Every line has the settings that are not at their defaults, so that results of different
//! settings can be told apart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};
use viaduct_results::schema::Line;

use crate::cli::{BenchArgs, BenchFormat};
use crate::settings;

#[derive(Default)]
pub(crate) struct Sink {
    print: bool,
    file: Option<File>,
    settings: BTreeMap<String, String>,
}

impl Sink {
    /// As the arguments say; an existing file is begun anew.
    pub(crate) fn open(args: &BenchArgs) -> Result<Sink> {
        let create = |path: &std::path::PathBuf| {
            File::create(path).with_context(|| format!("writing results to {}", path.display()))
        };
        let file = args.output.as_ref().map(create).transpose()?;
        let settings = settings::changed()?;
        Ok(Sink { print: args.format == BenchFormat::Json, file, settings })
    }

    pub(crate) fn put(&mut self, line: &Line) -> io::Result<()> {
        if !self.print && self.file.is_none() {
            return Ok(());
        }
        let text = format!("{}\n", self.with_settings(line.clone()).to_json());
        if let Some(file) = &mut self.file {
            file.write_all(text.as_bytes())?;
        }
        if self.print {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    /// What a line says of the settings itself, as those of one layer that it varies, stays.
    fn with_settings(&self, mut line: Line) -> Line {
        let config = match &mut line {
            Line::Cell(cell) => &mut cell.config,
            Line::Measurement(measured) => &mut measured.config,
            Line::Pair(pair) => &mut pair.config,
        };
        for (name, value) in &self.settings {
            config.entry(name.clone()).or_insert_with(|| value.clone());
        }
        line
    }
}
