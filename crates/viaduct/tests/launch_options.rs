//! Options of `viaduct launch` on this host: CPUs of ranks, output to files, variables, long lines, many ranks.

use crate::launching;

use std::io::Read;
use std::process::Stdio;

use launching::{Folder, finish, launch, sorted};
use viaduct_kit::packages::need_program;

#[test]
fn ranks_run_on_the_cpus_that_they_are_bound_to() {
    let folder = Folder::new();
    let cpus = viaduct_os::cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let script = "echo $VIADUCT_RANK $(grep Cpus_allowed_list /proc/self/status)";
    let run = |words: &[&str]| launch(&folder, &[words, &["-n", "3", "sh", "-c", script]].concat());
    let wish = |a: usize, b: usize| {
        [a, b, a]
            .iter()
            .enumerate()
            .map(|(n, cpu)| format!("{n} Cpus_allowed_list: {cpu}"))
            .collect::<Vec<_>>()
    };
    let list = format!("user:{last},{first}");
    let bound = run(&["--bind-to", &list, "--report-bindings"]);
    assert_eq!(sorted(&bound.out), wish(last, first), "{}", bound.err);
    assert!(bound.err.contains(&format!("rank 1: localhost: bound to CPUs {first}\n")), "{}", bound.err);
    // As hydra writes it: one CPU each.
    let bound = run(&["-bind-to", "hwthread"]);
    assert!(
        bound.out.lines().all(|line| line.rsplit(' ').next().unwrap().parse::<usize>().is_ok()),
        "{}",
        bound.out
    );
    if cpus.len() > 1 {
        assert_ne!(sorted(&bound.out)[0].rsplit(' ').next(), sorted(&bound.out)[1].rsplit(' ').next());
    }
    let none = run(&["--bind-to", "none", "--map-by", "socket"]);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    assert!(none.out.lines().all(|line| line.ends_with(&own)), "{} {own}", none.out);
    let absent = run(&["--bind-to", "user:65000"]);
    assert!(absent.status == 126 && absent.err.contains("ranks 0-2: localhost: CPU 65000"), "{}", absent.err);
}

#[test]
fn output_goes_to_a_file_for_each_rank() {
    let folder = Folder::new();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let script = "echo out $VIADUCT_RANK; echo err $VIADUCT_RANK >&2";
    let (out, err) = (file("made/out.%r.%h"), file("err"));
    let run =
        launch(&folder, &["-n", "2", "-outfile-pattern", &out, "--error-file", &err, "sh", "-c", script]);
    assert_eq!((run.status, &*run.out, &*run.err), (0, "", ""));
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    assert_eq!(
        (read("made/out.0.localhost"), read("made/out.1.localhost")),
        ("out 0\n".to_owned(), "out 1\n".to_owned())
    );
    assert_eq!(sorted(&read("err")), ["err 0", "err 1"], "they share a file, in whole lines");
}

#[test]
fn variables_have_values_or_are_missed() {
    let folder = Folder::new();
    let run = launch(&folder, &["-x", "C=3,4", "-x", "NO_SUCH_VARIABLE", "sh", "-c", "echo [$C]"]);
    assert_eq!(run.out, "[3,4]\n");
    assert!(run.err.contains("-x NO_SUCH_VARIABLE: that variable is not set here"), "{}", run.err);
}

#[test]
fn a_line_of_megabytes_stays_one_line() {
    let folder = Folder::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' a; echo; echo short";
    let run = launch(&folder, &["-n", "2", "sh", "-c", script]);
    let mut lengths: Vec<usize> = run.out.lines().map(str::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [5, 5, 3_000_000, 3_000_000], "{}", run.err);
    // One that stops in its line does not stop the others.
    let script = "test $VIADUCT_RANK = 0 && { head -c 2000000 /dev/zero | tr '\\0' a; exec sleep 1000; }; sleep 0.3; seq 50000; echo last";
    let mut command = launching::command(&folder, &["-n", "2", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = Vec::new();
    let mut out = child.stdout.take().unwrap();
    let mut bytes = vec![0; 1 << 16];
    while !text.ends_with(b"\nlast\n") {
        let n = out.read(&mut bytes).unwrap();
        assert!(n > 0, "the end came too soon");
        text.extend_from_slice(&bytes[..n]);
    }
    launching::signal(child.id(), 15);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    child.wait().unwrap();
    assert!(err.contains("rank 0 stopped in a line of more than 1 MiB"), "{err}");
}

#[test]
fn many_ranks_that_fail_alike_are_one_message_and_one_row() {
    let folder = Folder::new();
    let run = launch(&folder, &["-n", "200", "nothere"]);
    assert_eq!(run.status, 127);
    assert_eq!(run.err.matches("nothere").count(), 1, "{}", run.err);
    assert!(
        run.err.contains("ranks 0-199: localhost: nothere: not found; it is in no folder of PATH"),
        "{}",
        run.err
    );
    assert!(run.err.lines().count() < 8 && run.err.contains("first to fail: rank 0"), "{}", run.err);
}

#[test]
fn too_few_descriptors_are_named_beforehand() {
    let folder = Folder::new();
    let Some(prlimit) = need_program("prlimit", "util-linux") else { return };
    let limited = |limit: &str, args: &[&str]| {
        let launch = launching::command(&folder, args);
        let mut command = std::process::Command::new(&prlimit);
        command.arg(format!("--nofile={limit}")).arg(launch.get_program()).args(launch.get_args());
        command.envs(launch.get_envs().filter_map(|(name, value)| Some((name, value?))));
        finish(command)
    };
    let run = limited("256:256", &["-n", "200", "true"]);
    assert!(
        run.status == 2 && run.err.contains("200 ranks need about") && run.err.contains("ulimit"),
        "{}",
        run.err
    );
    // The soft limit is raised for the launcher alone.
    let run = limited("64:4096", &["-n", "100", "sh", "-c", "ulimit -n"]);
    assert_eq!((run.status, run.out.lines().filter(|line| *line == "64").count()), (0, 100), "{}", run.err);
}

#[test]
fn why_a_program_cannot_be_started_is_told_apart() {
    let folder = Folder::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let script = file("script", "#!/no/such/shell\n", 0o755);
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let own = folder.path().display().to_string();
    for (program, status, words) in [
        ("./nothere", 127, "./nothere: not found; is the path right?"),
        (&script, 127, "is there, but its interpreter (/no/such/shell) is not"),
        (&plain, 126, "may not be executed; `chmod +x` allows it"),
        (&own, 126, "is a folder, not a program"),
    ] {
        let run = launch(&folder, &[program]);
        assert!(run.status == status && run.err.contains(words), "{program}: {} {}", run.status, run.err);
    }
}

#[test]
fn programs_of_open_mpi_are_refused_unless_that_is_wanted() {
    let Some(compiler) = need_program("cc", "gcc") else { return };
    let folder = Folder::new();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("lib.c"), "int f(void) { return 0; }").unwrap();
    std::fs::write(file("main.c"), "int f(void); int main(void) { return f(); }").unwrap();
    let library = file("libmpi.so.40");
    let compile = |words: &[&str]| {
        let mut command = std::process::Command::new(&compiler);
        command.args(words);
        let run = finish(command);
        assert_eq!(run.status, 0, "{}", run.err);
    };
    compile(&["-shared", "-fPIC", "-Wl,-soname,libmpi.so.40", "-o", &library, &file("lib.c")]);
    compile(&[
        "-o",
        &file("program"),
        &file("main.c"),
        &library,
        &format!("-Wl,-rpath,{}", folder.path().display()),
    ]);
    let run = launch(&folder, &["-n", "2", &file("program")]);
    assert!(run.status == 126 && run.err.contains("is a program of Open MPI (libmpi.so.40)"), "{}", run.err);
    for args in [&["-n", "1"][..], &["-n", "2", "--allow-singletons"]] {
        let run = launch(&folder, &[args, &[&file("program")]].concat());
        assert_eq!(run.status, 0, "{}", run.err);
    }
}

/// `script`, `expect` and some builders make terminals without a width.
#[test]
fn a_terminal_without_a_width_gets_a_whole_table() {
    let Some(script) = need_program("script", "bsdutils") else { return };
    let folder = Folder::new();
    let mut command = std::process::Command::new(script);
    let line = format!("stty cols 0; {} launch --table always -n 2 true", env!("CARGO_BIN_EXE_viaduct"));
    command.args(["-qec", &line, "/dev/null"]).env("VIADUCT_RUNTIME_DIR", folder.path());
    let run = finish(command);
    assert!(run.out.lines().any(|line| line.contains("rank") && line.contains("seconds")), "{}", run.out);
}
