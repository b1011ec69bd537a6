//! Whether files are in order, with count and checksum, on all cores: what valsort 1.5 says.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use viaduct_river::disk::{Direct, DiskSource, Partial, StreamSource, Volume};
use viaduct_river::{Fixed, MemPool, Source};

use crate::Error;
pub use crate::summary::{Checked, KeyRule, Summary};

/// Bytes read at a time.
const ROOM: usize = 1 << 20;

/// How to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Check {
    /// Where the key lies.
    pub rule: KeyRule,
    /// Threads; 0 for as many as there are cores.
    pub threads: usize,
    /// Whether files are read past the page cache.
    pub direct: Direct,
}

impl Check {
    /// Checks files as one sequence of records.
    pub fn files(&self, paths: &[PathBuf]) -> Result<Summary, Error> {
        let volumes = paths.iter().map(|path| Volume::open(path)).collect::<Result<Vec<_>, _>>()?;
        if volumes.iter().any(|volume| !volume.is_regular()) {
            let open = |path: &PathBuf| -> Result<(PathBuf, Box<dyn Read + Send>), Error> {
                let file = std::fs::File::open(path);
                let file = file.map_err(|error| viaduct_river::Error::file("opening", path, error))?;
                Ok((path.clone(), Box::new(file)))
            };
            return self.streams(paths.iter().map(open).collect::<Result<_, _>>()?);
        }
        let format = Arc::new(Fixed(self.rule.record));
        let pool = self.pool()?;
        let source = DiskSource::new("input", volumes, format, pool, self.direct, Partial::Refuse)?;
        self.source(&source)
    }

    /// Checks streams as one sequence of records.
    pub fn streams(&self, inputs: Vec<(PathBuf, Box<dyn Read + Send>)>) -> Result<Summary, Error> {
        let format = Arc::new(Fixed(self.rule.record));
        let source = StreamSource::new("input", inputs, format, self.pool()?, Partial::Refuse);
        self.source(&source)
    }

    /// Joins the summaries in a file, which describe neighbouring runs.
    pub fn summaries(&self, path: &Path) -> Result<Summary, Error> {
        let bytes =
            std::fs::read(path).map_err(|error| viaduct_river::Error::file("reading", path, error))?;
        let (list, rest) = bytes.as_chunks::<{ crate::summary::BYTES }>();
        if list.is_empty() || !rest.is_empty() {
            let why = format!("{} bytes, not a multiple of {}", bytes.len(), crate::summary::BYTES);
            return Err(Error::Summary { path: path.to_owned(), why });
        }
        let mut whole = Summary::default();
        list.iter().for_each(|bytes| whole.join(&Summary::from_bytes(bytes), &self.rule));
        Ok(whole)
    }

    fn threads(&self) -> usize {
        if self.threads > 0 { self.threads } else { viaduct_os::cpu::count() }
    }

    fn pool(&self) -> Result<MemPool, Error> {
        // Direct reads keep up to eight buffers under way.
        let room = ROOM.max(self.rule.record);
        Ok(MemPool::new(self.threads() + 9, room)?)
    }

    fn source(&self, source: &dyn Source) -> Result<Summary, Error> {
        let parts = Mutex::new(BTreeMap::new());
        let look = || -> Result<(), viaduct_river::Error> {
            while let Some(buffer) = source.pull()? {
                let summary = Summary::of(buffer.data(), &self.rule);
                parts.lock().unwrap_or_else(PoisonError::into_inner).insert(buffer.sequence(), summary);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads()).map(|_| scope.spawn(look)).collect();
            let ends: Vec<_> =
                workers.into_iter().map(|worker| worker.join().expect("a check does not panic")).collect();
            ends.into_iter().collect::<Result<(), _>>()
        })?;
        let mut whole = Summary::default();
        let parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.values().for_each(|part| whole.join(part, &self.rule));
        Ok(whole)
    }
}
