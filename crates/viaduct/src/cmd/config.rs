//! `viaduct config`: every setting with its value, its default, where the value comes from and what it is there for.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::FormatArgs;
use crate::output::table;
use crate::{knobs, settings};

pub(crate) fn run(args: &FormatArgs) -> Result<ExitCode> {
    let row = |row: settings::Row| {
        let origin = if knobs::variable(row.env).is_some() { "environment" } else { "default" };
        let settings::Row { name, value, default, env, purpose, help } = row;
        [name, &value, &default, origin, env, purpose.name(), help].map(str::to_owned)
    };
    let rows = settings::all()?.into_iter().map(row).collect();
    let heads = ["knob", "value", "default", "origin", "variable", "for", "what it does"];
    table::print(args.format, heads, rows)?;
    Ok(ExitCode::SUCCESS)
}
