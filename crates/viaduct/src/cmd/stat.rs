//! `viaduct stat`: counters of every Viaduct process on this host that this user may look at.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use viaduct_via::counters::read::{self, SlotCounters};

use crate::cli::{Format, StatArgs};
use crate::output::table;

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let mut slots = match args.pid {
        Some(pid) => read::read_process(pid),
        None => read::scan(),
    };
    if let Some(job) = &args.job {
        slots.retain(|slot| slot.job.as_ref() == Some(job));
    }
    if slots.is_empty() && args.format == Format::Table {
        writeln!(io::stderr(), "no Viaduct process found; only those of this user are visible")?;
    }
    match args.format {
        Format::Json => slots.iter().try_for_each(|slot| writeln!(io::stdout(), "{}", object(slot)))?,
        // Most counters of most processes are 0: people see the others.
        Format::Table => table::print(Format::Table, HEADS, rows(&slots, false))?,
        Format::Csv => table::print(Format::Csv, HEADS, rows(&slots, true))?,
    }
    Ok(ExitCode::SUCCESS)
}

const HEADS: [&str; 8] = ["pid", "command", "job", "rank", "slot", "layer", "counter", "value"];

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
