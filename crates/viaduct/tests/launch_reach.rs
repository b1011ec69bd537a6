//! `viaduct launch` with hosts that are not reached: jobs end with the reason, and the user hears what is waited for.

use crate::launching;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use launching::{Folder, command, finish, launch};
use viaduct_kit::effort::scaled;
use viaduct_kit::watchdog::Watchdog;

/// Input that waits for a host which is never there does not keep the launcher: a file, and a pipe. Where no rank is left to
/// read it, its writer may stay.
#[test]
fn input_for_a_host_that_is_not_reached_keeps_no_job() {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(120)), "input for a host that is not reached");
    let folder = Folder::new();
    let path = folder.path().join("input");
    std::fs::write(&path, vec![b'x'; 600_000]).unwrap();
    for hosts in ["nowhere", "localhost,nowhere"] {
        for piped in [false, true] {
            let mut command = command(&folder, &["--hosts", hosts, "wc", "-c"]);
            command.env("VIADUCT_SSH", "false").stdout(Stdio::piped()).stderr(Stdio::piped());
            command.stdin(if piped { Stdio::piped() } else { File::open(&path).unwrap().into() });
            let mut child = command.spawn().unwrap();
            // No more than a pipe holds: nothing may take it.
            let mut writer = child.stdin.take();
            writer.iter_mut().for_each(|input| input.write_all(&[b'x'; 4096]).unwrap());
            let writer = writer.filter(|_| hosts == "nowhere");
            let output = child.wait_with_output().unwrap();
            drop(writer);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(255), "{hosts}, piped {piped}: {err}");
            assert!(err.contains("nowhere: ") && err.contains("ssh"), "{hosts}, piped {piped}: {err}");
        }
    }
}

#[test]
fn hosts_that_take_long_are_named_while_they_are_waited_for() {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(120)), "hosts that take long");
    let folder = Folder::new();
    let ssh = folder.path().join("own-ssh");
    std::fs::write(&ssh, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command =
        command(&folder, &["--connect-timeout", "900", "--hosts", "nowhere[1-7],localhost", "true"]);
    command.env("VIADUCT_SSH", &ssh).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("not reached yet")));
    launching::signal(child.id(), 2);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(255), "{rest:?}");
    let first = "7 of 8 hosts are not reached yet: nowhere1, nowhere2, nowhere3, nowhere4, nowhere5, …";
    assert_eq!(line.unwrap().unwrap(), format!("viaduct launch: {first}"));
}

#[test]
fn an_ssh_that_is_no_program_is_named_with_its_setting() {
    let folder = Folder::new();
    let mut command = command(&folder, &["--hosts", "nowhere", "true"]);
    command.env("VIADUCT_SSH", "/no/such/ssh -q");
    let run = finish(command);
    assert_eq!(run.status, 255, "{}", run.err);
    assert!(run.err.contains("nowhere: `/no/such/ssh` cannot be started"), "{}", run.err);
    assert!(run.err.contains("VIADUCT_SSH says how ssh is called"), "{}", run.err);
}

#[test]
fn an_empty_file_of_hosts_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("hosts");
    for text in ["", "# none today\n\n"] {
        std::fs::write(&file, text).unwrap();
        let run = launch(&folder, &["--hostfile", file.to_str().unwrap(), "true"]);
        assert!(run.status == 2 && run.err.contains("no host is left to run on"), "{}", run.err);
        assert!(run.err.contains("the file, is empty"), "{}", run.err);
    }
}
