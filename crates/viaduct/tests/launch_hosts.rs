//! `viaduct launch` on other hosts: real sshds in network namespaces, agents, files, and what is left when somebody dies.

mod launching;

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
    // Who was not brought in over ssh is not let in.
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
    assert!(run.status != 0 && run.err.contains("no-such-file"), "{}", run.err);
}

#[test]
fn hosts_that_cannot_be_reached_are_255() {
    let Some(cluster) = Cluster::new(1) else { return };
    let nobody = cluster.hosts.nobodys_address().to_string();
    assert_eq!(cluster.launch(&["--hosts", "h0", "true"]).status, 0);
    // The agent of the one is there; the other is never reached.
    let mut command = launching::command(&cluster.folder, &["--connect-timeout", "2", "--hosts"]);
    command.arg(format!("h0,{nobody}")).args(["echo", "here"]);
    let run = launching::finish(command);
    assert_eq!((run.status, &*run.out), (255, "here\n"), "{}", run.err);
    assert!(run.err.contains(&nobody), "{}", run.err);
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
fn jobs_of_all_hosts_are_seen_and_killed() {
    let Some(cluster) = Cluster::new(2) else { return };
    let mut command = cluster.command(&["--hosts", "h[0-1]", "sh", "-c", "echo up; exec sleep 1000"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    assert_eq!((lines.next().as_deref(), lines.next().as_deref()), (Some("up"), Some("up")));
    let run = launching::verb(&cluster.folder, &["ps", "--format", "json"]);
    let places: Vec<String> = run
        .out
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["on"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(places, ["localhost", "h0", "h1"], "{}", run.err);
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
