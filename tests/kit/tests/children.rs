//! Children: what is said arrives, signals act, nothing outlives its parent.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::process::{has_ended, state};
use viaduct_kit::unprivileged::unprivileged;

/// Long enough for a machine with much else to do; a hang fails, slowness does not.
const LIMIT: Duration = Duration::from_secs(30);

viaduct_kit::child!(ECHO, |args| {
    say(format!("ready {}", args.join(",")));
    while let Some(line) = hear() {
        say(format!("echo {line}"));
    }
});

viaduct_kit::child!(PANICS, |_args| panic!("on purpose"));

viaduct_kit::child!(TALKS_A_LOT, |_args| {
    for number in 0..20_000 {
        say(format!("line {number}"));
    }
});

viaduct_kit::child!(PARENT, |_args| {
    let mut grandchild = ECHO.spawn(&[]);
    grandchild.expect_line("ready", LIMIT);
    say(format!("grandchild {}", grandchild.pid()));
    hear();
});

viaduct_kit::child!(WHO, |_args| say(rustix::process::geteuid().as_raw()));

viaduct_kit::child!(THREADS, |_args| {
    say(std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count));
});

#[test]
fn lines_go_both_ways() {
    let mut echo = ECHO.spawn(&["one", "two words"]);
    assert_eq!(echo.expect_line("ready ", LIMIT), "one,two words");
    for line in ["hello", "", "with \ttab"] {
        echo.send_line(line);
        assert_eq!(echo.expect_line("echo ", LIMIT), line);
    }
    echo.close_input();
    assert_eq!(echo.next_line(LIMIT), None);
    assert!(echo.wait(LIMIT).success());
}

#[test]
fn a_panic_is_seen_as_101() {
    let mut command = PANICS.command(&[]);
    command.stderr(Stdio::null());
    assert_eq!(Child::start(PANICS.name(), command).wait(LIMIT).code(), Some(101));
}

#[test]
fn lines_said_before_the_end_are_kept() {
    let mut child = TALKS_A_LOT.spawn(&[]);
    assert!(child.wait(LIMIT).success());
    child.expect_line("line 0", LIMIT);
    child.expect_line("line 19999", LIMIT);
    assert_eq!(child.next_line(LIMIT), None);
}

#[test]
fn a_missing_line_fails_with_what_came_instead() {
    let missing = std::panic::catch_unwind(|| {
        let mut echo = ECHO.spawn(&["x"]);
        echo.expect_line("ready", LIMIT);
        echo.send_line("hello");
        echo.close_input();
        echo.expect_line("never", LIMIT);
    });
    let message = *missing.expect_err("no such line").downcast::<String>().unwrap();
    assert!(message.contains("never") && message.contains("echo hello"), "{message}");
}

#[test]
fn stop_cont_and_kill_act() {
    let mut echo = ECHO.spawn(&[]);
    echo.expect_line("ready", LIMIT);
    echo.stop();
    wait_for_state(&echo, 'T');
    echo.send_line("while stopped");
    assert_eq!(echo.next_line(Duration::from_millis(100)), None);
    assert!(echo.is_running());
    echo.cont();
    assert_eq!(echo.expect_line("echo ", LIMIT), "while stopped");
    echo.stop();
    echo.kill();
    let status = echo.wait(LIMIT);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert!(!echo.is_running());
}

#[test]
fn a_dropped_child_is_gone() {
    let echo = ECHO.spawn(&[]);
    let pid = echo.pid();
    drop(echo);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_grandchild_dies_with_its_killed_parent() {
    let mut parent = PARENT.spawn(&[]);
    let grandchild: u32 = parent.expect_line("grandchild ", LIMIT).parse().unwrap();
    parent.kill();
    parent.wait(LIMIT);
    let end = Instant::now() + LIMIT;
    while !has_ended(grandchild) {
        assert!(Instant::now() < end, "the grandchild lives on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_child_can_be_an_ordinary_user() {
    let mut command = WHO.command(&[]);
    let binary = std::env::current_exe().unwrap();
    let mut probe = Command::new("test");
    let _probe_user = unprivileged(probe.arg("-x").arg(&binary));
    if !probe.status().is_ok_and(|status| status.success()) {
        viaduct_kit::skip!("the build folder is closed to ordinary users");
    }
    let _user = unprivileged(&mut command);
    let mut child = Child::start(WHO.name(), command);
    assert_ne!(child.expect_line("", LIMIT), "0");
}

#[test]
fn a_child_starts_with_one_thread() {
    assert_eq!(THREADS.spawn(&[]).expect_line("", LIMIT), "1");
}

#[test]
fn any_command_can_be_a_child() {
    let mut command = Command::new("sh");
    command.args(["-c", "read x; echo got $x; echo no newline at the end | tr -d '\\n'"]);
    let mut shell = Child::start("shell", command);
    shell.send_line("it");
    assert_eq!(shell.expect_line("got ", LIMIT), "it");
    assert_eq!(shell.expect_line("no newline ", LIMIT), "at the end");
    shell.finish(LIMIT);
}

fn wait_for_state(child: &Child, wanted: char) {
    let end = Instant::now() + LIMIT;
    while state(child.pid()) != Some(wanted) {
        assert!(Instant::now() < end, "the child does not come to state {wanted}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
