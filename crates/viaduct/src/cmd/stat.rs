//! `viaduct stat`: counters of every Viaduct process on this host that this user may look at.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use viaduct_via::counters::{self, Counter, NicCounters};

use crate::cli::{Format, StatArgs};
use crate::output::table;

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let nics = match args.pid {
        Some(pid) => counters::read_process(pid),
        None => counters::scan(),
    };
    if nics.is_empty() && args.format == Format::Table {
        writeln!(io::stderr(), "no Viaduct process found; only those of this user are visible")?;
    }
    match args.format {
        Format::Json => nics.iter().try_for_each(|nic| writeln!(io::stdout(), "{}", object(nic)))?,
        // Most counters of most processes are 0: people see the others.
        Format::Table => table::print(Format::Table, HEADS, rows(&nics, false))?,
        Format::Csv => table::print(Format::Csv, HEADS, rows(&nics, true))?,
    }
    Ok(ExitCode::SUCCESS)
}

const HEADS: [&str; 6] = ["pid", "command", "nic", "provider", "counter", "value"];

fn rows(nics: &[NicCounters], zeros: bool) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for nic in nics {
        for (counter, value) in Counter::ALL.iter().zip(&nic.values).filter(|(_, value)| zeros || **value > 0)
        {
            let (pid, command, number) = (nic.pid.to_string(), nic.command.clone(), nic.nic.to_string());
            rows.push([pid, command, number, nic.provider.clone(), counter.name(), value.to_string()]);
        }
    }
    rows
}

fn object(nic: &NicCounters) -> Value {
    let values = Counter::ALL.iter().zip(&nic.values).map(|(counter, value)| (counter.name(), json!(value)));
    let counters: Map<String, Value> = values.collect();
    json!({ "pid": nic.pid, "command": nic.command, "nic": nic.nic, "provider": nic.provider, "counters": counters })
}
