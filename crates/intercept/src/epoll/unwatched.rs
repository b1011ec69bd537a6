//! Sets that are not looked after: those beyond the first [`MOST_SETS`](super::MOST_SETS) of a process. What is added to one stays on
//! TCP, and a connection that has rings already is moved back there: the kernel alone reports in such a set.

use viaduct_os::bare::{Errno, calls};

use crate::descriptors;

/// Does `epoll_ctl` for such a set.
pub(super) fn control(
    epoll: i32,
    operation: i32,
    fd: i32,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    calls::epoll_ctl(epoll, operation, fd, event)?;
    if operation == libc::EPOLL_CTL_ADD {
        let _ = descriptors::keep_plain(fd, "added to a set of epoll beyond those that are looked after");
    }
    Ok(())
}
