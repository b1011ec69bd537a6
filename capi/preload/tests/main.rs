//! What the shipped library exports and what it imports.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

use viaduct_kit::packages::need_program;

fn symbols(option: &str) -> Option<BTreeSet<String>> {
    let nm = need_program("nm", "binutils")?;
    let library = env::current_exe().unwrap().with_file_name("libsovia_preload.so");
    let output = Command::new(nm).args(["-D", option]).arg(&library).output().unwrap();
    assert!(output.status.success(), "{library:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let name =
        |line: &str| line.split_whitespace().last().map(|name| name.split('@').next().unwrap().to_owned());
    Some(text.lines().filter_map(name).collect())
}

#[test]
fn every_name_that_moves_bytes_or_descriptors_is_exported() {
    let Some(exported) = symbols("--defined-only") else { return };
    for name in "read write readv writev recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg sendfile sendfile64 \
                 splice preadv2 pwritev2 __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk close close_range \
                 closefrom dup dup2 dup3 fcntl fcntl64 ioctl poll ppoll select pselect epoll_create epoll_create1 \
                 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 accept accept4 socket listen shutdown setsockopt syscall \
                 prctl execve execv execvp execvpe execl execlp execle execveat fexecve posix_spawn posix_spawnp system popen \
                 posix_spawn_file_actions_adddup2 io_uring_setup io_uring_queue_init sockatmark fork daemon _exit _Exit"
        .split_whitespace()
    {
        assert!(exported.contains(name), "{name}");
    }
}

/// Names that the library exports and that its own code, or the standard library that is linked into it, could call.
/// The engine makes system calls by the instruction; what the standard library brings is for printing a panic and for
/// starting threads, and no interposed call reaches it.
#[test]
fn our_own_code_calls_no_name_that_it_exports() {
    let (Some(exported), Some(imported)) = (symbols("--defined-only"), symbols("--undefined-only")) else {
        return;
    };
    let both: Vec<_> = exported.intersection(&imported).collect();
    assert!(both.is_empty(), "{both:?}");
}
