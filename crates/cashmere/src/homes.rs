//! Homes of pages in a file: captured in one run and replayed in others (the method of section 3.4).
//!
//! ```text
//!  viaduct dsm homes 1
//!  4096 bytes, 2 nodes
//!  0-99 0
//!  100 1
//! ```
//!
//! The homes are those of the first touch, also where homes migrate. Pages that are not named are not touched yet: the first
//! node that touches them becomes their home.

use std::fmt;

use crate::ids::{NodeId, PageId};

const TITLE: &str = "viaduct dsm homes 1";

/// Homes of the pages of a run, where they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homes {
    page: usize,
    nodes: usize,
    /// By page.
    homes: Vec<Option<NodeId>>,
}

/// What is wrong with a file of homes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHomes {
    /// The line of this number, counted from 1.
    Line(usize, String),
    /// It is of another run: what is there and what is wanted.
    Other(String),
}

impl fmt::Display for BadHomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHomes::Line(number, why) => write!(f, "line {number}: {why}"),
            BadHomes::Other(why) => write!(f, "{why}; hint: capture the homes on the same layout"),
        }
    }
}

impl std::error::Error for BadHomes {}

impl Homes {
    /// No page has a home yet.
    pub fn new(page: usize, nodes: usize) -> Homes {
        Homes { page, nodes, homes: Vec::new() }
    }

    /// Names the home of a page.
    pub fn set(&mut self, page: PageId, home: NodeId) {
        let at = page.0 as usize;
        if self.homes.len() <= at {
            self.homes.resize(at + 1, None);
        }
        self.homes[at] = Some(home);
    }

    /// The pages that have homes, with these.
    pub fn iter(&self) -> impl Iterator<Item = (PageId, NodeId)> {
        (0..).map(PageId).zip(&self.homes).filter_map(|(page, home)| Some((page, (*home)?)))
    }

    /// Whether a run with such pages and so many nodes can use them.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, page: usize, nodes: usize) -> Result<(), BadHomes> {
        let differs = |what: &str, there: usize, here: usize| {
            Err(BadHomes::Other(format!("the homes are of {there} {what}, this run has {here}")))
        };
        if self.page != page {
            return differs("bytes a page", self.page, page);
        }
        if self.nodes != nodes {
            return differs("nodes", self.nodes, nodes);
        }
        Ok(())
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Homes, BadHomes> {
        let mut lines = (1..).zip(text.lines());
        let bad = |line, why: &str| Err(BadHomes::Line(line, why.to_owned()));
        match lines.next() {
            Some((_, TITLE)) => {}
            _ => return bad(1, "`viaduct dsm homes 1` is wanted, as `--homes-out` writes it"),
        }
        let layout = lines.next().and_then(|(_, line)| {
            let (page, nodes) = line.strip_suffix(" nodes")?.split_once(" bytes, ")?;
            Some((page.parse().ok()?, nodes.parse().ok()?))
        });
        let Some((page, nodes)) = layout else { return bad(2, "`BYTES bytes, N nodes` is wanted") };
        let mut homes = Homes::new(page, nodes);
        for (number, line) in lines {
            let Some((first, last, home)) = range(line) else {
                return bad(number, "`PAGE NODE` or `FIRST-LAST NODE` is wanted");
            };
            if first > last || usize::from(home) >= nodes {
                return bad(number, "there is no such node, or no such range");
            }
            if last as usize >= MOST {
                return bad(number, "there are no so many pages");
            }
            (first..=last).for_each(|page| homes.set(PageId(page), NodeId(home)));
        }
        Ok(homes)
    }
}

/// Pages that a run can have, as far as a file is believed.
const MOST: usize = 1 << 28;

fn range(line: &str) -> Option<(u32, u32, u8)> {
    let (pages, home) = line.split_once(' ')?;
    let (first, last) = pages.split_once('-').unwrap_or((pages, pages));
    Some((first.parse().ok()?, last.parse().ok()?, home.parse().ok()?))
}

impl fmt::Display for Homes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}\n{} bytes, {} nodes", self.page, self.nodes)?;
        let mut pages = self.iter().peekable();
        while let Some((first, home)) = pages.next() {
            let mut last = first;
            while let Some((page, _)) = pages.next_if(|(page, other)| page.0 == last.0 + 1 && *other == home)
            {
                last = page;
            }
            match first == last {
                true => writeln!(f, "{} {}", first.0, home.0)?,
                false => writeln!(f, "{}-{} {}", first.0, last.0, home.0)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_homes_are_read_back() {
        let mut homes = Homes::new(4096, 3);
        for (page, home) in [(0, 1), (1, 1), (2, 1), (3, 0), (5, 0), (6, 2)] {
            homes.set(PageId(page), NodeId(home));
        }
        let text = homes.to_string();
        assert_eq!(text, "viaduct dsm homes 1\n4096 bytes, 3 nodes\n0-2 1\n3 0\n5 0\n6 2\n");
        assert_eq!(Homes::parse(&text), Ok(homes));
    }

    #[test]
    fn a_file_of_another_layout_is_refused() {
        let homes = Homes::new(4096, 3);
        assert_eq!(homes.check(4096, 3), Ok(()));
        assert!(homes.check(8192, 3).unwrap_err().to_string().contains("4096 bytes a page"));
        assert!(homes.check(4096, 2).unwrap_err().to_string().contains("3 nodes"));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let head = "viaduct dsm homes 1\n4096 bytes, 2 nodes\n";
        for (body, line) in [("1", 3), ("0 0\n7-3 1", 4), ("1 2", 3), ("0-4294967295 0", 3), ("a-b 0", 3)] {
            let found = Homes::parse(&format!("{head}{body}\n"));
            assert!(matches!(found, Err(BadHomes::Line(at, _)) if at == line), "{body}: {found:?}");
        }
        assert!(matches!(Homes::parse("hello"), Err(BadHomes::Line(1, _))));
        assert!(matches!(Homes::parse("viaduct dsm homes 1\n4096 bytes"), Err(BadHomes::Line(2, _))));
    }
}
