//! `viaduct launch` on other hosts: real sshds in network namespaces, agents, files, and what is left when a process or a host dies.

use crate::launching;

use std::process::Stdio;
use std::time::Duration;

use launching::cluster::Cluster;
use launching::{HIDE, Lines, signal, sorted, wait_for};
use viaduct_agent::known;
use viaduct_agent::{Identity, Link};
use viaduct_job::{Job, Token};
use viaduct_kit::leaks::descendants;
use viaduct_kit::process::has_ended;

viaduct_kit::child!(RANK, |_| {
    let mut job = Job::join(&|name| std::env::var(name).ok()).unwrap();
    let all = job.exchange(format!("card of {}", job.rank()).as_bytes()).unwrap();
    let good = all.iter().enumerate().all(|(n, card)| *card == format!("card of {n}").into_bytes());
    let neighbours = job.neighbours().unwrap();
    println!("rank {} of {} neighbours {neighbours:?} {good}", job.rank(), job.size());
    job.barrier().unwrap();
    job.finish().unwrap();
});

#[test]
fn programs_run_on_hosts_and_agents_are_reused() {
    let Some(cluster) = Cluster::bare(2) else { return };
    cluster.install(1);
    let script = "echo $VIADUCT_RANK $VIADUCT_NODE_NAME $A $(cat); exit $VIADUCT_RANK";
    let args = ["--hosts", "h[0-1]*2", "-genv", "A", "x", "sh", "-c", script];
    let run = cluster.launch(&args);
    assert_eq!(sorted(&run.out), ["0 h0 x", "1 h0 x", "2 h1 x", "3 h1 x"], "{}", run.err);
    assert_eq!(run.status, 3);
    let run = cluster.launch_warm(&args);
    assert_eq!(sorted(&run.out).len(), 4, "ssh was not needed again: {}", run.err);
    // Something else comes to the same place.
    let program = std::env::current_exe().unwrap();
    let name = format!("VIADUCT_TEST_CHILD={}", RANK.name());
    let run =
        cluster.launch_warm(&["--hosts", "h0*2,h1,localhost", "--genv", &name, program.to_str().unwrap()]);
    let wish = [
        "rank 0 of 4 neighbours [0, 1] true",
        "rank 1 of 4 neighbours [0, 1] true",
        "rank 2 of 4 neighbours [2] true",
        "rank 3 of 4 neighbours [3] true",
    ];
    assert_eq!((run.status, sorted(&run.out)), (0, wish.to_vec()), "{}", run.err);
    let input = "many words\n".repeat(100_000);
    let mut command = cluster.command(&["--hosts", "h1", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let text = input.clone();
    let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut pipe, text.as_bytes()));
    assert_eq!(child.wait_with_output().unwrap().stdout, input.as_bytes());
    feeder.join().unwrap().unwrap();
    // The other host is done before the input is; and a program has hosts of its own.
    std::fs::write(cluster.file("input"), &input).unwrap();
    let mut command = cluster.command(&["--hosts", "h0,h1", "cat"]);
    command.stdin(std::fs::File::open(cluster.file("input")).unwrap());
    assert_eq!(command.output().unwrap().stdout, input.as_bytes());
    let say = "echo $VIADUCT_RANK $VIADUCT_NODE_NAME";
    let run = cluster
        .launch(&["--hosts", "h0", "-n", "1", "sh", "-c", say, ":", "--hosts", "h1,h0", "sh", "-c", say]);
    assert_eq!(sorted(&run.out), ["0 h0", "1 h1", "2 h0"], "{}", run.err);
    // A stranger's key was not brought in over ssh, and is not let in.
    let known = known::find(cluster.folder.path(), "h0").unwrap();
    let stranger = Identity::from_token(&Token::random());
    assert!(Link::call(&known.address, &stranger, known.key, Duration::from_secs(20)).is_err());
}

#[test]
fn files_travel_both_ways() {
    let Some(cluster) = Cluster::new(2) else { return };
    let program = cluster.file("own-program");
    std::fs::write(
        &program,
        "#!/bin/sh\ncat \"$1\"; echo $VIADUCT_NODE_NAME > \"$2.$$\" && mv \"$2.$$\" \"$2\"\n",
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, mode).unwrap();
    std::fs::write(cluster.file("in"), "from here\n").unwrap();
    let there = cluster.file("there").display().to_string();
    let back = cluster.file("back").display().to_string();
    let (put, get) = (format!("in:{there}"), format!("{there}.out:{back}"));
    let out = format!("{there}.out");
    let args = [
        "--hosts",
        "h[0-1]",
        "--fold",
        "--stage",
        "--put",
        &put,
        "--get",
        &get,
        "./own-program",
        &there,
        &out,
    ];
    for _ in 0..2 {
        let run = cluster.launch(&args);
        assert_eq!(run.out, "---- ranks 0-1 on h0,h1 ----\nfrom here\n", "{}", run.err);
        assert_eq!(run.status, 0);
        // Both hosts see one disk here, so what was written last is in both.
        let backs = [0, 1].map(|n| std::fs::read_to_string(cluster.file(&format!("back.h{n}"))).unwrap());
        assert!(backs.iter().all(|text| text == "h0\n" || text == "h1\n"), "{backs:?}");
    }
    assert_eq!(std::fs::read_dir(cluster.own(0).join("cache/files")).unwrap().count(), 1, "kept by content");
    let run = cluster.launch(&["--hosts", "h0", "--get", "no-such-file", "true"]);
    assert!(run.status != 0 && run.err.contains("h0: ") && run.err.contains("no-such-file"), "{}", run.err);
}

#[test]
fn hosts_that_cannot_be_reached_are_255() {
    let Some(cluster) = Cluster::new(1) else { return };
    let absent = cluster.hosts.unused_address().to_string();
    assert_eq!(cluster.launch(&["--hosts", "h0", "true"]).status, 0);
    // The agent of the one is there; the other is never reached.
    // As root each launch has to say that this is meant, also where an agent is there already.
    let run = launching::launch(&cluster.folder, &["--hosts", "h0", "true"]);
    assert!(run.status == 255 && run.err.contains("--allow-root allows it"), "{}", run.err);
    let mut command =
        launching::command(&cluster.folder, &["--allow-root", "--connect-timeout", "2", "--hosts"]);
    command.arg(format!("h0,{absent}")).args(["echo", "here"]);
    let run = launching::finish(command);
    assert_eq!((run.status, &*run.out), (255, "here\n"), "{}", run.err);
    assert!(run.err.contains(&absent), "{}", run.err);
    let mut command = cluster.command(&["--hosts", "h0", "true"]);
    let args: Vec<_> =
        command.get_args().filter(|word| *word != "--allow-root").map(|word| word.to_owned()).collect();
    viaduct_agent::serve::leave(&cluster.run_folder(0)).unwrap();
    let mut refused = std::process::Command::new(command.get_program());
    refused.args(args);
    for (name, value) in command.env("X", "y").get_envs() {
        if let Some(value) = value {
            refused.env(name, value);
        }
    }
    wait_for("the agent to leave", || !cluster.run_folder(0).join("agent").exists());
    let run = launching::finish(refused);
    assert!(run.status == 255 && run.err.contains("root"), "{}", run.err);
}

#[test]
fn a_folder_that_a_login_lacks_is_named_and_ranks_have_what_it_has() {
    let Some(cluster) = Cluster::new(1) else { return };
    // A login of its own kind: what it may open is not what we may.
    let sshd = cluster.daemon(0).to_string();
    let Some(prlimit) = viaduct_kit::packages::need_program("prlimit", "util-linux") else { return };
    let limit =
        std::process::Command::new(prlimit).args(["--nofile=777:777", "--pid", &sshd]).status().unwrap();
    assert!(limit.success());
    // The first attempt fails, as on a host that is just coming up.
    let (script, once) = (cluster.file("own-ssh"), cluster.file("tried"));
    let text = format!(
        "#!/bin/sh\ntest -e {0} || {{ : > {0}; echo 'not yet' >&2; exit 255; }}\nexec {1} \"$@\"\n",
        once.display(),
        cluster.ssh()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let tries = |retries: &str| {
        let mut command =
            cluster.command(&["--retries", retries, "--hosts", "h0", "sh", "-c", "ulimit -n; id -G"]);
        command.env("VIADUCT_SSH", &script);
        launching::finish(command)
    };
    let run = tries("0");
    assert!(run.status == 255 && run.err.contains("not yet"), "{}", run.err);
    std::fs::remove_file(&once).unwrap();
    let run = tries("1");
    let groups = std::process::Command::new("id").args(["-G", "root"]).output().unwrap();
    assert_eq!(run.out, format!("777\n{}", String::from_utf8_lossy(&groups.stdout)), "{}", run.err);
    // A folder of ours that is not there leads home; a home that is gone is named.
    let lost = |cluster: &Cluster| {
        let script = "mkdir x && cd x && rmdir ../x && exec \"$@\"";
        let launch = cluster.command(&["--hosts", "h0", "pwd"]);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, "sh"]).arg(launch.get_program()).args(launch.get_args());
        command.envs(launch.get_envs().filter_map(|(name, value)| Some((name, value?))));
        launching::finish(std::mem::replace(
            command.current_dir(cluster.file("")),
            std::process::Command::new("true"),
        ))
    };
    let (run, home) = (lost(&cluster), cluster.own(0).join("home"));
    assert_eq!(run.out.trim(), home.to_str().unwrap(), "{}", run.err);
    std::fs::remove_dir(&home).unwrap();
    let run = lost(&cluster);
    assert!(
        run.status == 255 && run.err.contains("the home folder") && run.err.contains("h0/home"),
        "{}",
        run.err
    );
    // The host does not know this key any more.
    viaduct_agent::serve::leave(&cluster.run_folder(0)).unwrap();
    wait_for("the agent to leave", || !cluster.run_folder(0).join("agent").exists());
    std::fs::write(cluster.file("user.pub"), "").unwrap();
    let run = cluster.launch(&["--hosts", "h0", "true"]);
    assert!(run.status == 255 && run.err.contains("Permission denied"), "{}", run.err);
    assert!(run.err.contains("`ssh h0 true` has to work"), "{}", run.err);
}

#[test]
fn a_rank_on_a_host_runs_in_a_debugger() {
    if viaduct_kit::packages::need_program("gdb", "gdb").is_none() {
        return;
    }
    let Some(cluster) = Cluster::new(1) else { return };
    let args = ["--hosts", "localhost,h0", "--debug", "1", "printenv", "VIADUCT_RANK"];
    let mut command = cluster.command(&args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"set confirm off\nset startup-with-shell off\nrun\nquit\n")
        .unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let wrote = |rank: &str| text.lines().any(|line| line == rank);
    assert!(wrote("0") && wrote("1") && text.contains("(gdb)"), "{text}");
}

#[test]
fn launches_on_hosts_are_measured_beside_ssh() {
    let Some(cluster) = Cluster::new(1) else { return };
    let words = ["bench", "launch", "--quick", "--format", "json", "--hosts", "h0", "--allow-root"];
    let run = launching::finish(cluster.verb(&[&words[..], &["--compare", "ssh"]].concat()));
    let lines: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in ["viaduct on hosts, 1 rank", "ssh on hosts, 1 rank"] {
        let mut found = lines.iter().filter(|line| line["row"] == row && line["column"] == "against viaduct");
        let cell = found.next().unwrap_or_else(|| panic!("{} {}", run.out, run.err));
        assert!(cell["value"].is_f64(), "{cell}");
    }
}

#[test]
fn jobs_of_all_hosts_are_seen_and_killed() {
    let Some(cluster) = Cluster::new(2) else { return };
    let mut command = cluster.command(&["--hosts", "h[0-1]", "sh", "-c", "echo up; exec sleep 1000"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    assert_eq!((lines.next().as_deref(), lines.next().as_deref()), (Some("up"), Some("up")));
    let run = launching::verb(&cluster.folder, &["ps", "--format", "json"]);
    let job: serde_json::Value =
        serde_json::from_str(&run.out).unwrap_or_else(|why| panic!("{why}: {}", run.out));
    let places: Vec<&str> =
        job["nodes"].as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(
        (&job["launcher"]["host"], &places[..]),
        (&serde_json::json!("localhost"), &["h0", "h1"][..]),
        "{}",
        run.err
    );
    assert_eq!((job["running"].as_u64(), job["ranks"].as_u64()), (Some(2), Some(2)));
    let table = launching::verb(&cluster.folder, &["ps"]);
    assert_eq!(table.out.lines().count(), 3, "one row for a job: {}", table.out);
    let run = launching::verb(&cluster.folder, &["kill", "--all", "-s", "KILL"]);
    // The launcher hands it on: its nodes may have ended before they are asked.
    assert!(run.out.starts_with("KILL v") && run.out.contains("on localhost"), "{}", run.out);
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn nothing_outlives_launcher_agent_worker_or_wire() {
    let Some(cluster) = Cluster::new(2) else { return };
    for victim in ["launcher", "worker", "agent", "wire"] {
        let mut command = cluster.command(&["--hosts", "h[0-1]", "-K", "sh", "-c", HIDE]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::new(child.stdout.take().unwrap());
        let both = (lines.next(), lines.next());
        assert_eq!((both.0.as_deref(), both.1.as_deref()), (Some("started"), Some("started")), "{victim}");
        let agents = [0, 1].map(|host| cluster.agent(host));
        let below = |pid: u32| descendants(pid).iter().map(|process| process.pid).collect::<Vec<_>>();
        let family: Vec<u32> = agents.iter().flat_map(|&agent| below(agent)).collect();
        assert!(family.len() >= 8, "{victim}: {family:?}");
        match victim {
            "launcher" => {
                below(child.id()).into_iter().for_each(|pid| signal(pid, 9));
                let _ = child.kill();
            }
            "worker" => signal(launching::child_of(agents[0]).unwrap(), 9),
            "agent" => signal(agents[0], 9),
            _ => cluster.hosts.cut(0),
        }
        let status = child.wait().unwrap().code();
        if victim != "launcher" {
            assert_eq!(status, Some(255), "{victim}");
        }
        for pid in family {
            wait_for(&format!("the end of process {pid} ({victim})"), || has_ended(pid));
        }
        if victim == "wire" {
            cluster.hosts.mend(0);
        }
    }
}

#[test]
fn an_agent_binds_ranks_to_cpus_and_says_so() {
    let Some(cluster) = Cluster::new(1) else { return };
    let cpus = viaduct_os::cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let list = format!("user:{last},{first}");
    let script = "echo $VIADUCT_NODE_NAME $VIADUCT_RANK $(grep Cpus_allowed_list /proc/self/status)";
    let words = ["--hosts", "localhost,h0*2", "--report-bindings", "--bind-to", &list, "sh", "-c", script];
    let run = cluster.launch(&words);
    // Each host begins with the first CPU of the list.
    let wish = [("h0", 1, last), ("h0", 2, first), ("localhost", 0, last)]
        .map(|(host, rank, cpu)| format!("{host} {rank} Cpus_allowed_list: {cpu}"));
    assert_eq!(sorted(&run.out), wish, "{}", run.err);
    assert!(run.err.contains(&format!("rank 2: h0: bound to CPUs {first}\n")), "{}", run.err);
    let absent = cluster.launch(&["--hosts", "h0*2", "--bind-to", "user:65000", "true"]);
    assert!(absent.status == 126 && absent.err.contains("ranks 0-1: h0: CPU 65000"), "{}", absent.err);
}
