//! What the library was told when it was loaded, and what it has learned not to do. Set once, read everywhere.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use viaduct_os::bare::calls;
use viaduct_os::copy;

use crate::rules::Rules;

/// What a program that loads the library may say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The abstract name at which the agent takes claims; the one of this user if there is none.
    pub agent: Option<Text>,
    /// Spin as usual, and upgrade nothing: for comparisons.
    pub never_upgrade: bool,
    /// The program that is started as an agent where none answers; none is started without.
    pub program: Option<Text>,
    /// Which connections are never, or always, upgraded.
    pub rules: Rules,
    /// The file to which each decision about a connection adds a line.
    pub explain: Option<Text>,
}

/// A short text of fixed size that ends with a zero.
#[derive(Clone, Copy, Debug)]
pub struct Text([u8; 256]);

impl Text {
    /// From bytes; `None` if it is longer than 255 or has zeros.
    pub fn new(bytes: &[u8]) -> Option<Text> {
        let mut text = [0; 256];
        let good = bytes.len() < text.len() && !bytes.contains(&0);
        good.then(|| {
            text[..bytes.len()].copy_from_slice(bytes);
            Text(text)
        })
    }

    /// From two parts.
    pub fn join(one: &[u8], other: &[u8]) -> Option<Text> {
        let mut text = [0; 256];
        let len = one.len() + other.len();
        if len > text.len() {
            return None;
        }
        text[..one.len()].copy_from_slice(one);
        text[one.len()..len].copy_from_slice(other);
        Text::new(&text[..len])
    }

    /// As C has it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static ON: AtomicBool = AtomicBool::new(false);
static LEAVES: AtomicBool = AtomicBool::new(false);
static SPINS: AtomicBool = AtomicBool::new(false);
static CPUS: AtomicU32 = AtomicU32::new(0);

/// Turns interception on. Before that every call is the kernel's alone.
pub fn start(settings: Settings) {
    copy::detect();
    let _ = SETTINGS.set(settings);
    CPUS.store(calls::usable_cpus(), Ordering::Relaxed);
    SPINS.store(settings.never_upgrade, Ordering::Relaxed);
    ON.store(!settings.never_upgrade, Ordering::Release);
}

/// From now on nothing is claimed in this process any more; what is upgraded stays so.
pub fn claim_no_more() {
    ON.store(false, Ordering::Release);
}

/// As [`claim_no_more`], in a process that may still ask the agent: programs that it starts are kept from upgrading what it uses.
pub fn leave_all() {
    LEAVES.store(ON.swap(false, Ordering::AcqRel) || leaves_all(), Ordering::Release);
}

/// Whether [`leave_all`] was called.
pub(crate) fn leaves_all() -> bool {
    LEAVES.load(Ordering::Acquire)
}

/// Whether a program with this value of `VIADUCT_CLAIM` asks the agent that this process asks.
pub fn asks_the_same(agent: Option<&[u8]>) -> bool {
    SETTINGS.get().is_some_and(|own| own.agent.as_ref().map(|name| name.as_c_str().to_bytes()) == agent)
}

pub(crate) fn claims() -> bool {
    ON.load(Ordering::Acquire)
}

/// Whether waiting for TCP spins as for upgraded connections, for comparisons: nothing is upgraded then.
#[inline]
pub fn spins_on_tcp() -> bool {
    SPINS.load(Ordering::Relaxed)
}

pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

pub(crate) fn cpus() -> u32 {
    CPUS.load(Ordering::Relaxed)
}

/// The abstract name at which the agent of a user takes claims unless it was told another.
pub fn agent_name(user: u32) -> Text {
    let mut name = *b"viaduct-claim-0000000000";
    let mut rest = user;
    for digit in name[14..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Text::new(&name).unwrap_or(Text([0; 256]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_agents_differ_by_user() {
        assert_eq!(agent_name(0).as_c_str().to_bytes(), b"viaduct-claim-0000000000");
        assert_eq!(agent_name(65534).as_c_str().to_bytes(), b"viaduct-claim-0000065534");
        assert!(Text::new(&[b'x'; 256]).is_none() && Text::new(b"a\0b").is_none());
    }
}
