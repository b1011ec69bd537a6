//! A program whose system call filter refuses io_uring, as that of many containers: files are still read and written past the page
//! cache, by the threads of the flow. The only test in its process, which it changes for good.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::refused::refuse;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_river::disk::{Direct, DiskSink, DiskSource, Partial, Volume};
use viaduct_river::{Fixed, MemPool, Sink, pump_with};

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
    refuse(libc::SYS_io_uring_setup);
    std::fs::remove_file(&to).unwrap();
    assert_eq!(copy(&from, &to), Some([false; 2]), "before: {before:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
}
