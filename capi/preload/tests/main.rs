//! What the shipped library exports, what it imports, and what of it its own calls reach.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

use viaduct_kit::packages::need_program;

mod calls;

/// As cargo built it beside this test.
fn library() -> PathBuf {
    env::current_exe().unwrap().with_file_name("libsovia_preload.so")
}

fn symbols(option: &str) -> Option<BTreeSet<String>> {
    let nm = need_program("nm", "binutils")?;
    let output = Command::new(nm).args(["-D", option]).arg(library()).output().unwrap();
    assert!(output.status.success(), "{:?}", library());
    let text = String::from_utf8(output.stdout).unwrap();
    let name =
        |line: &str| line.split_whitespace().last().map(|name| name.split('@').next().unwrap().to_owned());
    Some(text.lines().filter_map(name).collect())
}

#[test]
fn every_name_that_moves_bytes_or_descriptors_is_exported() {
    let Some(exported) = symbols("--defined-only") else { return };
    for name in "read write readv writev recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg sendfile sendfile64 \
                 splice preadv2 pwritev2 preadv64v2 pwritev64v2 __recv __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk close close_range \
                 closefrom dup dup2 dup3 fcntl fcntl64 ioctl poll ppoll select pselect epoll_create epoll_create1 \
                 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 accept accept4 socket listen shutdown setsockopt syscall \
                 prctl execve execv execvp execvpe execl execlp execle execveat fexecve posix_spawn posix_spawnp system popen \
                 posix_spawn_file_actions_adddup2 io_uring_setup io_uring_queue_init io_uring_queue_init_params \
                 io_uring_queue_init_mem sockatmark fork daemon login_tty forkpty _exit _Exit sigaction __sigaction \
                 signal ssignal bsd_signal sysv_signal __sysv_signal sigset siginterrupt longjmp _longjmp siglongjmp \
                 __longjmp_chk"
        .split_whitespace()
    {
        assert!(exported.contains(name), "{name}");
    }
}

/// What code of ours may use of other objects: none of it makes a system call that the library replaces, allocates, locks or
/// opens files. `dlsym` is for calls that libc has to make itself, `dlopen` for a liburing that the program has loaded after this
/// library, `getenv` for `PATH` where a program is searched for.
const IMPORTS: &str = "_Unwind_Resume __chk_fail __errno_location __libc_single_threaded __tls_get_addr bcmp clock_gettime dlopen dlsym \
                       environ getenv memcmp memcpy memmove memset pthread_setcanceltype sched_getcpu strlen";

/// Looks what this CPU can do, and reads a file for it: before the library claims its first connection it has looked, without.
const DETECTS: &str = "viaduct_os4copy10detect_all";

/// No other library that is preloaded gets between two names of ours.
#[test]
fn no_relocation_names_what_the_library_exports() {
    let (Some(exported), Some(relocations)) = (symbols("--defined-only"), calls::relocations()) else {
        return;
    };
    let names: Vec<&String> = relocations
        .values()
        .filter_map(|target| match target {
            calls::Target::Name(name) => Some(name),
            calls::Target::Inside(_) => None,
        })
        .collect();
    let both: Vec<_> = names.iter().filter(|name| exported.contains(**name)).collect();
    assert!(both.is_empty(), "{both:?}");
    assert!(names.len() > 20, "the relocations are read");
}

/// The standard library that is linked into ours calls read, write and close, too, allocates and opens files: to print a panic.
/// A panic of ours is a defect, and ends the program.
#[test]
fn no_call_reaches_what_allocates_or_what_the_standard_library_calls() {
    let (Some(exported), Some(graph)) = (symbols("--defined-only"), calls::Graph::read()) else { return };
    let roots = || exported.iter().map(String::as_str).filter(|name| graph.defines(name));
    let imports: BTreeSet<&str> = IMPORTS.split_whitespace().collect();
    let imported = symbols("--undefined-only").unwrap_or_default();
    let stops = ["9panicking", "rust_begin_unwind", DETECTS];
    let reached = graph.reached(roots(), |name| stops.iter().any(|part| name.contains(part)));
    let is_ours = |name: &str| {
        exported.contains(name) || ["viaduct_", "sovia_preload"].iter().any(|part| name.contains(part))
    };
    for (&name, &by) in &reached {
        assert!(!imported.contains(name) || imports.contains(name), "{name} is called by {by}");
        assert!(!exported.contains(name) || by.is_empty() || is_ours(by), "{name} is called by {by}");
    }
    assert!(reached.len() > 100 && reached.contains_key("__errno_location"), "calls are followed");
    // With panics followed, too, the names of which this test says that they are not reached are found.
    let all = graph.reached(roots(), |_| false);
    assert!(all.contains_key("malloc") && all.contains_key("_Unwind_Backtrace"), "{} names", all.len());
}
