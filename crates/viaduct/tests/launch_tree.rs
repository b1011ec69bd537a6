//! `viaduct launch` on more hosts than one starts by itself: agents that start agents, and what is left when one of them
//! dies in the middle.

use crate::launching;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Instant;

use launching::cluster::Cluster;
use launching::{Lines, signal, sorted, wait_for};
use viaduct_agent::known;
use viaduct_job::Job;
use viaduct_kit::leaks::descendants;
use viaduct_kit::process::has_ended;

viaduct_kit::child!(RANK, |_| {
    let mut job = Job::join(&|name| std::env::var(name).ok()).unwrap();
    for round in 0..3 {
        let all = job.exchange(format!("{round} of {}", job.rank()).as_bytes()).unwrap();
        assert!(all.iter().enumerate().all(|(n, card)| *card == format!("{round} of {n}").into_bytes()));
    }
    println!("rank {} of {}", job.rank(), job.size());
    job.barrier().unwrap();
    job.finish().unwrap();
});

/// Hosts for which the launcher called ssh, from a script in its place.
fn with_log(cluster: &Cluster, args: &[&str]) -> (launching::Run, Vec<String>) {
    let (script, log) = (cluster.file("own-ssh"), cluster.file("ssh-log"));
    let _ = std::fs::remove_file(&log);
    let text = format!(
        "#!/bin/sh\nfor w; do case $w in h[0-9]*) echo $w >> {};; esac; done\nexec {} \"$@\"\n",
        log.display(),
        cluster.ssh()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = cluster.command(args);
    command.env("VIADUCT_SSH", &script);
    let run = launching::finish(command);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    (run, sorted(&text).into_iter().map(str::to_owned).collect())
}

#[test]
fn agents_start_agents_and_one_that_left_or_is_not_there_is_no_end() {
    let Some(cluster) = Cluster::new(5) else { return };
    let args = ["--fan-out", "2", "--hosts", "h[0-4]", "sh", "-c", "echo $VIADUCT_RANK $VIADUCT_NODE_NAME"];
    let all = ["0 h0", "1 h1", "2 h2", "3 h3", "4 h4"];
    let (run, asked) = with_log(&cluster, &args);
    assert_eq!((run.status, sorted(&run.out)), (0, all.to_vec()), "{}", run.err);
    assert_eq!(asked, ["h0", "h1"], "the others were brought up by those");
    assert_eq!(known::all(cluster.folder.path()).len(), 5, "and are known from now on");
    // Ranks meet through the tree, and ssh is not needed again.
    let program = std::env::current_exe().unwrap();
    let name = format!("VIADUCT_TEST_CHILD={}", RANK.name());
    let hosts = "h[0-4]*2,localhost";
    let meet = ["--fan-out", "1", "--hosts", hosts, "--genv", &name, program.to_str().unwrap()];
    let run = cluster.launch_warm(&meet);
    assert_eq!(run.status, 0, "{}", run.err);
    assert_eq!(run.out.lines().filter(|line| line.ends_with("of 11")).count(), 11, "{}", run.out);
    // An agent that has left: the one above it does not reach it, the launcher brings it up.
    viaduct_agent::serve::leave(&cluster.run_folder(2)).unwrap();
    wait_for("the agent to leave", || !cluster.run_folder(2).join("agent").exists());
    let (run, asked) = with_log(&cluster, &args);
    assert_eq!((run.status, sorted(&run.out)), (0, all.to_vec()), "{}", run.err);
    assert_eq!(asked, ["h2"]);
    // A host that is not there does not take those below it along.
    cluster.hosts.cut(0);
    let short = [&["--connect-timeout", "5"][..], &args].concat();
    let (run, _) = with_log(&cluster, &short);
    assert_eq!((run.status, sorted(&run.out)), (255, all[1..].to_vec()), "{}", run.err);
    cluster.hosts.mend(0);
}

#[test]
fn output_input_signals_and_files_go_through_agents() {
    let Some(cluster) = Cluster::new(3) else { return };
    let chain = ["--fan-out", "1", "--hosts", "h[0-2]"];
    // The program is taken from host to host, and so is what is put there.
    let program = cluster.file("own-program");
    std::fs::write(&program, "#!/bin/sh\ncat given.$VIADUCT_NODE_NAME; exec wc -l\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(cluster.file("given"), "given\n").unwrap();
    let puts = ["given:given.h0", "given:given.h1", "given:given.h2"].map(|put| ["--put", put]).concat();
    let args = [&chain[..], &puts, &["--stdin", "all", "--fold", "--stage", "./own-program"]].concat();
    let mut command = cluster.command(&args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        std::io::Write::write_all(&mut pipe, "many words\n".repeat(100_000).as_bytes()).unwrap();
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "---- ranks 0-2 on h0,h1,h2 ----\ngiven\n100000\n");
    // Much output of the last one, to a slow reader; and an interrupt.
    let script = "trap 'echo told $VIADUCT_RANK; exit 3' INT; \
                  test $VIADUCT_RANK = 2 && seq 200000; echo ready; while :; do sleep 0.05; done";
    let args = [&chain[..], &["sh", "-c", script]].concat();
    let mut command = cluster.command(&args);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    let (mut next, mut ready) = (1, 0);
    while next <= 200_000 || ready < 3 {
        match &*lines.next().expect("more lines") {
            "ready" => ready += 1,
            number => {
                assert_eq!(number, next.to_string());
                next += 1;
            }
        }
    }
    signal(child.id(), 2);
    let mut told: Vec<String> = std::iter::from_fn(|| lines.next()).collect();
    told.sort();
    assert_eq!(told, ["told 0", "told 1", "told 2"]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn nothing_outlives_an_agent_in_the_middle() {
    let Some(cluster) = Cluster::new(3) else { return };
    for victim in [
        "launcher",
        "first worker",
        "middle worker",
        "middle agent",
        "wire of the first",
        "wire of the middle",
    ] {
        let args = ["--fan-out", "1", "--hosts", "h[0-2]", "-K", "sh", "-c", launching::HIDE];
        let mut command = cluster.command(&args);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::new(child.stdout.take().unwrap());
        let heard = [lines.next(), lines.next(), lines.next()];
        assert_eq!(heard, [(); 3].map(|()| Some("started".to_owned())), "{victim}");
        let agents = [0, 1, 2].map(|host| cluster.agent(host));
        let below = |pid: u32| descendants(pid).iter().map(|process| process.pid).collect::<Vec<_>>();
        let family: Vec<u32> = agents.iter().flat_map(|&agent| below(agent)).collect();
        assert!(family.len() >= 12, "{victim}: {family:?}");
        let (begun, cut) = (Instant::now(), victim.strip_prefix("wire of the "));
        match victim {
            "launcher" => {
                below(child.id()).into_iter().for_each(|pid| signal(pid, 9));
                let _ = child.kill();
            }
            "first worker" => signal(launching::child_of(agents[0]).unwrap(), 9),
            "middle worker" => signal(launching::child_of(agents[1]).unwrap(), 9),
            "middle agent" => signal(agents[1], 9),
            _ => cluster.hosts.cut(u8::from(cut == Some("middle"))),
        }
        let status = child.wait().unwrap().code();
        if victim != "launcher" {
            assert_eq!(status, Some(255), "{victim}");
        }
        for pid in family {
            wait_for(&format!("the end of process {pid} ({victim})"), || has_ended(pid));
        }
        println!("{victim}: nothing left after {:.2} s", begun.elapsed().as_secs_f64());
        if cut.is_some() {
            cluster.hosts.mend(u8::from(cut == Some("middle")));
        }
    }
}
