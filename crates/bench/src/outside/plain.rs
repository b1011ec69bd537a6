//! A C program of ours with plain `send` and `recv`, unmodified as all others: many small messages, a stream of large ones,
//! and connections that are made for one message each, also where the other end is not under Viaduct.

use std::fs;
use std::path::PathBuf;

use super::apps::{App, Load};
use super::{Ground, RunWay};
use crate::error::{Error, Result};
use crate::rivals::child::Running;

const SOURCE: &str = include_str!("../../plain/stream.c");

/// Both ends in one way, and (for connections that stay on TCP) a server that is as it is.
pub(super) const APPS: [App; 2] = [
    App { name: "8 B messages", start: start_server, loads },
    App { name: "short connections, plain peer", start: start_plain_server, loads: loads_of_plain_peer },
];

fn start_server(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    ground.server(way, &build(ground)?, &["serve".to_owned(), port.to_string()], port)
}

fn start_plain_server(ground: &Ground, _client: RunWay, port: u16) -> Result<Running> {
    start_server(ground, RunWay::Tcp, port)
}

fn build(ground: &Ground) -> Result<PathBuf> {
    let (program, source) = (ground.folder.join("stream"), ground.folder.join("stream.c"));
    if !program.exists() {
        let gcc = ground.need("gcc", "gcc libc6-dev")?;
        fs::write(&source, SOURCE).map_err(Error::os("writing stream.c"))?;
        let words =
            ["-O2", "-o", &program.display().to_string(), &source.display().to_string()].map(Into::into);
        ground.client(RunWay::Tcp, &gcc, &words)?;
    }
    Ok(program)
}

fn load(ground: &Ground, port: u16, column: &str, unit: &'static str, words: [&str; 3]) -> Result<Load> {
    let [kind, size, count] = words;
    let stays = kind == "connections";
    Ok(Load {
        column: column.to_owned(),
        unit,
        tool: build(ground)?,
        words: [&port.to_string(), kind, size, count].map(Into::into).into(),
        parse: result,
        stays,
    })
}

fn loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let [small, large, short] = counts(ground);
    Ok(vec![
        load(ground, port, "8 B messages", "messages/s", ["messages", "8", small])?,
        load(ground, port, "64 KiB messages", "messages/s", ["messages", "65536", large])?,
        load(ground, port, "short connections", "connections/s", ["connections", "8", short])?,
    ])
}

fn loads_of_plain_peer(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let [.., short] = counts(ground);
    let words = ["connections", "8", short];
    Ok(vec![load(ground, port, "short connections, plain peer", "connections/s", words)?])
}

fn counts(ground: &Ground) -> [&'static str; 3] {
    if ground.quick { ["100000", "2000", "1000"] } else { ["1000000", "20000", "5000"] }
}

/// The line `result NUMBER`.
fn result(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.strip_prefix("result ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_behind_its_word() {
        assert_eq!((result("a\nresult 12.5\n"), result("12.5")), (Some(12.5), None));
    }
}
