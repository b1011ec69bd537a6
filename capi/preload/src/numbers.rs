//! `syscall` and `prctl`: system calls by number lead to the same functions, and those after which nothing may be
//! upgraded any more are noted.

use libc::{c_int, c_long, c_uint, c_ulong};
use viaduct_intercept::{carry, settings};
use viaduct_os::bare::syscall as enter;

use crate::{data, give, give_int, messages, names, ready, select, spawn};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: the caller's promise, here and below: it is that of the system call.
    unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as _, c) as c_long,
            libc::SYS_write => data::write(fd, b as _, c) as c_long,
            libc::SYS_readv => data::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => data::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => messages::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long,
            libc::SYS_sendto => messages::sendto(fd, b as _, c, d as c_int, e as _, f as u32) as c_long,
            libc::SYS_recvmsg => messages::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmsg => messages::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_close => c_long::from(names::close(fd)),
            libc::SYS_close_range => c_long::from(names::close_range(a as u32, b as u32, c as c_int)),
            libc::SYS_dup => c_long::from(names::dup(fd)),
            libc::SYS_dup3 => c_long::from(names::dup3(fd, b as c_int, c as c_int)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => c_long::from(names::dup2(fd, b as c_int)),
            libc::SYS_shutdown => c_long::from(names::shutdown(fd, b as c_int)),
            libc::SYS_recvmmsg => {
                c_long::from(messages::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _))
            }
            libc::SYS_sendmmsg => c_long::from(messages::sendmmsg(fd, b as _, c as c_uint, d as c_int)),
            libc::SYS_preadv2 => data::preadv2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_pwritev2 => data::pwritev2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_sendfile => data::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => data::splice(fd, b as _, c as c_int, d as _, e, f as u32) as c_long,
            libc::SYS_socket => c_long::from(names::socket(fd, b as c_int, c as c_int)),
            libc::SYS_listen => c_long::from(names::listen(fd, b as c_int)),
            libc::SYS_connect => c_long::from(names::connect(fd, b as _, c as u32)),
            libc::SYS_accept => c_long::from(names::accept(fd, b as _, c as _)),
            libc::SYS_accept4 => c_long::from(names::accept4(fd, b as _, c as _, d as c_int)),
            libc::SYS_fcntl => c_long::from(names::fcntl(fd, b as c_int, c)),
            libc::SYS_ioctl => c_long::from(names::ioctl(fd, b as c_ulong, c)),
            libc::SYS_setsockopt => {
                c_long::from(names::setsockopt(fd, b as c_int, c as c_int, d as _, e as u32))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => c_long::from(ready::poll(a as _, b as _, c as c_int)),
            libc::SYS_ppoll => c_long::from(ready::ppoll(a as _, b as _, c as _, d as _)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => c_long::from(select::select(fd, b as _, c as _, d as _, e as _)),
            libc::SYS_pselect6 => c_long::from(select::pselect(fd, b as _, c as _, d as _, e as _, mask(f))),
            libc::SYS_epoll_create1 => c_long::from(ready::epoll_create1(fd)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => c_long::from(ready::epoll_create(fd)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => c_long::from(ready::epoll_wait(fd, b as _, c as c_int, d as c_int)),
            libc::SYS_epoll_pwait => {
                c_long::from(ready::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _))
            }
            libc::SYS_epoll_pwait2 => {
                c_long::from(ready::epoll_pwait2(fd, b as _, c as c_int, d as _, e as _))
            }
            libc::SYS_prctl => c_long::from(prctl(fd, b, c, d, e)),
            libc::SYS_exit_group => spawn::_exit(fd),
            libc::SYS_epoll_ctl => c_long::from(ready::epoll_ctl(fd, b as c_int, c as c_int, d as _)),
            libc::SYS_execve => c_long::from(spawn::execve(a as _, b as _, c as _)),
            libc::SYS_execveat => c_long::from(spawn::execveat(fd, b as _, c as _, d as _, e as c_int)),
            libc::SYS_io_uring_setup => {
                spawn::before_uring();
                give(enter(number, [a, b, c, d, e, f])) as c_long
            }
            libc::SYS_seccomp => {
                before_filter();
                give(enter(number, [a, b, c, d, e, f])) as c_long
            }
            // No cancellation point, as libc's is none.
            _ => give(enter(number, [a, b, c, d, e, f])) as c_long,
        }
    }
}

/// The mask of signals in the last argument of `pselect6`: its address, and its size.
///
/// # Safety
/// Null or valid for reads.
unsafe fn mask(pair: usize) -> *const libc::sigset_t {
    let pair: *const *const libc::sigset_t = std::ptr::with_exposed_provenance(pair);
    // SAFETY: the caller's promise.
    if pair.is_null() { std::ptr::null() } else { unsafe { *pair } }
}

/// A filter may forbid what rings need: from here on the kernel alone moves bytes.
fn before_filter() {
    carry::part_with_all("this process has a filter of system calls");
    settings::claim_no_more();
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        before_filter();
    }
    // SAFETY: the caller's promise.
    give_int(unsafe { enter(libc::SYS_prctl, [option as usize, b, c, d, e, 0]) })
}
