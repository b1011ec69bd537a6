//! The output of nodes: a file for each, or one file in which each writes its part.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use viaduct_job::Job;
use viaduct_river::disk::{Direct, DiskSink, Output, Volume};

use super::names;
use crate::Error;
use crate::engine::DIRECT_FROM;
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
        let direct = settings.direct;
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
        if direct == Direct::On || direct == Direct::Auto && part >= DIRECT_FROM {
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

    /// Gives the file its name. `all` are the bytes of all nodes, `part` those of this one.
    pub(super) fn commit(self, all: u64, part: u64) -> Result<(), Error> {
        drop(self.sink);
        match self.output {
            Some(output) => Ok(output.commit(if self.shared { all } else { part })?),
            None => Ok(()),
        }
    }
}
