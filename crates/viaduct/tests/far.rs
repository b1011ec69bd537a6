//! Two hosts: `viaduct bench --listen` on one, `--connect` on the other, as the book says; between network namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use viaduct_kit::hosts::Hosts;
use viaduct_kit::packages::{need_cores, need_program};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

const LIMIT: Duration = Duration::from_secs(300);
const LISTENER: u8 = 0;
const CALLER: u8 = 1;

struct Scene {
    hosts: Hosts,
    folder: TempDir,
    listener: Child,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !need_cores(2) {
            return None;
        }
        let hosts = Hosts::new(2)?;
        let folder = TempDir::new("far");
        for (name, digit) in [("token", "a"), ("other", "b")] {
            fs::write(folder.join(name), digit.repeat(64)).unwrap();
            fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o600)).unwrap();
        }
        let mut command = viaduct(folder.path(), "listener", "token");
        hosts.enter(LISTENER, &mut command);
        command.args(["bench", "--listen"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut listener = command.spawn().unwrap();
        let mut said = std::io::BufReader::new(listener.stderr.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert!(line.starts_with("listening at"), "{line}");
        // A thread has to read what else it says.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Some(Scene { hosts, folder, listener })
    }

    fn bench(&self, token: &str, args: &[&str]) -> Output {
        let mut command = viaduct(self.folder.path(), "caller", token);
        self.hosts.enter(CALLER, &mut command);
        let to = self.hosts.address(LISTENER).to_string();
        command.arg("bench").args(args).args(["--connect", &to, "--quick", "--launches", "1"]);
        command.args(["--time", "0.2", "--format", "json"]).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

/// Each host has a run-time folder of its own.
fn viaduct(folder: &Path, host: &str, token: &str) -> Command {
    let runtime = folder.join(host);
    fs::create_dir_all(&runtime).unwrap();
    fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.env("XDG_RUNTIME_DIR", runtime).env("VIADUCT_TOKEN_FILE", folder.join(token));
    // A machine that is overloaded is silent for long.
    command.env_remove("VIADUCT_PROVIDER").env("VIADUCT_OFI_SILENCE_MS", "60000");
    command
}

fn lines(output: &Output) -> Vec<Value> {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{talk}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_case_is_measured_to_another_host() {
    let _watchdog = Watchdog::arm(LIMIT, "a case between hosts");
    let Some(scene) = Scene::new() else { return };
    let found = lines(&scene.bench("token", &["latency", "--sizes", "8", "--compare", "ofi,tcp"]));
    for layer in ["auto", "ofi", "tcp"] {
        let line = found.iter().find(|line| line["layer"] == layer).unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!((&line["placement"], &line["valid"]), (&"hosts".into(), &true.into()), "{line}");
        assert!(line["p50"].as_f64().is_some_and(|us| us > 0.0), "{line}");
    }
    // What cannot be had is told, and the listener goes on.
    let refused = scene.bench("token", &["latency", "--sizes", "8", "--provider", "shm"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("does not leave its host"));
    let stranger = scene.bench("other", &["latency", "--sizes", "8"]);
    assert_eq!(stranger.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("does not belong to this job"));
    lines(&scene.bench("token", &["bandwidth", "--sizes", "64K", "--provider", "ofi:tcp"]));
}

#[test]
fn libfabrics_own_tool_is_measured_over_the_same_way() {
    let _watchdog = Watchdog::arm(LIMIT, "rivals between hosts");
    if need_program("fi_pingpong", "libfabric-bin").is_none() {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let found = lines(&scene.bench("token", &["rivals", "--provider", "ofi:tcp"]));
    for layer in ["via:ofi:tcp", "tcp", "rival:fi_pingpong-tcp"] {
        for (case, size) in
            [("rivals-latency", 8), ("rivals-pingpong", 64 << 10), ("rivals-pingpong", 1 << 20)]
        {
            let is_it =
                |line: &&Value| line["layer"] == layer && line["case"] == case && line["size"] == size;
            let line = found.iter().find(is_it).unwrap_or_else(|| panic!("{layer} {case} {size}: {found:?}"));
            assert!(line["p50"].as_f64().is_some_and(|value| value > 0.0), "{line}");
        }
    }
}
