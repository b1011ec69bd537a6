//! In which state a process is, of whichever user it is.

use std::fs;

/// Its state as the kernel writes it: `R` runs, `S` sleeps, `T` is stopped, `Z` waits to be buried; none if it is gone.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have any character in it.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process is stopped.
pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// Whether a process has ended; one that only waits to be buried has.
pub fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_and_ends() {
        let own = std::process::id();
        assert!(!has_ended(own) && !is_stopped(own));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(state(child.id()), None);
    }
}
