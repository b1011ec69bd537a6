//! `viaduct stat`: counters of every Viaduct process on this host that this user may look at.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use viaduct_via::counters::read::{self, SlotCounters};

use crate::cli::{Format, StatArgs};
use crate::cmd::run;
use crate::output::table;

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let mut slots = match args.pid {
        Some(pid) => read::read_process(pid),
        None => read::scan(),
    };
    if let Some(job) = &args.job {
        slots.retain(|slot| slot.job.as_ref() == Some(job));
    }
    let run = if args.pid.is_none() && args.job.is_none() { run::counts() } else { Vec::new() };
    if slots.is_empty() && run.is_empty() && args.format == Format::Table {
        writeln!(io::stderr(), "no Viaduct process found; only those of this user are visible")?;
    }
    match args.format {
        Format::Json => {
            slots.iter().try_for_each(|slot| writeln!(io::stdout(), "{}", object(slot)))?;
            for (count, what) in &run {
                writeln!(io::stdout(), "{}", json!({ "run": what, "connections": count }))?;
            }
        }
        // Most counters of most processes are 0: people see the others.
        Format::Table => table::print(Format::Table, HEADS, [rows(&slots, false), of_run(&run)].concat())?,
        Format::Csv => table::print(Format::Csv, HEADS, [rows(&slots, true), of_run(&run)].concat())?,
    }
    Ok(ExitCode::SUCCESS)
}

const HEADS: [&str; 8] = ["pid", "command", "job", "rank", "slot", "layer", "counter", "value"];

/// What became of connections of programs under `viaduct run`, and why, as their agent has counted it.
fn of_run(counts: &[(u64, String)]) -> Vec<[String; 8]> {
    let row = |(count, what): &(u64, String)| {
        ["-", "viaduct run", "", "", "-", "run", what, &count.to_string()].map(str::to_owned)
    };
    counts.iter().map(row).collect()
}

fn rows(slots: &[SlotCounters], zeros: bool) -> Vec<[String; 8]> {
    let mut rows = Vec::new();
    for slot in slots {
        for (counter, value) in slot.counts.iter().filter(|(_, value)| zeros || *value > 0) {
            rows.push([
                slot.pid.to_string(),
                slot.command.clone(),
                slot.job.clone().unwrap_or_default(),
                slot.rank.map_or_else(String::new, |rank| rank.to_string()),
                slot.slot.to_string(),
                slot.layer.clone(),
                counter.clone(),
                value.to_string(),
            ]);
        }
    }
    rows
}

fn object(slot: &SlotCounters) -> Value {
    let counters: Map<String, Value> =
        slot.counts.iter().map(|(counter, value)| (counter.clone(), json!(value))).collect();
    let SlotCounters { pid, command, job, rank, slot, layer, .. } = slot;
    json!({
        "pid": pid, "command": command, "job": job, "rank": rank, "slot": slot, "layer": layer, "counters": counters,
    })
}
