//! `viaduct info`: what this machine offers, and why something is missing.

use std::process::ExitCode;

use anyhow::Result;
use viaduct_os::budget::Budget;
use viaduct_os::segment::Segment;
use viaduct_os::{barrier, copy, cpu, runtime_dir};
use viaduct_providers::{KNOWN, Known, ofi};
use viaduct_results::host;
use viaduct_via::Nic;

use crate::cli::FormatArgs;
use crate::knobs;
use crate::output::table;

pub(crate) fn run(args: &FormatArgs) -> Result<ExitCode> {
    let rows = machine().into_iter().chain(mechanisms()).chain(providers()).chain(libfabric());
    table::print(args.format, ["what", "value", "remark"], rows.collect())?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the answer.
type Row = [String; 3];

fn row(what: &str, value: impl Into<String>, remark: impl Into<String>) -> Row {
    [what.into(), value.into(), remark.into()]
}

/// What kind of machine it is.
pub(crate) fn machine() -> Vec<Row> {
    let facts = host::facts();
    let list: Vec<String> = cpu::allowed().iter().map(ToString::to_string).collect();
    let kind = if facts.virtualised { "virtual: its cores may move, benchmarks probe for it" } else { "" };
    let governor = facts.governor.unwrap_or_else(|| "not visible".into());
    vec![
        row("version", env!("CARGO_PKG_VERSION"), "Viaduct"),
        row("kernel", facts.kernel, "Linux"),
        row("processor", facts.cpu, kind),
        row("cores", facts.cores.to_string(), format!("this process may use {}", list.join(", "))),
        row("memory", format!("{} MB", facts.memory / 1_000_000), format!("load {:.2}", facts.load)),
        row("frequency governor", governor, ""),
    ]
}

/// What the layers below need from the kernel, tried out.
fn mechanisms() -> Vec<Row> {
    let memory = match Segment::create("viaduct-info", 4096, Budget::process()) {
        Ok(_) => row("shared memory", "yes", format!("budget {} MB", Budget::process().limit() / 1_000_000)),
        Err(error) => row("shared memory", "no", error.to_string()),
    };
    barrier::register();
    let fence = match barrier::asymmetric() {
        true => row("membarrier", "yes", "the fast side of a doorbell needs no fence"),
        false => row("membarrier", "no", "every doorbell pays a fence"),
    };
    let vectors = match copy::has_avx2() {
        true => row("copy routine", "AVX2", "chosen at run time"),
        false => row("copy routine", "portable", "the processor has no AVX2"),
    };
    let folder = match runtime_dir::runtime_dir(None) {
        Ok(path) => row("run-time folder", path.display().to_string(), "connections are set up here"),
        Err(error) => row("run-time folder", "no", error.to_string()),
    };
    vec![memory, fence, ptrace_scope(), vectors, folder]
}

/// Every provider of this build, opened to see whether it works.
fn providers() -> Vec<Row> {
    let config = knobs::from_environment();
    let try_out = |Known { name, about, .. }: &Known| {
        let what = format!("provider {name}");
        let opened = match &config {
            Ok(config) => {
                viaduct_providers::open(name, config).and_then(Nic::open).map_err(|e| e.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(nic) => {
                let limit = nic.attributes().max_transfer_size;
                row(&what, "yes", format!("{about}; messages up to {limit} bytes"))
            }
            Err(error) => row(&what, "no", error),
        }
    };
    KNOWN.iter().map(try_out).collect()
}

/// What libfabric has here, and what of it is used.
fn libfabric() -> Vec<Row> {
    let found = match knobs::from_environment() {
        Ok(config) => ofi::find(&config.ofi).map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![row("libfabric", "no", error)],
    };
    let (major, minor) = found.version;
    let mut rows =
        vec![row("libfabric", format!("{major}.{minor}"), "loaded at run time, by the provider ofi")];
    for offer in found.offers {
        let has = match (offer.rma, offer.atomics) {
            (true, true) => "messages, RDMA and atomics",
            (true, false) => "messages and RDMA",
            (false, true) => "messages and atomics",
            (false, false) => "messages",
        };
        let remark = format!("has {has}; used for messages, RDMA and atomics are emulated by them");
        rows.push(row(&format!("libfabric provider {}", offer.name), format!("ofi:{}", offer.name), remark));
    }
    for name in found.datagrams {
        let remark = "not used: it has reliable datagrams alone (FI_EP_RDM), ofi needs connected endpoints";
        rows.push(row(&format!("libfabric provider {name}"), "no", remark));
    }
    rows
}

/// Copies straight from another process' private memory depend on this switch.
fn ptrace_scope() -> Row {
    let what = "process_vm copies";
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").as_deref().map(str::trim) {
        Ok("0") | Err(_) => row(what, "yes", "between processes of one user"),
        Ok(scope) => {
            row(what, "perhaps", format!("kernel.yama.ptrace_scope is {scope}; tried at every connection"))
        }
    }
}
