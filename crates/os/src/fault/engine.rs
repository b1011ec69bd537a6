//! A window of protected pages, what an engine is, and the choice of the one that protects them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::Protection;
use super::mprotect::Mprotect;
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

/// Whole pages of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// The first byte as the program sees it.
    pub(super) at: usize,
    /// The first byte in the library's alias, which is readable.
    pub(super) alias: *mut u8,
    /// Length in bytes, more than none.
    pub(super) len: usize,
}

impl Pages {
    /// Makes pages that were never touched, by touching them in the alias.
    pub(super) fn touch(self) {
        for at in (0..self.len).step_by(page_size()) {
            // SAFETY: inside the alias, which is as long as the window and readable while the caller of `Window::new` keeps the
            // segment.
            unsafe { self.alias.add(at).read_volatile() };
        }
    }
}

/// An engine at work on one window, all of whose pages it has closed when it was made.
pub(super) trait Engine: fmt::Debug + Send + Sync {
    /// Which one it is.
    fn kind(&self) -> EngineKind;

    /// Protects whole pages of the window, whatever they had before. It is called in faults: no allocation, no lock.
    fn protect(&self, pages: Pages, protection: Protection) -> Result<(), OsError>;
}

/// Starts an engine on the pages of a mapping.
fn start(kind: EngineKind, mapping: &Segment, alias: *mut u8) -> Result<Box<dyn Engine>, OsError> {
    let pages = Pages { at: mapping.as_ptr() as usize, alias, len: mapping.len() };
    Ok(match kind {
        EngineKind::Mprotect => Box::new(Mprotect::start(pages)?),
        EngineKind::Uffd => Box::new(Uffd::start(pages)?),
    })
}

/// A mapping of a segment whose pages are closed at first.
///
/// The segment's own mapping (the library's alias) stays readable and writable.
#[derive(Debug)]
pub struct Window {
    /// Before the mapping, so that it is unregistered first.
    engine: Box<dyn Engine>,
    mapping: Segment,
    /// The first byte of the library's alias.
    alias: *mut u8,
}

// SAFETY: the address is only used for loads of single bytes that any thread may make while the alias lives, which the
// caller of `new` promises by keeping the segment.
unsafe impl Send for Window {}
// SAFETY: as above; system calls on the mapping may be made by any thread.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `segment` a second time at `addr`, closed. With no engine named, userfaultfd where this process may use it and the
    /// kernel can do with it what is needed, which is tried; else mprotect. The segment must outlive the window: `Window`
    /// cannot know.
    ///
    /// # Errors
    /// [`OsError::BadPlace`] if `addr` is in use; the kernel's if the engine named is not allowed here.
    pub fn new(segment: &Segment, addr: usize, kind: Option<EngineKind>) -> Result<Window, OsError> {
        let mapping = segment.map_at(addr, Access::ReadWrite)?;
        let alias = segment.as_ptr();
        let engine = match kind {
            Some(kind) => start(kind, &mapping, alias)?,
            None => start(EngineKind::Uffd, &mapping, alias)
                .or_else(|_| start(EngineKind::Mprotect, &mapping, alias))?,
        };
        Ok(Window { engine, mapping, alias })
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
        self.engine.kind()
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
        // SAFETY: inside the alias, which is as long as the window.
        let alias = unsafe { self.alias.add(range.start) };
        self.engine.protect(Pages { at, alias, len: range.len() }, protection)
    }
}
