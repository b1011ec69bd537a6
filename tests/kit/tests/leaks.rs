//! The leak check sees what it promises to see: each kind once left behind, once cleaned up.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use viaduct_kit::child::{hear, say};
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

const LIMIT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

viaduct_kit::child!(WAITS, |_args| {
    say("ready");
    hear();
});

viaduct_kit::isolated! {
    fn a_descriptor_left_open_is_seen() {
        let leaks = LeakCheck::start().settle(SHORT);
        let file = File::open("/dev/null").unwrap();
        let difference = leaks.difference().expect("one descriptor more");
        assert!(difference.contains("-> /dev/null"), "{difference}");
        drop(file);
        leaks.finish();
    }
}

viaduct_kit::isolated! {
    fn a_named_mapping_is_seen() {
        let leaks = LeakCheck::start().settle(SHORT);
        let segment = Segment::map(8192);
        let difference = leaks.difference().expect("one mapping more");
        assert!(difference.contains("viaduct-leak") && difference.contains("8192 bytes"), "{difference}");
        drop(segment);
        leaks.finish();
    }
}

viaduct_kit::isolated! {
    fn a_child_is_seen_alive_and_as_a_zombie() {
        let leaks = LeakCheck::start().settle(SHORT);
        let mut child = WAITS.spawn(&[]);
        child.expect_line("ready", LIMIT);
        let difference = leaks.difference().expect("one child more");
        assert!(difference.contains(&format!("process {}", child.pid())), "{difference}");
        drop(child);
        assert_eq!(leaks.difference(), None);

        let mut ended = Command::new("true").spawn().unwrap();
        while !has_zombie() {
            thread::sleep(Duration::from_millis(1));
        }
        let difference = leaks.difference().expect("one zombie more");
        assert!(difference.contains("ended but not waited for"), "{difference}");
        ended.wait().unwrap();
        leaks.finish();
    }
}

viaduct_kit::isolated! {
    fn an_orphan_is_adopted_and_seen() {
        let leaks = LeakCheck::start().adopt_orphans().settle(SHORT);
        let script = "sleep 600 <&- >&- 2>&- & echo $!";
        let output = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
        let orphan: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let difference = leaks.difference().expect("the orphan");
        assert!(difference.contains(&format!("process {orphan} s")), "{difference}");
        let orphan = rustix::process::Pid::from_raw(orphan).unwrap();
        rustix::process::kill_process(orphan, rustix::process::Signal::KILL).unwrap();
        leaks.settle(LIMIT).finish();
    }
}

viaduct_kit::isolated! {
    fn a_file_is_seen_in_a_folder_of_a_folder() {
        let folder = TempDir::new("leaks");
        let leaks = LeakCheck::start_with_folders([folder.path()]).settle(SHORT);
        fs::create_dir(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/socket"), "").unwrap();
        let difference = leaks.difference().expect("a folder and a file more");
        assert!(difference.contains("inner/socket"), "{difference}");
        fs::remove_dir_all(folder.join("inner")).unwrap();
        leaks.finish();
    }
}

viaduct_kit::isolated! {
    fn a_thread_is_seen_and_one_that_ends_is_waited_for() {
        let leaks = LeakCheck::start().settle(SHORT);
        let (stop, stopped) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("worker".to_owned()).spawn(move || stopped.recv()).unwrap();
        let difference = leaks.difference().expect("one thread more");
        assert!(difference.contains("worker"), "{difference}");
        drop(stop);
        drop(worker);
        leaks.settle(LIMIT).finish();
    }
}

viaduct_kit::isolated! {
    fn the_kits_own_threads_do_not_count() {
        let leaks = LeakCheck::start().settle(SHORT);
        let _watchdog = Watchdog::arm(LIMIT, "nothing");
        leaks.finish();
    }
}

viaduct_kit::isolated! {
    fn a_descriptor_left_open_fails_the_test() {
        let leaks = LeakCheck::start().settle(SHORT);
        let _file = File::open("/dev/null").unwrap();
        std::panic::set_hook(Box::new(|_| {}));
        let failed = std::panic::catch_unwind(|| leaks.finish());
        let message = *failed.expect_err("a descriptor is open").downcast::<String>().unwrap();
        assert!(message.contains("left behind") && message.contains("+ fd"), "{message}");
    }
}

/// A mapped memory file, named as Viaduct's segments are.
struct Segment {
    start: *mut std::ffi::c_void,
    bytes: usize,
}

impl Segment {
    fn map(bytes: usize) -> Self {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = memfd_create("viaduct-leak", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing; no thread reads or writes it.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, &file, 0) }.unwrap();
        Self { start, bytes }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this size, and no reference into it exists.
        unsafe { rustix::mm::munmap(self.start, self.bytes) }.unwrap();
    }
}

fn has_zombie() -> bool {
    viaduct_kit::leaks::descendants(std::process::id()).iter().any(|process| process.ended)
}
