//! File transfer: Debian's vsftpd, its sandbox off, and curl that writes to the null device (SOVIA, section 5.3 and table I).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use viaduct_results::schema::Line;
use viaduct_results::table::Better;

use super::{Ground, Programs, RunWay, Subject, Upgraded, free_port, table, turns};
use crate::error::{Error, Result};
use crate::rivals::child::failed;

/// The paper's files, in bytes.
const FILES: [(u64, &str); 2] = [(19_090_223, "19,090,223 bytes"), (145_864_380, "145,864,380 bytes")];
/// What the paper gives for them, in Mbit/s.
const PAPER: [(&str, [f64; 2]); 3] = [
    ("TCP on cLAN, 2003", [262.0, 254.0]),
    ("SOVIA on cLAN, 2003", [573.0, 532.0]),
    ("local copy, 2003", [611.0, 538.0]),
];

pub(super) fn run(ground: &Ground, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<Line>> {
    let (vsftpd, curl) = (ground.need("vsftpd", "vsftpd")?, ground.need("curl", "curl")?);
    for (size, _) in FILES {
        make_file(&ground.folder.join(size.to_string()), size)?;
    }
    let mut servers = Vec::new();
    for sendfile in [false, true] {
        for way in [RunWay::Tcp, RunWay::Viaduct] {
            let port = free_port()?;
            let conf = ground.folder.join(format!("vsftpd-{port}.conf"));
            fs::write(&conf, settings(&ground.folder, port, sendfile))
                .map_err(Error::os("writing settings of vsftpd"))?;
            let server = ground.server(way, &vsftpd, &[conf.display().to_string()], port)?;
            servers.push((way, sendfile, port, server));
        }
    }
    let mut subjects = Vec::new();
    for (size, column) in FILES {
        for (way, sendfile, port, _) in &servers {
            let words: Vec<String> = [
                "-sS",
                "--noproxy",
                "*",
                "-o",
                "/dev/null",
                "-w",
                "%{size_download} %{time_pretransfer} %{time_total}",
                &format!("ftp://127.0.0.1:{port}/{size}"),
            ]
            .map(Into::into)
            .into();
            let (way, curl) = (*way, &curl);
            let upgraded = Upgraded::default();
            let count = upgraded.clone();
            let run = move || rate(size, &ground.counted(way, curl, &words, &count)?);
            subjects.push(Subject {
                row: row(way, *sendfile).to_owned(),
                column: column.to_owned(),
                unit: "MB/s",
                better: Better::More,
                against: against(way, *sendfile),
                upgraded,
                run: Box::new(run),
            });
        }
        subjects.push(Subject {
            row: "local copy".to_owned(),
            column: column.to_owned(),
            unit: "MB/s",
            better: Better::More,
            against: &[],
            upgraded: Upgraded::default(),
            run: Box::new(move || copy(&ground.folder, size)),
        });
    }
    let table = table(Programs::Ftp, ground);
    let mut lines = turns(&table, ground.rounds, &mut subjects, progress);
    for (row, values) in PAPER {
        for ((_, column), value) in FILES.iter().zip(values) {
            let place = table.cell(row, *column, "MB/s", Better::More);
            lines.push(place.from_paper("SOVIA, table I", value / 8.0));
        }
    }
    Ok(lines)
}

fn row(way: RunWay, sendfile: bool) -> &'static str {
    match (way, sendfile) {
        (RunWay::Viaduct, false) => "Viaduct",
        (RunWay::Viaduct, true) => "Viaduct, sendfile",
        (_, false) => "TCP",
        (_, true) => "TCP, sendfile",
    }
}

fn against(way: RunWay, sendfile: bool) -> &'static [&'static str] {
    match (way, sendfile) {
        (RunWay::Viaduct, false) => &["TCP"],
        (RunWay::Viaduct, true) => &["TCP, sendfile"],
        _ => &[],
    }
}

/// vsftpd as the user that starts it, for anyone, at a high port.
fn settings(folder: &Path, port: u16, sendfile: bool) -> String {
    format!(
        "listen=YES\nlisten_port={port}\nlisten_address=127.0.0.1\nbackground=NO\nrun_as_launching_user=YES\n\
         anonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\nanon_root={0}\nsecure_chroot_dir={0}\n\
         connect_from_port_20=NO\nxferlog_enable=NO\nisolate=NO\nisolate_network=NO\nseccomp_sandbox=NO\nuse_sendfile={1}\n",
        folder.display(),
        if sendfile { "YES" } else { "NO" },
    )
}

fn make_file(path: &Path, size: u64) -> Result<()> {
    let why = || Error::os(format!("writing {}", path.display()));
    let mut file = File::create(path).map_err(why())?;
    let block: Vec<u8> = (0..65_536u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut left = size as usize;
    while left > 0 {
        let part = left.min(block.len());
        file.write_all(&block[..part]).map_err(why())?;
        left -= part;
    }
    Ok(())
}

/// Megabytes a second of the transfer itself, as curl says, if all of it came.
fn rate(size: u64, said: &str) -> Result<f64> {
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [came, begun, ended] = numbers[..] else { return Err(failed("curl", "printed no numbers")) };
    if came as u64 != size {
        return Err(failed("curl", "did not get the whole file"));
    }
    Ok(size as f64 / 1e6 / (ended - begun).max(1e-6))
}

/// From one file in memory to another, in pieces of 64 KiB.
fn copy(folder: &Path, size: u64) -> Result<f64> {
    let why = || Error::os("copying a file");
    let target = folder.join("copy");
    let begun = Instant::now();
    let mut from = File::open(folder.join(size.to_string())).map_err(why())?;
    let mut to = File::create(&target).map_err(why())?;
    let mut block = vec![0; 65_536];
    loop {
        let count = from.read(&mut block).map_err(why())?;
        if count == 0 {
            break;
        }
        to.write_all(&block[..count]).map_err(why())?;
    }
    let time = begun.elapsed().as_secs_f64();
    fs::remove_file(&target).map_err(why())?;
    Ok(size as f64 / 1e6 / time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_whole_file() {
        assert_eq!(rate(2_000_000, "2000000 0.25 0.75").unwrap(), 4.0);
        assert!(rate(2_000_001, "2000000 0.25 0.75").is_err());
        assert!(rate(1, "nothing").is_err());
    }
}
