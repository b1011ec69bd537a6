//! Remote procedure calls: the stubs of rpcgen on libtirpc, made on the way (SOVIA, section 5.4 and figure 10).

use std::fs;

use viaduct_results::schema::Line;
use viaduct_results::table::Better;

use super::{Ground, Programs, RunWay, Subject, Upgraded, free_port, table, turns};
use crate::error::{Error, Result};
use crate::rivals::child::failed;

/// Arguments: none, then so many bytes, as in the figure.
const SIZES: [&str; 7] = ["void", "4", "64", "256", "1024", "2048", "4096"];

const FILES: [(&str, &str); 3] = [
    ("calls.x", include_str!("../../rpc/calls.x")),
    ("server.c", include_str!("../../rpc/server.c")),
    ("client.c", include_str!("../../rpc/client.c")),
];

const HEADERS: &str = "/usr/include/tirpc";

pub(super) fn run(ground: &Ground, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<Line>> {
    build(ground)?;
    let (server, client) = (ground.folder.join("server"), ground.folder.join("client"));
    let mut servers = Vec::new();
    for way in RunWay::ALL {
        let port = free_port()?;
        servers.push((way, port, ground.server(way, &server, &[port.to_string()], port)?));
    }
    let count = if ground.quick { "2000" } else { "10000" };
    let mut subjects = Vec::new();
    for size in SIZES {
        for (way, port, _) in &servers {
            let words = [port.to_string(), count.to_owned(), size.to_owned()];
            let (way, client) = (*way, &client);
            let upgraded = Upgraded::default();
            let count = upgraded.clone();
            let run = move || parse(&ground.counted(way, client, &words, &count)?);
            subjects.push(Subject {
                row: way.row().to_owned(),
                column: if size == "void" { size.to_owned() } else { format!("{size} bytes") },
                unit: "us",
                better: Better::Less,
                against: way.against(),
                upgraded,
                run: Box::new(run),
            });
        }
    }
    let table = table(Programs::Rpc, ground);
    let mut lines = turns(&table, ground.rounds, &mut subjects, progress);
    for (row, value) in [("TCP on cLAN, 2003", 149.0), ("SOVIA on cLAN, 2003", 35.0)] {
        lines.push(table.cell(row, "void", "us", Better::Less).from_paper("SOVIA, section 5.4", value));
    }
    Ok(lines)
}

/// Makes service and client in the folder.
fn build(ground: &Ground) -> Result<()> {
    let (rpcgen, gcc) = (ground.need("rpcgen", "rpcsvc-proto")?, ground.need("gcc", "gcc libc6-dev")?);
    if !std::path::Path::new(HEADERS).exists() {
        return Err(Error::usage("libtirpc has no headers here", "apt-get install libtirpc-dev"));
    }
    let at = |name: &str| ground.folder.join(name).display().to_string();
    for (name, text) in FILES {
        fs::write(at(name), text).map_err(Error::os(format!("writing {name}")))?;
    }
    // It looks for its input where it is, and names it in what it writes.
    let make = |kind: &str, name: &str| {
        let script = format!(
            "cd '{}' && exec '{}' -C {kind} -o {name} calls.x",
            ground.folder.display(),
            rpcgen.display()
        );
        ground.client(RunWay::Tcp, "/bin/sh".as_ref(), &["-c".into(), script])
    };
    for (kind, name) in [("-h", "calls.h"), ("-c", "xdr.c"), ("-l", "stubs.c"), ("-m", "dispatch.c")] {
        make(kind, name)?;
    }
    for (program, part) in [("server", "dispatch.c"), ("client", "stubs.c")] {
        let mut words: Vec<String> = ["-O2", "-w", "-I", HEADERS, "-o"].map(Into::into).into();
        words.extend([program, &format!("{program}.c"), part, "xdr.c"].map(at));
        words.push("-ltirpc".into());
        ground.client(RunWay::Tcp, &gcc, &words)?;
    }
    Ok(())
}

/// The line `result NUMBER`: microseconds a call.
fn parse(said: &str) -> Result<f64> {
    let number = said.lines().find_map(|line| line.strip_prefix("result ")?.trim().parse().ok());
    number.ok_or_else(|| failed("the client", "printed no number"))
}
