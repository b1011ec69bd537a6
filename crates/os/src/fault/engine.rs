//! A window of protected pages, and the choice of the engine that protects them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::Protection;
use super::mprotect;
use super::uffd::Uffd;
use crate::error::OsError;
use crate::segment::{Access, Segment, page_size};

/// How pages are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// By mprotect: works everywhere. Each change of protection splits mappings, of which a process may have 65,530.
    Mprotect,
    /// By userfaultfd, with signals: page tables change, mappings do not.
    Uffd,
}

impl EngineKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Mprotect => "mprotect",
            EngineKind::Uffd => "uffd-sync",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(word: &str) -> Result<EngineKind, String> {
        let all = [EngineKind::Mprotect, EngineKind::Uffd];
        let found = all.into_iter().find(|kind| kind.name() == word);
        found.ok_or_else(|| format!("no engine `{word}`; there are mprotect and uffd-sync"))
    }
}

#[derive(Debug)]
enum Engine {
    Mprotect,
    Uffd(Uffd),
}

/// A mapping of a segment whose pages are closed at first.
///
/// The segment's own mapping (the library's alias) stays readable and writable.
#[derive(Debug)]
pub struct Window {
    /// Before the mapping, so that it is unregistered first.
    engine: Engine,
    mapping: Segment,
    /// The first byte of the library's alias: pages that were never touched are made by touching them there.
    alias: *mut u8,
}

// SAFETY: the address is only used for loads of single bytes that any thread may make while the alias lives, which the
// caller of `new` promises by keeping the segment.
unsafe impl Send for Window {}
// SAFETY: as above; system calls on the mapping may be made by any thread.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `segment` a second time at `addr`, closed. With no engine named, userfaultfd where this process may use it, else
    /// mprotect. The segment must outlive the window: `Window` cannot know.
    ///
    /// # Errors
    /// [`OsError::BadPlace`] if `addr` is in use; the kernel's if the engine named is not allowed here.
    pub fn new(segment: &Segment, addr: usize, kind: Option<EngineKind>) -> Result<Window, OsError> {
        let mapping = segment.map_at(addr, Access::ReadWrite)?;
        let engine = match kind {
            Some(EngineKind::Mprotect) => Engine::Mprotect,
            Some(EngineKind::Uffd) => Engine::Uffd(Uffd::register(&mapping)?),
            None => Uffd::register(&mapping).map_or(Engine::Mprotect, Engine::Uffd),
        };
        let window = Window { engine, mapping, alias: segment.as_ptr() };
        if let Engine::Mprotect = window.engine {
            window.protect(0..window.len(), Protection::Closed)?;
        }
        Ok(window)
    }

    /// The first byte as the program sees it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The engine at work.
    pub fn engine(&self) -> EngineKind {
        match self.engine {
            Engine::Mprotect => EngineKind::Mprotect,
            Engine::Uffd(_) => EngineKind::Uffd,
        }
    }

    /// Protects whole pages, given as bytes of the window. May be called from a fault function.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] for a range that is not whole pages of the window; the kernel's, such as too many mappings.
    pub fn protect(&self, range: Range<usize>, protection: Protection) -> Result<(), OsError> {
        let page = page_size();
        let whole = range.start.is_multiple_of(page) && range.end.is_multiple_of(page);
        if !whole || range.start > range.end || range.end > self.len() {
            return Err(OsError::BadSegment("only whole pages of a window can be protected"));
        }
        if range.is_empty() {
            return Ok(());
        }
        let at = self.as_ptr() as usize + range.start;
        match &self.engine {
            Engine::Mprotect => mprotect::protect(at, range.len(), protection),
            Engine::Uffd(uffd) => {
                if protection > Protection::Closed {
                    self.touch(range.clone());
                }
                uffd.protect(at, range.len(), protection)
            }
        }
    }

    /// Makes pages that were never touched, so that they can be mapped.
    fn touch(&self, range: Range<usize>) {
        for at in range.step_by(page_size()) {
            // SAFETY: inside the alias, which is as long as the window and readable while the caller keeps the segment.
            unsafe { self.alias.add(at).read_volatile() };
        }
    }
}
