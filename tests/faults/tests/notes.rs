//! Strangers after the handshake: a peer that was let in and then sends garbage between control threads. Its connection
//! breaks, no other peer's does, and it cannot make its victim's memory grow.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use viaduct_faults::door::{Answer, Door, answer};
use viaduct_faults::scribbler::Garbage;
use viaduct_kit::effort;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fdpass::Channel;

const LIMIT: Duration = Duration::from_secs(60);
const ACCEPT: u32 = 3;

fn say(channel: &Channel, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    // A door shut in our face is an answer too.
    let _ = channel.send(bytes, fds);
}

viaduct_kit::isolated! { limit 300;
    fn garbage_on_an_established_channel_breaks_that_one_only() {
        let _watchdog = Watchdog::arm(LIMIT * 2, "garbage after the handshake");
        let door = Door::open();
        let letter = door.letter();
        let memory = resident();
        let mut garbage = Garbage::new(6);
        for _ in 0..effort::rounds(60, 2_000) {
            let channel = door.knock();
            say(&channel, &letter.bytes, &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Said(ACCEPT));
            let descriptor = letter.enclosed()[garbage.number() as usize % 3];
            for _ in 0..50 {
                let mut note = letter.bytes[..8].to_vec();
                let kind = garbage.number() as u32 % 7;
                note.extend(kind.to_ne_bytes());
                note.extend((garbage.number() as u32 % 4).to_ne_bytes());
                (0..6).for_each(|_| note.extend(garbage.word(0).to_ne_bytes()));
                let enclosed = if kind == 3 { &[descriptor][..] } else { &[] };
                say(&channel, &note, enclosed);
            }
            drop(channel);
        }
        // Pieces of an answer to a question that was not asked, without end.
        let channel = door.knock();
        say(&channel, &letter.bytes, &letter.enclosed());
        assert_eq!(answer(&channel), Answer::Said(ACCEPT));
        for piece in 0..4_096_u64 {
            let mut note = letter.bytes[..8].to_vec();
            note.extend(5_u64.to_ne_bytes());
            [0, 77, 0, piece * 32_768, 0, 0].iter().for_each(|word: &u64| note.extend(word.to_ne_bytes()));
            note.extend([1; 32_768]);
            while let Ok(false) = channel.send(&note, &[]) {
                std::thread::yield_now();
            }
        }
        door.serves();
        let grown = resident().saturating_sub(memory);
        assert!(grown < 64 << 20, "{grown} bytes more than before");
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_peer_that_never_reads_is_cut_off() {
        let _watchdog = Watchdog::arm(LIMIT, "a peer that never reads");
        let door = Door::open();
        let letter = door.letter();
        let memory = resident();
        // Questions with an answer each: for a slab that is not there, and for memory through a lane that is not.
        for (kind, a, b) in [(2_u32, 1_u32, 0xffff_fff0_u64), (4, 77, 4 << 32), (4, 77, 2 << 32)] {
            let channel = door.knock();
            say(&channel, &letter.bytes, &letter.enclosed());
            assert_eq!(answer(&channel), Answer::Said(ACCEPT));
            let mut note = letter.bytes[..8].to_vec();
            note.extend(kind.to_ne_bytes());
            note.extend(a.to_ne_bytes());
            [b, 5, 0, 0, 0, 0].iter().for_each(|word| note.extend(word.to_ne_bytes()));
            // Until the door is shut; the watchdog would tell if it never were.
            let mut asked = 0_u64;
            loop {
                match channel.send(&note, &[]) {
                    Ok(true) => asked += 1,
                    Ok(false) => std::thread::yield_now(),
                    Err(_) => break,
                }
            }
            eprintln!("kind {kind}: cut off after {asked} questions");
            assert!(asked > 10_000, "{asked} are not many yet");
            door.serves();
        }
        let grown = resident().saturating_sub(memory);
        assert!(grown < 128 << 20, "{grown} bytes more than before");
    }
}

/// Bytes of memory in use.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
