//! Tools with programs of their own: libfabric's fi_pingpong, UCX's ucx_perftest, sockperf, iceoryx2's benchmark.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use super::child::failed;
use super::{Ground, Reading, Rival, Want};
use crate::error::{Error, Result};
use crate::link::host_of;
use crate::orders::Served;
use crate::session::Session;

pub(super) const FI_SHM: Rival = Rival {
    name: "fi_pingpong-shm",
    programs: &["fi_pingpong"],
    install: "apt-get install libfabric-bin",
    about: "libfabric's ping-pong over its shared-memory provider; bandwidth is one message there and back",
    measure: |ground, want| fi_pingpong(ground, want, "shm", "rdm"),
    server: None,
};

pub(super) const FI_TCP: Rival = Rival {
    name: "fi_pingpong-tcp",
    programs: &["fi_pingpong"],
    install: "apt-get install libfabric-bin",
    about: "libfabric's ping-pong over TCP (-e msg); bandwidth is one message there and back, and the data are not read",
    measure: |ground, want| fi_pingpong(ground, want, "tcp", "msg"),
    server: Some(|served| fi_server(served, "tcp", "msg")),
};

pub(super) const UCX: Rival = Rival {
    name: "ucx_perftest",
    programs: &["ucx_perftest"],
    install: "apt-get install ucx-utils",
    about: "UCX, matched by tag, over the transport that it chooses; the receiver does not read the data",
    measure: ucx,
    server: None,
};

pub(super) const SOCKPERF: Rival = Rival {
    name: "sockperf",
    programs: &["sockperf"],
    install: "apt-get install sockperf",
    about: "sockets over TCP; at least 14 bytes, at most 65,507; throughput is what the sender could hand over",
    measure: sockperf,
    server: None,
};

pub(super) const ICEORYX2: Rival = Rival {
    name: "iceoryx2",
    programs: &["benchmark-publish-subscribe"],
    install: "cargo install --git https://github.com/eclipse-iceoryx/iceoryx2 benchmark-publish-subscribe",
    about: "publish and subscribe through shared memory between two threads; the data are neither written nor read",
    measure: iceoryx2,
    server: None,
};

/// A tool that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// The first program of a rival, which the caller has found to be there.
fn program(ground: &Ground<'_>, name: &str) -> Result<PathBuf> {
    ground.find(name).ok_or_else(|| failed(name, "is not installed"))
}

/// A port that is free at the moment, at no address: a host between which we measure may have no loopback.
fn port() -> Result<u16> {
    let door = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(Error::os("looking for a free port"))?;
    Ok(door.local_addr().map_err(Error::os("looking for a free port"))?.port())
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Repetitions that take about the time that was given, if one takes so many microseconds.
fn repetitions(ground: &Ground<'_>, us: f64) -> u64 {
    ((ground.time.as_secs_f64() * 1e6 / us) as u64).clamp(100, 1_000_000)
}

fn fi_pingpong(ground: &Ground<'_>, want: Want, provider: &str, endpoint: &str) -> Result<Option<Reading>> {
    let size = want.size();
    let count = repetitions(ground, 60.0 + size as f64 / 500.0);
    let served = Served { rival: FI_TCP.name.into(), size, count, port: port()? };
    let tool = program(ground, "fi_pingpong")?;
    let host = ground.settings.connect.as_deref().map_or("127.0.0.1", host_of);
    let (bytes, count, port) = (size.to_string(), count.to_string(), served.port.to_string());
    let client = words(&["-p", provider, "-e", endpoint, "-S", &bytes, "-I", &count, "-P", &port, host]);
    let said = match &ground.settings.connect {
        None => {
            let server = fi_server(&served, provider, endpoint);
            ground.launcher.pair(&tool, ground.cpus(), &server, &client, LIMIT)?
        }
        Some(far) => ground.launcher.client(&tool, ground.cpus()[0], &client, LIMIT, &mut || {
            let mut session = Session::call(far, ground.settings)?;
            session.serve_tool(&served)?;
            Ok(session)
        })?,
    };
    let us = parse_fi_pingpong(&said).ok_or_else(|| failed("fi_pingpong", "printed no table"))?;
    let value = if want == Want::Latency(size) { us } else { size as f64 / us };
    Ok(Some(Reading { size, value }))
}

fn fi_server(served: &Served, provider: &str, endpoint: &str) -> Vec<String> {
    let (bytes, count, port) = (served.size.to_string(), served.count.to_string(), served.port.to_string());
    words(&["-p", provider, "-e", endpoint, "-S", &bytes, "-I", &count, "-B", &port])
}

/// `usec/xfer` of the last row: one way.
fn parse_fi_pingpong(said: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("bytes"));
    let column = lines.next()?.split_whitespace().position(|head| head == "usec/xfer")?;
    lines.last()?.split_whitespace().nth(column)?.parse().ok()
}

fn ucx(ground: &Ground<'_>, want: Want) -> Result<Option<Reading>> {
    let (test, size) = match want {
        Want::Latency(size) => ("tag_lat", size),
        Want::Bandwidth(size) => ("tag_bw", size),
        Want::PingPong(_) => return Ok(None),
    };
    let count = repetitions(ground, 5.0 + size as f64 / 1000.0).to_string();
    let (bytes, port) = (size.to_string(), port()?.to_string());
    let server = words(&["-p", &port]);
    let client =
        words(&["-p", &port, "127.0.0.1", "-t", test, "-s", &bytes, "-n", &count, "-w", "100", "-f"]);
    let tool = program(ground, "ucx_perftest")?;
    let said = ground.launcher.pair(&tool, ground.cpus(), &server, &client, LIMIT)?;
    let (us, mebibytes) =
        parse_ucx(&said).ok_or_else(|| failed("ucx_perftest", "printed no row of numbers"))?;
    let value = if test == "tag_lat" { us } else { mebibytes * MEBI };
    Ok(Some(Reading { size, value }))
}

/// UCX and sockperf count 2^20 bytes as a megabyte; we count 10^6.
const MEBI: f64 = (1 << 20) as f64 / 1e6;

/// Median time and overall rate of the last row.
fn parse_ucx(said: &str) -> Option<(f64, f64)> {
    let row = said.lines().rfind(|line| {
        let line = line.trim_start().trim_start_matches("Final:").trim_start();
        line.starts_with(|c: char| c.is_ascii_digit())
    })?;
    let numbers: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Iterations; median, average, overall time; average, overall rate; average, overall messages.
    Some((*numbers.get(1)?, *numbers.get(5)?))
}

fn sockperf(ground: &Ground<'_>, want: Want) -> Result<Option<Reading>> {
    let (test, size) = match want {
        Want::Latency(size) => ("ping-pong", size.max(14)),
        Want::Bandwidth(size) if size <= 64 << 10 => ("throughput", size.min(65_507)),
        Want::Bandwidth(_) | Want::PingPong(_) => return Ok(None),
    };
    let (bytes, port) = (size.to_string(), port()?.to_string());
    let seconds = ground.time.as_secs().max(1).to_string();
    let place = ["--tcp", "-i", "127.0.0.1", "-p", &port];
    let server = words(&[&["server"], &place[..]].concat());
    let client = words(&[&[test], &place[..], &["-m", &bytes, "-t", &seconds]].concat());
    let tool = program(ground, "sockperf")?;
    let said = ground.launcher.pair(&tool, ground.cpus(), &server, &client, LIMIT)?;
    let value = match want {
        Want::Latency(_) => parse_sockperf_latency(&said),
        _ => parse_sockperf_rate(&said).map(|mebibytes| mebibytes * MEBI),
    };
    let value = value.ok_or_else(|| failed("sockperf", "printed no summary"))?;
    Ok(Some(Reading { size, value }))
}

/// The median; sockperf halves the round trip itself.
fn parse_sockperf_latency(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split_once("percentile 50.000 =")?.1.trim().parse().ok())
}

fn parse_sockperf_rate(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split_once("BandWidth is ")?.1.split(' ').next()?.parse().ok())
}

fn iceoryx2(ground: &Ground<'_>, want: Want) -> Result<Option<Reading>> {
    let Want::Latency(size) = want else { return Ok(None) };
    let count = repetitions(ground, 1.0).to_string();
    let [here, there] = ground.cpus().map(|cpu| cpu.to_string());
    let args = words(&[
        "--bench-ipc",
        "--iterations",
        &count,
        "--payload-size",
        &size.to_string(),
        "--cpu-core-participant-1",
        &here,
        "--cpu-core-participant-2",
        &there,
    ]);
    let tool = program(ground, "benchmark-publish-subscribe")?;
    let said = ground.launcher.whole(None, &tool, &args, LIMIT)?;
    let ns = parse_iceoryx2(&said).ok_or_else(|| failed("iceoryx2's benchmark", "printed no latency"))?;
    Ok(Some(Reading { size, value: ns / 1e3 }))
}

/// Nanoseconds one way, of the first line: it measures its service for one thread first, then the one for several.
fn parse_iceoryx2(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split_once("Latency: ")?.1.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_fi_pingpong_is_read() {
        let said = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       1k      =1k      15k         0.02s      0.99       8.12       0.12\n";
        assert_eq!(parse_fi_pingpong(said), Some(8.12));
        assert_eq!(parse_fi_pingpong("fi_getinfo: -61\n"), None);
    }

    #[test]
    fn the_output_of_ucx_perftest_is_read() {
        let head = "+--------------+--------------+------------------------------+\n\
                    |    Stage     | # iterations | 50.0%ile | average | overall |\n";
        let latency = "Final:                 20000      0.571     5.114     5.114        1.49       1.49      195558      195558\n";
        assert_eq!(parse_ucx(&format!("{head}{latency}")), Some((0.571, 1.49)));
        let rate = "                       20000      7.518   102.750    69.736      608.27     896.24        9732       14340\n";
        assert_eq!(parse_ucx(&format!("{head}{rate}")), Some((7.518, 896.24)));
        assert_eq!(parse_ucx(head), None);
    }

    #[test]
    fn the_output_of_sockperf_is_read() {
        let latency = "sockperf: \u{1b}[2;35mTotal 2779 observations\u{1b}[0m\n\
                       sockperf: ---> percentile 99.000 = 1999.640\n\
                       sockperf: ---> percentile 50.000 =   35.025\n";
        assert_eq!(parse_sockperf_latency(latency), Some(35.025));
        let rate = "sockperf: Summary: Message Rate is 11077 [msg/sec], Packet Rate is about 498465 [pkt/sec]\n\
                    sockperf: Summary: BandWidth is 692.006 MBps (5536.049 Mbps)\n";
        assert_eq!(parse_sockperf_rate(rate), Some(692.006));
        assert_eq!((parse_sockperf_latency(rate), parse_sockperf_rate(latency)), (None, None));
    }

    #[test]
    fn the_output_of_iceoryx2_is_read() {
        let said = "iceoryx2::service::ipc::Service ::: Iterations: 1000000, Time: 0.2 s, Latency: 104 ns, Sample Size: 8\n\
                    iceoryx2::service::ipc_threadsafe::Service ::: Iterations: 1000000, Time: 0.3 s, Latency: 151 ns, Sample Size: 8\n";
        assert_eq!(parse_iceoryx2(said), Some(104.0));
        assert_eq!(parse_iceoryx2("Please use either '--bench-all' or select a specific benchmark.\n"), None);
    }
}
