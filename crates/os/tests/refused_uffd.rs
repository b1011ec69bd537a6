//! A process to which userfaultfd is refused, as containers do: windows fall back to mprotect, and say why the engine that was
//! asked for is not there. The only test in its process, which it changes for good.

use std::error::Error;

use viaduct_kit::refused::refuse;
use viaduct_os::fault::{EngineKind, Protection, Window};
use viaduct_os::segment::Segment;

#[test]
fn windows_fall_back_to_mprotect_where_userfaultfd_is_refused() {
    refuse(libc::SYS_userfaultfd);
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
