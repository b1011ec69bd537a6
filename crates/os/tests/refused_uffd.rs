//! A process to which userfaultfd is refused, as containers do: windows fall back to mprotect, and say why the engine that was
//! asked for is not there. The only test in its process, which it changes for good.

use std::error::Error;

use viaduct_os::fault::{EngineKind, Protection, Window};
use viaduct_os::segment::Segment;

/// Refuses userfaultfd to this thread and to those that it starts, with EPERM.
fn refuse_userfaultfd() {
    let ld_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_it = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_userfaultfd as u32 };
    let refuse =
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut filter = [ld_number, is_it, refuse, allow];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is whole, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn windows_fall_back_to_mprotect_where_userfaultfd_is_refused() {
    refuse_userfaultfd();
    let segment = Segment::create_sparse("window", 4 << 20).expect("memory");
    let place = 0x2B00_0000_0000;
    let refused = Window::new(&segment, place, Some(EngineKind::Uffd)).expect_err("userfaultfd is refused");
    let cause = refused.source().map(ToString::to_string).unwrap_or_default();
    assert!(format!("{refused} {cause}").contains("userfaultfd"), "{refused}: {cause}");
    let window = Window::new(&segment, place, None).expect("a window");
    assert_eq!(window.engine(), EngineKind::Mprotect);
    window.protect(0..4096, Protection::Write).expect("a page");
    // SAFETY: a page of the window that was just opened.
    unsafe { window.as_ptr().write_volatile(7) };
    // SAFETY: the first byte of the segment's own mapping.
    assert_eq!(unsafe { segment.as_ptr().read_volatile() }, 7);
}
