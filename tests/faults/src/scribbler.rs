//! A hostile peer: it connects as it should and then fills the memory it shares with garbage, at full speed.
//!
//! It writes where the protocol gives it the right to write: its lanes (both directions), the bells and doorbells of
//! both NICs, its own directory and its own slabs, which the victim reads. Not the victim's slabs: with payload a peer of
//! the same user is trusted (design, section 2.3).

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use viaduct_kit::child::{Child, hear, say};
use viaduct_via::{Descriptor, MemAttributes, Reliability, ViAttributes};

use crate::node::{Mode, Place};

/// Connections that a scribbler makes, one of each level of reliability.
pub const CONNECTIONS: usize = 3;
/// Bytes of its window, whose address it tells with its requests.
pub const WINDOW: usize = 64 << 10;
/// Where its victim listens.
pub const ADDRESS: &str = "victim";

viaduct_kit::child!(SCRIBBLER, scribbler);

/// What a scribbler writes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All that it may write.
    Everything,
    /// The bells alone, saying over and over that no thread sleeps.
    Bells,
}

/// Starts a scribbler; it says "connected" when it is, begins when it is told, and ends when its input does.
pub fn start(place: Place<'_>, seed: u64, target: Target) -> Child {
    let folder = place.folder.to_str().expect("a plain path");
    let target = if target == Target::Bells { "bells" } else { "everything" };
    SCRIBBLER.spawn(&[folder, place.mode.name(), &seed.to_string(), target])
}

/// Garbage of a kind that depends on the seed, so that a failure can be repeated.
pub struct Garbage {
    state: u64,
    taste: u64,
}

impl Garbage {
    /// The garbage of this seed.
    pub fn new(seed: u64) -> Garbage {
        Garbage { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, taste: seed }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Whether it comes in single words with pauses, so that connections live long enough to meet more of it.
    pub fn is_gentle(&self) -> bool {
        self.taste % 4 > 1
    }

    /// A word that is nonsense, or nearly right: counters a little ahead, ring entries of every kind, places in slabs.
    pub fn word(&mut self, old: u64) -> u64 {
        let n = self.number();
        // Noise, everything, nearly right words, or flipped bits and counters that run ahead.
        let kind = match self.taste % 4 {
            0 => 0,
            1 => (n >> 56) % 8,
            2 => 4 + (n >> 56) % 4,
            _ => 2 + (n >> 56) % 2,
        };
        match kind {
            0 => n,
            1 => 0,
            2 => old.wrapping_add(n % 3),
            3 => old ^ 1 << (n % 64),
            4 => n % 130,
            // A ring entry: lap, flags, kind, length.
            5 => (n % 3) << 48 | (n >> 8 & 7) << 40 | (n >> 16 & 7) << 32 | n >> 24 & 0xff,
            6 => (n % 3) << 48 | (n >> 8 & 7) << 40 | (n >> 16 & 7) << 32 | n >> 24 & 0xffff_ffff,
            // A posted receive: slab and length.
            _ => (1 + n % 3) << 32 | n >> 8 & 0xf_ffff,
        }
    }
}

fn scribbler(args: &[String]) {
    let place = Place { folder: Path::new(&args[0]), mode: Mode::named(&args[1]) };
    let seed = args[2].parse::<u64>().unwrap();
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let window = nic.alloc(WINDOW, MemAttributes::remote(tag)).unwrap();
    let own_slabs = ranges("viaduct-slab");
    let mut private = window.remote(0).addr.to_ne_bytes().to_vec();
    private.extend(window.remote(0).handle.number().to_ne_bytes());
    for level in Reliability::ALL {
        let vi = nic.create_vi(ViAttributes::new(tag).reliability(level)).unwrap();
        for _ in 0..40 {
            let buffer = nic.alloc(20_000, MemAttributes::local(tag)).unwrap();
            nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        nic.connect_start(vi, None, &ADDRESS.parse().unwrap(), &private, None).unwrap();
        nic.connect_finish(vi).unwrap();
        for len in [8, 100, 20_000] {
            let buffer = nic.alloc(len, MemAttributes::local(tag)).unwrap();
            nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        }
    }
    say("connected");
    hear();
    let parent = std::thread::spawn(hear);
    if args[3] == "bells" {
        let bells: Vec<_> = ranges("viaduct-nic").into_iter().map(|range| &words(range)[0]).collect();
        assert_eq!(bells.len(), 2, "our page and the victim's");
        while !parent.is_finished() {
            (0..10_000).for_each(|i| bells[i % 2].store(0, Ordering::Relaxed));
        }
    } else {
        scribble(&own_slabs, seed, || parent.is_finished());
    }
    // Without a word to the library, which may be in any state.
    // SAFETY: ends the process at once; nothing of it is used any more.
    unsafe { libc::_exit(0) };
}

fn scribble(own_slabs: &[(usize, usize)], seed: u64, is_over: impl Fn() -> bool) {
    let mut garbage = Garbage::new(seed);
    let mut places = own_slabs.to_vec();
    // The rings get most of it.
    (0..4).for_each(|_| places.extend(ranges("viaduct-lanes")));
    places.extend(ranges("viaduct-nic"));
    places.extend(ranges("viaduct-directory"));
    let words: Vec<&[AtomicU64]> = places.iter().map(|range| words(*range)).collect();
    assert!(words.len() > 6, "{places:?}");
    while !is_over() {
        for _ in 0..if garbage.is_gentle() { 1 } else { 10_000 } {
            let n = garbage.number() as usize;
            let place = words[n % words.len()];
            // One in four hits the first words, where the counters are.
            let reach = if n >> 8 & 3 == 0 { place.len().min(64) } else { place.len() };
            let word = &place[(n >> 16) % reach];
            word.store(garbage.word(word.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        if garbage.is_gentle() {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// The words of a mapping.
pub fn words((from, to): (usize, usize)) -> &'static [AtomicU64] {
    // SAFETY: a shared mapping of this process that stays until its end; atomics may be written from anywhere.
    unsafe { std::slice::from_raw_parts(from as *const AtomicU64, (to - from) / 8) }
}

/// Writable mappings of segments with this name.
pub fn ranges(name: &str) -> Vec<(usize, usize)> {
    with_rights(name, " rw-s ")
}

/// Read-only mappings of segments with this name.
pub fn mappings(name: &str) -> Vec<(usize, usize)> {
    with_rights(name, " r--s ")
}

fn with_rights(name: &str, rights: &str) -> Vec<(usize, usize)> {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let wanted = |line: &&str| line.contains(&format!("/memfd:{name} ")) && line.contains(rights);
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    maps.lines().filter(wanted).filter_map(range).collect()
}
