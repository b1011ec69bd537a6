//! Text where records of one size are expected: found before anything is sorted.

use std::io::{Cursor, Read};
use std::path::Path;

use viaduct_river::disk::Volume;

use crate::Error;
use crate::merging::Open;
use crate::sort::{Records, Settings};

/// Bytes that are looked at.
const LOOK: usize = 16 << 10;

/// Whether bytes at the start of a file look like lines of text that are no records of `size` bytes.
pub fn looks_like_lines(bytes: &[u8], size: usize) -> bool {
    let printable = |byte: &u8| !matches!(byte, 0..=8 | 14..=31 | 127) || *byte == 27;
    let marks: Vec<usize> = memchr::memchr_iter(b'\n', bytes).collect();
    !marks.is_empty() && bytes.iter().all(printable) && marks.iter().any(|mark| mark % size != size - 1)
}

/// Refuses a file of text where `settings` say that records of one size are expected.
///
/// # Errors
/// If it is one, or cannot be read.
pub fn refuse_text(path: &Path, settings: &Settings) -> Result<(), Error> {
    let mut start = vec![0; LOOK];
    match Volume::open(path) {
        Ok(volume) if volume.is_regular() => {
            let got = volume.read_at(&mut start, 0)?;
            refuse_lines(&start[..got], path, settings)
        }
        _ => Ok(()),
    }
}

/// Refuses bytes at the start of an input that look like lines.
fn refuse_lines(start: &[u8], path: &Path, settings: &Settings) -> Result<(), Error> {
    let Records::Fixed { size, .. } = settings.records else { return Ok(()) };
    if !settings.refuse_text || !looks_like_lines(&start[..start.len().min(LOOK)], size) {
        return Ok(());
    }
    let name = path.display();
    Err(Error::Usage(format!(
        "{name} looks like text, not like records of {size} bytes; hint: --lines sorts lines, --record-size {size} insists"
    )))
}

/// A stream whose start was looked at, and which still gives it.
///
/// # Errors
/// If the start looks like lines where `settings` refuse these, or cannot be read.
pub(crate) fn looked_at((path, mut stream): Open, settings: &Settings) -> Result<Open, Error> {
    let mut start = Vec::new();
    let read = (&mut stream).take(LOOK as u64).read_to_end(&mut start);
    read.map_err(|error| viaduct_river::Error::file("reading", &path, error))?;
    refuse_lines(&start, &path, settings)?;
    Ok((path, Box::new(Cursor::new(start).chain(stream))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_text_is_refused_and_one_of_records_comes_whole() {
        let settings = Settings { refuse_text: true, ..Settings::default() };
        let open = |bytes: Vec<u8>| -> Open { ("stream".into(), Box::new(Cursor::new(bytes))) };
        let refused = looked_at(open(b"some line\n".repeat(5000)), &settings).map(|_| ());
        assert!(refused.unwrap_err().to_string().contains("--lines"));
        assert!(looked_at(open(b"some line\n".repeat(5000)), &Settings::default()).is_ok());
        let bytes: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
        let mut all = Vec::new();
        looked_at(open(bytes.clone()), &settings).unwrap().1.read_to_end(&mut all).unwrap();
        assert!(all == bytes);
    }
}
