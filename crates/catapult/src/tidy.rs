//! What is left of processes that were killed, and what has not been used for long: removed now and then.
//!
//! ```text
//!   run-time folder   agents/*.DRAFT, job-token.DRAFT      after an hour
//!                     tokens/*  (of --dry-run)             after a day
//!   cache             bin/HASH/viaduct.PID, files/*.DRAFT  after a day
//!                     bin/HASH, files/HASH                 after thirty days without use
//! ```

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Tidies the run-time folder.
pub fn run_folder(folder: &Path) {
    sweep(&folder.join("agents"), HOUR, &|name| name.contains('.'));
    sweep(folder, HOUR, &|name| name.starts_with("job-token."));
    sweep(&folder.join("tokens"), DAY, &|_| true);
}

/// Tidies the cache. What is in use has been touched lately, see [`used`] and [`program_used`].
pub fn cache(folder: &Path) {
    for kept in fs::read_dir(folder.join("bin")).into_iter().flatten().flatten() {
        sweep(&kept.path(), DAY, &|name| name.starts_with("viaduct."));
    }
    sweep(&folder.join("files"), DAY, &|name| name.contains('.'));
    sweep(&folder.join("files"), MONTH, &|_| true);
    sweep(&folder.join("bin"), MONTH, &|_| true);
}

/// Notes that a file of the cache is in use.
pub fn used(path: &Path) {
    // One that cannot be touched is brought anew some day.
    let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Notes that a program is in use, if the cache has it: an agent that lives for weeks is reached without bringing it up again.
pub fn program_used(cache: &Path, program: &Path) {
    if let Some(folder) = program.parent().filter(|folder| folder.parent() == Some(&cache.join("bin"))) {
        // What is looked at when the cache is tidied is the age of the folder.
        used(folder);
    }
}

/// Removes entries of a folder that are older and have such a name.
fn sweep(folder: &Path, age: Duration, wanted: &dyn Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let old = meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|old| old > age);
        if old && entry.file_name().to_str().is_some_and(wanted) {
            let _ =
                if meta.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn old_drafts_and_unused_files_go() {
        let folder = TempDir::new("tidy");
        let make = |name: &str, age: Duration| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            let file = fs::File::open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let names = [
            ("agents/0123", MONTH, true),
            ("agents/0123.draft", 2 * HOUR, false),
            ("agents/0123.fresh", HOUR / 2, true),
            ("job-token", MONTH, true),
            ("job-token.12", 2 * HOUR, false),
            ("tokens/v1", 2 * DAY, false),
            ("tokens/v2", HOUR, true),
            ("files/aa", 2 * MONTH, false),
            ("files/bb", DAY, true),
            ("files/bb.12", 2 * DAY, false),
            ("bin/cc/viaduct", DAY, true),
            ("bin/cc/viaduct.77", 2 * DAY, false),
        ];
        names.iter().for_each(|(name, age, _)| make(name, *age));
        run_folder(folder.path());
        cache(folder.path());
        for (name, _, stays) in names {
            assert_eq!(folder.join(name).exists(), stays, "{name}");
        }
        make("files/dd", 2 * MONTH);
        used(&folder.join("files/dd"));
        cache(folder.path());
        assert!(folder.join("files/dd").exists());
    }

    #[test]
    fn a_program_in_use_stays_and_another_goes() {
        let folder = TempDir::new("tidy");
        for name in ["bin/used", "bin/unused"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("viaduct"), "x").unwrap();
            let file = fs::File::open(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - 2 * MONTH).unwrap();
        }
        program_used(folder.path(), &folder.join("bin/used/viaduct"));
        // The cache of another user is none of ours.
        program_used(&folder.join("elsewhere"), &folder.join("bin/unused/viaduct"));
        cache(folder.path());
        let left = ["bin/used/viaduct", "bin/unused"].map(|name| folder.join(name).exists());
        assert_eq!(left, [true, false]);
    }
}
