//! Where JSON lines go while a benchmark runs: standard output, a file, both or neither.
//!
//! Every line is handed to the system in one piece as soon as it is known, so that a user that interrupts a long run keeps
//! what was measured until then.

use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};
use viaduct_results::schema::Line;

use crate::cli::{BenchArgs, BenchFormat};

#[derive(Default)]
pub(crate) struct Sink {
    print: bool,
    file: Option<File>,
}

impl Sink {
    /// As the arguments say; an existing file is begun anew.
    pub(crate) fn open(args: &BenchArgs) -> Result<Sink> {
        let create = |path: &std::path::PathBuf| {
            File::create(path).with_context(|| format!("writing results to {}", path.display()))
        };
        let file = args.output.as_ref().map(create).transpose()?;
        Ok(Sink { print: args.format == BenchFormat::Json, file })
    }

    pub(crate) fn put(&mut self, line: &Line) -> io::Result<()> {
        if !self.print && self.file.is_none() {
            return Ok(());
        }
        let text = format!("{}\n", line.to_json());
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
}
