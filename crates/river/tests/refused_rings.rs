//! A program whose system call filter refuses io_uring, as that of many containers: files are still read and written past the page
//! cache, by the threads of the flow. The only test in its process, which it changes for good.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_river::disk::{Direct, DiskSink, DiskSource, Partial, Volume};
use viaduct_river::{Fixed, MemPool, Sink, pump_with};

/// Refuses io_uring_setup to this thread and to those that it starts, with EPERM.
fn refuse_rings() {
    let ld_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_it = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_io_uring_setup as u32 };
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

/// Copies `from` past the page cache. Says whether transfers were under way without the threads of the flow, at either end; `None` if
/// there is no way past the page cache.
fn copy(from: &Path, to: &Path) -> Option<[bool; 2]> {
    let volumes = vec![Volume::open(from).unwrap()];
    let pool = MemPool::new(4, 65_536).unwrap();
    let format = Arc::new(Fixed(100));
    let source = DiskSource::new("input", volumes, format, pool, Direct::On, Partial::Refuse).unwrap();
    if !source.is_direct() {
        return None;
    }
    let file = File::options().read(true).write(true).create(true).truncate(true).open(to).unwrap();
    let mut volume = Volume::of_files(vec![(to.to_owned(), file)], u64::MAX);
    volume.use_direct();
    let sink = DiskSink::new("output", volume);
    pump_with(2, &source, &sink).unwrap();
    assert_eq!((sink.whole().unwrap(), sink.edge().counts().records), (source.len(), source.len() / 100));
    Some([source.is_ahead(), sink.is_ahead()])
}

#[test]
fn files_are_read_and_written_past_the_page_cache_where_io_uring_is_refused() {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(60)), "a flow");
    let folder = TempDir::new("river-no-rings");
    let (from, to) = (folder.join("from"), folder.join("to"));
    let bytes: Vec<u8> = (0..3_000_100u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    let Some(before) = copy(&from, &to) else {
        viaduct_kit::skip!("the folder for temporary files has no direct I/O");
    };
    refuse_rings();
    std::fs::remove_file(&to).unwrap();
    assert_eq!(copy(&from, &to), Some([false; 2]), "before: {before:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
}
