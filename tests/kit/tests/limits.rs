//! Limits put themselves back, the watchdog bites, and both say what happened.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use viaduct_kit::resources::{no_core_files, with_extra_memory, with_memlock_limit, with_nofile_limit};
use viaduct_kit::watchdog::Watchdog;

#[expect(clippy::zombie_processes, reason = "the watchdog ends it")]
fn hang() {
    no_core_files();
    // A shell with a child of its own.
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 601 >/dev/null 2>&1 & echo $!; wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut below = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut below).unwrap();
    eprintln!("below: {}", below.trim());
    let _watchdog = Watchdog::arm(Duration::from_millis(50), "a sleep on purpose");
    std::thread::sleep(Duration::from_secs(600));
}

viaduct_kit::child!(HANGS, |_args| hang());

#[test]
fn a_hang_ends_with_a_report() {
    let mut command = HANGS.command(&[]);
    let output = command.stdin(Stdio::null()).output().expect("the test binary can be started again");
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("WATCHDOG a sleep on purpose"), "{text}");
    assert!(text.contains("kit-watchdog"), "{text}");
    let below = text.lines().find_map(|line| line.strip_prefix("below: ")).expect("the child of the shell");
    let state = std::fs::read_to_string(format!("/proc/{below}/stat"));
    assert!(!state.is_ok_and(|state| state.contains("(sleep) S")), "{below} is still there: {text}");
}

viaduct_kit::isolated! {
    fn descriptors_run_out_and_come_back() {
        let before = getrlimit(Resource::Nofile).current;
        let error = with_nofile_limit(16, || {
            let files: Result<Vec<File>, _> = (0..16).map(|_| File::open("/dev/null")).collect();
            files.expect_err("sixteen more than there are")
        });
        assert_eq!(error.raw_os_error(), Some(24));
        assert_eq!(getrlimit(Resource::Nofile).current, before);
        File::open("/dev/null").unwrap();
    }
}

viaduct_kit::isolated! {
    fn a_panic_puts_the_limit_back() {
        let before = getrlimit(Resource::Memlock).current;
        std::panic::set_hook(Box::new(|_| {}));
        catch_unwind(|| with_memlock_limit(0, || panic!("on purpose"))).unwrap_err();
        assert_eq!(getrlimit(Resource::Memlock).current, before);
    }
}

viaduct_kit::isolated! {
    fn memory_runs_out() {
        with_extra_memory(64 << 20, || {
            assert!(Vec::<u8>::new().try_reserve_exact(1 << 20).is_ok());
            assert!(Vec::<u8>::new().try_reserve_exact(256 << 20).is_err());
        });
        assert!(Vec::<u8>::new().try_reserve_exact(256 << 20).is_ok());
    }
}
