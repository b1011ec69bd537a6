//! One file, or several that hold the blocks of one stream in turn.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use viaduct_os::files::{BLOCK, reopen_direct};

use crate::error::Error;

/// Files with one address space.
#[derive(Debug)]
pub struct Volume {
    parts: Vec<Part>,
    stripe: u64,
    len: u64,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: File,
    direct: Option<File>,
}

/// Where a byte of a volume lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    part: usize,
    offset: u64,
    /// Bytes that follow it there.
    run: u64,
}

impl Volume {
    /// Opens one file to be read.
    pub fn open(path: &Path) -> Result<Volume, Error> {
        Volume::open_striped(&[path.to_owned()], u64::MAX)
    }

    /// Opens files to be read that hold blocks of `stripe` bytes in turn.
    pub fn open_striped(paths: &[PathBuf], stripe: u64) -> Result<Volume, Error> {
        let open = |path: &PathBuf| {
            let file = File::open(path).map_err(|error| Error::file("opening", path, error))?;
            let kind = file.metadata().map_err(|error| Error::file("looking at", path, error))?;
            if kind.is_dir() {
                let error = io::Error::from(io::ErrorKind::IsADirectory);
                return Err(Error::file("reading", path, error));
            }
            Ok((Part { path: path.clone(), file, direct: None }, kind.len()))
        };
        let opened = paths.iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        let len = opened.iter().map(|(_, len)| len).sum();
        let parts = opened.into_iter().map(|(part, _)| part).collect();
        Ok(Volume { parts, stripe, len })
    }

    /// A volume of files that are open already, to be written or read; `path` is what messages call them.
    pub fn of_files(files: Vec<(PathBuf, File)>, stripe: u64) -> Volume {
        let parts = files.into_iter().map(|(path, file)| Part { path, file, direct: None }).collect();
        Volume { parts, stripe, len: 0 }
    }

    /// A file whose whole blocks go to `direct`, which need not be the file: a disk that fails.
    #[cfg(test)]
    pub(super) fn of_two(path: PathBuf, file: File, direct: File) -> Volume {
        Volume { parts: vec![Part { path, file, direct: Some(direct) }], stripe: u64::MAX, len: 0 }
    }

    /// Uses direct I/O for whole blocks from now on, where the file system has it.
    pub fn use_direct(&mut self) {
        self.parts.iter_mut().for_each(|part| part.direct = reopen_direct(&part.file));
    }

    /// Bytes that were there when the volume was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What messages call the file that holds `offset`.
    pub fn path_at(&self, offset: u64) -> &Path {
        &self.parts[self.place(offset).part].path
    }

    /// Whether all of the files are ordinary ones.
    pub fn is_regular(&self) -> bool {
        self.parts.iter().all(|part| part.file.metadata().is_ok_and(|kind| kind.is_file()))
    }

    /// How much is in the page cache, from 0 to 1; `None` if the kernel does not say.
    pub fn resident(&self) -> Option<f64> {
        let shares = self.parts.iter().map(|part| viaduct_os::files::resident(&part.file));
        shares.sum::<Option<f64>>().map(|sum| sum / self.parts.len() as f64)
    }

    pub(super) fn has_direct(&self) -> bool {
        self.parts.iter().all(|part| part.direct.is_some())
    }

    /// The direct descriptor and the offset in it, if `len` bytes at `offset` lie in one piece.
    pub(super) fn direct_at(&self, offset: u64, len: usize) -> Option<(&File, u64)> {
        let place = self.place(offset);
        let file = self.parts[place.part].direct.as_ref()?;
        (place.run >= len as u64 && place.offset.is_multiple_of(BLOCK as u64)).then_some((file, place.offset))
    }

    fn place(&self, offset: u64) -> Place {
        if self.parts.len() == 1 {
            return Place { part: 0, offset, run: u64::MAX };
        }
        let count = self.parts.len() as u64;
        let (block, within) = (offset / self.stripe, offset % self.stripe);
        let offset = block / count * self.stripe + within;
        Place { part: (block % count) as usize, offset, run: self.stripe - within }
    }

    /// Reads until `into` is full or the volume ends, through the page cache. Returns the bytes read.
    pub fn read_at(&self, mut into: &mut [u8], mut offset: u64) -> Result<usize, Error> {
        let wanted = into.len();
        while !into.is_empty() {
            let place = self.place(offset);
            let part = &self.parts[place.part];
            let len = into.len().min(usize::try_from(place.run).unwrap_or(usize::MAX));
            match part.file.read_at(&mut into[..len], place.offset) {
                Ok(0) => break,
                Ok(got) => {
                    into = &mut into[got..];
                    offset += got as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::file("reading", &part.path, error)),
            }
        }
        Ok(wanted - into.len())
    }

    /// As [`Volume::read_at`], past the page cache where that is on and the range allows it.
    pub fn read_block(&self, into: &mut [u8], offset: u64) -> Result<usize, Error> {
        let aligned = into.len().is_multiple_of(BLOCK) && (into.as_ptr() as usize).is_multiple_of(512);
        let got = match self.direct_at(offset, into.len()).filter(|_| aligned) {
            Some((file, at)) => file.read_at(into, at).unwrap_or(0),
            None => 0,
        };
        // What was refused or cut short is read the ordinary way, which also tells the cause.
        if got == into.len() {
            return Ok(got);
        }
        Ok(got + self.read_at(&mut into[got..], offset + got as u64)?)
    }

    /// Writes all of `from` at `offset`: whole blocks past the page cache where that is on, edges through it.
    pub fn write_at(&self, mut from: &[u8], mut offset: u64) -> Result<(), Error> {
        while !from.is_empty() {
            let place = self.place(offset);
            let part = &self.parts[place.part];
            let len = from.len().min(usize::try_from(place.run).unwrap_or(usize::MAX));
            let (piece, rest) = from.split_at(len);
            part.write(piece, place.offset).map_err(|error| Error::file("writing", &part.path, error))?;
            from = rest;
            offset += len as u64;
        }
        Ok(())
    }

    /// Waits until everything is on disk.
    pub fn sync(&self) -> Result<(), Error> {
        for part in &self.parts {
            part.file.sync_data().map_err(|error| Error::file("writing", &part.path, error))?;
        }
        Ok(())
    }
}

impl Part {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(direct) = &self.direct else { return self.file.write_all_at(bytes, offset) };
        let head = (offset.next_multiple_of(BLOCK as u64) - offset) as usize;
        // Memory that is not aligned like the file cannot be written past the cache.
        let address = bytes.as_ptr() as usize + head;
        if head >= bytes.len() || !address.is_multiple_of(512) {
            return self.file.write_all_at(bytes, offset);
        }
        let (edge, rest) = bytes.split_at(head);
        let (middle, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
        let middle_at = offset + head as u64;
        self.file.write_all_at(edge, offset)?;
        match direct.write_all_at(middle, middle_at) {
            // Offered at open, refused now.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.file.write_all_at(middle, middle_at)?;
            }
            other => other?,
        }
        self.file.write_all_at(tail, middle_at + middle.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_lie_in_turn() {
        let files = (0..3).map(|n| {
            let file = viaduct_os::files::temporary(&std::env::temp_dir()).unwrap();
            (PathBuf::from(format!("part {n}")), file)
        });
        let volume = Volume::of_files(files.collect(), 10);
        let bytes: Vec<u8> = (0..95).collect();
        volume.write_at(&bytes, 0).unwrap();
        let mut back = vec![0; 95];
        assert_eq!(volume.read_at(&mut back, 0).unwrap(), 95);
        assert_eq!(back, bytes);
        let mut piece = [0; 10];
        volume.parts[1].file.read_exact_at(&mut piece, 10).unwrap();
        assert_eq!(piece[0], 40);
        assert_eq!(volume.path_at(25), Path::new("part 2"));
    }
}
