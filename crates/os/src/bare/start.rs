//! Starting a program apart from the application: no child of it, none of its descriptors, its terminal or its folder.

use core::ffi::{CStr, c_char};

use super::gate::syscall;

/// Linux: children that end without a signal are waited for only if asked for by this.
const WCLONE: usize = 0x8000_0000;

/// Starts `words[0]` with these words and variables, in a session of its own, and does not wait for it to end.
///
/// Two children in a row: the first ends at once and is waited for here, so that the application never hears of
/// either. Both make system calls only, so any thread of any process may call this.
pub fn apart(words: &[&CStr], variables: &[&CStr]) {
    const MOST: usize = 8;
    let mut arguments = [core::ptr::null::<c_char>(); MOST];
    let mut environment = [core::ptr::null::<c_char>(); MOST];
    if words.is_empty() || words.len() >= MOST || variables.len() >= MOST {
        return;
    }
    arguments.iter_mut().zip(words).for_each(|(place, word)| *place = word.as_ptr());
    environment.iter_mut().zip(variables).for_each(|(place, variable)| *place = variable.as_ptr());
    let call = |number: i64, args: [usize; 6]| {
        // SAFETY: calls without pointers, or with pointers to the locals above and to constants.
        unsafe { syscall(number, args) }
    };
    // No signal at its end, and no memory shared.
    let child = || call(libc::SYS_clone, [0; 6]);
    match child() {
        Ok(0) => {
            let _ = call(libc::SYS_setsid, [0; 6]);
            if child() == Ok(0) {
                let nowhere =
                    [libc::AT_FDCWD as usize, c"/dev/null".as_ptr() as usize, libc::O_RDWR as usize];
                let null = call(libc::SYS_openat, [nowhere[0], nowhere[1], nowhere[2], 0, 0, 0]).unwrap_or(0);
                for fd in 0..3 {
                    let _ = call(libc::SYS_dup3, [null, fd, 0, 0, 0, 0]);
                }
                let _ = call(libc::SYS_close_range, [3, u32::MAX as usize, 0, 0, 0, 0]);
                let _ = call(libc::SYS_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
                let _ = call(
                    libc::SYS_execve,
                    [
                        arguments[0] as usize,
                        arguments.as_ptr() as usize,
                        environment.as_ptr() as usize,
                        0,
                        0,
                        0,
                    ],
                );
            }
            loop {
                let _ = call(libc::SYS_exit_group, [0; 6]);
            }
        }
        Ok(pid) => {
            while call(libc::SYS_wait4, [pid, 0, WCLONE, 0, 0, 0]).is_err_and(|e| e.0 == libc::EINTR) {}
        }
        Err(_) => {}
    }
}

/// Runs `work` in a process of its own, which is no child of the application and ends afterwards. Whether there is one.
///
/// It has copies of all memory and descriptors, in a session of its own. `work` makes system calls only: other threads
/// may hold any lock.
pub fn beside(work: impl FnOnce()) -> bool {
    in_child(|| {
        let call = |number: i64| {
            // SAFETY: calls without pointers.
            unsafe { syscall(number, [0; 6]) }
        };
        let _ = call(libc::SYS_setsid);
        match call(libc::SYS_clone) {
            Ok(0) => {
                work();
                true
            }
            made => made.is_ok(),
        }
    })
}

/// Runs `work` in a child and waits for its end; the application hears of neither. As [`beside`] else.
pub fn meanwhile(work: impl FnOnce()) {
    in_child(|| {
        work();
        true
    });
}

/// Runs `work` in a child, without a signal at its end, and waits for that. What it returned; false if there was no child.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    let call = |number: i64, args: [usize; 6]| {
        // SAFETY: calls without pointers, or with one to a local that is valid for writes.
        unsafe { syscall(number, args) }
    };
    match call(libc::SYS_clone, [0; 6]) {
        Ok(0) => {
            let status = usize::from(!work());
            loop {
                let _ = call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]);
            }
        }
        Ok(pid) => {
            let mut status = -1i32;
            let args = [pid, &raw mut status as usize, WCLONE, 0, 0, 0];
            while call(libc::SYS_wait4, args).is_err_and(|e| e.0 == libc::EINTR) {}
            status == 0
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_meanwhile_in_a_child() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&writer) as usize;
        let mut here = 1;
        meanwhile(|| {
            here = 2;
            // SAFETY: constants, and an open descriptor.
            let _ = unsafe { syscall(libc::SYS_write, [fd, c"done".as_ptr() as usize, 4, 0, 0, 0]) };
        });
        drop(writer);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut reader, &mut said).unwrap();
        assert_eq!((said.as_str(), here), ("done", 1));
    }

    #[test]
    fn work_is_done_beside_and_is_no_child() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&writer) as usize;
        assert!(beside(|| {
            // SAFETY: no pointers.
            let parent = unsafe { syscall(libc::SYS_getppid, [0; 6]) }.unwrap_or(0).to_ne_bytes();
            // SAFETY: the local is valid for reads, and the descriptor open.
            let _ = unsafe { syscall(libc::SYS_write, [fd, parent.as_ptr() as usize, 8, 0, 0, 0]) };
        }));
        drop(writer);
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut said).unwrap();
        let parent = usize::from_ne_bytes(said.try_into().unwrap());
        assert_ne!(parent, std::process::id() as usize);
    }

    #[test]
    fn a_program_runs_apart_and_is_no_child() {
        let path = std::env::temp_dir().join(format!("viaduct-apart-{}", std::process::id()));
        let text = std::ffi::CString::new(format!(
            "echo $WORD $PPID $(ls /proc/self/fd | wc -l) >{0}.new; mv {0}.new {0}",
            path.display()
        ));
        apart(&[c"/bin/sh", c"-c", &text.unwrap()], &[c"WORD=hello", c"PATH=/bin:/usr/bin"]);
        let mut said = String::new();
        for _ in 0..3000 {
            if let Ok(text) = std::fs::read_to_string(&path) {
                said = text;
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = std::fs::remove_file(&path);
        // Input, output, errors, and the one with which ls reads the folder.
        let words: Vec<_> = said.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("hello", "4"), "{said}");
        assert_ne!(words[1], std::process::id().to_string());
    }
}
