//! Which libraries a program asks for: enough of ELF to tell the programs of one MPI from those of another. Pure but for
//! reading the file. Nothing in a file can make it panic or read much.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const DYNAMIC: u32 = 2;
const LOAD: u32 = 1;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
/// Most bytes of a table that are looked at.
const MOST: u64 = 1 << 20;

/// The libraries that a program of 64 bits names, in the order of its list; none if it is something else.
pub fn needed(path: &Path) -> Vec<String> {
    File::open(path).ok().and_then(|mut file| read(&mut file)).unwrap_or_default()
}

/// A program as a shell finds it, with relative names below `folder`.
pub fn find(name: &str, folder: Option<&Path>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name)));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn read(file: &mut (impl Read + Seek)) -> Option<Vec<String>> {
    let head = piece(file, 0, 64)?;
    // ELF, 64 bits, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, size, count) = (number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?);
    let table = piece(file, at, size.checked_mul(count)?)?;
    let parts: Vec<&[u8]> =
        table.chunks_exact(usize::try_from(size).ok().filter(|&size| size >= 56)?).collect();
    let kind = |part: &[u8]| number(part, 0, 4).unwrap_or(0) as u32;
    let dynamic = parts.iter().find(|part| kind(part) == DYNAMIC)?;
    let entries = piece(file, number(dynamic, 8, 8)?, number(dynamic, 32, 8)?.min(MOST))?;
    let entries: Vec<(u64, u64)> = entries
        .chunks_exact(16)
        .map_while(|entry| Some((number(entry, 0, 8)?, number(entry, 8, 8)?)))
        .collect();
    let address = entries.iter().find(|(tag, _)| *tag == STRINGS)?.1;
    // Strings are named by their address in memory; a part of the file is loaded there.
    let (from, left) = parts.iter().filter(|part| kind(part) == LOAD).find_map(|part| {
        let (at, memory, len) = (number(part, 8, 8)?, number(part, 16, 8)?, number(part, 32, 8)?);
        let inside = address.checked_sub(memory).filter(|inside| *inside < len)?;
        Some((at.checked_add(inside)?, len - inside))
    })?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut strings = Vec::new();
    file.take(left.min(MOST)).read_to_end(&mut strings).ok()?;
    let name = |offset: u64| {
        let rest = strings.get(usize::try_from(offset).ok()?..)?;
        Some(String::from_utf8_lossy(rest.split(|&b| b == 0).next()?).into_owned())
    };
    Some(entries.iter().filter(|(tag, _)| *tag == NEEDED).filter_map(|(_, offset)| name(*offset)).collect())
}

fn piece(file: &mut (impl Read + Seek), at: u64, len: u64) -> Option<Vec<u8>> {
    file.seek(SeekFrom::Start(at)).ok()?;
    let mut bytes = vec![0; usize::try_from(len.min(MOST)).ok()?];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(len)?)?;
    Some(part.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_program_needs_its_libraries() {
        let list = needed(&std::env::current_exe().unwrap());
        assert!(list.iter().any(|name| name.starts_with("libc.so")), "{list:?}");
        assert!(needed(Path::new("/etc/passwd")).is_empty() && needed(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn names_are_found_as_a_shell_finds_them() {
        assert!(find("sh", None).is_some_and(|path| path.is_absolute()));
        assert_eq!(find("./x", Some(Path::new("/a"))), Some(PathBuf::from("/a/./x")));
        assert_eq!(find("no-such-program-here", None), None);
    }

    proptest! {
        /// Whatever is in a file, reading it ends.
        #[test]
        fn garbage_is_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), wild in any::<[u8; 8]>()) {
            let _ = read(&mut Cursor::new(&bytes));
            if bytes.len() >= 64 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
                bytes[32..40].copy_from_slice(&wild);
                let _ = read(&mut Cursor::new(&bytes));
                bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
                bytes[54..58].copy_from_slice(&[56, 0, 4, 0]);
                let _ = read(&mut Cursor::new(&bytes));
            }
        }
    }
}
