//! Whether a program that is about to be started will load the library. One that will not sees the kernel's socket alone,
//! so connections that it inherits are moved back to TCP before. So are those of which the agent could not tell one that will.
//!
//! A program loads it if it has a loader of this machine's kind, gets `LD_PRELOAD` with the library, and gains no rights by
//! being started (then the loader ignores that variable). Programs made by the Go compiler enter the kernel past libc, with
//! or without a loader. In doubt the answer is no.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_os::bare::sockets::{self, MOST_FDS};
use viaduct_os::bare::{calls, files, start, whoami};

use crate::back::{self, Moved};
use crate::endpoint::slot;
use crate::table::{COPIED, ELSEWHERE, Kind};
use crate::{claim, companion, descriptors, endpoint, relay, settings, table};

/// Scripts that name scripts as their interpreters: the kernel goes no further.
const MOST_SCRIPTS: usize = 4;
/// Where program headers are looked for, and what they name.
const HEAD: usize = 4096;
/// Connections that get a stand-in, of those that one program inherits.
const MOST_STAND_INS: usize = 8;
/// Descriptors that are looked at in a child that borrows its parent's memory.
const MOST_BORROWED: usize = 4096;

const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;

/// Descriptors that were named for a child which is to be spawned, a bit each.
static NAMED: [AtomicU64; table::MOST / 64] = [const { AtomicU64::new(0) }; table::MOST / 64];

/// What the first bytes of a program say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// It has a loader, which preloads.
    Dynamic,
    /// It has none, or enters the kernel by itself.
    Bare,
    /// It is a script for this program.
    Script(&'a [u8]),
    /// The kernel, or a shell, has to say.
    Other,
}

/// What kind of program this is the start of.
pub fn form(head: &[u8]) -> Form<'_> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
        return Form::Script(line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default());
    }
    if head.starts_with(b"\x7fELF") { elf(head).unwrap_or(Form::Bare) } else { Form::Other }
}

fn elf(head: &[u8]) -> Option<Form<'_>> {
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?) as usize);
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if *head.get(4)? != 2 || half(0x12)? != machine {
        return Some(Form::Bare); // of 32 bits, or of another machine
    }
    let (start, size, count) = (long(0x20)?, usize::from(half(0x36)?), usize::from(half(0x38)?));
    let mut loader = false;
    for index in 0..count {
        let at = start.checked_add(index * size)?;
        match word(at)? {
            INTERPRETER => loader = true,
            NOTE => {
                let (from, size) = (long(at + 8)?, long(at + 32)?);
                let until = from.saturating_add(size).min(head.len());
                if head.get(from..until).is_some_and(has_go_note) {
                    return Some(Form::Bare);
                }
            }
            _ => {}
        }
    }
    Some(if loader { Form::Dynamic } else { Form::Bare })
}

/// Whether one of these notes is of the Go compiler. Each has the length of its name, of its text, a kind, then both,
/// filled up to words.
fn has_go_note(mut notes: &[u8]) -> bool {
    while let Some((lengths, rest)) = notes.split_at_checked(12) {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| lengths[at + byte])) as usize;
        if rest.starts_with(b"Go\0\0") {
            return true;
        }
        let len = word(0).next_multiple_of(4).saturating_add(word(4).next_multiple_of(4));
        let Some(next) = rest.get(len..) else { return false };
        notes = next;
    }
    false
}

/// Whether the loader of this program will preload; `dir` is a folder's descriptor or `AT_FDCWD`.
pub fn preloads(dir: i32, path: &CStr) -> bool {
    let Ok(mut fd) = files::open(dir, path) else { return false };
    let mut head = [0; HEAD];
    for _ in 0..MOST_SCRIPTS {
        let len = files::read_at(fd, &mut head, 0).unwrap_or(0);
        let privileged = gains_rights(fd);
        let _ = calls::close(fd);
        match form(&head[..len]) {
            Form::Dynamic => return !privileged,
            Form::Script(interpreter) => {
                let mut name = [0; 256];
                if interpreter.is_empty() || interpreter.len() >= name.len() {
                    return false;
                }
                name[..interpreter.len()].copy_from_slice(interpreter);
                let opened = CStr::from_bytes_until_nul(&name)
                    .ok()
                    .and_then(|name| files::open(libc::AT_FDCWD, name).ok());
                let Some(next) = opened else { return false };
                fd = next;
            }
            Form::Bare => return false,
            // What is no program at all: execvp gives it to the shell, which is one with a loader.
            Form::Other => return true,
        }
    }
    let _ = calls::close(fd);
    false
}

/// Whether it runs with other rights than those of the process that starts it.
fn gains_rights(fd: i32) -> bool {
    let Ok(status) = files::status(fd) else { return true };
    let (user, group) = files::real_ids();
    let by_user = status.mode & libc::S_ISUID != 0 && status.user != user;
    let by_group = status.mode & libc::S_ISGID != 0 && status.group != group;
    by_user || by_group || (user != 0 && files::has_capabilities(fd))
}

/// Names a descriptor that a child will get even if exec closes it here.
pub fn name(fd: i32) {
    if let Some(word) = NAMED.get(fd as usize / 64) {
        word.fetch_or(1 << (fd % 64), Ordering::Relaxed);
    }
}

/// Where a program is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// In the place of the calling one.
    This,
    /// In a child: the calling one goes on with its descriptors.
    Child,
}

/// Moves back what a program that will not load the library would inherit.
pub fn part(heir: Heir) {
    let reason = "a program inherits it that does not load the library";
    if settings::claims() {
        let inherited = |fd| files::is_closed_by_exec(fd) == Some(false);
        let kinds = [Kind::Unknown, Kind::Tcp];
        let concerns = |fd| inherited(fd) && (whoami::borrows_memory() || kinds.contains(&table::kind(fd)));
        part_with_unseen(reason, heir, concerns);
    }
    let mut parts = Parts::new(heir);
    each_inherited(|fd, index| parts.with(fd, index, reason));
    parts.close();
}

/// Moves back what a program that will load the library could not find out about: the agent that it will ask, as its user, does
/// not know the connection, or cannot say which one it is because nothing of it is open any more.
pub fn part_with_unknown(heir: Heir) {
    let reason = "the agent cannot tell the program that inherits it";
    let mut parts = Parts::new(heir);
    // Agents that come later give higher numbers: one that knows a connection knows all that came after it.
    let (mut known_from, mut unknown_to) = (u64::MAX, 0);
    each_inherited(|fd, index| {
        let id = slot(index).id();
        let local = companion::is_local(fd);
        let known = local && (id >= known_from || id > unknown_to && claim::is_known(fd, index));
        if known {
            known_from = known_from.min(id);
            return;
        }
        if local {
            unknown_to = unknown_to.max(id);
        }
        parts.with(fd, index, reason);
    });
    parts.close();
}

/// The upgraded connections of this process that a program which is about to be started inherits.
fn each_inherited(mut with: impl FnMut(i32, u32)) {
    if !endpoint::any() {
        return;
    }
    if whoami::borrows_memory() {
        // What this child has duplicated and closed was not noted in the tables, which are its parent's.
        for fd in (0..most_borrowed()).filter(|&fd| files::is_closed_by_exec(fd) == Some(false)) {
            if let Some(index) = companion::cookie(fd).and_then(endpoint::by_cookie) {
                with(fd, index);
            }
        }
        return;
    }
    descriptors::begin();
    for (fd, index) in table::rings().filter(|&(fd, _)| is_inherited(fd)) {
        with(fd, index);
    }
}

/// Whether a program that is about to start gets this descriptor.
pub(crate) fn is_inherited(fd: i32) -> bool {
    let named =
        || NAMED.get(fd as usize / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (fd % 64) & 1 != 0);
    files::is_closed_by_exec(fd) == Some(false) || named()
}

pub(crate) fn most_borrowed() -> i32 {
    calls::descriptor_limit().unwrap_or(1024).min(MOST_BORROWED as u64) as i32
}

/// Moves every connection back, of which some may have been upgraded by a process before this one and not been used here.
pub fn part_with_all(reason: &'static str) {
    if settings::claims() && !whoami::borrows_memory() {
        let elsewhere = |fd| table::kind(fd) == Kind::Tcp && table::has(fd, ELSEWHERE);
        part_with_unseen(reason, Heir::Child, |fd| table::kind(fd) == Kind::Unknown || elsewhere(fd));
    }
    back::retire_all(reason);
}

/// Moves back connections that this process inherited over exec, or was given, and has never used: a process before it may
/// have upgraded them. The agent knows; a child of a moment asks it, so that nothing here changes, and sends back the stand-ins that
/// it had to make.
fn part_with_unseen(reason: &'static str, heir: Heir, concerns: impl Fn(i32) -> bool) {
    let mut unseen = [0u64; MOST_BORROWED / 64];
    for fd in 0..most_borrowed() {
        let known = || companion::cookie(fd).and_then(endpoint::by_cookie).is_some();
        let is = concerns(fd) && companion::is_tcp(fd) && companion::is_local(fd) && !known();
        unseen[fd as usize / 64] |= u64::from(is) << (fd % 64);
    }
    if unseen == [0; MOST_BORROWED / 64] {
        return;
    }
    let all = || (0..MOST_BORROWED as i32).filter(|&fd| unseen[fd as usize / 64] >> (fd % 64) & 1 != 0);
    let Ok([here, there]) = sockets::pair() else { return };
    start::meanwhile(|| {
        claim::start_no_agent();
        descriptors::begin();
        for fd in all() {
            table::mark(fd, COPIED | ELSEWHERE);
            table::set_tcp(fd);
        }
        let mut parts = Parts::new(heir);
        for fd in all() {
            let kind = if table::kind(fd) == Kind::Tcp { claim::claim(fd) } else { table::kind(fd) };
            if let Kind::Ring(index) = kind
                && let Some(far) = parts.far(fd, index, reason)
            {
                let _ = sockets::send_with_fd(there, &fd.to_ne_bytes(), far);
            }
        }
    });
    let (mut number, mut fds) = ([0; 4], [-1; MOST_FDS]);
    while sockets::receive_with_fds(here, &mut number, &mut fds) == Ok((4, 1)) {
        if take_place(i32::from_ne_bytes(number), fds[0]) && !whoami::borrows_memory() {
            table::set(i32::from_ne_bytes(number), Kind::Plain);
        }
        let _ = calls::close(fds[0]);
    }
    let _ = (calls::close(here), calls::close(there));
}

/// Puts a stand-in in the place of a connection's descriptor.
fn take_place(fd: i32, far: i32) -> bool {
    let closes = files::is_closed_by_exec(fd) == Some(true);
    files::replace(far, fd, closes).is_ok()
}

/// Connections with a stand-in, of which several descriptors may be inherited: its number, and its stand-in.
#[derive(Debug)]
struct Parts {
    heir: Heir,
    made: [Option<(u32, i32)>; MOST_STAND_INS],
}

impl Parts {
    fn new(heir: Heir) -> Parts {
        Parts { heir, made: [None; MOST_STAND_INS] }
    }

    /// Moves a connection back, or puts a stand-in in the place of one of its descriptors.
    fn with(&mut self, fd: i32, index: u32, reason: &'static str) {
        if let Some(far) = self.far(fd, index, reason)
            && take_place(fd, far)
            && !whoami::borrows_memory()
        {
            table::set(fd, Kind::Plain);
            endpoint::release(index);
        }
    }

    /// Moves a connection back. Its stand-in, if it needs one.
    fn far(&mut self, fd: i32, index: u32, reason: &'static str) -> Option<i32> {
        if let Some(&(_, far)) = self.made.iter().flatten().find(|(number, _)| *number == index) {
            return Some(far);
        }
        let whole = back::move_back(fd, index, reason) == Moved::Whole;
        // A process that goes on keeps its socket, whose last bytes it can read itself.
        if whole || self.heir == Heir::Child {
            return None;
        }
        let free = self.made.iter_mut().find(|place| place.is_none())?;
        let far = relay::stand_in(fd, index)?;
        *free = Some((index, far));
        Some(far)
    }

    fn close(&self) {
        for (_, far) in self.made.iter().flatten() {
            let _ = calls::close(*far);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_head() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()[..HEAD].to_vec()
    }

    #[test]
    fn programs_with_a_loader_are_told_from_those_without() {
        let head = own_head();
        assert_eq!(form(&head), Form::Dynamic);
        let mut bare = head.clone();
        bare[0x38..0x3a].fill(0); // no program headers
        assert_eq!(form(&bare), Form::Bare);
        let mut small = head.clone();
        small[4] = 1; // of 32 bits
        assert_eq!(form(&small), Form::Bare);
        assert_eq!(form(&head[..70]), Form::Bare, "cut short");
        assert_eq!(form(b"\x7fELF"), Form::Bare);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(form(b"#!/bin/sh\necho"), Form::Script(b"/bin/sh"));
        assert_eq!(form(b"#! /usr/bin/env python3\n"), Form::Script(b"/usr/bin/env"));
        assert_eq!(
            (form(b"#!"), form(b"echo hello\n"), form(b"")),
            (Form::Script(b""), Form::Other, Form::Other)
        );
    }

    #[test]
    fn a_program_that_does_not_exist_or_gains_rights_loads_nothing() {
        assert!(preloads(libc::AT_FDCWD, c"/proc/self/exe"));
        assert!(!preloads(libc::AT_FDCWD, c"/no/such/program"));
        let (user, _) = files::real_ids();
        if user != 0 && std::path::Path::new("/usr/bin/passwd").exists() {
            assert!(!preloads(libc::AT_FDCWD, c"/usr/bin/passwd"));
        }
    }

    #[test]
    fn a_note_of_the_go_compiler_is_seen() {
        let mut head = own_head();
        let table = 64;
        head[0x20..0x28].copy_from_slice(&(table as u64).to_le_bytes());
        head[0x38..0x3a].copy_from_slice(&2u16.to_le_bytes());
        head[table..table + 4].copy_from_slice(&INTERPRETER.to_le_bytes());
        let note = table + 56;
        head[note..note + 4].copy_from_slice(&NOTE.to_le_bytes());
        head[note + 8..note + 16].copy_from_slice(&1000u64.to_le_bytes());
        head[note + 32..note + 40].copy_from_slice(&60u64.to_le_bytes());
        head[1000..1060].fill(0);
        let words = |at: usize, head: &mut [u8], name: &[u8; 4], text: u32| {
            head[at..at + 4].copy_from_slice(&4u32.to_le_bytes());
            head[at + 4..at + 8].copy_from_slice(&text.to_le_bytes());
            head[at + 12..at + 16].copy_from_slice(name);
        };
        words(1000, &mut head, b"GNU\0", 6);
        assert_eq!(form(&head), Form::Dynamic);
        // Linked by another linker it is not the first: 12 bytes of lengths, 4 of a name, 6 of text and 2 to fill it up.
        words(1024, &mut head, b"Go\0\0", 20);
        assert_eq!(form(&head), Form::Bare);
        words(1000, &mut head, b"GNU\0", u32::MAX);
        assert_eq!(form(&head), Form::Dynamic, "notes that make no sense");
        words(1000, &mut head, b"Go\0\0", 6);
        assert_eq!(form(&head), Form::Bare);
    }
}
