//! What a process holds, counted between two rounds: descriptors and mapped bytes. Cheaper than a whole leak check.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use viaduct_kit::effort::scaled;

/// Descriptors by what they are, and shared memory by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    fds: BTreeMap<String, usize>,
    maps: BTreeMap<String, u64>,
}

impl Footprint {
    /// What this process holds now.
    pub fn take() -> Footprint {
        let mut fds = BTreeMap::new();
        for entry in fs::read_dir("/proc/self/fd").expect("/proc is mounted").flatten() {
            let target =
                fs::read_link(entry.path()).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
            // Sockets and pipes have numbers that differ from one to the next.
            let kind = target.split(":[").next().unwrap_or_default().to_owned();
            *fds.entry(kind).or_default() += 1;
        }
        Footprint { fds, maps: shared_maps() }
    }

    /// What this process holds once that no longer changes.
    pub fn settled() -> Footprint {
        let (mut last, mut same) = (Footprint::take(), 0);
        while same < 5 {
            std::thread::sleep(Duration::from_millis(20));
            let now = Footprint::take();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }

    /// Descriptors in all.
    pub fn descriptors(&self) -> usize {
        self.fds.values().sum()
    }

    /// Waits until the process holds exactly this again.
    ///
    /// # Panics
    ///
    /// If it does not, even after a while.
    pub fn comes_back(&self, what: &str) {
        self.comes_back_but_for("(nothing)", what);
    }

    /// Waits until the process holds exactly this again, not counting segments with this name. What it holds then.
    ///
    /// # Panics
    ///
    /// As [`comes_back`](Self::comes_back).
    pub fn comes_back_but_for(&self, name: &str, what: &str) -> Footprint {
        let end = Instant::now() + scaled(Duration::from_secs(10));
        loop {
            let whole = Footprint::take();
            let mut now = whole.clone();
            now.fds.retain(|kind, _| !kind.contains(name));
            now.maps.retain(|kind, _| !kind.contains(name));
            if now == *self {
                return whole;
            }
            assert!(
                Instant::now() < end,
                "{what}: something was left behind:\nbefore {self:#?}\nnow {now:#?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Bytes of Viaduct's segments that are mapped here.
fn shared_maps() -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in fs::read_to_string("/proc/self/maps").expect("/proc is mounted").lines() {
        let Some((range, name)) =
            line.split_once(' ').and_then(|(r, rest)| Some((r, rest.split_once("/memfd:")?.1)))
        else {
            continue;
        };
        let bound = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (from, to) = range.split_once('-').expect("a range");
        *sums.entry(name.to_owned()).or_default() += bound(to) - bound(from);
    }
    sums
}
