//! `viaduct launch` on this host: ranks, output, input, exit status, signals, and nothing left behind.

use crate::launching;

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use launching::{Folder, HIDE, Loopback, launch, sorted, wait_for};
use viaduct_kit::leaks::{LeakCheck, descendants};
use viaduct_kit::process::{has_ended, is_stopped};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

#[test]
fn ranks_know_their_numbers() {
    let folder = Folder::new();
    let script = "echo $VIADUCT_RANK $VIADUCT_SIZE $VIADUCT_LOCAL_RANK $PMI_RANK $PMI_SIZE $A $B";
    let run = launch(&folder, &["-np", "3", "-genv", "A", "x", "-env", "B=y", "sh", "-c", script]);
    assert_eq!(sorted(&run.out), ["0 3 0 0 3 x y", "1 3 1 1 3 x y", "2 3 2 2 3 x y"]);
    assert_eq!((run.status, &*run.err), (0, ""));
}

#[test]
fn several_programs_make_one_job() {
    let folder = Folder::new();
    let script = "echo $0 $VIADUCT_RANK/$VIADUCT_SIZE";
    let run = launch(
        &folder,
        &["-n", "1", "sh", "-c", script, "first", ":", "-n", "2", "sh", "-c", script, "second"],
    );
    assert_eq!(sorted(&run.out), ["first 0/3", "second 1/3", "second 2/3"]);
}

#[test]
fn the_worst_status_counts_and_the_table_shows_all() {
    let folder = Folder::new();
    let run = launch(&folder, &["-n", "3", "sh", "-c", "exit $((VIADUCT_RANK * 3))"]);
    assert_eq!(run.status, 6);
    assert!(run.err.contains("rank") && run.err.contains("localhost"), "{}", run.err);
    assert_eq!(launch(&folder, &["sh", "-c", "kill -9 $$"]).status, 137);
    let run = launch(&folder, &["no-such-program"]);
    assert_eq!(run.status, 127);
    assert!(run.err.contains("no-such-program: not found"), "{}", run.err);
    let run = launch(&folder, &["--wdir", "/no/such/folder", "true"]);
    assert!(run.err.contains("the folder /no/such/folder"), "{}", run.err);
}

#[test]
fn output_is_labelled_folded_or_told_as_objects() {
    let folder = Folder::new();
    let run = launch(&folder, &["-n", "2", "-l", "sh", "-c", "echo one; printf two"]);
    assert_eq!(
        sorted(&run.out),
        ["[0 localhost] one", "[0 localhost] two", "[1 localhost] one", "[1 localhost] two"]
    );
    let run = launch(&folder, &["-n", "4", "--fold", "echo", "same"]);
    assert_eq!(run.out, "---- ranks 0-3 on localhost ----\nsame\n");
    let run = launch(&folder, &["-n", "1", "--json", "sh", "-c", "echo a; echo b >&2; exit 4"]);
    let objects: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 4, "{}", run.out);
    assert_eq!((&objects[2]["code"], &objects[3]["status"]), (&4.into(), &4.into()));
    let run = launch(&folder, &["--raw", "printf", "\\377\\000x"]);
    assert_eq!(run.bytes, b"\xff\0x");
}

#[test]
fn many_lines_of_many_ranks_arrive_whole() {
    let folder = Folder::new();
    let count = if viaduct_kit::effort::full() { 10_000 } else { 2_000 };
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do echo \"r$VIADUCT_RANK line $i of {count} end\"; i=$((i+1)); done"
    );
    let run = launch(&folder, &["-n", "16", "sh", "-c", &script]);
    let mut next = [0; 16];
    for line in run.out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let rank: usize = words[0].strip_prefix('r').unwrap().parse().unwrap();
        assert_eq!(words[1..], ["line", &next[rank].to_string(), "of", &count.to_string(), "end"], "{line}");
        next[rank] += 1;
    }
    assert_eq!(next, [count; 16]);
}

#[test]
fn input_reaches_one_all_or_none() {
    let folder = Folder::new();
    let text: String = (0..60_000).map(|n| format!("line {n}\n")).collect();
    for (ranks, sums) in [("0", 1), ("all", 3), ("none", 0)] {
        let mut command = launching::command(&folder, &["-n", "3", "--stdin", ranks, "cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, bytes) = (child.stdin.take().unwrap(), text.clone());
        let feeder = std::thread::spawn(move || drop(input.write_all(bytes.as_bytes())));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        assert_eq!(output.stdout.len(), sums * text.len(), "{ranks}");
        assert!(output.status.success());
    }
}

#[test]
fn input_goes_on_when_another_host_is_done() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "input beside a host that is done");
    let folder = Folder::new();
    let there = Loopback::new(&folder);
    let path = folder.path().join("input");
    let text: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(&path, &text).unwrap();
    let hosts = format!("localhost,{}", Loopback::HOST);
    // The other rank sees the end of input at once, or leaves without a look at it.
    for args in [&["cat"][..], &["--stdin", "all", "sh", "-c", "test $VIADUCT_RANK = 1 || cat"]] {
        let mut command = there.command(&[&["--hosts", &hosts], args].concat());
        let output = command.stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout.len(), text.len(), "{args:?}");
    }
}

#[test]
fn a_host_may_fall_silent_for_as_long_as_it_is_allowed() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a host that falls silent");
    let folder = Folder::new();
    let there = Loopback::new(&folder);
    for (allowed, status) in [(&[][..], 255), (&["--silence", "100"], 0)] {
        let args = [&["--hosts", Loopback::HOST], allowed, &["sh", "-c", "echo up; exec cat"]].concat();
        let mut command = there.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = launching::Lines::new(child.stdout.take().unwrap());
        assert_eq!(lines.next().as_deref(), Some("up"));
        let worker = launching::child_of(there.agent()).unwrap();
        launching::signal(worker, 19);
        if status == 0 {
            // Longer than hosts may be silent by default.
            std::thread::sleep(Duration::from_secs(4));
            launching::signal(worker, 18);
            drop(child.stdin.take());
        }
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{allowed:?}: {err}");
        assert_eq!(err.contains("--silence allows more"), status != 0, "{err}");
        if status != 0 {
            launching::signal(worker, 18);
        }
        wait_for("the agent to bury its worker", || descendants(there.agent()).is_empty());
    }
}

#[test]
fn a_file_as_input_and_a_reader_that_leaves() {
    let folder = Folder::new();
    let path = folder.path().join("input");
    std::fs::write(&path, "from a file\n").unwrap();
    let mut command = launching::command(&folder, &["cat"]);
    let output = command.stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    assert_eq!(output.stdout, b"from a file\n");
    let mut command = launching::command(&folder, &["-n", "2", "yes"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "a closed pipe is no failure");
}

#[test]
fn time_that_is_up_ends_all() {
    let folder = Folder::new();
    let run = launch(
        &folder,
        &["-n", "2", "--timeout", "0.3", "--grace", "0.2", "sh", "-c", "trap '' TERM; sleep 100"],
    );
    assert_eq!(run.status, 124, "{}", run.err);
    assert!(run.err.contains("the time is up") && run.err.contains("KILL"), "{}", run.err);
}

#[test]
fn one_bad_end_ends_all_if_that_is_wanted() {
    let _watchdog = Watchdog::arm(Duration::from_secs(60), "a job with a bad end");
    let folder = Folder::new();
    let run =
        launch(&folder, &["-K", "-n", "2", "sh", "-c", "test $VIADUCT_RANK = 0 && exit 5; exec sleep 100"]);
    assert_eq!(run.status, 5, "{}", run.err);
    let script = "test $VIADUCT_RANK = 0 && kill -SEGV $$; exec sleep 100";
    let run = launch(&folder, &["-K", "-n", "2", "sh", "-c", script]);
    assert_eq!(run.status, 139, "{}", run.err);
    // The others are asked before they are killed.
    let script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let run =
        launch(&folder, &["-K", "--grace", "60", "-n", "1", "sh", "-c", script, ":", "-n", "1", "./nothere"]);
    assert!(
        run.status == 127 && run.err.contains("rank 1 could not be started; ending the job"),
        "{}",
        run.err
    );
    assert!(!run.err.contains("KILL"), "{}", run.err);
}

#[test]
fn a_closed_pipe_hides_no_failure() {
    let folder = Folder::new();
    let script = "test $VIADUCT_RANK = 0 && exit 3; sleep 1; exec yes";
    let mut command = launching::command(&folder, &["-n", "2", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = launching::Lines::new(child.stdout.take().unwrap());
    lines.next();
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn three_interrupts_go_from_asking_to_killing() {
    let folder = Folder::new();
    let ready = folder.path().join("ready");
    let script = format!(
        "trap 'echo INT' INT; trap 'echo TERM' TERM; : > {}; while :; do sleep 0.01; done",
        ready.display()
    );
    // A shell cannot trap what was ignored when it began, as in a job of another shell's background.
    let mut command = launching::command(&folder, &["env", "--default-signal=INT", "sh", "-c", &script]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the rank", || ready.exists());
    let mut lines = launching::Lines::new(child.stdout.take().unwrap());
    for (signal, answer) in [(2, Some("INT")), (2, Some("TERM")), (2, None)] {
        launching::signal(child.id(), signal);
        assert_eq!(lines.next().as_deref(), answer);
    }
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn an_interrupt_ends_the_wait_for_a_host() {
    let folder = Folder::new();
    let (ssh, called) = (folder.path().join("own-ssh"), folder.path().join("called"));
    std::fs::write(&ssh, format!("#!/bin/sh\n: > {}\nexec sleep 1000\n", called.display())).unwrap();
    std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let args = ["--connect-timeout", "900", "--fan-out", "1", "--hosts", "nowhere[1-3],localhost", "true"];
    let mut command = launching::command(&folder, &args);
    command.env("VIADUCT_SSH", &ssh).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for("ssh to be called", || called.exists());
    let family: Vec<u32> = descendants(child.id()).iter().map(|process| process.pid).collect();
    launching::signal(child.id(), 2);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(255) && err.contains("rank 2: nowhere3: it was not reached"),
        "{err}"
    );
    for pid in family {
        wait_for(&format!("the end of process {pid}"), || has_ended(pid));
    }
}

#[test]
fn a_job_is_stopped_and_goes_on() {
    let folder = Folder::new();
    // A shell that starts programs would wait for a stopped one without being stopped itself.
    let mut command = launching::command(&folder, &["sh", "-c", "echo $$; exec sleep 1000"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = launching::Lines::new(child.stdout.take().unwrap());
    let rank: u32 = lines.next().unwrap().parse().unwrap();
    for _ in 0..2 {
        launching::signal(child.id(), 20);
        wait_for("rank and launcher to stop", || is_stopped(rank) && is_stopped(child.id()));
        launching::signal(child.id(), 18);
        wait_for("them to go on", || !is_stopped(rank) && !is_stopped(child.id()));
    }
    launching::signal(child.id(), 15);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn nothing_outlives_its_job() {
    for victim in ["end", "guard", "worker"] {
        let folder = Folder::new();
        let script = if victim == "end" { HIDE.replace("wait", "exit 0") } else { HIDE.to_owned() };
        let mut command = launching::command(&folder, &["-n", "2", "sh", "-c", &script]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = launching::Lines::new(child.stdout.take().unwrap());
        assert_eq!((lines.next().as_deref(), lines.next().as_deref()), (Some("started"), Some("started")));
        let family: Vec<u32> = descendants(child.id()).iter().map(|process| process.pid).collect();
        let worker = launching::child_of(child.id());
        match victim {
            "guard" => launching::signal(child.id(), 9),
            "worker" => launching::signal(worker.expect("it lives"), 9),
            _ => {}
        }
        child.wait().unwrap();
        for pid in family {
            wait_for(&format!("the end of process {pid} ({victim})"), || has_ended(pid));
        }
        wait_for("the door to be gone", || std::fs::read_dir(folder.path().join("jobs")).is_ok());
    }
}

#[test]
fn jobs_are_seen_and_killed_by_name() {
    let folder = Folder::new();
    let mut command = launching::command(&folder, &["-n", "2", "sleep", "1000"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut job = String::new();
    wait_for("the job to be seen", || {
        let run = launching::verb(&folder, &["ps", "--local", "--format", "json"]);
        let object: Option<serde_json::Value> =
            run.out.lines().next().and_then(|line| serde_json::from_str(line).ok());
        let running =
            |object: &serde_json::Value| object["running"].as_u64() == Some(2) && object["seconds"].is_u64();
        job = object
            .filter(running)
            .map(|object| object["job"].as_str().unwrap().to_owned())
            .unwrap_or_default();
        !job.is_empty()
    });
    let unknown = launching::verb(&folder, &["kill", "--local", "no-job"]);
    assert!(unknown.status == 2 && unknown.err.contains("viaduct ps"), "{}", unknown.err);
    // All names begin alike, and one letter is not meant to end them all.
    let mut other = launching::command(&folder, &["sleep", "1001"]);
    let mut other = other.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the second job", || {
        launching::verb(&folder, &["ps", "--local", "--format", "json"]).out.contains("sleep 1001")
    });
    let both = launching::verb(&folder, &["kill", "--local", "v"]);
    assert!(both.status == 2 && both.err.contains(&job) && both.err.contains("sleep 1001"), "{}", both.err);
    assert!(other.try_wait().unwrap().is_none() && child.try_wait().unwrap().is_none());
    assert_eq!(launching::verb(&folder, &["kill", "--local", &job]).status, 0);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(launching::verb(&folder, &["kill", "--local", "v"]).status, 0, "one is left");
    assert_eq!(other.wait().unwrap().code(), Some(143));
    let none = launching::verb(&folder, &["ps", "--local"]);
    assert_eq!((none.status, &*none.out, &*none.err), (0, "", "no jobs\n"));
    let none = launching::verb(&folder, &["ps", "--local", "--format", "json"]);
    assert_eq!((none.status, &*none.out, &*none.err), (0, "", ""));
}

/// A reader that does not read holds up the writer, and the launcher keeps little of it.
#[test]
fn input_and_output_wait_for_their_readers() {
    let folder = Folder::new();
    let mut command = launching::command(&folder, &["sh", "-c", "read x; echo $x; exec sleep 1000"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let taken = std::sync::Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let feeder = std::thread::spawn(move || {
        let line = [&[b'x'; 4095][..], b"\n"].concat();
        while count.fetch_add(line.len(), Ordering::Relaxed) < 64 << 20 && input.write_all(&line).is_ok() {}
    });
    let mut lines = launching::Lines::new(child.stdout.take().unwrap());
    assert_eq!(lines.next().map(|line| line.len()), Some(4095));
    // However long it has time: what is not taken does not go in.
    std::thread::sleep(Duration::from_millis(300));
    let taken = taken.load(Ordering::Relaxed);
    launching::signal(child.id(), 15);
    child.wait().unwrap();
    feeder.join().unwrap();
    assert!(taken < 4 << 20, "{taken} bytes were taken from us");
    let script = "echo $$ >&2; exec dd if=/dev/zero bs=64k count=10000";
    let mut command = launching::command(&folder, &["--raw", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pid = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut pid)
        .unwrap();
    let written = || {
        let text = std::fs::read_to_string(format!("/proc/{}/io", pid.trim())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: ").map(str::to_owned));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(u64::MAX)
    };
    let (mut last, mut still) = (0, 0);
    wait_for("the rank to be held up", || {
        let now = written();
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
        still > 20
    });
    assert!(last < 64 << 20, "{last} bytes were taken from the rank");
    drop(child.stdout.take());
    child.wait().unwrap();
}

#[test]
fn a_dry_run_starts_nothing_and_can_be_pasted() {
    let folder = Folder::new();
    let run = launch(
        &folder,
        &["--dry-run", "-n", "2", "sh", "-c", "echo \"it's\" $VIADUCT_RANK of $VIADUCT_SIZE"],
    );
    let output = std::process::Command::new("sh").arg("-c").arg(&run.out).output().unwrap();
    assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), ["it's 0 of 2", "it's 1 of 2"]);
}

#[test]
fn wrong_words_are_named() {
    let folder = Folder::new();
    for (args, word) in [
        (&["--hosts", "a[", "true"][..], "brackets"),
        (&["--env", "X", "true"], "NAME=VALUE"),
        (&["--stdin", "everybody", "true"], "--stdin"),
        (&["--debug", "3", "true"], "no rank 3"),
        (&["true", ":"], "after `:`"),
        (&["--hosts", "@nogroup", "true"], "there is no group `nogroup`"),
        (&["--hosts", "h[0-99999999]", "true"], "more than 65,536 hosts"),
        (&[], "PROGRAM"),
        (&["--frobnicate", "true"], "`--frobnicate` is no option"),
        (&["--lable", "true"], "did you mean `--label`?"),
        (&["true", ":", "--label", "true"], "`--label` is not allowed after `:`"),
        (&["true", ":", "-x", "FOO", "true"], "`-x` is not allowed after `:`"),
        (&["true", ":", "--frobnicate", "true"], "`--frobnicate` is no option"),
        (&["-iface", "eth0", "true"], "`-iface` has no effect here"),
        (&["--ppn", "0", "true"], "--ppn 0"),
        (&["--hosts", "a!a", "true"], "no host is left"),
        (&["--stdin", "7", "-n", "2", "true"], "there is no rank 7 for --stdin"),
        (&["-n", "-1", "true"], "1 or more"),
        (&["-n", "0", "true"], "1 or more"),
        (&["--bind-to", "board", "true"], "--bind-to board"),
        (&["-map-by", "moon", "true"], "--map-by moon"),
        (&["--output-file", "%x", "true"], "%r is the rank"),
        (&["--hosts", "nowhere", "--silence", "0.1", "true"], "--silence 0.1"),
    ] {
        let run = launch(&folder, args);
        assert!(run.status == 2 && run.err.contains(word), "{args:?}: {}", run.err);
    }
}

#[test]
fn a_file_of_hosts_is_named_with_its_line() {
    let folder = Folder::new();
    let file = folder.path().join("hosts");
    std::fs::write(&file, "# ours\nh0 slots=two\n").unwrap();
    let run = launch(&folder, &["--hostfile", file.to_str().unwrap(), "true"]);
    assert!(run.status == 2 && run.err.contains("hosts, line 2: `h0 slots=two`"), "{}", run.err);
    assert!(run.err.contains("hint: a line reads `host`, `host:4` or `host slots=4`"), "{}", run.err);
}

#[test]
fn an_agent_that_is_not_there_cannot_leave() {
    let folder = Folder::new();
    let run = launching::verb(&folder, &["agent", "leave"]);
    assert!(run.status == 2 && run.err.contains("no agent of yours runs on this host"), "{}", run.err);
}

/// Guests that say nothing make room for one that asks; and workers keep nothing of the agent's open.
#[test]
fn silent_guests_and_old_connections_hold_up_no_agent() {
    let folder = Folder::new();
    let there = Loopback::new(&folder);
    let own = folder.path().join("there");
    let silent: Vec<_> =
        (0..80).map(|_| viaduct_os::fdpass::Channel::connect(&own.join("agent")).unwrap()).collect();
    let key = viaduct_agent::PublicKey([0; 32]);
    assert_eq!(viaduct_agent::serve::admit(&own, key).unwrap().pid, there.agent());
    drop(silent);
    let mut command = there.command(&["--hosts", Loopback::HOST, "sh", "-c", "echo up; exec sleep 1000"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = launching::Lines::new(child.stdout.take().unwrap());
    assert_eq!(lines.next().as_deref(), Some("up"));
    let sockets = |pid: u32| -> std::collections::BTreeSet<String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let links =
            entries.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()));
        links.filter(|link| link.starts_with("socket:")).collect()
    };
    let worker = launching::child_of(there.agent()).unwrap();
    let both: Vec<String> = sockets(worker).intersection(&sockets(there.agent())).cloned().collect();
    launching::signal(child.id(), 15);
    child.wait().unwrap();
    assert!(both.is_empty(), "{both:?}");
}

viaduct_kit::isolated! {
    limit 900;
    /// Processes, descriptors, files: of the launcher here, and of an agent that is used again and again.
    fn launches_in_a_row_leave_nothing() {
        let folder = Folder::new();
        let rounds = if viaduct_kit::effort::full() { 1000 } else { 30 };
        assert_eq!(launch(&folder, &["true"]).status, 0);
        let leaks = LeakCheck::start_with_folders([folder.path()]).adopt_orphans();
        for _ in 0..rounds {
            assert_eq!(launch(&folder, &["true"]).status, 0);
        }
        assert_eq!(launch(&folder, &["-n", "64", "true"]).status, 0);
        leaks.finish();
        let there = launching::Loopback::new(&folder);
        assert_eq!(there.launch(&["-n", "2", "true"]).status, 0);
        let agent = there.agent();
        wait_for("its first worker to end", || descendants(agent).is_empty());
        let open = || std::fs::read_dir(format!("/proc/{agent}/fd")).unwrap().count();
        let leaks = LeakCheck::start_with_folders([folder.path()]).adopt_orphans();
        let before = open();
        for _ in 0..rounds {
            let run = there.launch(&["true"]);
            assert_eq!(run.status, 0, "{}", run.err);
        }
        assert_eq!(there.launch(&["-n", "64", "true"]).status, 0);
        wait_for("the agent to bury its workers", || descendants(agent).is_empty() && open() <= before);
        leaks.finish();
    }
}

#[test]
fn a_rank_runs_in_a_debugger() {
    if viaduct_kit::packages::need_program("gdb", "gdb").is_none() {
        return;
    }
    let folder = Folder::new();
    let mut command =
        launching::command(&folder, &["-n", "2", "--debug", "1", "sh", "-c", "echo rank $VIADUCT_RANK"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Where tracing is forbidden gdb says so, and ends all the same.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"set confirm off\nset startup-with-shell off\nrun\nquit\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("rank 0") && text.contains("(gdb)"), "{text}");
}

#[test]
fn launches_are_measured_beside_others() {
    let folder = Folder::new();
    let files = TempDir::new("launch");
    let (results, page) = (files.join("results.jsonl"), files.join("report.html"));
    let (results, page) = (results.to_str().unwrap(), page.to_str().unwrap());
    let run = launching::verb(&folder, &["bench", "launch", "--quick", "--format", "json", "-o", results]);
    let lines: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["table"] == "launch" && line["value"].is_f64()), "{}", run.out);
    let times = lines.iter().filter(|line| line["column"] == "time" && line["source"].is_null());
    let names: Vec<&str> = times.map(|line| line["row"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["fork+exec, 1 rank", "agent request", "viaduct, 1 rank", "viaduct, 16 ranks"],
        "{}",
        run.err
    );
    assert_eq!(std::fs::read_to_string(results).unwrap(), run.out);
    let report = launching::verb(&folder, &["report", results, "-o", page]);
    assert_eq!(report.status, 0, "{}", report.err);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("viaduct, 16 ranks") && page.contains("Starting programs that do nothing"));
    assert_eq!(launching::verb(&folder, &["bench", "launch", "--compare", "pigeon"]).status, 2);
}
