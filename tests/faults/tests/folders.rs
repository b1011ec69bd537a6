//! The run-time folder: full, another user's, open to others, a link, too long a path; and addresses in it that are
//! taken, or were left by the dead.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_faults::door::{GREETER, Guest};
use viaduct_faults::node::{Mode, config, try_open};
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::unprivileged::NOBODY;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::error::OsError;
use viaduct_via::{Error, NetAddress, Nic};

const LIMIT: Duration = Duration::from_secs(60);

fn open(folder: &Path) -> Result<Nic, Error> {
    try_open(&config(folder, Mode::Direct))
}

fn address(name: &str) -> NetAddress {
    name.parse().unwrap()
}

fn private_folder(path: PathBuf) -> PathBuf {
    fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    path
}

viaduct_kit::isolated! { limit 120;
    fn a_full_folder_is_said_to_be_full() {
        if !viaduct_kit::packages::need_root() {
            return;
        }
        let parent = TempDir::new("full");
        let folder = private_folder(parent.join("run"));
        if !mount_small(&folder) {
            viaduct_kit::skip!("this machine allows no mount namespace: {}", std::io::Error::last_os_error());
        }
        let mut nic = open(&folder).unwrap();
        // Two files beside the folder itself.
        let first = nic.listen(&address("first"), 1).unwrap();
        nic.listen(&address("second"), 1).unwrap();
        for _ in 0..3 {
            let error = nic.listen(&address("third"), 1).unwrap_err();
            assert!(matches!(error, Error::Os(OsError::NoSpace { .. })), "{error}");
        }
        let error = open(&folder.join("deeper")).expect_err("no room for another folder");
        assert!(matches!(error, Error::Os(OsError::NoSpace { .. })), "{error}");
        nic.unlisten(first).unwrap();
        nic.listen(&address("third"), 1).unwrap();
        drop(nic);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "files were left behind");
    }
}

#[test]
fn a_folder_that_is_not_private_is_refused() {
    let parent = TempDir::new("folder");
    let refused = |path: &Path, why: &str| {
        let error = open(path).expect_err("a folder to be refused");
        assert!(matches!(&error, Error::Os(OsError::BadDir { .. })), "{path:?}: {error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    let shown = private_folder(parent.join("shown"));
    for mode in [0o755, 0o770, 0o701] {
        fs::set_permissions(&shown, fs::Permissions::from_mode(mode)).unwrap();
        refused(&shown, "other users can enter");
    }
    fs::set_permissions(&shown, fs::Permissions::from_mode(0o700)).unwrap();
    drop(open(&shown).unwrap());
    let link = parent.join("link");
    symlink(&shown, &link).unwrap();
    refused(&link, "symbolic link");
    fs::write(parent.join("file"), "").unwrap();
    refused(&parent.join("file"), "it is a file");
    if viaduct_kit::packages::need_root() {
        chown(&shown, Some(NOBODY), None).unwrap();
        refused(&shown, "another user");
    }
}

#[test]
fn a_long_path_works_and_an_endless_one_is_an_error() {
    let parent = TempDir::new("long");
    // Longer than the address of a Unix socket may be.
    let mut folder = parent.path().to_owned();
    (0..12).for_each(|_| folder = private_folder(folder.join("a-rather-long-name-for-a-folder")));
    assert!(folder.as_os_str().len() > 300);
    let _watchdog = Watchdog::arm(LIMIT, "a long path");
    let mut server = GREETER.spawn(&[folder.to_str().unwrap(), "0"]);
    server.expect_line("ready", LIMIT);
    drop(Guest::come(&config(&folder, Mode::Direct), LIMIT).unwrap());
    // Long addresses are hashed, whatever is in them.
    let mut nic = open(&folder).unwrap();
    let odd = NetAddress::new(b"localhost", &[0xff; 64]).unwrap();
    nic.listen(&odd, 1).unwrap();
    assert!(matches!(nic.listen(&odd, 1), Err(Error::AddressInUse(_))));
    drop(server);
    for endless in [parent.join("x".repeat(300)), PathBuf::from(format!("/tmp{}", "/deeper".repeat(700)))] {
        let error = open(&endless).expect_err("no file system takes such a path");
        assert!(matches!(&error, Error::Os(OsError::Sys { .. } | OsError::BadDir { .. })), "{error}");
    }
}

viaduct_kit::isolated! { limit 120;
    fn an_address_is_taken_until_its_owner_is_gone() {
        let _watchdog = Watchdog::arm(LIMIT, "an address of another process");
        let folder = TempDir::new("taken");
        drop(open(folder.path()).unwrap());
        let leaks = LeakCheck::start_with_folders([folder.path()]);
        {
            let mut nic = open(folder.path()).unwrap();
            for round in 0..20 {
                let mut owner = GREETER.spawn(&[folder.path().to_str().unwrap(), "0"]);
                owner.expect_line("ready", LIMIT);
                assert!(matches!(nic.listen(&address("door"), 1), Err(Error::AddressInUse(name)) if name == "door"));
                owner.kill();
                owner.wait(LIMIT);
                assert!(folder.join("door.sock").exists(), "a killed process leaves its file");
                if round % 2 == 0 {
                    // No process answers there, and the next listener takes it over.
                    let absent = Guest::come(&config(folder.path(), Mode::Direct), LIMIT).err();
                    assert!(matches!(absent, Some(Error::NoMatch(_))), "{absent:?}");
                }
                let listener = nic.listen(&address("door"), 1).unwrap();
                nic.unlisten(listener).unwrap();
                assert!(!folder.join("door.sock").exists());
            }
        }
        leaks.finish();
    }
}

/// Puts a file system for three files over the folder, seen by this process alone.
fn mount_small(folder: &Path) -> bool {
    let folder = CString::new(folder.to_str().unwrap()).unwrap();
    let none = std::ptr::null();
    // SAFETY: the strings are terminated, and this process has no other thread that a new namespace could surprise.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            && libc::mount(
                c"tmpfs".as_ptr(),
                folder.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=64k,nr_inodes=3,mode=0700".as_ptr().cast(),
            ) == 0
    }
}
