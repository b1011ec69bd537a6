//! What the programs answer, to clients that come, go and are killed.

use std::iter;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use viaduct_kit::child::Child;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_net::Nic;
use viaduct_net::providers::Config;

/// Turns a hang into a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A place where the processes of one test meet.
pub(crate) struct Place {
    folder: TempDir,
    provider: &'static str,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place::of("shm")
    }

    /// A place whose programs go by a provider.
    pub(crate) fn of(provider: &'static str) -> Place {
        Place { folder: TempDir::new("examples"), provider }
    }

    /// A program of this package, which meets those of this place alone.
    pub(crate) fn program(&self, path: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(path);
        command.args(arguments).env("VIADUCT_RUNTIME_DIR", self.folder.path());
        command.env("VIADUCT_PROVIDER", self.provider).env("TMPDIR", self.folder.path());
        command
    }

    /// A NIC of the test itself, which meets the programs of this place.
    pub(crate) fn nic(&self) -> Nic {
        nic_at(self.folder.path(), self.provider)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn start(&self, path: &str, arguments: &[&str]) -> Child {
        Child::start(path, self.program(path, arguments))
    }

    /// Runs a program to its end, again while its server is not there yet.
    pub(crate) fn run(&self, path: &str, arguments: &[&str]) -> Output {
        for _ in 0..600 {
            let output = self.program(path, arguments).stdin(Stdio::null()).output().expect("a program");
            let early = ["no listener waits", "Connection refused", "ConnectionRefused"];
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() || !early.iter().any(|text| error.contains(text)) {
                return output;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{path} has no server to talk to");
    }

    /// What a program says that ends well.
    pub(crate) fn says(&self, path: &str, arguments: &[&str]) -> String {
        let output = self.run(path, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A NIC that meets those of other processes with this run-time folder.
pub(crate) fn nic_at(folder: &Path, provider: &str) -> Nic {
    let mut config = Config::default();
    config.shm.runtime_dir = Some(folder.to_owned());
    viaduct_net::open_with(provider, &config).expect("a NIC")
}

const KV: &str = env!("CARGO_BIN_EXE_kv");

#[test]
fn the_store_keeps_values_of_every_length_and_outlives_its_clients() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the key-value store");
    let place = Place::new();
    let mut server = place.start(KV, &["serve", "store"]);
    assert_eq!(place.says(KV, &["get", "store", "colour"]), "(nothing)\n");
    place.says(KV, &["put", "store", "colour", "blue"]);
    for len in [1, 40, 1000, 5000, 100_000] {
        let value = "x".repeat(len);
        place.says(KV, &["put", "store", "long", &value]);
        assert_eq!(place.says(KV, &["get", "store", "long"]), format!("{value}\n"));
    }
    for (key, answer) in [("long", "deleted\n"), ("long", "(nothing)\n"), ("never", "(nothing)\n")] {
        assert_eq!(place.says(KV, &["delete", "store", key]), answer);
    }
    assert_eq!(place.says(KV, &["get", "store", "long"]), "(nothing)\n");
    // Clients that are killed all at once: some while they start or connect, the others at a moment between two of many requests.
    let asking: Vec<&str> = ["get", "store"].into_iter().chain(iter::repeat_n("colour", 50_000)).collect();
    let (mut moment, mut connected) = (0x2545_f491_u64, 0);
    for round in 0..8 {
        let mut clients: Vec<Child> = (0..3).map(|_| place.start(KV, &asking)).collect();
        if round % 2 == 1 {
            let answered = clients.iter_mut().map(|client| client.next_line(LIMIT));
            assert!(answered.into_iter().all(|line| line.as_deref() == Some("blue")));
        }
        moment ^= moment << 13;
        moment ^= moment >> 7;
        moment ^= moment << 17;
        std::thread::sleep(Duration::from_micros(moment % 20_000));
        clients.iter_mut().for_each(Child::kill);
        let killed = clients.iter_mut().filter_map(|client| client.wait(LIMIT).signal()).count();
        connected += if round % 2 == 1 { killed } else { 0 };
    }
    assert!(connected > 0, "no client was killed while it was connected");
    assert_eq!(place.says(KV, &["get", "store", "colour"]), "blue\n");
    assert!(server.is_running());
    server.kill();
}

#[test]
fn the_store_refuses_what_does_not_fit_into_a_request() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "limits of the store");
    let place = Place::new();
    let mut server = place.start(KV, &["serve", "store"]);
    let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
    place.says(KV, &["put", "store", &longest, "last"]);
    assert_eq!(place.says(KV, &["get", "store", &longest]), "last\n");
    let refused = |arguments: &[&str], status: i32, cause: &str| {
        let output = place.run(KV, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && error.contains(cause), "{arguments:?}: {error}");
    };
    refused(&["put", "store", &too_long, "v"], 1, "a key has at most 255");
    refused(&["get", "store", &too_long], 1, "a key has at most 255");
    refused(&["get", "store"], 2, "usage");
    refused(&["sing", "store"], 2, "usage");
    assert!(server.is_running());
    server.kill();
}

#[test]
fn the_store_is_measured_against_one_with_unsafe_slices() {
    let _watchdog = Watchdog::arm(Duration::from_secs(240), "the key-value store, measured");
    let said = Place::new().says(KV, &["measure", "0.002"]);
    for length in [64, 16_384, 131_072] {
        for request in ["put", "get"] {
            let row: Vec<&str> = (said.lines().map(|line| line.split([' ', ',', '[', ']'])))
                .map(|words| words.filter(|word| !word.is_empty()).collect::<Vec<_>>())
                .find(|words| words[..2] == [request, &length.to_string()])
                .unwrap_or_else(|| panic!("{request} of {length} is not among\n{said}"));
            let numbers: Vec<f64> = row[2..].iter().map(|word| word.parse().expect("a number")).collect();
            let [safe, by_hand, ratio, low, high] = numbers[..] else { panic!("{said}") };
            // On a busy machine the lower end may be rounded to nothing.
            assert!(safe > 0.0 && by_hand > 0.0 && low <= ratio && ratio <= high && high > 0.0, "{said}");
        }
    }
}

#[test]
fn procedures_are_called_over_streams() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "calls of procedures");
    const RPC: &str = env!("CARGO_BIN_EXE_rpc");
    let place = Place::new();
    let mut server = place.start(RPC, &["serve", "via://:7020"]);
    assert_eq!(place.says(RPC, &["call", "via://:7020", "reverse", "stressed"]), "desserts\n");
    let long = "ab".repeat(50_000);
    assert_eq!(place.says(RPC, &["call", "via://:7020", "length", &long]), "100000\n");
    assert_eq!(place.says(RPC, &["call", "via://:7020", "sing", ""]), "there is no such procedure\n");
    server.kill();
}

#[test]
fn pages_are_served_by_axum() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a web server");
    const HTTP: &str = env!("CARGO_BIN_EXE_http");
    let place = Place::new();
    let mut server = place.start(HTTP, &["serve", "via://:7030"]);
    assert_eq!(place.says(HTTP, &["get", "via://:7030", "/hello/you"]), "200 Hello, you!\n");
    assert!(place.says(HTTP, &["get", "via://:7030", "/nowhere"]).starts_with("404 "));
    server.kill();
}

#[test]
fn a_rank_alone_is_a_job_of_one() {
    let place = Place::new();
    const RANKS: &str = env!("CARGO_BIN_EXE_ranks");
    assert_eq!(place.says(RANKS, &[]), "rank 0 of 1: 0 blocks of 262144 bytes\n");
}

#[test]
fn clients_of_every_kind_get_answers() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "many clients");
    let said = Place::new().says(env!("CARGO_BIN_EXE_clients"), &["3", "0.35"]);
    for kind in ["via ", "streams ", "unix "] {
        let line = said.lines().find(|line| line.starts_with(kind)).expect("a line for each kind");
        let requests: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(requests > 0.0, "{said}");
    }
    for kind in ["via", "streams"] {
        let line = said.lines().find(|line| line.starts_with(&format!("{kind} against unix: requests ")));
        let words: Vec<&str> = line.expect("a line of ratios").split([' ', ',', '[', ']']).collect();
        let ratios: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        // Four ratios, each with its interval.
        assert_eq!(ratios.len(), 12, "{said}");
        assert!(ratios.chunks(3).all(|r| r[1] <= r[0] && r[0] <= r[2] && r[2] > 0.0), "{said}");
    }
}

#[test]
fn counters_are_read_in_the_process() {
    let said = Place::new().says(env!("CARGO_BIN_EXE_counters"), &[]);
    for line in ["connects 2", "inline-sends 3", "receives 3", "bytes-received 11", "breaks 0"] {
        assert!(said.lines().any(|l| l == line), "{line} is not among\n{said}");
    }
}
