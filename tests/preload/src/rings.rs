//! What stands in the words of a process's segments, from the outside: for a test that finds a program waiting for ever.
//!
//! How to read it: `readers` of 0 with a head beyond the tail is a receiver that was not armed; `rung` of 1 with an empty bell is a lost
//! bell; heads that equal their tails both ways are a reply that was never sent, or bytes that are still TCP's.

use std::fmt::Write;
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::process::Command;

use viaduct_intercept::layout::{Consumer, Direction, End, Header, Producer, Wishes};

/// The segments of a process and its sets of epoll, in words.
pub fn describe(pid: u32) -> String {
    let mut text = String::new();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let memory = File::open(format!("/proc/{pid}/mem"));
    for line in maps.lines().filter(|line| line.contains("viaduct-rings")) {
        let start = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        let mut bytes = vec![0; size_of::<Header>()];
        if let (Ok(memory), Some(start)) = (&memory, start)
            && memory.read_exact_at(&mut bytes, start).is_ok()
        {
            let _ = writeln!(text, "{pid} segment {start:x}: {}", header(&bytes));
        }
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        for line in info.lines().filter(|line| line.starts_with("tfd") || line.starts_with("eventfd-count")) {
            let _ = writeln!(text, "{pid} fd {:?}: {line}", entry.file_name());
        }
    }
    let queues = Command::new("ss").args(["-tn"]).output().map(|output| output.stdout).unwrap_or_default();
    text + &String::from_utf8_lossy(&queues)
}

fn header(bytes: &[u8]) -> String {
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let long =
        |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let mut text = format!("attached {}", word(offset_of!(Header, attached)));
    for side in 0..2 {
        let end = offset_of!(Header, ends) + side * size_of::<End>();
        let way = offset_of!(Header, directions) + side * size_of::<Direction>();
        let (producer, consumer) =
            (way + offset_of!(Direction, producer), way + offset_of!(Direction, consumer));
        let _ = write!(
            text,
            "; side {side} rung {} sends: head {} tail {} start {} end {} shut {} phase {} readers {} writers {} locks {:x} {:x}",
            word(end + offset_of!(End, rung)),
            long(producer + offset_of!(Producer, head)),
            long(consumer + offset_of!(Consumer, tail)),
            long(producer + offset_of!(Producer, start)),
            long(producer + offset_of!(Producer, end)),
            word(producer + offset_of!(Producer, shut)),
            word(consumer + offset_of!(Consumer, phase)),
            word(way + offset_of!(Direction, wishes) + offset_of!(Wishes, readers)),
            word(way + offset_of!(Direction, writers)),
            long(producer + offset_of!(Producer, lock)),
            long(consumer + offset_of!(Consumer, lock)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_they_stand() {
        let mut bytes = vec![0; size_of::<Header>()];
        let tail = offset_of!(Header, directions) + size_of::<Direction>() + offset_of!(Direction, consumer);
        bytes[tail + offset_of!(Consumer, tail)] = 77;
        bytes[offset_of!(Header, ends) + offset_of!(End, rung)] = 1;
        let said = header(&bytes);
        assert!(
            said.contains("side 0 rung 1 sends: head 0 tail 0")
                && said.contains("side 1 rung 0 sends: head 0 tail 77"),
            "{said}"
        );
        let own = describe(std::process::id());
        assert!(!own.contains("segment"), "this process has none: {own}");
    }
}
