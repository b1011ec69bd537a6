//! Where a sort puts its records, and the last look at what came there before a file gets its name.
//!
//! The checksum is of records on their way to the sink. That the sink was given every byte of the file, and each of them once, is
//! shown here: a hole would be the zeros that the space was reserved with.

use viaduct_river::disk::{Direct, DiskSink, Output, StreamSink, Volume};
use viaduct_river::{EdgeCounts, Sink};

use crate::Error;
use crate::sort::{Settings, Target};

/// Outputs shorter than this go through the page cache, unless it is asked otherwise.
pub(crate) const DIRECT_FROM: u64 = 2 << 30;

/// Where the output of one node goes.
pub(crate) enum Destination {
    File(DiskSink, Output),
    Stream(StreamSink),
}

impl Destination {
    /// Opens `target` for about `len` bytes.
    pub(crate) fn open(target: Target, len: u64, settings: &Settings) -> Result<Destination, Error> {
        let path = match target {
            Target::Stream(name, stream) => {
                return Ok(Destination::Stream(StreamSink::new("output", &name, stream)));
            }
            Target::Path(path) => path,
        };
        let mut output = Output::create(&path)?;
        if settings.durable {
            output.make_durable();
        }
        output.reserve(len)?;
        let mut volume = Volume::of_files(vec![(path, output.file()?)], u64::MAX);
        if is_direct(settings, len) {
            volume.use_direct();
        }
        Ok(Destination::File(DiskSink::new("output", volume), output))
    }

    pub(crate) fn sink(&self) -> &dyn Sink {
        match self {
            Destination::File(sink, _) => sink,
            Destination::Stream(sink) => sink,
        }
    }

    /// The file that is written, if it is one.
    pub(crate) fn output(&self) -> Option<&Output> {
        match self {
            Destination::File(_, output) => Some(output),
            Destination::Stream(_) => None,
        }
    }

    /// All of `bytes` were put: waits until they are written and gives the file its name.
    pub(crate) fn conclude(self, bytes: u64) -> Result<EdgeCounts, Error> {
        self.sink().finish()?;
        let counts = self.sink().edge().counts();
        if let Destination::File(sink, output) = self {
            prove_whole(&sink, bytes)?;
            drop(sink);
            output.commit(bytes)?;
        }
        Ok(counts)
    }
}

/// Whether an output of `len` bytes is written past the page cache.
pub(crate) fn is_direct(settings: &Settings, len: u64) -> bool {
    settings.direct == Direct::On || settings.direct == Direct::Auto && len >= DIRECT_FROM
}

/// The sink was given each of the first `bytes` bytes of its file, and no others.
pub(crate) fn prove_whole(sink: &DiskSink, bytes: u64) -> Result<(), Error> {
    match sink.whole() {
        Ok(len) if len == bytes => Ok(()),
        Ok(len) => Err(Error::Proof(format!("{bytes} bytes were sorted and {len} written"))),
        Err(hole) => Err(Error::Proof(hole.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;
    use viaduct_river::Buffer;

    use super::*;

    fn put(sink: &dyn Sink, bytes: &[u8], position: u64) {
        let mut buffer = Buffer::heap(bytes.len());
        buffer.push_record(bytes);
        buffer.set_position(position);
        sink.put(buffer).unwrap();
    }

    #[test]
    fn an_output_with_a_hole_gets_no_name() {
        let folder = TempDir::new("sort-hole");
        let path = folder.join("out");
        // The pieces that come, and the length that the sort says.
        let cases: [(&[u64], u64, &str); 5] = [
            (&[0, 20], 30, "nothing came for the bytes from 10 to 20"),
            (&[10], 20, "nothing came for the bytes from 0 to 10"),
            (&[0, 10], 30, "30 bytes were sorted and 20 written"),
            (&[0, 10], 10, "10 bytes were sorted and 20 written"),
            (&[], 10, "10 bytes were sorted and 0 written"),
        ];
        for (places, len, cause) in cases {
            let target = Target::Path(path.clone());
            let destination = Destination::open(target, len, &Settings::default()).unwrap();
            places.iter().for_each(|&place| put(destination.sink(), b"ten bytes.", place));
            let told = destination.conclude(len).unwrap_err().to_string();
            assert!(told.contains("the proof failed") && told.contains(cause), "{told}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{told}");
        }
        let destination = Destination::open(Target::Path(path.clone()), 20, &Settings::default()).unwrap();
        [10, 0].iter().for_each(|&place| put(destination.sink(), b"ten bytes.", place));
        assert_eq!(destination.conclude(20).unwrap().bytes, 20);
        assert_eq!(std::fs::read(&path).unwrap(), b"ten bytes.ten bytes.");
    }
}
