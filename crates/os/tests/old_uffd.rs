//! A process on a kernel whose userfaultfd maps no pages read-only, as those before Linux 6.4: windows fall back to mprotect
//! before a program touches them, and say what is missing where that engine was asked for. The only test in its process, which
//! it changes for good.

use viaduct_os::fault::{EngineKind, Protection, Window};
use viaduct_os::segment::Segment;

/// ioctl(UFFDIO_CONTINUE).
const CONTINUE: u32 = 0xC020_AA07;

/// Answers UFFDIO_CONTINUE with EINVAL, in this thread and in those that it starts. Only its mode tells an old kernel from a new
/// one; a filter cannot see that, and answers to all of them.
fn answer_as_old_kernels_do() {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let unless = |value, skip| libc::sock_filter { code: 0x15, jt: 0, jf: skip, k: value };
    let answer = |what| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: what };
    let mut filter = [
        load(0),
        unless(libc::SYS_ioctl as u32, 3),
        // The low word of the second argument.
        load(24),
        unless(CONTINUE, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is whole, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn windows_fall_back_to_mprotect_where_userfaultfd_maps_nothing_read_only() {
    answer_as_old_kernels_do();
    let segment = Segment::create_sparse("window", 4 << 20).expect("memory");
    let place = 0x2B00_0000_0000;
    // Where userfaultfd as such is refused (containers, old kernels), there is an error of another cause.
    let refused = Window::new(&segment, place, Some(EngineKind::Uffd)).expect_err("it can protect no page");
    assert!(refused.to_string().contains("userfaultfd"), "{refused}");
    let window = Window::new(&segment, place, None).expect("a window");
    assert_eq!(window.engine(), EngineKind::Mprotect);
    // What failed in the program's first load before.
    window.protect(0..4096, Protection::Read).expect("a page");
    // SAFETY: the first byte of the segment's own mapping.
    unsafe { segment.as_ptr().write_volatile(7) };
    // SAFETY: a page of the window that was just opened.
    assert_eq!(unsafe { window.as_ptr().read_volatile() }, 7);
}
