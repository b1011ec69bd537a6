//! The output of nodes: a file for each, or one file in which each writes its part.

use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use viaduct_job::Job;
use viaduct_river::disk::{DiskSink, Output, Volume};

use super::names;
use crate::Error;
use crate::destination::is_direct;
use crate::sort::Settings;

/// Where a node writes.
pub(super) struct Target {
    pub(super) sink: DiskSink,
    /// There if this node gives the file its name.
    output: Option<Output>,
    /// All nodes write one file.
    pub(super) shared: bool,
}

impl Target {
    /// Creates or joins the output; all nodes call it. `len` are the bytes of all nodes, `part` about those of this one.
    /// `settings` say whether it is written past the page cache, and whether it has to be on the disk in the end.
    pub(super) fn open(
        path: &Path,
        job: &mut Job,
        len: u64,
        part: u64,
        settings: &Settings,
    ) -> Result<Target, Error> {
        let shared = !names::is_own(path);
        let path = names::of_node(path, job.rank());
        let (mut output, mut way) = (None, Vec::new());
        if !shared || job.rank() == 0 {
            let mut created = Output::create(&path)?;
            if settings.durable {
                created.make_durable();
            }
            if shared {
                created.reserve(len)?;
                let hosts = job.hosts()?;
                let elsewhere = hosts.iter().any(|host| *host != hosts[0]);
                way = created.way(elsewhere)?.into_os_string().into_vec();
            }
            output = Some(created);
        }
        if shared {
            let ways = job.exchange(&way)?;
            way = ways.into_iter().next().unwrap_or_default();
        }
        let file = match &output {
            Some(output) => output.file()?,
            None => Output::open_part(&PathBuf::from(std::ffi::OsStr::from_bytes(&way)), &path)?,
        };
        let mut volume = Volume::of_files(vec![(path, file)], u64::MAX);
        if is_direct(settings, part) {
            volume.use_direct();
        }
        Ok(Target { sink: DiskSink::new("output", volume), output, shared })
    }

    /// Reserves space for the part of this node, whose length is known now.
    pub(super) fn reserve(&self, part: u64) -> Result<(), Error> {
        match &self.output {
            Some(output) if !self.shared => Ok(output.reserve(part)?),
            _ => Ok(()),
        }
    }

    /// The folder of the output, for temporary files.
    pub(super) fn folder(path: &Path, rank: usize) -> PathBuf {
        let path = names::of_node(path, rank);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new(".")).to_owned()
    }

    /// Where in its file this node has put its bytes.
    pub(super) fn stretch(&self) -> Result<Range<u64>, Error> {
        self.sink.stretch().map_err(|hole| Error::Proof(hole.to_string()))
    }

    /// Gives the file its name. `all` are the bytes of all nodes, `part` those of this one.
    pub(super) fn commit(self, all: u64, part: u64) -> Result<(), Error> {
        drop(self.sink);
        match self.output {
            Some(output) => Ok(output.commit(if self.shared { all } else { part })?),
            None => Ok(()),
        }
    }
}

/// Each node's part of the output, with the bytes that it has sorted, begins where those before it end: a file that all share has
/// no hole, and neither has one that a node has for itself, where the part is all of it.
pub(super) fn prove_places(
    shared: bool,
    parts: impl IntoIterator<Item = (u64, Range<u64>)>,
) -> Result<(), Error> {
    let mut start = 0;
    for (node, (bytes, came)) in parts.into_iter().enumerate() {
        // What is empty lies nowhere.
        if (bytes, came.is_empty()) == (0, true) {
            continue;
        }
        let wanted = start..start + bytes;
        if came != wanted {
            return Err(Error::Proof(format!("node {node} sorted the bytes {wanted:?} and wrote {came:?}")));
        }
        start = if shared { wanted.end } else { 0 };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_nodes_fill_their_file_without_a_hole() {
        let proven = |shared, parts: &[(u64, Range<u64>)]| {
            prove_places(shared, parts.iter().cloned()).map_err(|error| error.to_string())
        };
        assert_eq!(proven(true, &[(10, 0..10), (0, 0..0), (5, 10..15)]), Ok(()));
        assert_eq!(proven(false, &[(10, 0..10), (0, 0..0), (5, 0..5)]), Ok(()));
        let wrong = [
            (true, vec![(10, 0..10), (5, 11..16)], "node 1 sorted the bytes 10..15 and wrote 11..16"),
            (true, vec![(10, 0..10), (5, 0..5)], "node 1"),
            (true, vec![(10, 0..9), (5, 10..15)], "node 0"),
            (false, vec![(10, 0..10), (5, 10..15)], "node 1"),
            (false, vec![(10, 0..0)], "node 0"),
            (true, vec![(0, 0..10)], "node 0"),
        ];
        for (shared, parts, cause) in wrong {
            let told = proven(shared, &parts).unwrap_err();
            assert!(told.contains("the proof failed") && told.contains(cause), "{parts:?}: {told}");
        }
    }
}
